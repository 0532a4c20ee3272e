//! `windlass instances`: what should run, and how it is.

use reqwest::Method;

use crate::director_answers::{Deployment, InstanceInfo};
use crate::director_client::{ClientError, escape};
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, details: bool) -> Result<(), Failure> {
    for deployment in deployments_to_list(session).await? {
        let found = ask(session, &deployment, "instances").await?;
        session.screen.table(&table(&deployment, found, details));
    }
    Ok(())
}

/// The named deployment, or all.
pub(super) async fn deployments_to_list(session: &Session<'_>) -> Result<Vec<String>, Failure> {
    if let Some(name) = session.named_deployment() {
        return Ok(vec![name.to_owned()]);
    }
    let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
    let mut all = session.director.get::<Vec<Deployment>>(path).await.while_("listing deployments")?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all.into_iter().map(|deployment| deployment.name).collect())
}

/// What a `vms` or `instances` task finds.
pub(super) async fn ask(session: &mut Session<'_>, deployment: &str, what: &str) -> Result<Vec<InstanceInfo>, Failure> {
    let doing = format!("listing the {what} of deployment '{deployment}'");
    let path = format!("/deployments/{}/{what}?format=full", escape(deployment));
    let task = session.director.begin(Method::GET, &path, None).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await?;
    let result = task_view::result(session, task, &doing).await?;
    let lines = result.lines().filter(|line| !line.trim().is_empty());
    let found = lines.map(|line| serde_json::from_str(line).map_err(ClientError::from_json));
    found.collect::<Result<_, _>>().while_(&doing)
}

fn table(deployment: &str, mut instances: Vec<InstanceInfo>, details: bool) -> Table {
    instances.sort_by_key(InstanceInfo::slug);
    let row = |instance: InstanceInfo| {
        let mut row = vec![
            instance.slug(),
            instance.process_state(),
            instance.az,
            instance.ips.join("\n"),
            deployment.to_owned(),
        ];
        if details {
            row.extend([
                instance.state,
                instance.vm_cid,
                instance.vm_type,
                instance.disk_cids.join("\n"),
                instance.agent_id,
                instance.index.map(|index| index.to_string()).unwrap_or_default(),
                instance.bootstrap.to_string(),
                instance.ignore.to_string(),
            ]);
        }
        row
    };
    let mut header = vec!["Instance", "Process State", "AZ", "IPs", "Deployment"];
    if details {
        header.extend(["State", "VM CID", "VM Type", "Disk CIDs", "Agent ID", "Index", "Bootstrap", "Ignore"]);
    }
    Table {
        content: "instances",
        title: Some(format!("Deployment '{deployment}'")),
        header,
        rows: instances.into_iter().map(row).collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_those_of_the_original() {
        let line = r#"{"vm_cid":null,"active":null,"disk_cids":["6b60"],"ips":[],"agent_id":null,"job_name":"web","index":0,"job_state":null,"state":"detached","vm_type":"small","az":"z1","id":"3298","bootstrap":true,"ignore":false,"stemcell":null,"processes":[]}"#;
        let found = || vec![serde_json::from_str(line).unwrap()];
        assert_eq!(table("shop", found(), false).for_scripts(), "web/3298\t-\tz1\t-\tshop\t\n");
        let expected = "web/3298\t-\tz1\t-\tshop\tdetached\t-\tsmall\t6b60\t-\t0\ttrue\tfalse\t\n";
        assert_eq!(table("shop", found(), true).for_scripts(), expected);
    }
}
