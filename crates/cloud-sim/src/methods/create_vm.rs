//! `create_vm`: a record, the document that its agent would boot from, and addresses that no other VM has.
//!
//! The VM appears as a whole, named after the call's id; a repeated call finds it.

use serde_json::Value;
use windlass_contract::cpi::methods::{CreateVm, DeleteVm};
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType};
use windlass_contract::{DiskHint, Networks, Object, VmCid};
use windlass_cpi::{Call, UserData};
use windlass_durable::file;

use super::delete_vm;
use crate::cloud::SimCloud;
use crate::network_plan;
use crate::records::{USER_DATA, VmRecord};

/// The key in `cloud_properties` that names a type of the catalogue.
pub(crate) const INSTANCE_TYPE: &str = "instance_type";

pub(crate) fn run(
    cloud: &SimCloud,
    call: &Call,
    vm: CreateVm,
    user_data: &mut UserData,
) -> Result<CreatedVm, CpiError> {
    let cid = VmCid::new(cloud.vms.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    user_data.set_vm_name(cid.as_str());
    let lock = cloud.vms.lock(cid.as_str())?;
    let networks = match cloud.vms.read(cid.as_str())? {
        Some(record) => {
            settle(user_data, &record.networks);
            record.networks
        }
        None => match build(cloud, call, &cid, vm, user_data) {
            Ok(networks) => networks,
            Err(error) => {
                cloud.vms.remove(cid.as_str())?;
                return Err(error);
            }
        },
    };
    drop(lock);
    if cloud.faults.loses_vm() {
        delete_vm::run(cloud, DeleteVm { vm_cid: cid.clone() })?;
    }
    Ok(CreatedVm { cid, networks })
}

fn build(
    cloud: &SimCloud,
    call: &Call,
    cid: &VmCid,
    vm: CreateVm,
    user_data: &mut UserData,
) -> Result<Networks, CpiError> {
    check_type(cloud, &vm.cloud_properties)?;
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
    Ok(record.networks)
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
