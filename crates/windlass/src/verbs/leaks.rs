//! `windlass leaks`: what the clouds may hold that nothing owns: changes of which nobody knows whether they happened, and, where
//! the director of a built-in cloud is on this machine, what that cloud has and the director does not know.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::json;
use windlass_cloud_local::LocalCloud;
use windlass_director_client::answers::{Known, Leak};

use crate::cli::{Global, LeaksArgs};
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;

/// Something in a cloud.
struct Held {
    cloud: &'static str,
    kind: String,
    cid: String,
    /// What directors named it with.
    metadata: BTreeMap<String, String>,
}

pub(crate) async fn run(session: &mut Session<'_>, flags: &Global, arguments: &LeaksArgs) -> Result<(), Failure> {
    let leaks: Vec<Leak> = session.director.get("/windlass/leaks").await.while_("listing leaks")?;
    // What the clouds have is looked at before the records, so that nothing that is being made looks like a leak.
    let mut held = held(flags).await?;
    let known: Known = session.director.get("/windlass/known").await.while_("listing what is known")?;
    held.retain(|held| !known.has(&held.kind, &held.cid));
    if !arguments.delete.is_empty() {
        return delete(session, arguments, &held).await;
    }
    in_order_of_repair(&mut held);
    let mut rows: Vec<Vec<String>> =
        leaks.into_iter().map(|leak| vec![leak.request_id, leak.cpi, leak.method, leak.subject, leak.why]).collect();
    let commands: Vec<String> = held.iter().map(|held| format!("  {}", command(held))).collect();
    for held in held {
        let (subject, why) = (format!("{} {}", held.kind, held.cid), why(&held));
        rows.push(vec![String::new(), held.cloud.to_owned(), String::new(), subject, why]);
    }
    session.screen.table(&Table {
        content: "possible leaks",
        header: vec!["Request ID", "CPI", "Method", "Subject", "Why"],
        rows,
        ..Table::default()
    });
    if !commands.is_empty() && session.screen.is_for_people() {
        // Tables have ids short, and these are to be copied.
        session.screen.line("What helps, in this order; a disk is given to an instance that is deployed and stopped:");
        commands.iter().for_each(|command| session.screen.continue_line(command));
    }
    Ok(())
}

/// A VM keeps its address and its disk from those who would get them, so it goes first.
fn in_order_of_repair(held: &mut [Held]) {
    held.sort_by_key(|held| held.kind == "disk");
}

/// What can be done about it: a disk is given back, anything else is deleted.
fn command(held: &Held) -> String {
    match (held.kind.as_str(), held.owner()) {
        ("disk", Some((deployment, instance))) => {
            format!("windlass -d {deployment} attach-disk {instance} {}", held.cid)
        }
        _ => format!("windlass leaks --delete {}", held.cid),
    }
}

impl Held {
    /// The deployment and the instance that it was of, as far as it is named so.
    fn owner(&self) -> Option<(&str, String)> {
        let said = |key: &str| self.metadata.get(key).filter(|text| !text.is_empty());
        let instance = said("instance_name").cloned().or_else(|| {
            match (said("job").or(said("instance_group")), said("instance_id").or(said("id"))) {
                (Some(job), Some(id)) => Some(format!("{job}/{id}")),
                _ => None,
            }
        });
        Some((said("deployment")?.as_str(), instance?))
    }
}

/// With what can be done about it.
fn why(held: &Held) -> String {
    let unknown = "the cloud has it, and the director does not know it";
    let does = if held.kind == "disk" && held.owner().is_some() { "gives it back" } else { "deletes it" };
    let owner = match held.owner() {
        Some((deployment, instance)) if held.kind != "disk" => format!("; it was of {instance} in {deployment}"),
        _ => String::new(),
    };
    format!("{unknown}{owner}; '{}' {does}", command(held))
}

/// Only what was listed, so that nobody deletes by a slip what somebody owns; the director looks again.
async fn delete(session: &mut Session<'_>, arguments: &LeaksArgs, held: &[Held]) -> Result<(), Failure> {
    let mut chosen = Vec::new();
    for cid in &arguments.delete {
        match held.iter().find(|held| held.cid == *cid) {
            Some(held) => chosen.push(held),
            None => return Err(Failure::NoLeak(cid.clone())),
        }
    }
    for held in &chosen {
        session.screen.line(&format!("{} {} will be deleted", held.kind, held.cid));
    }
    session.confirm()?;
    for held in chosen {
        let doing = format!("deleting {} '{}'", held.kind, held.cid);
        let leak = json!({"cpi": arguments.cpi, "kind": held.kind, "cid": held.cid});
        let call = Call::new(Method::POST, "/windlass/leaks/deletions".to_owned()).with_json(leak);
        session.carry_out(call, &doing).await?;
    }
    Ok(())
}

/// Everything that the built-in clouds of the director on this machine have.
async fn held(flags: &Global) -> Result<Vec<Held>, Failure> {
    let Some(state_dir) = director_here(flags) else { return Ok(Vec::new()) };
    let [local, incus, sim] = ["local", "incus", "sim"].map(|name| state_dir.join("cpi").join(format!("{name}.json")));
    let mut held = Vec::new();
    if local.exists() {
        for resource in LocalCloud::configured(&local)?.status()?.resources {
            let (kind, cid, metadata) = (resource.kind.to_owned(), resource.cid, resource.metadata);
            held.push(Held { cloud: "local", kind, cid, metadata });
        }
    }
    if incus.exists() {
        for resource in windlass_cloud_incus::operator::list(&incus).await? {
            let (kind, cid, metadata) = (resource.kind.to_owned(), resource.cid, resource.metadata);
            held.push(Held { cloud: "incus", kind, cid, metadata });
        }
    }
    if sim.exists() {
        let sim = windlass_cloud_sim::status(Some(&sim))?;
        let of = |kind: &str, cid: String| Held { cloud: "sim", kind: kind.to_owned(), cid, metadata: BTreeMap::new() };
        held.extend(sim.vms.into_iter().map(|it| of("vm", it.cid.to_string())));
        held.extend(sim.disks.into_iter().map(|it| of("disk", it.cid.to_string())));
        held.extend(sim.stemcells.into_iter().map(|it| of("stemcell", it.cid.to_string())));
        held.extend(sim.snapshots.into_iter().map(|it| of("snapshot", it.cid.to_string())));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_says_whose_it_was_can_be_given_back() {
        let held = |kind: &str, metadata: &[(&str, &str)]| Held {
            cloud: "incus",
            kind: kind.to_owned(),
            cid: "fast:disk-1".to_owned(),
            metadata: metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let named = [("deployment", "shop"), ("job", "web"), ("instance_id", "u-1")];
        let words = why(&held("disk", &named));
        assert!(words.ends_with("'windlass -d shop attach-disk web/u-1 fast:disk-1' gives it back"), "{words}");
        let words = why(&held("vm", &named));
        assert!(
            words.ends_with("it was of web/u-1 in shop; 'windlass leaks --delete fast:disk-1' deletes it"),
            "{words}"
        );
        let words = why(&held("disk", &[]));
        assert!(words.ends_with("does not know it; 'windlass leaks --delete fast:disk-1' deletes it"), "{words}");
        let mut both = vec![held("disk", &named), held("vm", &named)];
        in_order_of_repair(&mut both);
        assert_eq!(both.first().map(|first| first.kind.as_str()), Some("vm"), "it has the disk, and the address");
    }
}
