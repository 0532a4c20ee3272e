//! How a [`Change`] becomes a call to a CPI, and the CPI's answer a [`Fact`].

use windlass_contract::cpi::methods::{
    AttachDisk, CreateDisk, CreateStemcell, CreateVm, DeleteDisk, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk,
    HasDisk, HasVm, RebootVm, ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk,
};
use windlass_contract::cpi::{CreatedVm, ErrorType, Method};
use windlass_contract::{ApiVersion, RequestId};
use windlass_cpi_client::CallError;
use windlass_planning::records::{DiskRecord, SnapshotRecord, VmRecord};

use crate::clock;
use crate::cpi_caller::{CallWatcher, CpiCaller};
use crate::ledger::{Change, Fact, NewDisk, NewVm};

impl Change {
    /// Asks the CPI, and says what is true then.
    pub async fn send(
        &self,
        cpi: &dyn CpiCaller,
        id: &RequestId,
        stemcell_version: Option<ApiVersion>,
        watcher: &dyn CallWatcher,
    ) -> Result<Fact, CallError> {
        let call = Call { cpi, id, stemcell_version, watcher };
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
                let request = CreateDisk { size, cloud_properties: cloud_properties.clone(), vm_cid: near };
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
                call.send(ResizeDisk { disk_cid: cid, new_size: size }).await?;
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
                let created_at = clock::now();
                Fact::SnapshotTaken { snapshot: SnapshotRecord { cid, disk, cpi, clean, created_at } }
            }
            Self::DeleteSnapshot { cid } => {
                call.send(DeleteSnapshot { snapshot_cid: cid.clone() }).await?;
                Fact::SnapshotDeleted { cid }
            }
        })
    }
}

struct Call<'a> {
    cpi: &'a dyn CpiCaller,
    id: &'a RequestId,
    stemcell_version: Option<ApiVersion>,
    watcher: &'a dyn CallWatcher,
}

impl Call<'_> {
    async fn send<M: Method<Answer: Send> + Send + Sync>(&self, method: M) -> Result<M::Answer, CallError> {
        self.cpi.send(&method, self.stemcell_version, self.id.clone(), self.watcher).await
    }

    /// Another question, which is only logged: the record is of the first.
    async fn has<M: Method<Answer = bool> + Sync>(&self, has: &M) -> Result<bool, CallError> {
        self.cpi.call_logged(has, self.stemcell_version, &|line| self.watcher.log_line(line)).await
    }

    /// What the cloud failed to remove and does not have was removed before the failure.
    async fn unless_gone<M: Method<Answer = bool> + Sync>(
        &self,
        answer: Result<(), CallError>,
        has: M,
    ) -> Result<(), CallError> {
        match answer {
            Err(error) if error.cpi_error().is_some() => match self.has(&has).await {
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
            env_values: self.env_values.clone(),
            disks: answer.disks,
            mbus_user: self.mbus_user.clone(),
            mbus_password: self.mbus_password.clone(),
            created_at: clock::now(),
            ready: false,
            spare: self.spare,
            certificate: self.certificate.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::{AgentId, Object, Secret, StemcellCid, VmCid};
    use windlass_planning::names::CpiName;
    use windlass_planning::records::StemcellOfVm;

    use super::*;

    #[test]
    fn what_a_cpi_tells_of_a_new_vms_disks_is_kept() {
        let vm = NewVm {
            agent_id: AgentId::random(),
            instance: "uuid".into(),
            cpi: CpiName::Default,
            stemcell_cid: StemcellCid::new("sc").unwrap(),
            stemcell: StemcellOfVm { name: "s".into(), version: "1".into(), api_version: None },
            cloud_properties: Object::new(),
            networks: Default::default(),
            disk_cids: Vec::new(),
            env: Object::new(),
            wanted_env: Object::new(),
            env_values: None,
            variables: None,
            mbus_user: String::new(),
            mbus_password: Secret::new(""),
            certificate: None,
            spare: false,
        };
        let disks = json!({"ephemeral": "/dev/sdb"}).as_object().cloned();
        let answer = CreatedVm { cid: VmCid::new("vm").unwrap(), networks: Default::default(), disks: disks.clone() };
        let record = vm.created(answer);
        assert_eq!(record.disks, disks);
        let stored = serde_json::to_value(&record).unwrap();
        assert_eq!(serde_json::from_value::<VmRecord>(stored).unwrap(), record);
    }
}
