//! The agents of the VMs in memory.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use windlass_agent_client::{AgentState, CompiledBlob, Drain, NotReady, Outcome, Stage, WaitWatch};
use windlass_contract::agent::{DiskAssociation, UpdateSettings};
use windlass_contract::{AgentId, DiskCid, DiskHint, Object, VmCid};

use super::faults::Fault;
use super::world::{CloudDisk, Machine, WayToWorld, World};
use crate::agent_caller::AgentCaller;

/// What a package is made of.
pub(super) const SOURCE: &str = "source";
/// A compiled package that it needs.
pub(super) const NEEDED: &str = "needed";
const COMPILED: &str = "compiled";
pub(super) const COMPILED_SHA1: &str = "bac2ad9d5d014c18fd98074f429dc6cbe0aa606d";

type AgentError = windlass_agent_client::CallError;

pub(super) struct AgentInMemory {
    pub(super) way: WayToWorld,
    pub(super) vm: VmCid,
    pub(super) id: AgentId,
}

impl AgentInMemory {
    fn unreachable(&self) -> AgentError {
        AgentError::TimedOut {
            agent: self.id.clone(),
            address: self.vm.to_string(),
            method: "answer".to_owned(),
            after: Duration::ZERO,
            stage: Stage::VmCreated,
        }
    }

    fn refused(&self, method: &str, why: &str) -> AgentError {
        AgentError::Exception { agent: self.id.clone(), method: method.to_owned(), message: why.to_owned() }
    }

    /// Does something in the VM, if it is there.
    fn act<T>(
        &self,
        method: &str,
        act: impl FnOnce(&mut World, &VmCid) -> Result<T, &'static str>,
    ) -> Result<T, AgentError> {
        let fault = self.way.faults.next();
        if fault == Some(Fault::Refused) {
            return Err(self.refused(method, "by plan"));
        }
        let mut world = self.way.world();
        if world.vms.get(&self.vm).is_none_or(|vm| vm.is_off) {
            return Err(self.unreachable());
        }
        let done = act(&mut world, &self.vm).map_err(|why| self.refused(method, why))?;
        if fault == Some(Fault::Lost) { Err(self.unreachable()) } else { Ok(done) }
    }

    fn with_vm<T>(
        &self,
        method: &str,
        act: impl FnOnce(&mut Machine) -> Result<T, &'static str>,
    ) -> Result<T, AgentError> {
        self.act(method, |world, vm| act(world.vms.get_mut(vm).ok_or("it is gone")?))
    }
}

#[async_trait]
impl AgentCaller for AgentInMemory {
    async fn wait_until_ready(&self, waited: Duration, _: &WaitWatch<'_>) -> Result<(), NotReady> {
        let (agent, address) = (self.id.clone(), self.vm.to_string());
        self.with_vm("ping", |_| Ok(())).map_err(|error| NotReady {
            agent,
            address,
            stage: Stage::VmCreated,
            waited,
            last: Box::new(error),
        })
    }

    async fn get_state(&self, full: bool) -> Result<AgentState, AgentError> {
        self.act("get_state", |world, vm| {
            let vm = &world.vms[vm];
            let mut disks = json!({"system": {}});
            if let Some(disk) = vm.mounted.first() {
                disks["persistent"] = json!({"kb": (world.disks[disk].size.0 * 1024).to_string()});
            }
            let state = json!({
                "job_state": if vm.jobs_run { "running" } else { "stopped" },
                "vitals": full.then(|| json!({"disk": disks})),
            });
            serde_json::from_value(state).map_err(|_| "no state")
        })
    }

    async fn prepare(&self, _: &Object) -> Result<(), AgentError> {
        self.with_vm("prepare", |_| Ok(()))
    }

    async fn apply(&self, spec: &Object) -> Result<(), AgentError> {
        let packages =
            spec.get("packages").and_then(Value::as_object).into_iter().flat_map(|packages| packages.values());
        let blobs: Vec<&str> = packages.filter_map(|package| package["blobstore_id"].as_str()).collect();
        self.with_vm("apply", |vm| match blobs.iter().all(|blob| vm.blobs.contains_key(*blob)) {
            true => Ok(()),
            false => Err("a package is neither installed nor to be had"),
        })
    }

    async fn put_blob(&self, id: &str, file: &Path) -> Result<(), AgentError> {
        let content = std::fs::read_to_string(file).unwrap();
        self.with_vm("PUT /blobs", |vm| {
            vm.blobs.insert(id.to_owned(), content);
            vm.sent.push(id.to_owned());
            Ok(())
        })
    }

    async fn get_blob(&self, id: &str, into: &Path, _: u64) -> Result<bool, AgentError> {
        self.with_vm("GET /blobs", |vm| {
            let Some(content) = vm.blobs.get(id) else { return Ok(false) };
            std::fs::write(into, content).unwrap();
            Ok(true)
        })
    }

    async fn compile_package(
        &self,
        (source, _): (&str, &str),
        (package, _): (&str, &str),
        dependencies: &Object,
    ) -> Result<CompiledBlob, AgentError> {
        self.with_vm("compile_package", |vm| {
            let has =
                |blob: Option<&str>, content| blob.and_then(|id| vm.blobs.get(id)).is_some_and(|it| it == content);
            let needs = |entry: &Value| has(entry["blobstore_id"].as_str(), NEEDED);
            if !has(Some(source), SOURCE) || !dependencies.values().all(needs) {
                return Err("nobody sent what it is made of");
            }
            let blobstore_id = format!("compiled-{package}");
            vm.blobs.insert(blobstore_id.clone(), COMPILED.to_owned());
            Ok(CompiledBlob { blobstore_id, sha1: COMPILED_SHA1.to_owned() })
        })
    }

    async fn start(&self) -> Result<(), AgentError> {
        self.act("start", |world, cid| {
            let vm = world.vms.get_mut(cid).ok_or("it is gone")?;
            vm.jobs_run = true;
            // Data that was copied to the store may be on a disk that goes.
            let on_store = vm.mounted.first().and_then(|disk| world.disks[disk].data);
            let has_store = !vm.mounted.is_empty();
            let is_bare = |(disk, known): &(&DiskCid, &CloudDisk)| {
                let is_here = known.attached.as_ref() == Some(cid) && !world.named.contains(*disk);
                is_here && (!has_store || known.data.is_some() && known.data != on_store)
            };
            let bare = world.disks.iter().find(is_bare).map(|(disk, _)| disk.clone());
            if let Some(disk) = bare {
                world
                    .violations
                    .push(format!("jobs were started on {cid}, where {disk} is attached and not the store"));
            }
            Ok(())
        })
    }

    async fn stop(&self) -> Result<(), AgentError> {
        self.with_vm("stop", |vm| {
            vm.jobs_run = false;
            Ok(())
        })
    }

    async fn drain(&self, _: Drain<'_>) -> Result<(), AgentError> {
        self.with_vm("drain", |_| Ok(()))
    }

    async fn run_script(&self, _: &str, _: &Object) -> Result<Outcome, AgentError> {
        self.with_vm("run_script", |_| Ok(Outcome::Done))
    }

    async fn list_disk(&self) -> Result<Vec<DiskCid>, AgentError> {
        self.with_vm("list_disk", |vm| Ok(vm.mounted.clone()))
    }

    async fn add_persistent_disk(&self, cid: &DiskCid, _: &DiskHint) -> Result<Outcome, AgentError> {
        self.with_vm("add_persistent_disk", |vm| {
            vm.told.insert(cid.clone());
            Ok(Outcome::Done)
        })
    }

    async fn remove_persistent_disk(&self, cid: &DiskCid) -> Result<Outcome, AgentError> {
        self.with_vm("remove_persistent_disk", |vm| {
            vm.told.remove(cid);
            Ok(Outcome::Done)
        })
    }

    async fn mount_disk(&self, cid: &DiskCid, _: Option<&DiskHint>) -> Result<(), AgentError> {
        self.act("mount_disk", |world, vm_cid| {
            let is_here = world.disks.get(cid).is_some_and(|disk| disk.attached.as_ref() == Some(vm_cid));
            let vm = world.vms.get_mut(vm_cid).ok_or("it is gone")?;
            match () {
                () if vm.mounted.contains(cid) => Ok(()),
                () if !vm.told.contains(cid) => Err("nobody told where the disk is"),
                () if !is_here => Err("the disk is not there"),
                () if vm.mounted.len() == 2 => Err("there is no room for a third disk"),
                () => {
                    vm.mounted.push(cid.clone());
                    Ok(())
                }
            }
        })
    }

    async fn mount_disk_as_before(&self, cid: &DiskCid, hint: &DiskHint) -> Result<(), AgentError> {
        self.mount_disk(cid, Some(hint)).await
    }

    async fn unmount_disk(&self, cid: &DiskCid) -> Result<String, AgentError> {
        self.act("unmount_disk", |world, vm_cid| {
            let vm = world.vms.get_mut(vm_cid).ok_or("it is gone")?;
            vm.mounted.retain(|mounted| mounted != cid);
            // Agents forget where a disk was that they unmount.
            vm.told.remove(cid);
            if vm.jobs_run {
                world.violations.push(format!("{cid} was unmounted while jobs ran on {vm_cid}"));
            }
            Ok(String::new())
        })
    }

    async fn migrate_disk(&self, from: &DiskCid, to: &DiskCid) -> Result<(), AgentError> {
        self.act("migrate_disk", |world, vm_cid| {
            let vm = world.vms.get_mut(vm_cid).ok_or("it is gone")?;
            if vm.mounted != [from.clone(), to.clone()] {
                return Err("both disks must be mounted, in this order");
            }
            vm.mounted = vec![to.clone()];
            let data = world.disks[from].data;
            world.disks.get_mut(to).ok_or("no such disk")?.data = data;
            Ok(())
        })
    }

    async fn update_settings(&self, settings: &UpdateSettings) -> Result<Outcome, AgentError> {
        self.with_vm("update_settings", |vm| {
            let is_told = |named: &DiskAssociation| vm.told.iter().any(|cid| cid.as_str() == named.cid);
            let all = settings.disk_associations.iter().all(is_told);
            if all { Ok(Outcome::Done) } else { Err("nobody told where a disk is that has a name") }
        })
    }

    async fn shutdown(&self) -> Result<(), AgentError> {
        self.with_vm("shutdown", |vm| {
            (vm.is_off, vm.jobs_run) = (true, false);
            vm.mounted.clear();
            Ok(())
        })
    }
}
