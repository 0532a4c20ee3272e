//! `windlass sim`: hosts the agents of the simulated cloud, and shows what there is in it.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use windlass_cloud_sim::Inventory;
use windlass_cloud_sim::agents::{self, Stay};
use windlass_cloud_sim::records::VmRecord;
use windlass_contract::cpi::CpiError;
use windlass_contract::{DiskCid, MiB, Object, VmCid};

use crate::cli::{Global, LogFormat, SimVerb};
use crate::failure::{Failure, chain};
use crate::foreground::{log_to_stderr, say};
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

/// Hosts the agents in the foreground.
pub(crate) fn host(flags: &Global, config: Option<&Path>) -> ExitCode {
    log_to_stderr(LogFormat::Text);
    let hosted = match &flags.state_dir {
        Some(state) => std::path::absolute(state).map_err(|error| Failure::Process("cannot find this folder", error)),
        None => windlass_cloud_sim::state_dir(config).map_err(Failure::from),
    }
    .and_then(|state| Ok(agents::host(&state, Stay::UntilToldToEnd, |vms| announce(&state, vms))?));
    match hosted {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Hosts the agents for CPI calls, which start it.
pub(crate) fn host_on_demand(state: &Path) -> ExitCode {
    log_to_stderr(LogFormat::Text);
    windlass_cloud_sim::sim_host(state)
}

fn announce(state: &Path, vms: &[VmRecord]) {
    let mut text = format!("Hosting the agents of {} simulated VMs in {}\n", vms.len(), state.display());
    for vm in vms {
        text.push_str(&format!("  {}  {}\n", vm.cid, agent_of(vm)));
    }
    text.push_str("Ctrl-C ends them; the next CPI call that needs them starts them again.");
    say(&text);
}

/// Where the agent of a VM is, or why nowhere.
fn agent_of(vm: &VmRecord) -> String {
    match vm.agent_address() {
        _ if vm.is_off => "off".to_owned(),
        _ if vm.agent.never_up => "no agent: it never comes up".to_owned(),
        None => "no agent: no loopback address".to_owned(),
        Some(address) => format!("agent at {address}"),
    }
}

/// The verbs that end by themselves.
pub(crate) fn look(screen: &mut Screen, verb: SimVerb) -> Result<(), Failure> {
    match verb {
        SimVerb::Status { config } => status(screen, config.as_deref()),
        SimVerb::List { config } => list(screen, config.as_deref()),
        SimVerb::DiskSize { disk_cid, config } => disk_size(screen, config.as_deref(), &disk_cid),
        SimVerb::Kill { vm_cid, config } => Ok(windlass_cloud_sim::kill(config.as_deref(), &vm_cid)?),
        SimVerb::Settings { vm_cid, config } => settings(screen, config.as_deref(), &vm_cid),
    }
}

fn status(screen: &mut Screen, config: Option<&Path>) -> Result<(), Failure> {
    screen.table(&table(windlass_cloud_sim::status(config)?));
    Ok(())
}

fn list(screen: &mut Screen, config: Option<&Path>) -> Result<(), Failure> {
    let cids = table(windlass_cloud_sim::status(config)?).rows.into_iter().map(|row| format!("{}\n", row[CID]));
    screen.block(&cids.collect::<String>());
    Ok(())
}

fn disk_size(screen: &mut Screen, config: Option<&Path>, cid: &DiskCid) -> Result<(), Failure> {
    let disks = windlass_cloud_sim::status(config)?.disks;
    let disk = disks.iter().find(|disk| disk.cid == *cid).ok_or_else(|| CpiError::disk_not_found(cid))?;
    screen.block(&format!("{}\n", disk.size_mib));
    Ok(())
}

fn settings(screen: &mut Screen, config: Option<&Path>, vm: &VmCid) -> Result<(), Failure> {
    let settings = windlass_cloud_sim::settings(config, vm)?;
    screen.block(&format!("{settings:#}\n"));
    Ok(())
}

/// The column of cids.
const CID: usize = 1;

fn table(inventory: Inventory) -> Table {
    let row = |kind: &str, cid: &str, size: String, vm: String, details: String, metadata: Object| {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = metadata.get("name").map(text).unwrap_or_default();
        let mut metadata: Vec<String> = metadata.iter().map(|(key, value)| format!("{key}: {}", text(value))).collect();
        metadata.sort();
        vec![kind.to_owned(), cid.to_owned(), size, vm, details, name, metadata.join("\n")]
    };
    let none = Object::new;
    let mut rows = Vec::new();
    for it in inventory.stemcells {
        rows.push(row(
            "stemcell",
            it.cid.as_str(),
            formats::size(it.image_bytes),
            String::new(),
            String::new(),
            none(),
        ));
    }
    for it in inventory.vms {
        let mut details: Vec<String> = it.addresses.iter().map(|address| address.ip.to_string()).collect();
        details.push(agent_of(&it));
        rows.push(row("vm", it.cid.as_str(), String::new(), String::new(), details.join("\n"), it.metadata));
    }
    for it in inventory.disks {
        let vm = it.attached_to.map(String::from).unwrap_or_default();
        rows.push(row("disk", it.cid.as_str(), formats::size_mib(MiB(it.size_mib)), vm, String::new(), it.metadata));
    }
    for it in inventory.snapshots {
        let size = formats::size_mib(MiB(it.size_mib));
        rows.push(row("snapshot", it.cid.as_str(), size, String::new(), it.disk_cid.into(), it.metadata));
    }
    for it in inventory.networks {
        rows.push(row("network", it.cid.as_str(), String::new(), String::new(), it.range.to_string(), none()));
    }
    // Folders are listed in no order.
    rows.sort();
    let header = vec!["Kind", "CID", "Size", "VM", "Details", "Name", "Metadata"];
    Table { content: "resources", header, rows, ..Table::default() }
}
