//! `create_vm`: a record, the document that its agent boots from, addresses that no other VM has, and an agent.
//!
//! The VM appears as a whole, named after the call's id; a repeated call finds it.

use serde_json::Value;
use windlass_contract::cpi::methods::{CreateVm, DeleteVm};
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType, Method};
use windlass_contract::{DiskHint, Networks, Object, VmCid};
use windlass_cpi::{Call, UserData};
use windlass_durable::file;

use super::delete_vm;
use crate::agents::AgentBehaviour;
use crate::cloud::SimCloud;
use crate::network_plan;
use crate::records::{USER_DATA, VmRecord};

/// The key in `cloud_properties` that names a type of the catalogue.
pub(crate) const INSTANCE_TYPE: &str = "instance_type";

/// The key in `cloud_properties` that says what is different in this VM's agent.
const AGENT: &str = "agent";

pub(crate) fn run(
    cloud: &SimCloud,
    call: &Call,
    vm: CreateVm,
    user_data: &mut UserData,
) -> Result<CreatedVm, CpiError> {
    let cid = VmCid::new(cloud.vms.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    user_data.set_vm_name(cid.as_str());
    let lock = cloud.vms.lock(cid.as_str())?;
    let record = match cloud.vms.read(cid.as_str())? {
        Some(record) => {
            settle(user_data, &record.networks);
            record
        }
        None => match build(cloud, call, &cid, vm, user_data) {
            Ok(record) => record,
            Err(error) => {
                cloud.vms.remove(cid.as_str())?;
                return Err(error);
            }
        },
    };
    let woken = cloud.wake_agent(&record);
    drop(lock);
    if let Err(mut error) = woken {
        if let Err(remains) = delete_vm::run(cloud, DeleteVm { vm_cid: cid.clone() }) {
            error.message = format!("{}; and '{cid}' remains: {}", error.message, remains.message);
        }
        return Err(error);
    }
    if cloud.faults.loses_vm() {
        delete_vm::run(cloud, DeleteVm { vm_cid: cid.clone() })?;
    }
    Ok(CreatedVm { cid, networks: record.networks, disks: None })
}

fn build(
    cloud: &SimCloud,
    call: &Call,
    cid: &VmCid,
    vm: CreateVm,
    user_data: &mut UserData,
) -> Result<VmRecord, CpiError> {
    check_type(cloud, &vm.cloud_properties)?;
    let agent = behaviour(cloud, &vm.cloud_properties)?;
    let _making = cloud.making_vms()?;
    if cloud.stemcells.read(vm.stemcell_cid.as_str())?.is_none() {
        return Err(CpiError::cloud(format!("there is no stemcell '{}'; upload it again", vm.stemcell_cid)));
    }
    if let Some(capacity) = cloud.config.capacity.vms
        && cloud.vms.all()?.len() as u64 >= capacity
    {
        return Err(CpiError::new(
            ErrorType::VmCreationFailed,
            format!("there is no room for another VM: all {capacity} are in use; delete some"),
        ));
    }
    let (networks, addresses) = network_plan::plan(cloud, vm.networks, call.id)?;
    settle(user_data, &networks);
    let record = VmRecord {
        cid: cid.clone(),
        agent_id: vm.agent_id,
        stemcell_cid: vm.stemcell_cid,
        settings_from: user_data.settings_from(),
        cloud_properties: vm.cloud_properties,
        networks,
        addresses,
        metadata: Object::new(),
        boots: 1,
        started_at: cloud.started_by(CreateVm::NAME),
        is_off: false,
        agent,
        disks: Default::default(),
    };
    cloud.addresses.note(&record.addresses, cid)?;
    let made = cloud.vms.make(cid.as_str(), &record, |folder| {
        let path = folder.join(USER_DATA);
        file::write_json(&path, user_data, file::PRIVATE)
            .map_err(|error| CpiError::cloud(format!("cannot write {}: {error}", path.display())))?;
        cloud.faults.half_way();
        Ok(())
    });
    if let Err(error) = made {
        // Without the VM they mean nothing, but nothing should remain.
        let _ = cloud.addresses.forget(&record.addresses, cid);
        return Err(error);
    }
    Ok(record)
}

/// What the VM's agent is like: as all, but for what its VM type says, but for a fault of this call.
fn behaviour(cloud: &SimCloud, cloud_properties: &Object) -> Result<AgentBehaviour, CpiError> {
    let wrong =
        |error: &dyn std::fmt::Display| CpiError::cloud(format!("'cloud_properties.{AGENT}' is wrong: {error}"));
    let mut behaviour = match cloud_properties.get(AGENT) {
        None | Some(Value::Null) => cloud.config.agents,
        Some(Value::Object(changes)) => cloud.config.agents.with(changes).map_err(|error| wrong(&error))?,
        Some(_) => return Err(wrong(&"it must be an object")),
    };
    behaviour.runs_jobs |= cloud.config.pretend_jobs;
    if let Some(changes) = cloud.faults.bad_agent() {
        behaviour = behaviour.with(&changes).map_err(|error| wrong(&error))?;
    }
    Ok(behaviour)
}

/// What only the cloud knows: the addresses that it chose, and where it puts the VM's own disks.
fn settle(user_data: &mut UserData, networks: &Networks) {
    user_data.settings.networks = networks.clone();
    user_data.settings.disks.system = "/dev/sda".to_owned();
    user_data.settings.disks.ephemeral = Some(DiskHint::path("/dev/sdb"));
}

fn check_type(cloud: &SimCloud, cloud_properties: &Object) -> Result<(), CpiError> {
    match cloud_properties.get(INSTANCE_TYPE) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(name)) if cloud.config.catalogue.iter().any(|offer| offer.name == *name) => Ok(()),
        Some(asked) => {
            let offered: Vec<&str> = cloud.config.catalogue.iter().map(|offer| offer.name.as_str()).collect();
            Err(CpiError::cloud(format!(
                "there is no VM type {asked} ('cloud_properties.{INSTANCE_TYPE}'); there are: {}",
                offered.join(", ")
            )))
        }
    }
}
