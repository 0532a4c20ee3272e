//! `windlass leaks`: what the clouds may hold that nothing owns: changes of which nobody knows whether they happened, and, where
//! a built-in cloud is on this machine, what it has and the director does not know.

use std::path::PathBuf;

use windlass_cloud_local::LocalCloud;

use crate::cli::Global;
use crate::director_answers::{Known, Leak};
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>, flags: &Global) -> Result<(), Failure> {
    let leaks: Vec<Leak> = session.director.get("/windlass/leaks").await.while_("listing leaks")?;
    // What the clouds have is looked at before the records, so that nothing that is being made looks like a leak.
    let held = held(flags)?;
    let known: Known = session.director.get("/windlass/known").await.while_("listing what is known")?;
    let mut rows: Vec<Vec<String>> =
        leaks.into_iter().map(|leak| vec![leak.request_id, leak.cpi, leak.method, leak.subject, leak.why]).collect();
    for (cloud, kind, cid) in held {
        if !known.has(&kind, &cid) {
            let (subject, why) = (format!("{kind} {cid}"), "the cloud has it, and the director does not know it");
            rows.push(vec![String::new(), cloud.to_owned(), String::new(), subject, why.to_owned()]);
        }
    }
    session.screen.table(&Table {
        content: "possible leaks",
        header: vec!["Request ID", "CPI", "Method", "Subject", "Why"],
        rows,
        ..Table::default()
    });
    Ok(())
}

/// The cloud, kind and cid of everything that the built-in clouds of the director on this machine have.
fn held(flags: &Global) -> Result<Vec<(&'static str, String, String)>, Failure> {
    let Some(state_dir) = director_here(flags) else { return Ok(Vec::new()) };
    let (local, sim) = (state_dir.join("cpi/local.json"), state_dir.join("cpi/sim.json"));
    let mut held = Vec::new();
    if local.exists() {
        let resources = LocalCloud::configured(&local)?.status()?.resources;
        held.extend(resources.into_iter().map(|resource| ("local", resource.kind.to_owned(), resource.cid)));
    }
    if sim.exists() {
        let sim = windlass_cloud_sim::status(Some(&sim))?;
        held.extend(sim.vms.into_iter().map(|it| ("sim", "vm".to_owned(), it.cid.to_string())));
        held.extend(sim.disks.into_iter().map(|it| ("sim", "disk".to_owned(), it.cid.to_string())));
        held.extend(sim.stemcells.into_iter().map(|it| ("sim", "stemcell".to_owned(), it.cid.to_string())));
        held.extend(sim.snapshots.into_iter().map(|it| ("sim", "snapshot".to_owned(), it.cid.to_string())));
    }
    Ok(held)
}

/// The state directory of the director that is talked to, if it is on this machine.
fn director_here(flags: &Global) -> Option<PathBuf> {
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default)?;
    let env_sh = std::fs::read_to_string(state_dir.join("env.sh")).ok()?;
    let named = flags.environment.clone().or_else(|| std::env::var("BOSH_ENVIRONMENT").ok());
    named.is_none_or(|url| !url.is_empty() && env_sh.contains(&format!("'{url}'"))).then_some(state_dir)
}
