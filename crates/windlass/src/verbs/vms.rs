//! `windlass vms`: the VMs of a deployment, or of all.

use windlass_director_client::answers::InstanceInfo;

use crate::cli::VmsArgs;
use crate::failure::Failure;
use crate::session::Session;
use crate::table::Table;
use crate::verbs::instance_table::Columns;
use crate::verbs::instances;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &VmsArgs) -> Result<(), Failure> {
    for (deployment, found) in instances::ask_all(session, "vms").await? {
        session.screen.table(&table(&deployment, found, arguments));
    }
    Ok(())
}

fn table(deployment: &str, mut vms: Vec<InstanceInfo>, arguments: &VmsArgs) -> Table {
    vms.sort_by_key(InstanceInfo::slug);
    let columns = Columns {
        vm: true,
        cloud_properties: arguments.cloud_properties,
        vitals: arguments.vitals,
        ..Columns::default()
    };
    let rows: Vec<_> = vms.iter().map(|vm| columns.instance(deployment, vm)).collect();
    Table {
        content: "vms",
        title: Some(format!("Deployment '{deployment}'")),
        header: columns.header(),
        shown_rows: rows.iter().zip(&vms).map(|(row, vm)| columns.shown(row.clone(), vm)).collect(),
        rows,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_are_shown_as_by_the_original() {
        let line = r#"{"vm_cid":"15335","active":true,"vm_created_at":"2026-11-15T19:15:41Z","cloud_properties":{},"disk_cid":"6b60","disk_cids":["6b60"],"ips":["10.244.0.10"],"agent_id":"7a94","job_name":"web","index":0,"job_state":"running","state":"started","vm_type":"small","az":"z1","id":"3298","bootstrap":true,"ignore":false,"stemcell":{"name":"ubuntu-stemcell","version":"1","api_version":null},"processes":[{"name":"process-1","state":"running"}]}"#;
        let arguments = VmsArgs { vitals: false, cloud_properties: false };
        let table = table("shop", vec![serde_json::from_str(line).unwrap()], &arguments);
        let expected = "web/3298\trunning\tz1\t10.244.0.10\t15335\tsmall\ttrue\tubuntu-stemcell/1\t\n";
        assert_eq!(table.for_scripts(), expected);
        assert!(table.for_people(str::to_owned).starts_with("Deployment 'shop'\n\nInstance  Process State  AZ  IPs "));
    }
}
