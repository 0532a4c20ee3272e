//! `windlass sim`: what there is in the simulated cloud.

use std::path::Path;

use windlass_cloud_sim::Inventory;
use windlass_contract::cpi::CpiError;
use windlass_contract::{DiskCid, VmCid};

use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

pub(crate) fn status(screen: &mut Screen, config: Option<&Path>) -> Result<(), Failure> {
    screen.table(&table(windlass_cloud_sim::status(config)?));
    Ok(())
}

pub(crate) fn list(screen: &mut Screen, config: Option<&Path>) -> Result<(), Failure> {
    let cids = table(windlass_cloud_sim::status(config)?).rows.into_iter().map(|row| format!("{}\n", row[CID]));
    screen.block(&cids.collect::<String>());
    Ok(())
}

pub(crate) fn disk_size(screen: &mut Screen, config: Option<&Path>, cid: &DiskCid) -> Result<(), Failure> {
    let disks = windlass_cloud_sim::status(config)?.disks;
    let disk = disks.iter().find(|disk| disk.cid == *cid).ok_or_else(|| CpiError::disk_not_found(cid))?;
    screen.block(&format!("{}\n", disk.size_mib));
    Ok(())
}

pub(crate) fn settings(screen: &mut Screen, config: Option<&Path>, vm: &VmCid) -> Result<(), Failure> {
    let settings = windlass_cloud_sim::settings(config, vm)?;
    screen.block(&format!("{settings:#}\n"));
    Ok(())
}

/// The column of cids.
const CID: usize = 1;

fn table(inventory: Inventory) -> Table {
    let row = |kind: &str, cid: &str, size: String, vm: String, details: String| {
        vec![kind.to_owned(), cid.to_owned(), size, vm, details]
    };
    let mut rows = Vec::new();
    for it in inventory.stemcells {
        rows.push(row("stemcell", it.cid.as_str(), formats::size(it.image_bytes), String::new(), String::new()));
    }
    for it in inventory.vms {
        let addresses: Vec<String> = it.addresses.iter().map(|address| address.ip.to_string()).collect();
        rows.push(row("vm", it.cid.as_str(), String::new(), String::new(), addresses.join("\n")));
    }
    for it in inventory.disks {
        let vm = it.attached_to.map(String::from).unwrap_or_default();
        rows.push(row("disk", it.cid.as_str(), formats::size_mib(it.size_mib), vm, String::new()));
    }
    for it in inventory.snapshots {
        rows.push(row("snapshot", it.cid.as_str(), formats::size_mib(it.size_mib), String::new(), it.disk_cid.into()));
    }
    for it in inventory.networks {
        rows.push(row("network", it.cid.as_str(), String::new(), String::new(), it.range.to_string()));
    }
    // The order of folders is nobody's.
    rows.sort();
    Table { content: "resources", header: vec!["Kind", "CID", "Size", "VM", "Details"], rows, ..Table::default() }
}
