//! `windlass orphaned-vms`: VMs that were replaced and are not deleted yet.

use windlass_director_client::answers::OrphanedVm;

use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let vms = session.director.get("/orphaned_vms").await.while_("listing orphaned VMs")?;
    session.screen.table(&table(vms));
    Ok(())
}

fn table(mut vms: Vec<OrphanedVm>) -> Table {
    // The newest first; their times have a form that sorts.
    vms.sort_by(|a, b| b.orphaned_at.cmp(&a.orphaned_at));
    let row = |vm: OrphanedVm| {
        let since = formats::date_of_director(&vm.orphaned_at);
        vec![vm.cid, vm.deployment_name, vm.instance_name, vm.az, vm.ip_addresses.join("\n"), since]
    };
    Table {
        content: "orphaned_vms",
        header: vec!["VM CID", "Deployment", "Instance", "AZ", "IPs", "Orphaned At"],
        rows: vms.into_iter().map(row).collect(),
        ..Table::default()
    }
}
