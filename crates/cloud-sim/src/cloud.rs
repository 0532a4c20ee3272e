//! The cloud, and which file serves which method.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use windlass_contract::cpi::limits::MOST_IN_USE;
use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, CreateDisk, CreateNetwork, CreateStemcell, CreateVm, DeleteDisk,
    DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk, GetDisks, HasDisk, HasVm, RebootVm,
    ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk, UpdateDisk,
};
use windlass_contract::cpi::{CloudLimits, CpiError, CreatedNetwork, CreatedVm, ErrorType, Method, UpdatedDisk};
use windlass_contract::{DiskCid, DiskHint, MiB, Object, SnapshotCid, StemcellCid, VmCid};
use windlass_cpi::resources::Resources;
use windlass_cpi::{Call, Cloud, UserData};
use windlass_durable::lock::{FileLock, Locks};
use windlass_durable::{file, kill_point};

use crate::addresses::Addresses;
use crate::agents::Line;
use crate::config::SimConfig;
use crate::faults::Faults;
use crate::methods;
use crate::methods::create_disk::LARGEST;
use crate::records::{DISKS, DiskRecord, NetworkRecord, SnapshotRecord, StemcellRecord, VmRecord, now};

/// What was called, if that is noted.
pub const CALL_LOG: &str = "calls.log";
/// How long a call waits for another one that makes the same kind of thing.
const PATIENCE: Duration = Duration::from_secs(300);

/// The simulated cloud in one state folder.
#[derive(Debug)]
pub struct SimCloud {
    pub(crate) stemcells: Resources<StemcellRecord>,
    pub(crate) vms: Resources<VmRecord>,
    pub(crate) disks: Resources<DiskRecord>,
    pub(crate) snapshots: Resources<SnapshotRecord>,
    pub(crate) networks: Resources<NetworkRecord>,
    pub(crate) addresses: Addresses,
    pub(crate) faults: Faults,
    pub(crate) config: SimConfig,
    /// To the host of the VMs' agents.
    pub(crate) line: Line,
    locks: PathBuf,
    memory: PathBuf,
    /// When this process's one call began.
    begun: Instant,
}

impl SimCloud {
    /// The cloud that `config` describes. Touches nothing: the folders are made when they are first needed.
    pub fn new(config: SimConfig) -> Result<Self, CpiError> {
        config.check()?;
        let state = config.state_dir()?;
        Ok(Self {
            stemcells: Resources::new(&state),
            vms: Resources::new(&state),
            disks: Resources::new(&state),
            snapshots: Resources::new(&state),
            networks: Resources::new(&state),
            addresses: Addresses::new(&state),
            faults: Faults::new(config.faults.clone(), state.join("calls")),
            locks: state.join("locks"),
            memory: state.join("requests"),
            line: Line::new(&state, config.windlass.clone()),
            begun: Instant::now(),
            config,
        })
    }

    /// Held while a VM is made, and while something is removed that no VM may use: addresses, capacity, stemcells and
    /// networks are looked at and taken in one go.
    pub(crate) fn making_vms(&self) -> Result<FileLock, CpiError> {
        self.lock("making-vms")
    }

    /// Held while a network is made, so that no two get the same range.
    pub(crate) fn making_networks(&self) -> Result<FileLock, CpiError> {
        self.lock("making-networks")
    }

    /// Makes sure that `more` fits on the cloud's disks. Held until it is there, so that two cannot have the same room;
    /// none if the room is unlimited.
    pub(crate) fn room_on_disks(&self, more: MiB) -> Result<Option<FileLock>, CpiError> {
        let Some(capacity) = self.config.capacity.disk_mib else { return Ok(None) };
        let lock = self.lock("making-disks")?;
        let disks = self.disks.all()?.into_iter().map(|disk| disk.size_mib);
        let snapshots = self.snapshots.all()?.into_iter().map(|snapshot| snapshot.size_mib);
        let used = disks.chain(snapshots).fold(0u64, u64::saturating_add);
        if used.saturating_add(more.0) > capacity.0 {
            return Err(CpiError::new(
                ErrorType::NoDiskSpace,
                format!("{more} more do not fit: {} of {capacity} are in use; delete disks or snapshots", MiB(used)),
            ));
        }
        Ok(Some(lock))
    }

    fn lock(&self, name: &str) -> Result<FileLock, CpiError> {
        file::create_private_dir(&self.locks)
            .and_then(|()| Locks::new(&self.locks).acquire(name, PATIENCE))
            .map_err(|error| CpiError::cloud(format!("cannot lock {}: {error}", self.locks.join(name).display())))
    }

    /// The VM that a disk is attached to. One that is gone, with a call that was killed before it let go, holds nothing.
    pub(crate) fn holder(&self, disk: &DiskRecord) -> Result<Option<VmCid>, CpiError> {
        match &disk.attached_to {
            Some(vm) if self.vms.read(vm.as_str())?.is_some() => Ok(Some(vm.clone())),
            _ => Ok(None),
        }
    }

    /// Where a VM sees a disk that is attached to it.
    pub(crate) fn seen_at(&self, vm: &VmCid, disk: &DiskCid) -> Result<PathBuf, CpiError> {
        // Both are of our form, or there would be no such resource.
        let (Some(folder), Some(_)) = (self.vms.path(vm.as_str()), self.disks.path(disk.as_str())) else {
            return Err(CpiError::cpi(format!("'{vm}' and '{disk}' cannot name a VM and a disk")));
        };
        Ok(folder.join(DISKS).join(disk.as_str()))
    }

    /// Switches a VM off and waits until its agent is gone. The VM's lock must be held.
    pub(crate) fn switch_off(&self, vm: &mut VmRecord) -> Result<(), CpiError> {
        if !vm.is_off {
            vm.is_off = true;
            self.vms.write(vm.cid.as_str(), vm)?;
        }
        self.line.tell(&vm.cid)
    }

    /// Has a VM's agent run, if it has one.
    pub(crate) fn wake_agent(&self, vm: &VmRecord) -> Result<(), CpiError> {
        if vm.is_off || vm.agent.never_up || vm.agent_address().is_none() {
            return Ok(());
        }
        self.line.wake(&vm.cid)
    }

    /// Refuses a disk that a VM has.
    pub(crate) fn must_be_detached(&self, disk: &DiskRecord) -> Result<(), CpiError> {
        match self.holder(disk)? {
            None => Ok(()),
            Some(vm) => {
                Err(CpiError::cloud(format!("the disk '{}' is attached to the VM '{vm}'; detach it first", disk.cid)))
            }
        }
    }

    /// How long a method takes at least.
    fn latency(&self, method: &str) -> Duration {
        Duration::from_millis(self.config.latency.get(method).copied().unwrap_or_default())
    }

    /// When a VM is on that this call of a method starts: when it says so.
    pub(crate) fn started_by(&self, method: &str) -> u64 {
        let left = self.latency(method).saturating_sub(self.begun.elapsed());
        now().saturating_add(left.as_millis() as u64)
    }

    /// One call of a method, as slow and as faulty as the configuration says. What the simulation itself takes is a part of
    /// the latency. The effect comes first, so that a caller who gives up leaves it behind.
    async fn simulate<T>(&self, method: &str, effect: impl FnOnce() -> Result<T, CpiError>) -> Result<T, CpiError> {
        if self.config.log_calls {
            self.note_call(method)?;
        }
        let answer = self.faults.meet(method, effect).await;
        tokio::time::sleep_until(self.begun + self.latency(method)).await;
        answer
    }
}

impl SimCloud {
    /// Which VM has which address, while there is one network, so that an address alone says where it is.
    fn addresses_in_use(&self) -> Result<BTreeMap<IpAddr, String>, CpiError> {
        if self.vms.cids()?.len() > MOST_IN_USE || !self.networks.cids()?.is_empty() {
            return Ok(BTreeMap::new());
        }
        let vms = self.vms.all()?;
        Ok(vms.iter().flat_map(|vm| vm.addresses.iter().map(|address| (address.ip, vm.cid.to_string()))).collect())
    }

    fn note_call(&self, method: &str) -> Result<(), CpiError> {
        let path = self.config.state_dir()?.join(CALL_LOG);
        let noted = file::create_private_dir(&self.config.state_dir()?)
            .and_then(|()| fs::OpenOptions::new().create(true).append(true).open(&path))
            .and_then(|mut log| log.write_all(format!("{method}\n").as_bytes()));
        noted.map_err(|error| CpiError::cloud(format!("cannot write {}: {error}", path.display())))
    }
}

/// Puts a copy of what is on a disk, or of nothing, at `to`.
pub(crate) fn write_content(from: Option<&Path>, to: &Path) -> Result<(), CpiError> {
    let written = match from {
        Some(from) => copy_tree(from, to),
        None => file::create_private_dir(to),
    };
    kill_point("a disk's content is there");
    written.map_err(|error| {
        let kind =
            if error.kind() == io::ErrorKind::StorageFull { ErrorType::NoDiskSpace } else { ErrorType::CloudError };
        CpiError::new(kind, format!("cannot write {}: {error}", to.display()))
    })
}

/// What VMs write to simulated disks is little: files, folders and links.
#[expect(clippy::disallowed_methods, reason = "a copy that nobody sees until it is renamed")]
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    file::create_private_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_file() {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

impl Cloud for SimCloud {
    fn stemcell_formats(&self) -> Vec<String> {
        ["warden-tar", "general-tar", "warden-light", "docker-light"].map(str::to_owned).to_vec()
    }

    fn runs_jobs(&self) -> Result<(), String> {
        if self.config.pretend_jobs || self.config.agents.runs_jobs {
            return Ok(());
        }
        Err("they are simulated, and nothing runs on them; use the embedded cloud ('cpi: local')".to_owned())
    }

    fn limits(&self) -> CloudLimits {
        let largest = self.config.capacity.disk_mib.map_or(LARGEST, |capacity| capacity.min(LARGEST));
        let addresses_in_use = self.addresses_in_use().unwrap_or_default();
        CloudLimits { largest_disk_mib: Some(largest), addresses_in_use, ..CloudLimits::default() }
    }

    fn memory(&self) -> Option<&Path> {
        Some(&self.memory)
    }

    async fn create_stemcell(&self, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
        self.simulate(CreateStemcell::NAME, || methods::create_stemcell::run(self, call, stemcell)).await
    }

    async fn delete_stemcell(&self, _: &Call, stemcell: DeleteStemcell) -> Result<(), CpiError> {
        self.simulate(DeleteStemcell::NAME, || methods::delete_stemcell::run(self, stemcell)).await
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        self.simulate(CreateVm::NAME, || methods::create_vm::run(self, call, vm, user_data)).await
    }

    async fn delete_vm(&self, _: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        self.simulate(DeleteVm::NAME, || methods::delete_vm::run(self, vm)).await
    }

    async fn has_vm(&self, _: &Call, vm: HasVm) -> Result<bool, CpiError> {
        self.simulate(HasVm::NAME, || methods::has_vm::run(self, vm)).await
    }

    async fn reboot_vm(&self, _: &Call, vm: RebootVm) -> Result<(), CpiError> {
        self.simulate(RebootVm::NAME, || methods::reboot_vm::run(self, vm)).await
    }

    async fn set_vm_metadata(&self, _: &Call, vm: SetVmMetadata) -> Result<(), CpiError> {
        self.simulate(SetVmMetadata::NAME, || methods::set_vm_metadata::run(self, vm)).await
    }

    async fn calculate_vm_cloud_properties(
        &self,
        _: &Call,
        vm: CalculateVmCloudProperties,
    ) -> Result<Object, CpiError> {
        self.simulate(CalculateVmCloudProperties::NAME, || methods::calculate_vm_cloud_properties::run(self, vm)).await
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        self.simulate(CreateDisk::NAME, || methods::create_disk::run(self, call, disk)).await
    }

    async fn delete_disk(&self, _: &Call, disk: DeleteDisk) -> Result<(), CpiError> {
        self.simulate(DeleteDisk::NAME, || methods::delete_disk::run(self, disk)).await
    }

    async fn has_disk(&self, _: &Call, disk: HasDisk) -> Result<bool, CpiError> {
        self.simulate(HasDisk::NAME, || methods::has_disk::run(self, disk)).await
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        self.simulate(AttachDisk::NAME, || methods::attach_disk::run(self, disk)).await
    }

    async fn detach_disk(&self, _: &Call, disk: DetachDisk) -> Result<(), CpiError> {
        self.simulate(DetachDisk::NAME, || methods::detach_disk::run(self, disk)).await
    }

    async fn set_disk_metadata(&self, _: &Call, disk: SetDiskMetadata) -> Result<(), CpiError> {
        self.simulate(SetDiskMetadata::NAME, || methods::set_disk_metadata::run(self, disk)).await
    }

    async fn get_disks(&self, _: &Call, vm: GetDisks) -> Result<Vec<DiskCid>, CpiError> {
        self.simulate(GetDisks::NAME, || methods::get_disks::run(self, vm)).await
    }

    async fn resize_disk(&self, _: &Call, disk: ResizeDisk) -> Result<(), CpiError> {
        self.simulate(ResizeDisk::NAME, || methods::resize_disk::run(self, disk)).await
    }

    async fn update_disk(&self, call: &Call, disk: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
        self.simulate(UpdateDisk::NAME, || methods::update_disk::run(self, call, disk)).await
    }

    async fn snapshot_disk(&self, call: &Call, disk: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
        self.simulate(SnapshotDisk::NAME, || methods::snapshot_disk::run(self, call, disk)).await
    }

    async fn delete_snapshot(&self, _: &Call, snapshot: DeleteSnapshot) -> Result<(), CpiError> {
        self.simulate(DeleteSnapshot::NAME, || methods::delete_snapshot::run(self, snapshot)).await
    }

    async fn create_network(&self, call: &Call, network: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
        self.simulate(CreateNetwork::NAME, || methods::create_network::run(self, call, network)).await
    }

    async fn delete_network(&self, _: &Call, network: DeleteNetwork) -> Result<(), CpiError> {
        self.simulate(DeleteNetwork::NAME, || methods::delete_network::run(self, network)).await
    }
}
