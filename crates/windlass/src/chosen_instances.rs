//! Which instances somebody means.

use std::net::IpAddr;

use serde_json::Value;
use windlass_director_client::escape;

use crate::cli::Selection;

use crate::failure::Failure;
use crate::session::{Session, While};

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) group: String,
    pub(crate) id: String,
    pub(crate) has_vm: bool,
    /// The first of its addresses.
    pub(crate) address: Option<IpAddr>,
}

/// The instances of a deployment that are selected, which may be none.
pub(crate) async fn chosen(
    session: &Session<'_>,
    deployment: &str,
    selection: Option<&Selection>,
) -> Result<Vec<Chosen>, Failure> {
    let path = format!("/deployments/{}/instances", escape(deployment));
    let instances: Vec<Value> = session.director.get(&path).await.while_("listing instances")?;
    Ok(among(&instances, selection))
}

fn among(instances: &[Value], selection: Option<&Selection>) -> Vec<Chosen> {
    let text = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_meant = |one: &Value| match selection {
        None => true,
        Some(Selection::Group(group)) => text(one, "job") == *group,
        Some(Selection::Instance(it)) => {
            let index = one.get("index").map(Value::to_string).unwrap_or_default();
            text(one, "job") == it.group && (text(one, "id") == it.id || index == it.id)
        }
    };
    let known = |one: &Value| Chosen {
        group: text(one, "job"),
        id: text(one, "id"),
        has_vm: one.get("cid").is_some_and(|cid| !cid.is_null()),
        address: one.pointer("/ips/0").and_then(Value::as_str).and_then(|address| address.parse().ok()),
    };
    instances.iter().filter(|one| is_meant(one)).map(known).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn instances_are_meant_by_group_id_and_index() {
        let instances = [
            json!({"job": "db", "id": "1f", "index": 0, "cid": "vm-1", "ips": ["10.0.0.2", "10.1.0.2"]}),
            json!({"job": "db", "id": "2f", "index": 1, "cid": null, "ips": []}),
            json!({"job": "web", "id": "3f", "index": 0, "cid": "vm-3", "ips": ["odd"]}),
        ];
        let ids = |words: Option<&str>| {
            let selection = words.map(|words| words.parse().unwrap());
            let chosen = among(&instances, selection.as_ref());
            chosen.into_iter().map(|one| one.id).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([ids(None), ids(Some("db")), ids(Some("db/1"))], ["1f 2f 3f", "1f 2f", "2f"]);
        assert_eq!([ids(Some("web/3f")), ids(Some("web/1")), ids(Some("we"))], ["3f", "", ""]);
        let all = among(&instances, None);
        assert_eq!(all.iter().map(|one| one.has_vm).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(all[0].address, Some("10.0.0.2".parse().unwrap()));
        assert_eq!((all[1].address, all[2].address), (None, None));
    }
}
