//! A repeated request has one effect.
//!
//! A caller that is killed, or that loses its CPI, repeats what it asked. Creations (among them
//! `update_disk`, which may make another disk), `attach_disk` and `detach_disk` are then answered as the first time. The
//! rules:
//!
//! - Only when `context.request_id` is a UUID; other ids repeat by chance. `create_vm` is also known by its agent's id
//!   and arguments, as long as the VM exists, because every caller repeats it with the same agent id.
//! - Only successes are remembered. The same id with another method or other arguments is an error.
//! - While the first process still runs, the second waits for it.
//!
//! **Effect and memory cannot diverge**, because the record is written twice. Before the effect it gets the [`Call::id`]
//! that was chosen for this request; after it, the answer. A process killed in between leaves a record without an answer,
//! and the repeated call runs again *with the same id*: the cloud, which names what it makes by that id, finds what is
//! there and finishes it instead of making a second one. A new id is chosen only for a request that was never seen, or when
//! the VM that an agent's id stands for was deleted, so no cid that a caller has seen is ever given out again.
//!
//! Records are files that only their owner may read, in 256 folders by the first letters of their key. They hold a hash of
//! the arguments, not the arguments. Each remembered call removes a few that are older than [`KEPT`] from the folder that it
//! uses anyway.
//!
//! [`Call::id`]: crate::Call::id

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use windlass_contract::cpi::CpiError;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, RequestId};
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::digest::digest;

/// How long an answer is remembered; a director repeats what it left open when it starts again.
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long a repeated request waits for the first one.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// How many old records one call removes at most.
const PRUNED_PER_CALL: usize = 32;

/// Records of VMs start with this; they are kept as long as the VM exists.
const VM_PREFIX: &str = "vm-";

/// What a request is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key<'a> {
    /// The caller's unique request id.
    Request { director: &'a str, id: &'a RequestId },
    /// The agent of a VM, with the hash of `create_vm`'s arguments.
    Agent { director: &'a str, id: &'a AgentId, arguments: &'a str },
}

impl Key<'_> {
    fn file_name(&self) -> String {
        match self {
            Self::Request { director, id } => digest(&["request", director, id.as_str()]),
            Self::Agent { director, id, arguments } => {
                format!("{VM_PREFIX}{}", digest(&["agent", director, id.as_str(), arguments]))
            }
        }
    }
}

/// The hash of arguments, whatever the order of their keys.
pub(crate) fn hash(arguments: &[Value]) -> String {
    let mut arguments = Value::Array(arguments.to_vec());
    arguments.sort_all_objects();
    digest(&[&arguments.to_string()])
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RememberedRequest {
    method: String,
    arguments_sha256: String,
    id: Uuid,
    answer: Option<Value>,
    /// How a VM that was begun gets its settings: a later call that finishes it must not decide otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settings_from: Option<SettingsFrom>,
}

/// The memory of one request, locked for other processes as long as this lives.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    record: RememberedRequest,
    _lock: FileLock,
}

impl Memory {
    /// Finds the request, or notes it with a new id, before anything happens.
    pub(crate) fn open(folder: &Path, key: Key<'_>, method: &str, arguments: &str) -> Result<Self, CpiError> {
        let name = key.file_name();
        let shard = shard(folder, &name);
        let path = shard.join(format!("{name}.json"));
        let failed = |error: io::Error| cannot_remember(&path, &error);
        file::create_private_dir(&shard).map_err(failed)?;
        let lock = FileLock::acquire(&shard.join(format!("{name}.lock")), PATIENCE).map_err(failed)?;
        let record = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<RememberedRequest>(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = Uuid::new_v4();
                let record = RememberedRequest {
                    method: method.to_owned(),
                    arguments_sha256: arguments.to_owned(),
                    id,
                    answer: None,
                    settings_from: None,
                };
                file::write_json(&path, &record, file::PRIVATE).map_err(failed)?;
                record
            }
            Err(error) => return Err(failed(error)),
        };
        if (record.method.as_str(), record.arguments_sha256.as_str()) != (method, arguments) {
            return Err(CpiError::cpi(format!(
                "this request id was used before, for '{}' with other arguments; a new request needs a new id",
                record.method
            )));
        }
        Ok(Self { path, record, _lock: lock })
    }

    /// The id for what this request makes.
    pub(crate) fn id(&self) -> Uuid {
        self.record.id
    }

    /// The answer that was given.
    pub(crate) fn answer(&self) -> Option<&Value> {
        self.record.answer.as_ref()
    }

    /// How the VM gets its settings, if an interrupted call decided it; else it is decided now.
    pub(crate) fn settings_from(&mut self, asked: SettingsFrom) -> Result<SettingsFrom, CpiError> {
        match self.record.settings_from {
            Some(begun) => Ok(begun),
            None => {
                self.record.settings_from = Some(asked);
                self.write()?;
                Ok(asked)
            }
        }
    }

    /// Forgets how the VM gets its settings: it could not be made, and nothing remains of it.
    pub(crate) fn forget_settings_from(&mut self) -> Result<(), CpiError> {
        self.record.settings_from = None;
        self.write()
    }

    /// Remembers the answer.
    pub(crate) fn finish(&mut self, answer: Value) -> Result<(), CpiError> {
        self.record.answer = Some(answer);
        self.write()
    }

    /// Forgets the answer and chooses a new id: what was made is gone.
    pub(crate) fn renew(&mut self) -> Result<(), CpiError> {
        self.record.id = Uuid::new_v4();
        self.record.answer = None;
        self.record.settings_from = None;
        self.write()
    }

    fn write(&self) -> Result<(), CpiError> {
        file::write_json(&self.path, &self.record, file::PRIVATE).map_err(|error| cannot_remember(&self.path, &error))
    }
}

fn shard(folder: &Path, name: &str) -> PathBuf {
    let letters = name.strip_prefix(VM_PREFIX).unwrap_or(name);
    folder.join(&letters[..2])
}

fn cannot_remember(path: &Path, error: &io::Error) -> CpiError {
    CpiError::cloud(format!("cannot remember the request in {}: {error}", path.display()))
}

/// Removes some old records beside that of `key`. `vm_exists` is asked about VMs by the answer that made them.
/// Nothing depends on it, so failures are left to the next call.
pub(crate) async fn prune(folder: &Path, key: Key<'_>, vm_exists: impl AsyncFn(&Value) -> bool) {
    let Ok(entries) = fs::read_dir(shard(folder, &key.file_name())) else { return };
    let mut removed = 0;
    for entry in entries.flatten() {
        if removed == PRUNED_PER_CALL {
            return;
        }
        let path = entry.path();
        if !is_old(&entry) {
            continue;
        }
        if file::is_leftover(&entry.file_name()) {
            removed += usize::from(file::remove_file(&path).is_ok());
            continue;
        }
        let lock_path = path.with_extension("lock");
        let record_path = path.with_extension("json");
        let Ok(Some(_lock)) = FileLock::try_acquire(&lock_path) else { continue };
        let record =
            fs::read(&record_path).ok().and_then(|bytes| serde_json::from_slice::<RememberedRequest>(&bytes).ok());
        let is_vm = entry.file_name().to_str().is_some_and(|name| name.starts_with(VM_PREFIX));
        if is_vm
            && let Some(answer) = record.and_then(|record| record.answer)
            && vm_exists(&answer).await
        {
            continue;
        }
        // A lock may be older than its record.
        if fs::metadata(&record_path).is_ok_and(|record| !is_old_time(record.modified())) {
            continue;
        }
        let _ = file::remove_file(&record_path);
        let _ = file::remove_file(&lock_path);
        removed += 1;
    }
}

fn is_old(entry: &fs::DirEntry) -> bool {
    entry.metadata().is_ok_and(|metadata| is_old_time(metadata.modified()))
}

fn is_old_time(modified: io::Result<std::time::SystemTime>) -> bool {
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > KEPT))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;

    fn request(id: &RequestId) -> Key<'_> {
        Key::Request { director: "d", id }
    }

    #[test]
    fn an_interrupted_request_keeps_its_id_and_a_finished_one_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let id = RequestId::random();
        let first = Memory::open(folder.path(), request(&id), "create_disk", "h").unwrap();
        let chosen = first.id();
        drop(first);
        let mut second = Memory::open(folder.path(), request(&id), "create_disk", "h").unwrap();
        assert_eq!((second.id(), second.answer()), (chosen, None));
        second.finish(json!("disk-1")).unwrap();
        drop(second);
        let third = Memory::open(folder.path(), request(&id), "create_disk", "h").unwrap();
        assert_eq!(third.answer(), Some(&json!("disk-1")));
        drop(third);
        let error = Memory::open(folder.path(), request(&id), "create_disk", "other").unwrap_err();
        assert!(error.message.contains("other arguments"), "{error}");
    }

    #[test]
    fn the_order_of_keys_does_not_make_other_arguments() {
        assert_eq!(hash(&[json!({"a": 1, "b": {"c": 2, "d": 3}})]), hash(&[json!({"b": {"d": 3, "c": 2}, "a": 1})]));
        assert_ne!(hash(&[json!(["a", "b"])]), hash(&[json!("a"), json!("b")]));
    }

    fn age(path: &Path) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - KEPT - Duration::from_secs(60)).unwrap();
    }

    #[tokio::test]
    async fn old_records_go_but_those_of_living_vms_stay() {
        let folder = tempfile::tempdir().unwrap();
        let id = RequestId::random();
        let agent = AgentId::random();
        let keys = [request(&id), Key::Agent { director: "d", id: &agent, arguments: "h" }];
        for key in keys {
            let mut memory = Memory::open(folder.path(), key, "create_vm", "h").unwrap();
            memory.finish(json!(["vm-1", {}])).unwrap();
        }
        let path = |key: Key<'_>, extension| {
            shard(folder.path(), &key.file_name()).join(format!("{}.{extension}", key.file_name()))
        };
        for key in keys {
            prune(folder.path(), key, async |_| true).await;
            assert!(path(key, "json").exists(), "a young record stays");
            age(&path(key, "json"));
            age(&path(key, "lock"));
            prune(folder.path(), key, async |_| true).await;
        }
        assert!(!path(keys[0], "json").exists() && !path(keys[0], "lock").exists());
        assert!(path(keys[1], "json").exists(), "the VM is still there");
        prune(folder.path(), keys[1], async |_| false).await;
        assert!(!path(keys[1], "json").exists());
    }
}
