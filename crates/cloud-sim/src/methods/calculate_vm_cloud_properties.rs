//! `calculate_vm_cloud_properties`: the smallest type of the catalogue that is large enough in every dimension.

use serde_json::json;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CalculateVmCloudProperties;

use super::create_vm::INSTANCE_TYPE;
use crate::catalogue;
use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: CalculateVmCloudProperties) -> Result<Object, CpiError> {
    let desired = vm.desired;
    let found = catalogue::smallest(&cloud.config.catalogue, &desired).ok_or_else(|| {
        CpiError::cloud(format!(
            "no VM type has {} cores, {} of memory and {} of ephemeral disk; ask for less",
            desired.cpu, desired.ram, desired.ephemeral_disk_size
        ))
    })?;
    Ok(Object::from_iter([
        (INSTANCE_TYPE.to_owned(), json!(found.name)),
        ("ephemeral_disk".to_owned(), json!({"size": desired.ephemeral_disk_size})),
    ]))
}
