//! A cloud and the agents of its VMs, in memory. It refuses nonsense, and notes what must never happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use windlass_agent_client::{AgentAccess, Cancellation};
use windlass_contract::cpi::answer::Extensions;
use windlass_contract::cpi::methods::{
    AttachDisk, CreateDisk, CreateVm, DeleteDisk, DeleteVm, DetachDisk, HasDisk, HasVm, ResizeDisk,
};
use windlass_contract::cpi::{CpiError, CpiInfo, ErrorType, Method, MethodName, Repeated};
use windlass_contract::{AgentId, ApiVersion, DiskCid, DiskHint, MiB, Networks, Object, RequestId, Secret, VmCid};
use windlass_cpi_client::CallError;
use windlass_durable::process::ProcessIdentity;
use windlass_pki::PkiError;
use windlass_planning::records::{AgentCertificate, VmRecord};

use super::agent::AgentInMemory;
use super::faults::{Fault, Faults};
use crate::agent_caller::{AgentCaller, AgentsOfVms};
use crate::cpi_caller::{CpiCall, CpiCaller};

/// What the cloud does, beyond what every cloud does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Habits {
    /// Whether it remembers requests.
    pub(super) replays: bool,
    /// Whether it makes a VM again to attach or detach a disk, after which nothing is mounted there and its agent knows of no disk.
    pub(super) restarts_vms: bool,
    pub(super) resizing: Resizing,
}

/// What becomes of a disk that is to be larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resizing {
    Grows,
    /// The CPI says that it cannot.
    NotSupported,
    /// The CPI says that it did.
    NothingHappens,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) habits: Habits,
    pub(super) vms: BTreeMap<VmCid, Machine>,
    pub(super) disks: BTreeMap<DiskCid, CloudDisk>,
    /// Disks that have names, which jobs use and the agent does not mount.
    pub(super) named: BTreeSet<DiskCid>,
    /// Whether disks that are made are such disks.
    pub(super) new_disks_are_named: bool,
    /// What must never happen, and did.
    pub(super) violations: Vec<String>,
    answered: BTreeMap<RequestId, Value>,
    given: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Machine {
    pub(super) is_off: bool,
    pub(super) jobs_run: bool,
    /// Disks that the agent was told of.
    pub(super) told: BTreeSet<DiskCid>,
    /// In the order in which they were mounted: the store, and the one that data migrates to.
    pub(super) mounted: Vec<DiskCid>,
    /// Files that its agent has.
    pub(super) blobs: BTreeMap<String, String>,
    /// Files that its agent was sent, each time.
    pub(super) sent: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct CloudDisk {
    pub(super) size: MiB,
    pub(super) attached: Option<VmCid>,
    /// What somebody would miss.
    pub(super) data: Option<&'static str>,
}

impl World {
    pub(super) fn new(habits: Habits) -> Self {
        let (vms, disks) = (BTreeMap::new(), BTreeMap::new());
        Self {
            habits,
            vms,
            disks,
            named: BTreeSet::new(),
            new_disks_are_named: false,
            violations: Vec::new(),
            answered: BTreeMap::new(),
            given: 0,
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.given += 1;
        format!("{kind}-made-{}", self.given)
    }

    fn has_mounted(&self, disk: &DiskCid) -> bool {
        self.vms.values().any(|vm| vm.mounted.contains(disk))
    }

    fn vm(&mut self, cid: &VmCid) -> Result<&mut Machine, CpiError> {
        self.vms.get_mut(cid).ok_or_else(|| CpiError::vm_not_found(cid))
    }

    fn disk(&mut self, cid: &DiskCid) -> Result<&mut CloudDisk, CpiError> {
        self.disks.get_mut(cid).ok_or_else(|| CpiError::disk_not_found(cid))
    }

    /// Does what a CPI is asked for.
    fn carry_out(&mut self, method: MethodName, arguments: Vec<Value>) -> Result<Value, CpiError> {
        fn read<M: Method>(arguments: Vec<Value>) -> M {
            M::from_arguments(arguments).unwrap()
        }
        match method {
            MethodName::CreateVm => {
                let CreateVm { networks, .. } = read(arguments);
                let cid = VmCid::new(self.name("vm")).unwrap();
                self.vms.insert(cid.clone(), Machine::default());
                Ok(json!([cid, networks]))
            }
            MethodName::DeleteVm => {
                let DeleteVm { vm_cid } = read(arguments);
                self.vm(&vm_cid)?;
                self.vms.remove(&vm_cid);
                let attached = self.disks.values_mut().filter(|disk| disk.attached.as_ref() == Some(&vm_cid));
                attached.for_each(|disk| disk.attached = None);
                Ok(Value::Null)
            }
            MethodName::CreateDisk => {
                let CreateDisk { size, .. } = read(arguments);
                let cid = DiskCid::new(self.name("disk")).unwrap();
                if self.new_disks_are_named {
                    self.named.insert(cid.clone());
                }
                self.disks.insert(cid.clone(), CloudDisk { size, attached: None, data: None });
                Ok(json!(cid))
            }
            MethodName::DeleteDisk => {
                let DeleteDisk { disk_cid } = read(arguments);
                if self.disk(&disk_cid)?.attached.is_some() {
                    return Err(CpiError::cloud("it is attached"));
                }
                self.disks.remove(&disk_cid);
                Ok(Value::Null)
            }
            MethodName::AttachDisk => {
                let AttachDisk { vm_cid, disk_cid } = read(arguments);
                self.vm(&vm_cid)?;
                let disk = self.disk(&disk_cid)?;
                match &disk.attached {
                    Some(other) if *other != vm_cid => return Err(CpiError::cloud("it is attached to another VM")),
                    Some(_) => {}
                    None => {
                        disk.attached = Some(vm_cid.clone());
                        if self.habits.restarts_vms {
                            let vm = self.vm(&vm_cid)?;
                            (vm.mounted, vm.told) = Default::default();
                        }
                    }
                }
                Ok(DiskHint::path(format!("/dev/{disk_cid}")).into())
            }
            MethodName::DetachDisk => {
                let DetachDisk { vm_cid, disk_cid } = read(arguments);
                self.vm(&vm_cid)?;
                if self.disk(&disk_cid)?.attached.as_ref() != Some(&vm_cid) {
                    return Err(CpiError::new(ErrorType::DiskNotAttached, "it is not attached"));
                }
                if self.has_mounted(&disk_cid) {
                    self.violations.push(format!("{disk_cid} was detached while it was mounted"));
                }
                self.disk(&disk_cid)?.attached = None;
                if self.habits.restarts_vms {
                    let vm = self.vm(&vm_cid)?;
                    (vm.mounted, vm.told) = Default::default();
                }
                Ok(Value::Null)
            }
            MethodName::ResizeDisk => {
                let ResizeDisk { disk_cid, new_size } = read(arguments);
                let resizing = self.habits.resizing;
                let disk = self.disk(&disk_cid)?;
                if disk.attached.is_some() {
                    return Err(CpiError::cloud("it is attached"));
                }
                match resizing {
                    Resizing::Grows => disk.size = new_size,
                    Resizing::NothingHappens => {}
                    Resizing::NotSupported => return Err(CpiError::new(ErrorType::NotSupported, "it cannot grow")),
                }
                Ok(Value::Null)
            }
            MethodName::HasVm => {
                let HasVm { vm_cid } = read(arguments);
                Ok(json!(self.vms.contains_key(&vm_cid)))
            }
            MethodName::HasDisk => {
                let HasDisk { disk_cid } = read(arguments);
                Ok(json!(self.disks.contains_key(&disk_cid)))
            }
            MethodName::SetVmMetadata | MethodName::SetDiskMetadata => Ok(Value::Null),
            other => Err(CpiError::not_implemented(other.as_str())),
        }
    }
}

/// The way to the world. Clones lead to the same.
#[derive(Debug, Clone)]
pub(super) struct WayToWorld {
    world: Arc<Mutex<World>>,
    pub(super) faults: Faults,
    info: CpiInfo,
    env: Object,
}

impl WayToWorld {
    pub(super) fn new(world: World, faults: Faults) -> Self {
        let windlass = Some(Extensions { replay: world.habits.replays, ..Extensions::default() });
        let info = CpiInfo { stemcell_formats: Vec::new(), api_version: Some(ApiVersion(2)), windlass };
        Self { world: Arc::new(Mutex::new(world)), faults, info, env: Object::new() }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CpiCaller for WayToWorld {
    async fn info(&self) -> Result<CpiInfo, CallError> {
        Ok(self.info.clone())
    }

    async fn ask(&self, call: CpiCall<'_>) -> Result<(), CallError> {
        let CpiCall { method, arguments, request_id, watcher, read, .. } = call;
        let name = method.as_str().to_owned();
        // A process that ended long ago.
        let child = ProcessIdentity { pid: u32::MAX, start_time: 0 };
        let recorded = watcher.spawned(child).await;
        recorded.map_err(|source| CallError::NotRecorded { method: name.clone(), source })?;
        let cpi = |source| CallError::Cpi { method: name.clone(), request_id: request_id.to_string(), source };
        let fault = self.faults.next();
        let mut world = self.world();
        let is_remembered = world.habits.replays && method.declaration().repeated == Repeated::AnsweredAgain;
        let remembered = world.answered.get(&request_id).filter(|_| is_remembered).cloned();
        if fault == Some(Fault::Refused) {
            // A CPI that remembers what it did does not answer that it did not.
            let source = std::io::Error::other("by plan");
            let not_started = CallError::Spawn { executable: "cpi".into(), method: name.clone(), source };
            return Err(if remembered.is_some() { not_started } else { cpi(CpiError::cloud("by plan")) });
        }
        let answer = match remembered {
            Some(answer) => Ok(answer),
            None => world.carry_out(method, arguments.clone()),
        };
        let answer = answer.map_err(cpi)?;
        world.answered.insert(request_id.clone(), answer.clone());
        if fault == Some(Fault::Lost) {
            return Err(lost(&name, &request_id));
        }
        read(&arguments, answer, ApiVersion(2)).map_err(|_| lost(&name, &request_id))
    }
}

fn lost(method: &str, request_id: &RequestId) -> CallError {
    CallError::InvalidAnswer {
        method: method.to_owned(),
        what: "by plan".to_owned(),
        stdout: String::new(),
        stderr: String::new(),
        request_id: request_id.to_string(),
    }
}

impl AgentsOfVms for WayToWorld {
    fn agent_of(&self, vm: &VmRecord) -> Box<dyn AgentCaller> {
        Box::new(AgentInMemory { way: self.clone(), vm: vm.cid.clone(), id: vm.agent_id.clone() })
    }

    fn agent_until(&self, vm: &VmRecord, _: Cancellation) -> Box<dyn AgentCaller> {
        self.agent_of(vm)
    }

    fn env(&self) -> &Object {
        &self.env
    }

    fn access(&self, _: &AgentId, _: &Networks) -> Result<AgentAccess, PkiError> {
        Ok(AgentAccess { env: Default::default(), user: "user".into(), password: Secret::new("password") })
    }

    fn certificate_from_now(&self) -> Result<Option<AgentCertificate>, PkiError> {
        Ok(None)
    }

    fn is_older_than_hints(&self, _: &AgentId) -> bool {
        false
    }

    fn note_older_than_hints(&self, _: &AgentId) {}
}
