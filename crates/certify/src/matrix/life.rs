//! One VM from its creation to its end, in one row of the table: what was seen of it, and how that differs from the row.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_agent_client::{Agent, AgentAccess, AgentClient, Outcome};
use windlass_contract::{AgentId, DiskCid, DiskHint};
use windlass_pki::Authority;

use super::release::{self, ReleaseError};
use super::table::{Case, Client};
use super::watched_registry::WatchedRegistry;
use crate::answer::Answer;
use crate::check::NotPassed;
use crate::scene::Scene;

/// The share of its time to boot that a VM is given where one before it never answered.
const SHARE_OF_SILENT: u32 = 6;

/// What was seen in one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The request's version in `create_vm`, as it was sent.
    pub request_version: String,
    /// The stemcell's version in `create_vm`, as it was sent.
    pub stemcell_version: String,
    /// The shape of `create_vm`'s answer.
    pub create_vm: &'static str,
    /// The shape of `attach_disk`'s answer.
    pub attach_disk: &'static str,
    /// Writes that reached the registry.
    pub registry_writes: u64,
    /// Reads that reached the registry.
    pub registry_reads: u64,
    /// What the VM was given at its creation.
    pub user_metadata: &'static str,
    /// Where the agent found the disk.
    pub hint_from: &'static str,
    /// What a job made of the disk.
    pub job: &'static str,
}

/// What the cases of a run share.
pub(super) struct SharedRig<'a> {
    pub(super) runtime: &'a tokio::runtime::Runtime,
    pub(super) registry: &'a WatchedRegistry,
    pub(super) authority: &'a Authority,
    pub(super) agents: &'a AgentClient,
    /// Versions of the stemcells that somebody brought, with whatever programs they have. Those that are built have none.
    pub(super) with_programs: [bool; 2],
    /// Versions of stemcells, and whether with a registry, whose agents were waited for in vain.
    pub(super) silent: RefCell<BTreeSet<(u64, bool)>>,
}

/// A VM's life as it goes on.
pub(super) struct Life<'a> {
    shared: &'a SharedRig<'a>,
    scene: &'a Scene<'a>,
    case: Case,
    observed: Observed,
    differences: Vec<String>,
}

const UNSEEN: &str = "not observed";
/// What is said of jobs.
pub(super) const KEPT: &str = "wrote to the disk, and found it in a new VM";
const NO_JOBS: &str = "does not run in these VMs";
const FULL_SETTINGS: &str = "full settings";
const LOCATION: &str = "registry's location";
const REGISTRY: &str = "registry";
const CALLER: &str = "caller";

impl<'a> Life<'a> {
    pub(super) fn new(shared: &'a SharedRig<'a>, scene: &'a Scene<'a>, case: Case) -> Self {
        let observed = Observed {
            request_version: String::new(),
            stemcell_version: String::new(),
            create_vm: UNSEEN,
            attach_disk: UNSEEN,
            registry_writes: 0,
            registry_reads: 0,
            user_metadata: UNSEEN,
            hint_from: UNSEEN,
            job: UNSEEN,
        };
        Self { shared, scene, case, observed, differences: Vec::new() }
    }

    /// Lives it. What could not go on is an error; what went on otherwise than the row says is a difference.
    pub(super) fn live(mut self) -> (Observed, Vec<String>, Result<(), NotPassed>) {
        let before = self.shared.registry.seen();
        let end = self.go_through_it();
        let after = self.shared.registry.seen();
        self.observed.registry_writes = after.writes - before.writes;
        self.observed.registry_reads = after.reads - before.reads;
        if !self.case.row.registry {
            let (writes, reads) = (self.observed.registry_writes, self.observed.registry_reads);
            self.expect(writes + reads == 0, || format!("the registry was touched ({writes} writes, {reads} reads)"));
        }
        (self.observed, self.differences, end)
    }

    fn go_through_it(&mut self) -> Result<(), NotPassed> {
        self.negotiate()?;
        let stemcell = self.call("create_stemcell", self.scene.stemcell_arguments(), false)?.cid()?;
        let (vm, agent_id, agent) = self.create_vm(&stemcell)?;
        self.look_at_user_metadata(&vm);
        self.record_holds(&agent_id, "create_vm", self.case.row.registry, |_| true);
        let agent = self.booted(agent);
        let agent = agent.as_ref();

        let created = self.call("create_disk", self.disk_arguments(&vm), false)?;
        let disk = DiskCid::new(created.cid()?).map_err(|error| created.fail(error.to_string()))?;
        // Twice: a disk that was taken away must be found again.
        let first = self.with_disk(&vm, &agent_id, agent, &disk, self.deploys())?;
        self.with_disk(&vm, &agent_id, agent, &disk, false)?;
        self.delete_vm(&vm, &agent_id)?;
        if !first.is_empty() {
            self.recreate(&stemcell, &disk, &first)?;
        }
        self.call("delete_disk", json!([disk]), false)?.success()?;
        self.call("delete_stemcell", json!([stemcell]), false)?.success()?;
        Ok(())
    }

    /// The agent, once it answers. Without one the row goes on with what the CPI does, and does not hold.
    fn booted(&mut self, agent: Agent) -> Option<Agent> {
        let row = self.case.row;
        let kind = (row.stemcell, row.registry);
        let patience = Duration::from_secs(self.scene.profile.boot.max(1));
        let was_silent = self.shared.silent.borrow().contains(&kind);
        let patience = if was_silent { patience / SHARE_OF_SILENT } else { patience };
        match self.on_agent("boot", agent.wait_until_ready(self.scene.within(patience))) {
            Ok(()) => Some(agent),
            Err(NotPassed::Failed(why, _)) => {
                self.shared.silent.borrow_mut().insert(kind);
                self.differences.push(why);
                None
            }
            Err(_) => None,
        }
    }

    /// In each row a release is deployed by one who asks, where VMs may have the programs that its scripts need.
    fn deploys(&self) -> bool {
        let version = usize::from(self.case.row.stemcell == 2);
        self.shared.with_programs[version] && matches!(self.case.client, Client::Unversioned | Client::Director)
    }

    /// The disk comes, is used, and goes. Says what a job found on it, if one was deployed.
    fn with_disk(
        &mut self,
        vm: &str,
        agent_id: &AgentId,
        agent: Option<&Agent>,
        disk: &DiskCid,
        deploys: bool,
    ) -> Result<Vec<String>, NotPassed> {
        let hint = self.attach_disk(vm, disk)?;
        self.record_holds(agent_id, "attach_disk", self.case.row.registry, |record| holds(record, disk.as_str()));
        let mut found = Vec::new();
        if let Some(agent) = agent {
            found = self.use_disk(agent_id, agent, disk, hint.as_ref(), deploys)?;
        }
        self.call("detach_disk", json!([vm, disk]), true)?.success()?;
        self.record_holds(agent_id, "detach_disk", self.case.row.registry, |record| !holds(record, disk.as_str()));
        Ok(found)
    }

    /// What an agent does with a disk that is there.
    fn use_disk(
        &mut self,
        agent_id: &AgentId,
        agent: &Agent,
        disk: &DiskCid,
        hint: Option<&DiskHint>,
        deploys: bool,
    ) -> Result<Vec<String>, NotPassed> {
        // There are clouds that make the VM again to attach a disk. Directors wait, too.
        let boot = self.scene.within(Duration::from_secs(self.scene.profile.boot.max(1)));
        self.on_agent("after attach_disk", agent.wait_until_ready(boot))?;
        self.mount(agent, disk, hint)?;
        let mut found = Vec::new();
        if deploys {
            match self.shared.runtime.block_on(release::deploy(agent, agent_id.as_str())) {
                Err(ReleaseError::NoJobs) => self.observed.job = NO_JOBS,
                deployed => {
                    found = self.on_agent("a release", async { deployed })?;
                    self.on_agent("a release", release::stop(agent))?;
                }
            }
        }
        self.unmount(agent, disk)?;
        Ok(found)
    }

    /// Another VM of the same stemcell, in which the release finds what it wrote in the first.
    fn recreate(&mut self, stemcell: &str, disk: &DiskCid, first: &[String]) -> Result<(), NotPassed> {
        let (vm, agent_id, agent) = self.create_vm(stemcell)?;
        let agent = self.booted(agent);
        let found = self.with_disk(&vm, &agent_id, agent.as_ref(), disk, true)?;
        let is_kept = found.len() == first.len() + 1 && found.starts_with(first);
        self.expect(is_kept, || format!("a job wrote {first:?} to the disk, and found {found:?} in a new VM"));
        if is_kept {
            self.observed.job = KEPT;
        }
        self.delete_vm(&vm, &agent_id)
    }

    fn delete_vm(&mut self, vm: &str, agent_id: &AgentId) -> Result<(), NotPassed> {
        self.call("delete_vm", json!([vm]), true)?.success()?;
        self.record_holds(agent_id, "delete_vm", false, |_| true);
        Ok(())
    }

    /// The CPI must really speak the row's version; otherwise there is nothing to see.
    fn negotiate(&mut self) -> Result<(), NotPassed> {
        let told = self.send("info", json!([]), false)?.success()?;
        let version = told["api_version"].as_u64().unwrap_or(1);
        let (wanted, fits) = (self.case.row.cpi, version == 1 || self.case.row.cpi == 2);
        if fits && version >= wanted {
            return Ok(());
        }
        Err(NotPassed::not_observed(format!(
            "the CPI speaks version {version} where {wanted} is needed; name a command line that speaks {wanted} \
             (--cpi-v1), or a setting that makes it ('lower_version' in the profile)"
        )))
    }

    fn create_vm(&mut self, stemcell: &str) -> Result<(String, AgentId, Agent), NotPassed> {
        let network = match self.scene.manual_network() {
            Ok(network) => network,
            Err(_) => self.scene.dynamic_network()?,
        };
        let agent_id = AgentId::random();
        let planned: Vec<IpAddr> = network["ip"].as_str().and_then(|ip| ip.parse().ok()).into_iter().collect();
        let access = AgentAccess::new(self.shared.authority, &agent_id, &planned)
            .map_err(|error| NotPassed::not_observed(format!("no certificate for the agent: {error}")))?;
        let properties = &self.scene.profile.vm.cloud_properties;
        let env = json!({"bosh": access.env});
        let arguments = json!([agent_id, stemcell, properties, {"default": network}, [], env]);
        let answer = self.call("create_vm", arguments, true)?;
        self.note_request(&answer);
        let result = answer.success()?;
        let (vm, networks) = match &result {
            Value::String(vm) => {
                self.observed.create_vm = "cid";
                (vm.clone(), Value::Null)
            }
            Value::Array(parts) if parts.len() == 2 && parts[0].is_string() => {
                self.observed.create_vm = "[cid, networks]";
                (parts[0].as_str().unwrap_or_default().to_owned(), parts[1].clone())
            }
            other => return Err(answer.fail(format!("neither a cid nor [cid, networks]: {other}"))),
        };
        let expected = if self.case.row.request_version() >= 2 { "[cid, networks]" } else { "cid" };
        let shape = self.observed.create_vm;
        self.expect(shape == expected, || format!("create_vm answered {shape} instead of {expected}"));
        let addresses = if planned.is_empty() { addresses_in(&networks) } else { planned };
        if addresses.is_empty() {
            return Err(NotPassed::not_observed(
                "nobody says which address the VM has; give the profile a manual network",
            ));
        }
        Ok((vm, agent_id.clone(), self.shared.agents.agent(access.endpoint(agent_id, addresses))))
    }

    fn attach_disk(&mut self, vm: &str, disk: &DiskCid) -> Result<Option<DiskHint>, NotPassed> {
        let answer = self.call("attach_disk", json!([vm, disk]), true)?;
        let result = answer.success()?;
        if self.case.row.request_version() < 2 {
            // Callers of version 1 read nothing into it.
            self.observed.attach_disk = if result.is_null() { "nothing" } else { "ignored" };
            return Ok(None);
        }
        self.observed.attach_disk = "hint";
        let hint =
            DiskHint::try_from(result).map_err(|error| answer.fail(format!("attach_disk gave no hint: {error}")))?;
        Ok(Some(hint))
    }

    /// Mounts in the caller's words, and sees where the agent found the disk.
    fn mount(&mut self, agent: &Agent, cid: &DiskCid, hint: Option<&DiskHint>) -> Result<(), NotPassed> {
        let before = self.shared.registry.seen();
        match hint {
            Some(hint) => {
                let known = self.on_agent("add_persistent_disk", agent.add_persistent_disk(cid, hint))?;
                let version = self.case.row.stemcell;
                let old = version < 2;
                self.expect(old == (known == Outcome::UnknownToAgent), || {
                    let says = if old { "knows add_persistent_disk" } else { "does not know add_persistent_disk" };
                    format!("the agent of the stemcell of version {version} {says}")
                });
                self.on_agent("mount_disk", agent.mount_disk(cid, None))?;
            }
            None => self.on_agent("mount_disk", agent.mount_disk(cid, None))?,
        }
        // Nobody but the agent asks now.
        let after = self.shared.registry.seen();
        let read = after.reads + after.lookups > before.reads + before.lookups;
        self.observed.hint_from = match (read, hint) {
            (true, _) => REGISTRY,
            (false, Some(_)) => CALLER,
            (false, None) => "nowhere",
        };
        let expected = if self.case.row.registry { REGISTRY } else { CALLER };
        let found = self.observed.hint_from;
        self.expect(found == expected, || format!("the hint came from {found}, not {expected}"));
        let mounted = self.on_agent("list_disk", agent.list_disk())?;
        self.expect(mounted.contains(cid), || format!("the disk was mounted and is not in list_disk ({mounted:?})"));
        Ok(())
    }

    fn unmount(&mut self, agent: &Agent, cid: &DiskCid) -> Result<(), NotPassed> {
        self.on_agent("unmount_disk", agent.unmount_disk(cid))?;
        if self.case.row.request_version() >= 2 {
            // Agents of version 1 do not know this, and need not.
            let _ = self.on_agent("remove_persistent_disk", agent.remove_persistent_disk(cid))?;
        }
        let mounted = self.on_agent("list_disk", agent.list_disk())?;
        self.expect(!mounted.contains(cid), || "the disk was unmounted and is still in list_disk".to_owned());
        Ok(())
    }

    fn look_at_user_metadata(&mut self, vm: &str) {
        let Ok(given) = self.scene.settings(vm) else { return };
        let (seen, has_settings) = user_metadata(&given);
        self.observed.user_metadata = seen;
        let row = self.case.row;
        let expected = if row.full_settings { FULL_SETTINGS } else { LOCATION };
        // Agents with settings do not ask a registry that is named beside them.
        let is_right = seen == expected || row.full_settings && has_settings;
        self.expect(is_right, || format!("the VM was given {seen} instead of {expected}"));
    }

    /// Whether the registry has a record of this agent, and what is in it.
    fn record_holds(&mut self, agent: &AgentId, after: &str, wanted: bool, right: impl Fn(&Value) -> bool) {
        let record = self.shared.runtime.block_on(self.shared.registry.record_of(agent));
        match (record, wanted) {
            (None, false) => {}
            (Some(record), true) => self.expect(right(&record), || {
                format!("after {after} the registry's record is wrong: {}", record["disks"]["persistent"])
            }),
            (None, true) => self.differences.push(format!("after {after} the registry has no record of the VM")),
            (Some(_), false) => self.differences.push(format!("after {after} the registry has a record of the VM")),
        }
    }

    fn disk_arguments(&self, vm: &str) -> Value {
        json!([self.scene.profile.disk.size, self.scene.profile.disk.cloud_properties, vm])
    }

    /// A call as this client makes it.
    fn call(&self, method: &str, arguments: Value, about_vm: bool) -> Result<Answer, NotPassed> {
        if self.case.client == Client::CommandLine {
            self.send("info", json!([]), false)?.success()?;
        }
        self.send(method, arguments, about_vm)
    }

    fn send(&self, method: &str, arguments: Value, about_vm: bool) -> Result<Answer, NotPassed> {
        self.scene.call(&self.case.ask(method, arguments, about_vm, &self.scene.profile.context))
    }

    fn note_request(&mut self, answer: &Answer) {
        let request: Value = serde_json::from_slice(&answer.exchange.request).unwrap_or_default();
        let shown = |version: &Value| if version.is_null() { "absent".to_owned() } else { version.to_string() };
        self.observed.request_version = shown(&request["api_version"]);
        self.observed.stemcell_version = shown(&request["context"]["vm"]["stemcell"]["api_version"]);
    }

    fn on_agent<T, E: std::error::Error>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, NotPassed> {
        let done = self.shared.runtime.block_on(work);
        done.map_err(|error| NotPassed::failed(format!("{what}: {}", windlass_contract::explain(&error))))
    }

    fn expect(&mut self, kept: bool, difference: impl FnOnce() -> String) {
        if !kept {
            self.differences.push(difference());
        }
    }
}

/// What a VM was given at its creation, and whether the agent can do with it alone.
fn user_metadata(given: &Value) -> (&'static str, bool) {
    let full = given["agent_id"].as_str().is_some_and(|id| !id.is_empty());
    let what = match (full, given["registry"]["endpoint"].is_string()) {
        (true, false) => FULL_SETTINGS,
        (false, true) => LOCATION,
        (true, true) => "full settings and registry's location",
        (false, false) => "neither settings nor registry",
    };
    (what, full)
}

fn holds(record: &Value, disk: &str) -> bool {
    record["disks"]["persistent"].get(disk).is_some()
}

fn addresses_in(networks: &Value) -> Vec<IpAddr> {
    let networks = networks.as_object().into_iter().flatten();
    networks.filter_map(|(_, network)| network["ip"].as_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the CPI for AWS does it, where it is configured for a registry.
    #[test]
    fn settings_are_full_also_where_a_registry_is_named_beside_them() {
        let registry = json!({"endpoint": "http://10.0.0.1:25777"});
        assert!(user_metadata(&json!({"agent_id": "a", "registry": registry})).1);
        assert_eq!(user_metadata(&json!({"agent_id": "a"})), (FULL_SETTINGS, true));
        assert_eq!(user_metadata(&json!({"agent_id": "", "registry": registry})), (LOCATION, false));
        assert_eq!(user_metadata(&json!({})), ("neither settings nor registry", false));
    }
}
