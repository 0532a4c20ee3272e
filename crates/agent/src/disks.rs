//! What the agent knows about persistent disks: the hints it was given, in the original's file format, and those in its
//! settings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::disk_hint::NoHint;
use windlass_contract::settings::AgentSettings;
use windlass_contract::{DiskHint, Secret};
use windlass_durable::file;

/// Where a disk is and how it is formatted: a parsed hint, with what `env` said when it came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct DiskSettings {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    #[serde(rename = "DeviceID")]
    pub(crate) device_id: String,
    #[serde(rename = "VolumeID")]
    pub(crate) volume_id: String,
    pub(crate) lun: String,
    #[serde(rename = "HostDeviceID")]
    pub(crate) host_device_id: String,
    pub(crate) path: String,
    #[serde(rename = "ISCSISettings")]
    pub(crate) iscsi: IscsiSettings,
    pub(crate) file_system_type: String,
    pub(crate) mount_options: Option<Vec<String>>,
    pub(crate) partitioner: String,
}

/// How a disk is reached over iSCSI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct IscsiSettings {
    pub(crate) initiator_name: String,
    pub(crate) username: String,
    pub(crate) target: String,
    pub(crate) password: Secret,
}

/// why the agent does not know a disk
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// nobody told the agent where the disk is
    #[error("Persistent disk with volume id '{0}' could not be found")]
    Unknown(String),
    /// the hint is none
    #[error("the hint of disk '{cid}' cannot be used")]
    Hint {
        cid: String,
        #[source]
        source: NoHint,
    },
    /// the file of hints cannot be read or written
    #[error("cannot keep disk hints in {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DiskSettings {
    /// What `hint` says about the disk `cid`. A null hint says nothing, which is allowed: the path is then missed at the mount.
    pub(crate) fn new(cid: &str, hint: Value, agent: &AgentSettings) -> Result<Self, DiskError> {
        let env = |key: &str| agent.env.other.get(key);
        let text = |key: &str| env(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut disk = match hint {
            Value::Null => Self::default(),
            hint => {
                let source = |source| DiskError::Hint { cid: cid.to_owned(), source };
                Self::from_hint(&DiskHint::try_from(hint).map_err(source)?)
            }
        };
        disk.id = cid.to_owned();
        disk.file_system_type = text("persistent_disk_fs");
        disk.partitioner = text("persistent_disk_partitioner");
        disk.mount_options =
            env("persistent_disk_mount_options").and_then(|options| serde_json::from_value(options.clone()).ok());
        Ok(disk)
    }

    fn from_hint(hint: &DiskHint) -> Self {
        let text = |key: &str| hint.get(key).unwrap_or_default().to_owned();
        let whole = Value::from(hint.clone());
        let iscsi = |key: &str| whole["iscsi_settings"][key].as_str().unwrap_or_default().to_owned();
        Self {
            device_id: text("id"),
            volume_id: text("volume_id"),
            lun: text("lun"),
            host_device_id: text("host_device_id"),
            path: text("path"),
            iscsi: IscsiSettings {
                initiator_name: iscsi("initiator_name"),
                username: iscsi("username"),
                target: iscsi("target"),
                password: Secret::new(iscsi("password")),
            },
            ..Self::default()
        }
    }
}

/// The original's words for a disk, but for the password.
impl std::fmt::Display for DiskSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let password =
            if self.iscsi.password.reveal().is_empty() { String::new() } else { self.iscsi.password.to_string() };
        write!(
            f,
            "{{ID:{} DeviceID:{} VolumeID:{} Lun:{} HostDeviceID:{} Path:{} ISCSISettings:{{InitiatorName:{} Username:{} \
             Target:{} Password:{password}}} FileSystemType:{} MountOptions:[{}] Partitioner:{}}}",
            self.id,
            self.device_id,
            self.volume_id,
            self.lun,
            self.host_device_id,
            self.path,
            self.iscsi.initiator_name,
            self.iscsi.username,
            self.iscsi.target,
            self.file_system_type,
            self.mount_options.as_deref().unwrap_or_default().join(" "),
            self.partitioner,
        )
    }
}

/// All disks that the agent knows, by cid. A hint that it was given wins over its settings.
pub(crate) fn known(hints: &Path, agent: &AgentSettings) -> Result<BTreeMap<String, DiskSettings>, DiskError> {
    let mut known = BTreeMap::new();
    for (cid, hint) in &agent.disks.persistent {
        let cid = cid.as_str();
        known.insert(cid.to_owned(), DiskSettings::new(cid, Value::from(hint.clone()), agent)?);
    }
    known.extend(read_hints(hints)?);
    Ok(known)
}

/// The disk `cid`.
pub(crate) fn find(hints: &Path, agent: &AgentSettings, cid: &str) -> Result<DiskSettings, DiskError> {
    known(hints, agent)?.remove(cid).ok_or_else(|| DiskError::Unknown(cid.to_owned()))
}

/// Remembers where a disk is.
pub(crate) fn add_hint(hints: &Path, disk: DiskSettings) -> Result<(), DiskError> {
    let mut known = read_hints(hints)?;
    if known.get(&disk.id) == Some(&disk) {
        return Ok(());
    }
    known.insert(disk.id.clone(), disk);
    write_hints(hints, &known)
}

/// Forgets where a disk is.
pub(crate) fn remove_hint(hints: &Path, cid: &str) -> Result<(), DiskError> {
    let mut known = read_hints(hints)?;
    match known.remove(cid) {
        Some(_) => write_hints(hints, &known),
        None => Ok(()),
    }
}

fn read_hints(path: &Path) -> Result<BTreeMap<String, DiskSettings>, DiskError> {
    let failed = |source| DiskError::Io { path: path.to_owned(), source };
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| failed(io::Error::other(crate::settings::without_values(&error)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(failed(error)),
    }
}

fn write_hints(path: &Path, hints: &BTreeMap<String, DiskSettings>) -> Result<(), DiskError> {
    file::write_json(path, hints, file::PRIVATE).map_err(|source| DiskError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent() -> AgentSettings {
        serde_json::from_value(json!({"agent_id": "a", "disks": {"persistent": {"d0": "/dev/sdz", "d1": "/dev/sdy"}}}))
            .unwrap()
    }

    #[test]
    fn hints_are_kept_as_the_original_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("persistent_disk_hints.json");
        add_hint(&path, DiskSettings::new("d1", json!("/tmp/x"), &agent()).unwrap()).unwrap();
        let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let original = json!({"d1": {"ID": "d1", "DeviceID": "", "VolumeID": "/tmp/x", "Lun": "", "HostDeviceID": "",
            "Path": "/tmp/x", "ISCSISettings": {"InitiatorName": "", "Username": "", "Target": "", "Password": ""},
            "FileSystemType": "", "MountOptions": null, "Partitioner": ""}});
        assert_eq!(written, original);

        let known = known(&path, &agent()).unwrap();
        assert_eq!((known["d0"].path.as_str(), known["d1"].path.as_str()), ("/dev/sdz", "/tmp/x"));
        remove_hint(&path, "d1").unwrap();
        remove_hint(&path, "d1").unwrap();
        assert_eq!(find(&path, &agent(), "d1").unwrap().path, "/dev/sdy");
    }

    #[test]
    fn a_number_in_a_hint_fails_the_task_and_not_the_agent() {
        let error = DiskSettings::new("d1", json!({"lun": 3}), &agent()).unwrap_err();
        assert!(windlass_contract::explain(&error).contains("'lun' is not a string"), "{error}");
        assert_eq!(DiskSettings::new("d1", Value::Null, &agent()).unwrap().path, "");
    }

    #[test]
    fn a_disk_is_described_in_the_originals_words_without_its_password() {
        let hint = json!({"path": "/p", "iscsi_settings": {"password": "hunter2", "target": "t"}});
        assert_eq!(
            DiskSettings::new("d1", hint, &agent()).unwrap().to_string(),
            "{ID:d1 DeviceID: VolumeID: Lun: HostDeviceID: Path:/p ISCSISettings:{InitiatorName: Username: Target:t \
             Password:<redacted>} FileSystemType: MountOptions:[] Partitioner:}"
        );
    }
}
