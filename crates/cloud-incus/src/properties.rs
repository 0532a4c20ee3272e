//! `cloud_properties` of VMs and disks. What is not known is refused by its name.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;

use crate::client::Settings;

/// Of a VM: those of its zone, type and extensions, merged.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VmProperties {
    /// Cores.
    pub(crate) cpu: Option<u64>,
    /// Memory in MiB.
    pub(crate) ram: Option<u64>,
    /// Room beyond the stemcell's, in MiB.
    pub(crate) ephemeral_disk_size: Option<u64>,
    /// `container`.
    pub(crate) instance_type: Option<String>,
    /// Root in the VM is root on the member.
    #[serde(default)]
    pub(crate) privileged: bool,
    /// Whether the VM may make containers of its own.
    pub(crate) nesting: Option<bool>,
    /// The storage pool of its root.
    pub(crate) pool: Option<String>,
    /// Of a zone, for disks; VMs do not need it.
    #[allow(dead_code, reason = "zones say it for disks, and their properties arrive with those of VMs")]
    pub(crate) disk_pool: Option<String>,
    /// A member, or `@group`.
    pub(crate) target: Option<String>,
    /// Further keys of the instance, from some families only.
    #[serde(default)]
    pub(crate) config: Settings,
}

/// Of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskProperties {
    /// The storage pool.
    pub(crate) pool: Option<String>,
    /// `filesystem`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// A member, or `@group`, for a disk that no VM is known for.
    pub(crate) target: Option<String>,
    /// Further keys of the volume, from some families only.
    #[serde(default)]
    pub(crate) config: Settings,
}

/// What `config` of a VM may hold.
const VM_KEYS: [&str; 4] = ["limits.", "boot.", "security.syscalls.", "security.idmap."];

/// What `config` of a disk may hold.
const DISK_KEYS: [&str; 4] = ["block.", "zfs.", "snapshots.", "security.shifted"];

fn read<T: DeserializeOwned>(what: &str, properties: &Object) -> Result<T, CpiError> {
    serde_json::from_value(Value::Object(properties.clone()))
        .map_err(|error| CpiError::cloud(format!("cloud_properties of the {what}: {error}")))
}

fn check(what: &str, config: &Settings, allowed: &[&str]) -> Result<(), CpiError> {
    match config.keys().find(|key| !allowed.iter().any(|prefix| key.starts_with(prefix))) {
        None => Ok(()),
        Some(key) => Err(CpiError::cloud(format!(
            "'config' in the cloud_properties of the {what} has '{key}'; it may have {}",
            allowed.iter().map(|prefix| format!("{prefix}…")).collect::<Vec<_>>().join(", ")
        ))),
    }
}

impl VmProperties {
    pub(crate) fn of(properties: &Object) -> Result<Self, CpiError> {
        let read: Self = read("VM", properties)?;
        check("VM", &read.config, &VM_KEYS)?;
        for (name, value) in [("cpu", read.cpu), ("ram", read.ram), ("ephemeral_disk_size", read.ephemeral_disk_size)] {
            if value == Some(0) {
                return Err(CpiError::cloud(format!("cloud_properties of the VM: '{name}' cannot be 0")));
            }
        }
        Ok(read)
    }
}

impl DiskProperties {
    pub(crate) fn of(properties: &Object) -> Result<Self, CpiError> {
        let read: Self = read("disk", properties)?;
        check("disk", &read.config, &DISK_KEYS)?;
        match read.kind.as_deref() {
            None | Some("filesystem") => Ok(read),
            Some("block") => Err(CpiError::cloud(
                "cloud_properties of the disk: 'type: block' is for virtual machines, which are not supported yet; use \
                 'type: filesystem', or leave it out",
            )),
            Some(other) => Err(CpiError::cloud(format!(
                "cloud_properties of the disk: there is no type '{other}'; use 'filesystem'"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(value: Value) -> Result<VmProperties, String> {
        VmProperties::of(value.as_object().unwrap()).map_err(|error| error.message)
    }

    #[test]
    fn what_is_not_known_or_not_allowed_is_named() {
        assert!(vm(json!({"cpu": 2, "ram": 512, "config": {"limits.processes": "100"}})).is_ok());
        assert!(vm(json!({"cpus": 2})).unwrap_err().contains("cpus"));
        assert!(vm(json!({"ram": 0})).unwrap_err().contains("'ram' cannot be 0"));
        assert!(vm(json!({"config": {"raw.lxc": "x"}})).unwrap_err().contains("'raw.lxc'"));
        let disk = |value: Value| DiskProperties::of(value.as_object().unwrap()).map_err(|error| error.message);
        assert!(disk(json!({"pool": "fast", "config": {"zfs.blocksize": "16KiB"}})).is_ok());
        assert!(disk(json!({"type": "block"})).unwrap_err().contains("virtual machines"));
        assert!(disk(json!({"size": 5})).unwrap_err().contains("size"));
    }
}
