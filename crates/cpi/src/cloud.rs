//! What a CPI author writes.

use std::path::Path;

use uuid::Uuid;
use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, ConfigureNetworks, CreateDisk, CreateNetwork, CreateStemcell, CreateVm,
    DeleteDisk, DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk, GetDisks, HasDisk, HasVm,
    RebootVm, ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk, UpdateDisk,
};
use windlass_contract::cpi::{
    CloudLimits, Context, CpiError, CreatedNetwork, CreatedVm, ErrorType, Method, UpdatedDisk,
};
use windlass_contract::{ApiVersion, DiskCid, DiskHint, Object, SnapshotCid, StemcellCid};

use crate::user_data::UserData;

/// What a call knows about itself, beside its arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The request's version. The SDK shapes the answers; a cloud seldom needs it.
    pub version: ApiVersion,
    pub context: Context,
    /// The id for what this call makes. A repeated call has the same id again as long as its caller has seen no answer,
    /// so a cloud that names what it makes by it (`disk-<id>`) can finish what an interrupted call began: first look
    /// whether it is there, then make what is missing. See [`crate::replay`].
    pub id: Uuid,
}

/// A cloud. Every method is optional: one that is left out answers `Bosh::Clouds::NotImplemented` (or `NotSupported`, where
/// the contract says so), which callers know how to take. Never answer success for something that was not done.
///
/// A process serves one call, so methods may block. Arguments are decoded, and versions checked, before a method runs.
#[allow(async_fn_in_trait, reason = "one call per process on one thread: the futures need not be Send")]
pub trait Cloud {
    /// Formats of stemcells that `create_stemcell` takes. Needs no cloud: callers ask before nearly every call.
    fn stemcell_formats(&self) -> Vec<String>;

    /// Whether jobs of releases run on its VMs; the error says why not, and what to do about it. Asked as often as the formats.
    fn runs_jobs(&self) -> Result<(), String> {
        Ok(())
    }

    /// The only operating system of stemcells whose VMs run jobs; none if all do.
    fn jobs_os(&self) -> Option<String> {
        None
    }

    /// What a plan cannot have in this cloud; a director refuses it then before anything is stopped. Asked as often as the
    /// formats, so what takes long to find out is left out, and what cannot be found out is no error.
    fn limits(&self) -> CloudLimits {
        CloudLimits::default()
    }

    /// Whether `nesting: true` among the properties of a VM lets its programs make containers. Callers warn of such VMs.
    fn nests_containers(&self) -> bool {
        false
    }

    /// The folder in which the SDK keeps what must outlive a call: answered requests, how each VM gets its settings, locks.
    /// None: every request is taken for a new one, and VMs that need a registry are refused.
    /// With a folder, [`Cloud::has_vm`] must be there, too.
    fn memory(&self) -> Option<&Path> {
        None
    }

    /// Makes an image from the file at `image_path`, which is gone after the call.
    async fn create_stemcell(&self, _: &Call, _: CreateStemcell) -> Result<StemcellCid, CpiError> {
        Err(CpiError::not_implemented(CreateStemcell::NAME))
    }

    /// Removes an image. One that is gone is a success.
    async fn delete_stemcell(&self, _: &Call, _: DeleteStemcell) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DeleteStemcell::NAME))
    }

    /// Makes a VM and powers it on without waiting for its boot. Name it in its user data, put in what only the cloud
    /// knows (addresses, devices), and deliver the document where the agent looks; see [`UserData`].
    /// On failure nothing must remain.
    async fn create_vm(&self, _: &Call, _: CreateVm, _user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        Err(CpiError::not_implemented(CreateVm::NAME))
    }

    /// Removes a VM; its persistent disks survive. One that is gone is a success.
    async fn delete_vm(&self, _: &Call, _: DeleteVm) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DeleteVm::NAME))
    }

    /// Whether a VM exists, also when it is stopped. Unknown is `false`, never an error.
    async fn has_vm(&self, _: &Call, _: HasVm) -> Result<bool, CpiError> {
        Err(CpiError::not_implemented(HasVm::NAME))
    }

    /// Restarts a VM, or starts it when it was off.
    async fn reboot_vm(&self, _: &Call, _: RebootVm) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(RebootVm::NAME))
    }

    /// Names a VM for people; other keys than the given ones stay.
    async fn set_vm_metadata(&self, _: &Call, _: SetVmMetadata) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(SetVmMetadata::NAME))
    }

    /// Gives a VM other networks. Callers make a new VM instead.
    async fn configure_networks(&self, _: &Call, _: ConfigureNetworks) -> Result<(), CpiError> {
        Err(CpiError::new(ErrorType::NotSupported, "the networks of a VM cannot be changed; make a new VM"))
    }

    /// The `cloud_properties` of the smallest VM that has at least these resources; an error when none is large enough.
    async fn calculate_vm_cloud_properties(&self, _: &Call, _: CalculateVmCloudProperties) -> Result<Object, CpiError> {
        Err(CpiError::not_implemented(CalculateVmCloudProperties::NAME))
    }

    /// Makes a blank disk that is attached to nothing.
    async fn create_disk(&self, _: &Call, _: CreateDisk) -> Result<DiskCid, CpiError> {
        Err(CpiError::not_implemented(CreateDisk::NAME))
    }

    /// Removes a disk with its data. Attached: an error. Gone: a success.
    async fn delete_disk(&self, _: &Call, _: DeleteDisk) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DeleteDisk::NAME))
    }

    /// Whether a disk exists. Unknown is `false`, never an error.
    async fn has_disk(&self, _: &Call, _: HasDisk) -> Result<bool, CpiError> {
        Err(CpiError::not_implemented(HasDisk::NAME))
    }

    /// Attaches a disk and says where it is found. Attached already: the same hint again. Attached elsewhere: an error.
    async fn attach_disk(&self, _: &Call, _: AttachDisk) -> Result<DiskHint, CpiError> {
        Err(CpiError::not_implemented(AttachDisk::NAME))
    }

    /// Detaches a disk. Not attached: success.
    async fn detach_disk(&self, _: &Call, _: DetachDisk) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DetachDisk::NAME))
    }

    /// Names a disk for people; other keys than the given ones stay.
    async fn set_disk_metadata(&self, _: &Call, _: SetDiskMetadata) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(SetDiskMetadata::NAME))
    }

    /// The persistent disks that are attached to a VM now.
    async fn get_disks(&self, _: &Call, _: GetDisks) -> Result<Vec<DiskCid>, CpiError> {
        Err(CpiError::not_implemented(GetDisks::NAME))
    }

    /// Makes a detached disk larger, with its data. Smaller: NotSupported. The same size: a success. Left out, it answers
    /// NotSupported, too: the caller then copies to a new disk.
    async fn resize_disk(&self, _: &Call, _: ResizeDisk) -> Result<(), CpiError> {
        Err(CpiError::new(ErrorType::NotSupported, "this CPI cannot resize disks; copy to a new one"))
    }

    /// Gives a detached disk another size and other properties, with its data: in place, or as another disk.
    async fn update_disk(&self, _: &Call, _: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
        Err(CpiError::not_implemented(UpdateDisk::NAME))
    }

    /// Takes a snapshot of a disk, also while it is in use.
    async fn snapshot_disk(&self, _: &Call, _: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
        Err(CpiError::not_implemented(SnapshotDisk::NAME))
    }

    /// Removes a snapshot, also when its disk is gone. One that is gone is a success.
    async fn delete_snapshot(&self, _: &Call, _: DeleteSnapshot) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DeleteSnapshot::NAME))
    }

    /// Makes a network; the answer has `range` and `gateway` where the definition has none.
    async fn create_network(&self, _: &Call, _: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
        Err(CpiError::not_implemented(CreateNetwork::NAME))
    }

    /// Removes a network. One that is gone is a success.
    async fn delete_network(&self, _: &Call, _: DeleteNetwork) -> Result<(), CpiError> {
        Err(CpiError::not_implemented(DeleteNetwork::NAME))
    }
}
