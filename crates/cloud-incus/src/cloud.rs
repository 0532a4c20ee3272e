//! The cloud, and which file serves which method.

use std::path::{Path, PathBuf};

use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, CreateDisk, CreateNetwork, CreateStemcell, CreateVm, DeleteDisk,
    DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk, GetDisks, HasDisk, HasVm, RebootVm,
    ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk, UpdateDisk,
};
use windlass_contract::cpi::{CpiError, CreatedNetwork, CreatedVm, UpdatedDisk};
use windlass_contract::{DiskCid, DiskHint, Object, SnapshotCid, StemcellCid};
use windlass_cpi::{Call, Cloud, UserData};

use crate::config::IncusConfig;
use crate::fault::Fault;
use crate::leftovers::{self, Made};
use crate::methods;
use crate::names::VmName;
use crate::session::Session;

/// A server or cluster, in one project.
#[derive(Debug)]
pub struct IncusCloud {
    config: IncusConfig,
    memory: Option<PathBuf>,
}

/// How often a call looks again at what a request did whose answer was lost.
const TRIES: usize = 4;

impl IncusCloud {
    /// The cloud that `config` describes. Asks nobody: callers want to know what a CPI can do before nearly every call.
    pub fn new(config: IncusConfig) -> Result<Self, CpiError> {
        let memory = config.state_dir.as_ref().map(|state| state.join("requests"));
        Ok(Self { config, memory })
    }

    /// Serves a call. Methods begin by looking at what is there, so one whose request had an unknown effect is simply begun
    /// again.
    async fn serve<T>(&self, call: &Call, method: impl AsyncFn(&Session) -> Result<T, Fault>) -> Result<T, CpiError> {
        let session = Session::open(&self.config, call).await?;
        let mut tries = 1;
        loop {
            match method(&session).await {
                Err(fault) if fault.is_unknown_effect() && tries < TRIES => tries += 1,
                answer => return answer.map_err(CpiError::from),
            }
        }
    }
}

impl Cloud for IncusCloud {
    fn stemcell_formats(&self) -> Vec<String> {
        ["warden-tar", "general-tar"].map(str::to_owned).to_vec()
    }

    fn memory(&self) -> Option<&Path> {
        self.memory.as_deref()
    }

    fn nests_containers(&self) -> bool {
        true
    }

    async fn create_stemcell(&self, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
        self.serve(call, async |session| methods::create_stemcell::run(session, call, &stemcell).await).await
    }

    async fn delete_stemcell(&self, call: &Call, stemcell: DeleteStemcell) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::delete_stemcell::run(session, call, &stemcell).await).await
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        methods::create_vm::check(&vm)?;
        let given = user_data.clone();
        let (created, filled) = self
            .serve(call, async |session| {
                let mut user_data = given.clone();
                let made = Made::Vm(VmName::new(call.id));
                let create = async || methods::create_vm::run(session, call, &vm, &mut user_data).await;
                let created = leftovers::make(session, call, &made, create).await?;
                Ok((created, user_data))
            })
            .await?;
        *user_data = filled;
        Ok(created)
    }

    async fn delete_vm(&self, call: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        self.serve(call, async |session| {
            leftovers::remove(session, call).await;
            methods::delete_vm::run(session, call, &vm).await
        })
        .await
    }

    async fn has_vm(&self, call: &Call, vm: HasVm) -> Result<bool, CpiError> {
        self.serve(call, async |session| methods::has_vm::run(session, &vm).await).await
    }

    async fn reboot_vm(&self, call: &Call, vm: RebootVm) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::reboot_vm::run(session, &vm).await).await
    }

    async fn set_vm_metadata(&self, call: &Call, vm: SetVmMetadata) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::set_vm_metadata::run(session, &vm).await).await
    }

    async fn calculate_vm_cloud_properties(
        &self,
        call: &Call,
        wanted: CalculateVmCloudProperties,
    ) -> Result<Object, CpiError> {
        self.serve(call, async |session| methods::calculate_vm_cloud_properties::run(session, &wanted).await).await
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        self.serve(call, async |session| {
            let made = Made::Disk(methods::create_disk::name(session, call, &disk)?);
            leftovers::make(session, call, &made, async || methods::create_disk::run(session, call, &disk).await).await
        })
        .await
    }

    async fn delete_disk(&self, call: &Call, disk: DeleteDisk) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::delete_disk::run(session, call, &disk).await).await
    }

    async fn has_disk(&self, call: &Call, disk: HasDisk) -> Result<bool, CpiError> {
        self.serve(call, async |session| methods::has_disk::run(session, &disk).await).await
    }

    async fn attach_disk(&self, call: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        self.serve(call, async |session| methods::attach_disk::run(session, &disk).await).await
    }

    async fn detach_disk(&self, call: &Call, disk: DetachDisk) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::detach_disk::run(session, &disk).await).await
    }

    async fn set_disk_metadata(&self, call: &Call, disk: SetDiskMetadata) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::set_disk_metadata::run(session, &disk).await).await
    }

    async fn get_disks(&self, call: &Call, vm: GetDisks) -> Result<Vec<DiskCid>, CpiError> {
        self.serve(call, async |session| methods::get_disks::run(session, &vm).await).await
    }

    async fn resize_disk(&self, call: &Call, disk: ResizeDisk) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::resize_disk::run(session, &disk).await).await
    }

    async fn update_disk(&self, call: &Call, disk: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
        self.serve(call, async |session| methods::update_disk::run(session, call, &disk).await).await
    }

    async fn snapshot_disk(&self, call: &Call, disk: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
        self.serve(call, async |session| methods::snapshot_disk::run(session, call, &disk).await).await
    }

    async fn delete_snapshot(&self, call: &Call, snapshot: DeleteSnapshot) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::delete_snapshot::run(session, &snapshot).await).await
    }

    async fn create_network(&self, call: &Call, network: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
        self.serve(call, async |session| methods::create_network::run(session, call, &network).await).await
    }

    async fn delete_network(&self, call: &Call, network: DeleteNetwork) -> Result<(), CpiError> {
        self.serve(call, async |session| methods::delete_network::run(session, call, &network).await).await
    }
}
