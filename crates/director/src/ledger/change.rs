//! One thing to be done in a cloud: which call it is, and what is true once it was answered.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass_contract::cpi::methods::{
    AttachDisk, CreateDisk, CreateStemcell, CreateVm, DeleteDisk, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk,
    HasDisk, HasVm, RebootVm, ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk,
};
use windlass_contract::cpi::{CreatedVm, ErrorType, Method};
use windlass_contract::stemcell::StemcellManifest;
use windlass_contract::{
    AgentId, ApiVersion, DiskCid, MiB, Networks, Object, RequestId, Secret, SnapshotCid, StemcellCid, VmCid,
};
use windlass_cpi_client::{CallError, CallObserver, Cpi};

use super::{AgentCertificate, DiskRecord, Fact, SnapshotRecord, StemcellOfVm, VmRecord};

/// A change in a cloud. It is stored with its intent, so that it can be repeated exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Make a stemcell from an unpacked image.
    CreateStemcell {
        /// What it is.
        stemcell: NewStemcell,
        /// Where the image is.
        image: PathBuf,
    },
    /// Remove a stemcell.
    DeleteStemcell {
        /// Its CPI.
        cpi: String,
        /// Its cid.
        cid: StemcellCid,
    },
    /// Make a VM.
    CreateVm {
        /// What it is.
        vm: Box<NewVm>,
    },
    /// Remove a VM.
    DeleteVm {
        /// Its cid.
        cid: VmCid,
    },
    /// Name a VM for people.
    SetVmMetadata {
        /// Its cid.
        cid: VmCid,
        /// The names.
        metadata: Object,
    },
    /// Restart a VM.
    RebootVm {
        /// Its cid.
        cid: VmCid,
    },
    /// Make a disk.
    CreateDisk {
        /// What it is.
        disk: NewDisk,
        /// The VM that it will be attached to.
        near: Option<VmCid>,
    },
    /// Attach a disk.
    AttachDisk {
        /// To this VM.
        vm: VmCid,
        /// This disk.
        disk: DiskCid,
    },
    /// Detach a disk.
    DetachDisk {
        /// From this VM.
        vm: VmCid,
        /// This disk.
        disk: DiskCid,
    },
    /// Name a disk for people.
    SetDiskMetadata {
        /// Its cid.
        cid: DiskCid,
        /// The names.
        metadata: Object,
    },
    /// Make a detached disk larger.
    ResizeDisk {
        /// Its cid.
        cid: DiskCid,
        /// In MiB.
        size: u64,
    },
    /// Remove a disk with its data.
    DeleteDisk {
        /// Its cid.
        cid: DiskCid,
    },
    /// Take a snapshot of a disk.
    SnapshotDisk {
        /// The disk.
        disk: DiskCid,
        /// Its CPI.
        cpi: String,
        /// Whether nothing writes to it meanwhile.
        clean: bool,
        /// What the cloud shows about it.
        metadata: Object,
    },
    /// Remove a snapshot.
    DeleteSnapshot {
        /// Its cid.
        cid: SnapshotCid,
    },
}

/// A stemcell to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewStemcell {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// What deployments name.
    pub operating_system: String,
    /// Digest of the image.
    pub sha1: String,
    /// What its agent can do; none counts as 1.
    pub api_version: Option<ApiVersion>,
    /// Second argument of `create_stemcell`.
    pub cloud_properties: Object,
    /// The CPI.
    pub cpi: String,
}

/// A VM to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewVm {
    /// Chosen by us.
    pub agent_id: AgentId,
    /// The instance that it belongs to.
    pub instance: String,
    /// The CPI.
    pub cpi: String,
    /// The image.
    pub stemcell_cid: StemcellCid,
    /// What it is made from.
    pub stemcell: StemcellOfVm,
    /// What only the cloud understands.
    pub cloud_properties: Object,
    /// Planned networks.
    pub networks: Networks,
    /// Disks that will be attached.
    pub disk_cids: Vec<DiskCid>,
    /// Goes into the agent's settings verbatim; has keys and passwords.
    pub env: Object,
    /// The part of it that the manifest asked for.
    pub wanted_env: Object,
    /// Credentials of the agent, also in `env`.
    pub mbus_user: String,
    /// Credentials of the agent, also in `env`.
    pub mbus_password: Secret,
    /// What the agent shows and trusts.
    #[serde(default)]
    pub certificate: Option<AgentCertificate>,
    /// Whether it is made beside the instance's VM, to take its place later.
    #[serde(default)]
    pub spare: bool,
}

/// A disk to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDisk {
    /// The instance that it belongs to.
    pub instance: String,
    /// Empty for the one that the agent mounts by itself.
    #[serde(default)]
    pub name: String,
    /// The CPI.
    pub cpi: String,
    /// In MiB.
    pub size: u64,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

impl Change {
    /// The name of the CPI's method.
    pub fn method(&self) -> &'static str {
        match self {
            Self::CreateStemcell { .. } => CreateStemcell::NAME,
            Self::DeleteStemcell { .. } => DeleteStemcell::NAME,
            Self::CreateVm { .. } => CreateVm::NAME,
            Self::DeleteVm { .. } => DeleteVm::NAME,
            Self::SetVmMetadata { .. } => SetVmMetadata::NAME,
            Self::RebootVm { .. } => RebootVm::NAME,
            Self::CreateDisk { .. } => CreateDisk::NAME,
            Self::AttachDisk { .. } => AttachDisk::NAME,
            Self::DetachDisk { .. } => DetachDisk::NAME,
            Self::SetDiskMetadata { .. } => SetDiskMetadata::NAME,
            Self::ResizeDisk { .. } => ResizeDisk::NAME,
            Self::DeleteDisk { .. } => DeleteDisk::NAME,
            Self::SnapshotDisk { .. } => SnapshotDisk::NAME,
            Self::DeleteSnapshot { .. } => DeleteSnapshot::NAME,
        }
    }

    /// What the change is about, for people.
    pub fn subject(&self) -> String {
        match self {
            Self::CreateStemcell { stemcell, .. } => format!("stemcell {}/{}", stemcell.name, stemcell.version),
            Self::DeleteStemcell { cid, .. } => format!("stemcell {cid}"),
            Self::CreateVm { vm } => format!("a VM for instance {}", vm.instance),
            Self::DeleteVm { cid } | Self::SetVmMetadata { cid, .. } | Self::RebootVm { cid } => format!("VM {cid}"),
            Self::CreateDisk { disk, .. } => format!("a disk of {} MiB for instance {}", disk.size, disk.instance),
            Self::AttachDisk { vm, disk } | Self::DetachDisk { vm, disk } => format!("disk {disk} and VM {vm}"),
            Self::SetDiskMetadata { cid, .. } | Self::ResizeDisk { cid, .. } | Self::DeleteDisk { cid } => {
                format!("disk {cid}")
            }
            Self::SnapshotDisk { disk, .. } => format!("a snapshot of disk {disk}"),
            Self::DeleteSnapshot { cid } => format!("snapshot {cid}"),
        }
    }

    /// Whether nothing exists because of it, so that its intent need not survive a loss of power.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::SetVmMetadata { .. } | Self::SetDiskMetadata { .. })
    }

    /// Whether doing it a second time does no harm, whatever the CPI remembers.
    pub fn is_repeatable(&self) -> bool {
        !matches!(
            self,
            Self::CreateStemcell { .. } | Self::CreateVm { .. } | Self::CreateDisk { .. } | Self::SnapshotDisk { .. }
        )
    }

    /// Asks the CPI, and says what is true then.
    pub async fn send(
        &self,
        cpi: &Cpi,
        id: &RequestId,
        stemcell_version: Option<ApiVersion>,
        observer: &impl CallObserver,
    ) -> Result<Fact, CallError> {
        let call = Call { cpi, id, stemcell_version, observer };
        Ok(match self.clone() {
            Self::CreateStemcell { stemcell, image } => {
                let cloud_properties = Some(stemcell.cloud_properties.clone());
                let cid = call.send(CreateStemcell { image_path: image, cloud_properties, env: None }).await?;
                Fact::StemcellCreated { stemcell, cid }
            }
            Self::DeleteStemcell { cpi, cid } => {
                call.send(DeleteStemcell { stemcell_cid: cid.clone() }).await?;
                Fact::StemcellDeleted { cpi, cid }
            }
            Self::CreateVm { vm } => {
                let created = call.send(vm.call()).await?;
                Fact::VmCreated { vm: Box::new(vm.created(created)) }
            }
            Self::DeleteVm { cid } => {
                let answer = gone_already(call.send(DeleteVm { vm_cid: cid.clone() }).await, &ErrorType::VmNotFound);
                call.unless_gone(answer, HasVm { vm_cid: cid.clone() }).await?;
                Fact::VmDeleted { cid }
            }
            Self::SetVmMetadata { cid, metadata } => {
                not_implemented_is_fine(call.send(SetVmMetadata { vm_cid: cid, metadata }).await)?
            }
            Self::RebootVm { cid } => {
                call.send(RebootVm { vm_cid: cid }).await?;
                Fact::Nothing
            }
            Self::CreateDisk { disk, near } => {
                let NewDisk { instance, name, cpi, size, cloud_properties } = disk;
                let request = CreateDisk { size: MiB(size), cloud_properties: cloud_properties.clone(), vm_cid: near };
                let cid = call.send(request).await?;
                let disk = DiskRecord {
                    cid,
                    instance,
                    name,
                    cpi,
                    size,
                    cloud_properties,
                    active: false,
                    vm: None,
                    mounted: false,
                    hint: None,
                };
                Fact::DiskCreated { disk }
            }
            Self::AttachDisk { vm, disk } => {
                let attached = call.send(AttachDisk { vm_cid: vm.clone(), disk_cid: disk.clone() }).await?;
                Fact::DiskAttached { disk, vm, hint: attached.hint }
            }
            Self::DetachDisk { vm, disk } => {
                let answer = call.send(DetachDisk { vm_cid: vm, disk_cid: disk.clone() }).await;
                gone_already(answer, &ErrorType::DiskNotAttached)?;
                Fact::DiskDetached { disk }
            }
            Self::SetDiskMetadata { cid, metadata } => {
                not_implemented_is_fine(call.send(SetDiskMetadata { disk_cid: cid, metadata }).await)?
            }
            Self::ResizeDisk { cid, size } => {
                // Only what the VM sees afterwards is a fact.
                call.send(ResizeDisk { disk_cid: cid, new_size: MiB(size) }).await?;
                Fact::Nothing
            }
            Self::DeleteDisk { cid } => {
                let answer =
                    gone_already(call.send(DeleteDisk { disk_cid: cid.clone() }).await, &ErrorType::DiskNotFound);
                call.unless_gone(answer, HasDisk { disk_cid: cid.clone() }).await?;
                Fact::DiskDeleted { disk: cid }
            }
            Self::SnapshotDisk { disk, cpi, clean, metadata } => {
                let cid = call.send(SnapshotDisk { disk_cid: disk.clone(), metadata }).await?;
                let created_at = crate::clock::now();
                Fact::SnapshotTaken { snapshot: SnapshotRecord { cid, disk, cpi, clean, created_at } }
            }
            Self::DeleteSnapshot { cid } => {
                call.send(DeleteSnapshot { snapshot_cid: cid.clone() }).await?;
                Fact::SnapshotDeleted { cid }
            }
        })
    }
}

struct Call<'a, O> {
    cpi: &'a Cpi,
    id: &'a RequestId,
    stemcell_version: Option<ApiVersion>,
    observer: &'a O,
}

impl<O: CallObserver> Call<'_, O> {
    async fn send<M: Method + Send + Sync>(&self, method: M) -> Result<M::Answer, CallError> {
        let prepared = self.cpi.prepare(&method, self.stemcell_version, self.id.clone()).await?;
        self.cpi.send(prepared, self.observer).await
    }

    /// What the cloud failed to remove and does not have was removed before the failure.
    async fn unless_gone<M: Method<Answer = bool>>(
        &self,
        answer: Result<(), CallError>,
        has: M,
    ) -> Result<(), CallError> {
        match answer {
            Err(error) if error.cpi_error().is_some() => match self.cpi.call(&has, self.stemcell_version).await {
                Ok(false) => Ok(()),
                _ => Err(error),
            },
            other => other,
        }
    }
}

/// What is gone already need not be removed.
fn gone_already(answer: Result<(), CallError>, not_found: &ErrorType) -> Result<(), CallError> {
    match answer {
        Err(error) if error.cpi_error().is_some_and(|cpi_error| &cpi_error.kind == not_found) => Ok(()),
        other => other,
    }
}

/// Clouds without metadata are good clouds, too.
fn not_implemented_is_fine(answer: Result<(), CallError>) -> Result<Fact, CallError> {
    match answer {
        Err(error) if error.cpi_error().is_some_and(|cpi_error| cpi_error.is_not_implemented()) => Ok(Fact::Nothing),
        other => other.map(|()| Fact::Nothing),
    }
}

impl NewStemcell {
    /// The stemcell with this manifest, for a CPI.
    pub fn of(manifest: &StemcellManifest, cpi: &str) -> Self {
        Self {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            operating_system: manifest.os().to_owned(),
            sha1: manifest.sha1.clone(),
            api_version: manifest.api_version,
            cloud_properties: manifest.cloud_properties.clone(),
            cpi: cpi.to_owned(),
        }
    }
}

impl NewVm {
    fn call(&self) -> CreateVm {
        CreateVm {
            agent_id: self.agent_id.clone(),
            stemcell_cid: self.stemcell_cid.clone(),
            cloud_properties: self.cloud_properties.clone(),
            networks: self.networks.clone(),
            disk_cids: Some(self.disk_cids.clone()),
            env: Some(self.env.clone()),
            bootstrap_settings: None,
        }
    }

    /// The planned networks, completed by the addresses that the cloud chose.
    fn created(&self, answer: CreatedVm) -> VmRecord {
        let mut networks = self.networks.clone();
        for (name, answered) in answer.networks {
            if let Some(planned) = networks.get_mut(&name) {
                planned.ip = planned.ip.take().or(answered.ip);
                planned.netmask = planned.netmask.take().or(answered.netmask);
                planned.gateway = planned.gateway.take().or(answered.gateway);
            }
        }
        VmRecord {
            cid: answer.cid,
            agent_id: self.agent_id.clone(),
            instance: self.instance.clone(),
            cpi: self.cpi.clone(),
            stemcell: self.stemcell.clone(),
            networks,
            cloud_properties: self.cloud_properties.clone(),
            wanted_env: self.wanted_env.clone(),
            mbus_user: self.mbus_user.clone(),
            mbus_password: self.mbus_password.clone(),
            created_at: crate::clock::now(),
            ready: false,
            spare: self.spare,
            certificate: self.certificate.clone(),
        }
    }
}
