//! The state file: what exists, in the original's ten keys, so that either command line can go on where the other ended.
//! What only we know (the way to the agent, hints, intents) is in a file beside it; without that file, the state file
//! alone suffices.
//!
//! Both are written whole, atomically, after each step and before the next call.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use windlass_contract::{ApiVersion, DiskCid, MiB, Object, StemcellCid, VmCid};
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_operations::ledger::Intent;
use windlass_planning::records::{DiskRecord, VmRecord};

/// The state file. Keys that we do not know are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Sent with every CPI request.
    pub director_id: String,
    /// Names the original's folder of CPI packages.
    pub installation_id: String,
    /// Empty for none.
    #[serde(deserialize_with = "null_is_default")]
    pub current_vm_cid: String,
    /// The `id` of one of `stemcells`, or empty.
    #[serde(deserialize_with = "null_is_default")]
    pub current_stemcell_id: String,
    /// The `id` of one of `disks`, or empty.
    #[serde(deserialize_with = "null_is_default")]
    pub current_disk_id: String,
    /// Of `releases`.
    #[serde(deserialize_with = "null_is_default")]
    pub current_release_ids: Vec<String>,
    /// SHA-512 of the manifest that was deployed last, with its variables filled in; empty while one is being deployed.
    #[serde(deserialize_with = "null_is_default")]
    pub current_manifest_sha: String,
    #[serde(deserialize_with = "null_is_default")]
    pub disks: Vec<DiskEntry>,
    #[serde(deserialize_with = "null_is_default")]
    pub stemcells: Vec<StemcellEntry>,
    #[serde(deserialize_with = "null_is_default")]
    pub releases: Vec<ReleaseEntry>,
    /// What we do not know.
    #[serde(flatten)]
    pub other: Object,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskEntry {
    /// Ours.
    pub id: String,
    /// The cloud's.
    pub cid: DiskCid,
    pub size: MiB,
    /// As sent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub cloud_properties: Object,
    /// What we do not know.
    #[serde(flatten)]
    pub other: Object,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemcellEntry {
    /// Ours.
    pub id: String,
    /// From its manifest.
    pub name: String,
    /// From its manifest.
    pub version: String,
    /// What its agent can do; absent is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
    /// The cloud's.
    pub cid: StemcellCid,
    /// What we do not know.
    #[serde(flatten)]
    pub other: Object,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseEntry {
    /// Ours.
    pub id: String,
    pub name: String,
    pub version: String,
}

/// The newest form of what only we know that this version reads. It changes when an older version would misunderstand a file.
const FORM: u32 = 0;

/// What only we know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnState {
    /// The file's form; the first has no number.
    #[serde(skip_serializing_if = "is_first")]
    pub form: u32,
    /// The VM, with the way to its agent.
    pub vm: Option<VmRecord>,
    /// A VM beside that one, to take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare: Option<VmRecord>,
    /// The disks, with their attachments and hints.
    pub disks: Vec<DiskRecord>,
    /// Changes that were begun and of which nobody knows yet how they ended.
    pub intents: Vec<Intent>,
}

fn is_first(form: &u32) -> bool {
    *form == 0
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// why a state cannot be used
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// a file cannot be read or written
    #[error("cannot {doing} '{}'", path.display())]
    File {
        /// Such as `read`.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a file is not what it should be
    #[error(
        "'{}' is damaged, so nobody knows what exists; restore it from a backup. Nothing was changed: without it, a VM or disk \
         that is in use could be made twice or lost",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// a newer version wrote it
    #[error(
        "'{}' was written by a newer version of Windlass, in form {form}; this version reads up to form {FORM}. Use the newer \
         version; nothing was changed",
        path.display()
    )]
    Newer { path: PathBuf, form: u32 },
    /// another run has it
    #[error("another run works on '{}'; wait for its end", path.display())]
    InUse {
        /// The state file.
        path: PathBuf,
    },
}

/// A state that is ours for the time of a run.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    _lock: FileLock,
    pub state: State,
    /// What only we know, in a file beside it.
    pub own_state: OwnState,
}

/// The folder of our own authority, where the manifest brings no certificate for the agent.
pub const CA: &str = ".ca";
/// The folder of the registry's content, where VM or CPI are too old to do without one.
pub const REGISTRY: &str = ".registry";

/// How long a run waits for another one.
const PATIENCE: Duration = Duration::from_secs(1);

impl StateFile {
    /// The state at `path`, which may be missing, locked until this is dropped.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let path = std::path::absolute(path).map_err(failed("find", path))?;
        // Locked by a file of its own: the state file is replaced with every write.
        let lock_path = path_with_suffix(&path, ".lock");
        let lock = match FileLock::acquire(&lock_path, PATIENCE) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(StateError::InUse { path }),
            Err(source) => return Err(failed("lock", &lock_path)(source)),
        };
        let state = read(&path)?.unwrap_or_default();
        let known = read_own_state(&path_with_suffix(&path, ".json"))?;
        Ok(Self { path, _lock: lock, state, own_state: known })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file of ours that belongs to this state.
    pub fn path_with_suffix(&self, suffix: &str) -> PathBuf {
        path_with_suffix(&self.path, suffix)
    }

    /// Makes the state durable, first what everybody reads.
    pub fn save(&self) -> Result<(), StateError> {
        self.save_state()?;
        self.save_own_state()
    }

    /// Makes what everybody reads durable.
    pub fn save_state(&self) -> Result<(), StateError> {
        let mut bytes = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        let written = self.state.serialize(&mut serializer).map_err(io::Error::other);
        let mode = fs::metadata(&self.path).map_or(file::PRIVATE, |found| found.permissions().mode() & 0o777);
        written
            .and_then(|()| writeln!(bytes))
            .and_then(|()| file::write(&self.path, &bytes, mode))
            .map_err(failed("write", &self.path))
    }

    /// Makes what only we know durable.
    pub fn save_own_state(&self) -> Result<(), StateError> {
        let path = self.path_with_suffix(".json");
        file::write_json(&path, &self.own_state, file::PRIVATE).map_err(failed("write", &path))
    }

    /// Removes everything: nothing exists any more.
    pub fn remove(&self) -> Result<(), StateError> {
        let folders = [self.path_with_suffix(CA), self.path_with_suffix(REGISTRY)];
        for folder in &folders {
            // In place: keys of a removal that was killed are removed by the next one.
            file::remove(folder).map_err(failed("remove", folder))?;
        }
        for path in [self.path.clone(), self.path_with_suffix(".json"), self.path_with_suffix(".lock")] {
            match file::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &path)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The stemcell of the VM.
    pub fn current_stemcell(&self) -> Option<&StemcellEntry> {
        self.state.stemcells.iter().find(|stemcell| stemcell.id == self.state.current_stemcell_id)
    }

    /// The disk with the data.
    pub fn current_disk(&self) -> Option<&DiskEntry> {
        self.state.disks.iter().find(|disk| disk.id == self.state.current_disk_id)
    }

    /// Whether the VM's agent answered once and knows who it is.
    pub fn is_ready(&self) -> bool {
        self.own_state.vm.as_ref().is_some_and(|vm| vm.ready)
    }

    /// The VM, if there is one.
    pub fn vm_cid(&self) -> Option<VmCid> {
        VmCid::new(&self.state.current_vm_cid).ok()
    }
}

/// `bosh-state.json` has `bosh-state.windlass.json` beside it.
fn path_with_suffix(state: &Path, suffix: &str) -> PathBuf {
    let stem = state.file_stem().unwrap_or_default().to_string_lossy();
    state.with_file_name(format!("{stem}.windlass{suffix}"))
}

/// Its form is looked at first: a newer one may have anything else in it.
fn read_own_state(path: &Path) -> Result<OwnState, StateError> {
    let Some(document) = read::<serde_json::Value>(path)? else { return Ok(OwnState::default()) };
    match document["form"].as_u64().and_then(|form| u32::try_from(form).ok()) {
        Some(form) if form > FORM => Err(StateError::Newer { path: path.to_owned(), form }),
        _ => serde_json::from_value(document).map_err(|source| StateError::Damaged { path: path.to_owned(), source }),
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, StateError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path)(source)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| StateError::Damaged { path: path.to_owned(), source })
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::File { doing, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the original writes it, with nulls for empty lists.
    const ORIGINALS: &str = r#"{
    "director_id": "d-1",
    "installation_id": "i-1",
    "current_vm_cid": "vm-3",
    "current_stemcell_id": "s-1",
    "current_disk_id": "",
    "current_release_ids": null,
    "current_manifest_sha": "",
    "disks": null,
    "stemcells": [
        {
            "id": "s-1",
            "name": "sc",
            "version": "1",
            "cid": "sc-1"
        }
    ],
    "releases": null
}"#;

    #[test]
    fn a_state_of_the_original_is_read_and_written_back_with_its_ten_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bosh-state.json");
        fs::write(&path, ORIGINALS).unwrap();
        let file = StateFile::open(&path).unwrap();
        assert_eq!(file.vm_cid().unwrap().as_str(), "vm-3");
        assert_eq!(file.current_stemcell().unwrap().cid.as_str(), "sc-1");
        assert!(file.current_disk().is_none() && file.state.disks.is_empty());
        file.save().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\n    \"director_id\": \"d-1\",\n    \"installation_id\""), "{text}");
        let keys = serde_json::from_str::<Object>(&text).unwrap();
        assert_eq!(keys.len(), 10, "{text}");
        assert!(text.contains("\"disks\": []") && !text.contains("api_version"), "{text}");
        let mode = fs::metadata(folder.path().join("bosh-state.windlass.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it has the way to the agent in it");
    }

    #[test]
    fn a_damaged_state_is_never_taken_for_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        for damaged in ["", "{", "[]", r#"{"disks": 5}"#] {
            fs::write(&path, damaged).unwrap();
            let error = StateFile::open(&path).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{error}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"disks": 5}"#);
    }

    #[test]
    fn a_state_of_a_newer_version_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, ours) = (folder.path().join("s.json"), folder.path().join("s.windlass.json"));
        let newer = r#"{"form": 1, "vm": "by its name", "intents": {}}"#;
        fs::write(&ours, newer).unwrap();
        let refused = StateFile::open(&path).unwrap_err().to_string();
        assert!(refused.contains("newer version of Windlass") && refused.contains("s.windlass.json"), "{refused}");
        assert_eq!(fs::read_to_string(&ours).unwrap(), newer);
        // What BOSH's client may add to its own file is kept.
        fs::remove_file(&ours).unwrap();
        fs::write(&path, r#"{"director_id": "d", "blueprint": {"a": 1}}"#).unwrap();
        StateFile::open(&path).unwrap().save().unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("\"blueprint\""));
    }

    #[test]
    fn two_runs_do_not_work_on_one_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        let held = StateFile::open(&path).unwrap();
        assert!(matches!(StateFile::open(&path), Err(StateError::InUse { .. })));
        drop(held);
        StateFile::open(&path).unwrap();
    }
}
