//! `windlass local`: the embedded cloud, seen and tidied up by an operator.

use windlass_cloud_local::LocalCloud;
use windlass_cloud_local::operator::{Problem, Resource, Secrets};
use windlass_contract::cpi::CpiError;
use windlass_contract::{MiB, VmCid};

use crate::cli::{Global, LocalCloudArgs, LocalVerb};
use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

pub(crate) fn run(screen: &mut Screen, flags: &Global, verb: LocalVerb) -> Result<(), Failure> {
    match verb {
        LocalVerb::Status { cloud } => status(screen, &open(flags, &cloud)?),
        LocalVerb::Gc { cloud } => gc(screen, &open(flags, &cloud)?),
        LocalVerb::Kill { vm_cid, cloud } => kill(screen, &open(flags, &cloud)?, &vm_cid),
        LocalVerb::Settings { vm_cid, secrets, cloud } => {
            let secrets = if secrets { Secrets::Shown } else { Secrets::Hidden };
            screen.block(&format!("{:#}\n", open(flags, &cloud)?.settings(&vm_cid, secrets)?));
            Ok(())
        }
        LocalVerb::List { cloud } => {
            let resources = open(flags, &cloud)?.status()?.resources;
            screen.block(&resources.iter().map(|it| format!("{}\n", it.cid)).collect::<String>());
            Ok(())
        }
        LocalVerb::DiskSize { disk_cid, cloud } => {
            let resources = open(flags, &cloud)?.status()?.resources;
            let disk = resources.iter().find(|it| it.kind == "disk" && it.cid == disk_cid.as_str());
            let size = disk.and_then(|disk| disk.size_mib).ok_or_else(|| CpiError::disk_not_found(&disk_cid))?;
            screen.block(&format!("{size}\n"));
            Ok(())
        }
    }
}

/// The cloud that is named, or that of the director here.
fn open(flags: &Global, cloud: &LocalCloudArgs) -> Result<LocalCloud, Failure> {
    if let Some(config) = &cloud.config {
        return Ok(LocalCloud::configured(config)?);
    }
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    let config = state_dir.join("cpi/local.json");
    Ok(if config.exists() {
        LocalCloud::configured(&config)?
    } else {
        LocalCloud::in_folder(&state_dir.join("cloud"))?
    })
}

fn status(screen: &mut Screen, cloud: &LocalCloud) -> Result<(), Failure> {
    let status = cloud.status()?;
    screen.table(&resources(status.resources));
    if !status.problems.is_empty() {
        screen.table(&problems(&status.problems));
    }
    Ok(())
}

fn gc(screen: &mut Screen, cloud: &LocalCloud) -> Result<(), Failure> {
    let mut garbage = cloud.status()?.problems;
    garbage.retain(Problem::is_garbage);
    if garbage.is_empty() {
        screen.line("Nothing is left over");
        return Ok(());
    }
    screen.table(&problems(&garbage));
    screen.confirm()?;
    let failures: Vec<CpiError> = garbage.iter().filter_map(|problem| cloud.collect(problem).err()).collect();
    match failures.first() {
        Some(first) => {
            Err(Failure::Garbage { failed: failures.len(), found: garbage.len(), first: first.message.clone() })
        }
        None => {
            screen.line(&format!("Removed or finished: {}", garbage.len()));
            Ok(())
        }
    }
}

fn kill(screen: &mut Screen, cloud: &LocalCloud, vm: &VmCid) -> Result<(), Failure> {
    cloud.kill(vm)?;
    screen.line(&format!("Killed {vm}"));
    Ok(())
}

fn resources(resources: Vec<Resource>) -> Table {
    let row = |it: Resource| {
        let size = it.size_mib.map(MiB).map(formats::size_mib).unwrap_or_default();
        let name = it.metadata.get("name").cloned().unwrap_or_default();
        let metadata: Vec<String> = it.metadata.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        vec![it.cid, it.kind.to_owned(), size, it.vm.unwrap_or_default(), it.details, name, metadata.join("\n")]
    };
    let rows = resources.into_iter().map(row).collect();
    let header = vec!["CID", "Kind", "Size", "VM", "Details", "Name", "Metadata"];
    Table { content: "resources", header, rows, ..Table::default() }
}

fn problems(problems: &[Problem]) -> Table {
    let row = |it: &Problem| vec![it.what.clone(), it.why.clone(), it.remedy().to_owned()];
    let rows = problems.iter().map(row).collect();
    Table { content: "problems", header: vec!["What", "Problem", "Remedy"], rows, ..Table::default() }
}
