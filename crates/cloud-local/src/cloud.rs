//! The cloud, and which file serves which method.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, CreateDisk, CreateNetwork, CreateStemcell, CreateVm, DeleteDisk,
    DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk, GetDisks, HasDisk, HasVm, RebootVm,
    ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk, UpdateDisk,
};
use windlass_contract::cpi::{CloudLimits, CpiError, CreatedNetwork, CreatedVm, UpdatedDisk};
use windlass_contract::{DiskCid, DiskHint, Object, SnapshotCid, StemcellCid};
use windlass_cpi::resources::Resources;
use windlass_cpi::{Call, Cloud, UserData};

use crate::config::LocalConfig;
use crate::isolation::{self, Isolation, IsolationChoice};
use crate::methods;
use crate::own_root::{self, Refusal};
use crate::state::{DiskRecord, NetworkRecord, SnapshotRecord, StemcellRecord, VmRecord};

/// The embedded cloud in one state folder.
#[derive(Debug)]
pub struct LocalCloud {
    pub(crate) stemcells: Resources<StemcellRecord>,
    pub(crate) vms: Resources<VmRecord>,
    pub(crate) disks: Resources<DiskRecord>,
    pub(crate) snapshots: Resources<SnapshotRecord>,
    pub(crate) networks: Resources<NetworkRecord>,
    memory: PathBuf,
    pub(crate) config: LocalConfig,
    isolation: OnceCell<Isolation>,
}

impl LocalCloud {
    /// The cloud that `config` describes. Touches nothing: the folders are made when they are first needed.
    pub fn new(config: LocalConfig) -> Result<Self, CpiError> {
        let state = config.state_dir.clone();
        if !state.is_absolute() {
            return Err(CpiError::cpi(format!(
                "'cloud.properties.local.state_dir' must be an absolute path, not '{}'",
                state.display()
            )));
        }
        Ok(Self {
            stemcells: Resources::new(&state),
            vms: Resources::new(&state),
            disks: Resources::new(&state),
            snapshots: Resources::new(&state),
            networks: Resources::new(&state),
            memory: state.join("requests"),
            config,
            isolation: OnceCell::new(),
        })
    }

    /// The folder of everything.
    pub(crate) fn state(&self) -> &Path {
        &self.config.state_dir
    }

    /// The executable that becomes a VM's supervisor.
    pub(crate) fn windlass(&self) -> Result<PathBuf, CpiError> {
        match &self.config.windlass {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe().map_err(|error| {
                CpiError::cpi(format!(
                    "cannot find this executable: {error}; name it as 'cloud.properties.local.windlass'"
                ))
            }),
        }
    }

    /// Whether VMs that are processes can have a root file system of their own here.
    pub(crate) fn own_root(&self) -> Result<Result<(), Refusal>, CpiError> {
        Ok(own_root::try_own_root(&self.config.state_dir, &self.windlass()?))
    }

    /// A stemcell's root file system.
    pub(crate) fn stemcell_root(&self, stemcell: &StemcellRecord) -> Result<PathBuf, CpiError> {
        match (&stemcell.root, self.stemcells.path(stemcell.cid.as_str())) {
            (Some(root), _) => Ok(root.clone()),
            (None, Some(folder)) => Ok(folder.join("root")),
            (None, None) => Err(CpiError::cloud(format!("there is no stemcell '{}'", stemcell.cid))),
        }
    }

    /// How new VMs and disks are made: as configured, or as this machine allows.
    pub(crate) fn isolation(&self) -> Result<Isolation, CpiError> {
        if let Some(isolation) = self.isolation.get() {
            return Ok(*isolation);
        }
        let allowed = || isolation::try_containers(&self.config.state_dir);
        let isolation = match self.config.isolation {
            IsolationChoice::Process => Isolation::Process,
            IsolationChoice::Auto => match allowed() {
                Ok(()) => Isolation::Container,
                Err(error) if isolation::is_a_no(&error) => Isolation::Process,
                // Processes are kept apart from nothing: what fails for a moment, or takes long, does not choose them.
                Err(error) => {
                    return Err(CpiError::cloud(format!(
                        "cannot find out whether this machine allows us containers: {error}; try again, or set \
                         'cloud.properties.local.isolation' to 'container' or 'process'"
                    )));
                }
            },
            IsolationChoice::Container => allowed().map(|()| Isolation::Container).map_err(|error| {
                CpiError::cloud(format!(
                    "this machine allows us no containers: {error}; run as root, or set 'cloud.properties.local.isolation' to \
                     'process'"
                ))
            })?,
        };
        Ok(*self.isolation.get_or_init(|| isolation))
    }
}

/// The format and the operating system of stemcells whose VMs see the programs of this machine.
const HOST_OS: &str = "windlass-host";

impl Cloud for LocalCloud {
    fn stemcell_formats(&self) -> Vec<String> {
        ["warden-tar", "general-tar", "warden-light", "docker-light", HOST_OS].map(str::to_owned).to_vec()
    }

    fn memory(&self) -> Option<&Path> {
        Some(&self.memory)
    }

    /// Processes have a root of their own only with the programs of this machine.
    fn jobs_os(&self) -> Option<String> {
        matches!(self.isolation(), Ok(Isolation::Process)).then(|| HOST_OS.to_owned())
    }

    fn limits(&self) -> CloudLimits {
        self.limits_of_machine()
    }

    fn nests_containers(&self) -> bool {
        matches!(self.isolation(), Ok(Isolation::Container))
    }

    fn runs_jobs(&self) -> Result<(), String> {
        let words = |why: &dyn std::fmt::Display| {
            format!("VMs that are processes cannot have a root file system of their own here: {why}")
        };
        if self.config.isolation == IsolationChoice::Container {
            return Ok(());
        }
        match self.own_root().map_err(|error| words(&error.message))? {
            Err(refusal) if !matches!(self.isolation(), Ok(Isolation::Container)) => Err(words(&refusal)),
            _ => Ok(()),
        }
    }

    async fn create_stemcell(&self, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
        methods::create_stemcell::run(self, call, stemcell)
    }

    async fn delete_stemcell(&self, _: &Call, stemcell: DeleteStemcell) -> Result<(), CpiError> {
        methods::delete_stemcell::run(self, stemcell)
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        methods::create_vm::run(self, call, vm, user_data).await
    }

    async fn delete_vm(&self, _: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        methods::delete_vm::run(self, vm).await
    }

    async fn has_vm(&self, _: &Call, vm: HasVm) -> Result<bool, CpiError> {
        methods::has_vm::run(self, vm)
    }

    async fn reboot_vm(&self, _: &Call, vm: RebootVm) -> Result<(), CpiError> {
        methods::reboot_vm::run(self, vm).await
    }

    async fn set_vm_metadata(&self, _: &Call, vm: SetVmMetadata) -> Result<(), CpiError> {
        methods::set_vm_metadata::run(self, vm)
    }

    async fn calculate_vm_cloud_properties(
        &self,
        _: &Call,
        wanted: CalculateVmCloudProperties,
    ) -> Result<Object, CpiError> {
        methods::calculate_vm_cloud_properties::run(self, wanted)
    }

    async fn create_network(&self, call: &Call, network: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
        methods::create_network::run(self, call, network)
    }

    async fn delete_network(&self, _: &Call, network: DeleteNetwork) -> Result<(), CpiError> {
        methods::delete_network::run(self, network)
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        methods::create_disk::run(self, call, disk)
    }

    async fn delete_disk(&self, _: &Call, disk: DeleteDisk) -> Result<(), CpiError> {
        methods::delete_disk::run(self, disk)
    }

    async fn has_disk(&self, _: &Call, disk: HasDisk) -> Result<bool, CpiError> {
        methods::has_disk::run(self, disk)
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        methods::attach_disk::run(self, disk)
    }

    async fn detach_disk(&self, _: &Call, disk: DetachDisk) -> Result<(), CpiError> {
        methods::detach_disk::run(self, disk)
    }

    async fn set_disk_metadata(&self, _: &Call, disk: SetDiskMetadata) -> Result<(), CpiError> {
        methods::set_disk_metadata::run(self, disk)
    }

    async fn get_disks(&self, _: &Call, vm: GetDisks) -> Result<Vec<DiskCid>, CpiError> {
        methods::get_disks::run(self, vm)
    }

    async fn resize_disk(&self, _: &Call, disk: ResizeDisk) -> Result<(), CpiError> {
        methods::resize_disk::run(self, disk)
    }

    async fn update_disk(&self, _: &Call, disk: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
        methods::update_disk::run(self, disk)
    }

    async fn snapshot_disk(&self, call: &Call, disk: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
        methods::snapshot_disk::run(self, call, disk)
    }

    async fn delete_snapshot(&self, _: &Call, snapshot: DeleteSnapshot) -> Result<(), CpiError> {
        methods::delete_snapshot::run(self, snapshot)
    }
}
