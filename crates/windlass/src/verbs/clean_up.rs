//! `windlass clean-up`: what nothing uses goes.

use reqwest::Method;
use serde_json::json;
use windlass_director_client::answers::CleanUpPlan;

use crate::cli::CleanUpArgs;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>, arguments: &CleanUpArgs) -> Result<(), Failure> {
    let (all, keep) = (arguments.all, arguments.keep_orphaned_disks);
    if arguments.dry_run {
        let path = format!("/cleanup/dryrun?remove_all={all}&keep_orphaned_disks={keep}");
        let plan: CleanUpPlan = session.director.get(&path).await.while_("looking for what nothing uses")?;
        let mut tables = tables(plan);
        if session.screen.is_live() {
            // BOSH shows a table for everything that there could be.
            tables.retain(|table| !table.rows.is_empty());
            if tables.is_empty() {
                session.screen.line("There is nothing to remove");
            }
        }
        tables.iter().for_each(|table| session.screen.table(table));
        return Ok(());
    }
    session.confirm()?;
    let config = json!({"config": {"remove_all": all, "keep_orphaned_disks": keep}});
    let call = Call::new(Method::POST, "/cleanup").with_json(config);
    session.carry_out(call, "cleaning up").await.map(|_| ())
}

fn tables(plan: CleanUpPlan) -> Vec<Table> {
    let releases = plan.releases.into_iter();
    let releases = releases
        .flat_map(|release| release.versions.into_iter().map(move |version| vec![release.name.clone(), version]));
    let stemcells = plan.stemcells.into_iter().map(|stemcell| vec![stemcell.name, stemcell.version]);
    let packages = plan.compiled_packages.into_iter();
    let packages = packages.map(|package| vec![package.name, package.stemcell_os, package.stemcell_version]);
    let disks = plan.orphaned_disks.into_iter();
    let disks =
        disks.map(|disk| vec![disk.disk_cid, disk.deployment_name, disk.instance_name, disk.size.0.to_string()]);
    let vms = plan.orphaned_vms.into_iter().map(|vm| vec![vm.cid, vm.deployment_name, vm.instance_name]);
    let blobs = |ids: Vec<String>| ids.into_iter().map(|id| vec![id]).collect();
    // BOSH has no such table, so it is printed only where it has rows.
    let unreferenced = (!plan.unreferenced_blobs.is_empty())
        .then(|| listed("Unreferenced Blobs", &["Blob"], blobs(plan.unreferenced_blobs)));
    [
        listed("Unused Releases", &["Name", "Version"], releases.collect()),
        listed("Unused Stemcells", &["Name", "Version"], stemcells.collect()),
        listed("Unused Compiled Packages", &["Name", "Stemcell OS", "Stemcell Version"], packages.collect()),
        listed("Exported Releases", &["Blob ID"], blobs(plan.exported_releases)),
        listed("Stale DNS Record Blobs", &["Blob ID"], blobs(plan.dns_blobs)),
        listed("Orphaned Disks", &["Disk CID", "Deployment", "Instance", "Size (mb)"], disks.collect()),
        listed("Orphaned VMs", &["VM CID", "Deployment", "Instance"], vms.collect()),
    ]
    .into_iter()
    .chain(unreferenced)
    .collect()
}

fn listed(title: &str, header: &[&'static str], mut rows: Vec<Vec<String>>) -> Table {
    rows.sort_by(|a, b| a[0].cmp(&b[0]));
    Table { title: Some(title.to_owned()), header: header.to_vec(), rows, ..Table::default() }
}
