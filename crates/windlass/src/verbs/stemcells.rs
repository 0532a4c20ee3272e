//! `windlass stemcells`: what VMs can be made from.

use std::cmp::Ordering;

use windlass_director_client::answers::Stemcell;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let stemcells = session.director.get("/stemcells").await.while_("listing stemcells")?;
    session.screen.table(&table(stemcells));
    Ok(())
}

fn table(mut stemcells: Vec<Stemcell>) -> Table {
    stemcells.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| compare_versions(&b.version, &a.version)));
    let row = |stemcell: Stemcell| {
        let deployed = if stemcell.deployments.is_empty() { "" } else { "*" };
        let version = format!("{}{deployed}", stemcell.version);
        vec![stemcell.name, version, stemcell.operating_system, stemcell.cpi, stemcell.cid]
    };
    Table {
        content: "stemcells",
        header: vec!["Name", "Version", "OS", "CPI", "CID"],
        rows: stemcells.into_iter().map(row).collect(),
        notes: vec!["(*) Currently deployed"],
        ..Table::default()
    }
}

/// Part by part: numbers as numbers, the rest as text.
pub(super) fn compare_versions(a: &str, b: &str) -> Ordering {
    let mut parts = (a.split(['.', '-', '+']), b.split(['.', '-', '+']));
    loop {
        let order = match (parts.0.next(), parts.1.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                _ => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first_and_what_is_in_use_is_marked() {
        let stemcells = r#"[{"name":"u","operating_system":"os","version":"1.9","cid":"a","cpi":"","deployments":[{"name":"shop"}],"api_version":null,"id":1},
            {"name":"u","operating_system":"os","version":"1.10","cid":"b","cpi":"","deployments":[],"api_version":3,"id":2}]"#;
        let table = table(serde_json::from_str(stemcells).unwrap());
        assert_eq!(table.for_scripts(), "u\t1.10\tos\t-\tb\t\nu\t1.9*\tos\t-\ta\t\n");
    }
}
