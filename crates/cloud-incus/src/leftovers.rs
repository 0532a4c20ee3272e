//! What a call began and could neither finish nor remove, such as a VM on a member that died meanwhile. Its caller heard of a failure
//! and asks for another, so it is noted on this machine, and the next call that makes something or deletes a VM removes it.
//!
//! A note may be older than it looks, because a backup brought it back. So nothing is removed that somebody has had: a VM that a
//! director named, or a disk that a VM had, which the cluster itself says ([`tags::USED`]).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_contract::cpi::CpiError;
use windlass_contract::{DiskCid, VmCid};
use windlass_cpi::Call;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::client::ClientError;
use crate::disks::{Disk, must_be_reachable};
use crate::fault::Fault;
use crate::methods::{delete_disk, delete_vm};
use crate::names::{DiskName, VmName};
use crate::session::Session;
use crate::tags;

/// How long a call removes what others left, and how long one that is begun again waits for that.
const PATIENCE: Duration = Duration::from_secs(30);

/// For how long what is not there may still come: a request whose answer was lost may be under way.
const MAY_COME: Duration = Duration::from_secs(10 * 60);

/// What a call makes, by the name that it gives to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Vm(VmName),
    Disk(DiskName),
}

/// The cluster that a leftover is in: one folder may be for several.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    endpoints: Vec<String>,
    project: String,
}

impl Made {
    fn cid(&self) -> String {
        match self {
            Self::Vm(name) => name.as_str().to_owned(),
            Self::Disk(name) => name.to_string(),
        }
    }

    /// What its note is called; none for what is no cid of ours. The name of a pool comes from a disk type, which a team may write, and
    /// could lead anywhere on this machine.
    fn file_name(&self) -> Option<String> {
        let cid = self.cid();
        (Self::of_cid(&cid).as_ref() == Some(self)).then_some(cid)
    }

    fn of_cid(text: &str) -> Option<Self> {
        let vm = VmCid::new(text).ok().and_then(|cid| VmName::of(&cid)).map(Self::Vm);
        vm.or_else(|| DiskCid::new(text).ok().and_then(|cid| DiskName::of(&cid)).map(Self::Disk))
    }
}

/// Carries out a call that makes something; one that fails leaves a note, unless nothing of it is there.
pub(crate) async fn make<T>(
    session: &Session,
    call: &Call,
    made: &Made,
    method: impl AsyncFnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (Some(folder), Some(_)) = (folder(session), made.file_name()) else { return method().await };
    take_back(&folder, made).map_err(|error| cannot_note(&folder, &error))?;
    remove(session, call).await;
    let answer = method().await;
    if let Err(fault) = &answer
        && (fault.is_transient() || !matches!(is_there(session, made).await, Ok(false)))
        && let Err(error) = note(&folder, session, made)
    {
        warn(&cannot_note(&folder, &error).message);
    }
    answer
}

async fn is_there(session: &Session, made: &Made) -> Result<bool, ClientError> {
    match made {
        Made::Vm(name) => Ok(session.client.find_instance(name.as_str()).await?.is_some()),
        Made::Disk(name) => match session.client.find_volumes(&name.pool, &name.volume).await {
            Err(error) if error.is_missing() => Ok(false),
            found => Ok(!found?.is_empty()),
        },
    }
}

/// Removes what earlier calls left. Nothing depends on it, so what cannot be removed is left to a later call.
pub(crate) async fn remove(session: &Session, call: &Call) {
    let Some(folder) = folder(session) else { return };
    if tokio::time::timeout(PATIENCE, remove_all(session, call, &folder)).await.is_err() {
        warn("what earlier calls left could not be removed in time");
    }
}

fn folder(session: &Session) -> Option<PathBuf> {
    session.config.state_dir.as_ref().map(|state| state.join("leftovers"))
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

fn note(folder: &Path, session: &Session, made: &Made) -> std::io::Result<()> {
    file::create_private_dir(folder)?;
    file::write_json(&folder.join(made.cid()), &Note::of(session), file::PRIVATE)
}

/// The same call is begun again, and goes on with what there is.
fn take_back(folder: &Path, made: &Made) -> std::io::Result<()> {
    let note = folder.join(made.cid());
    if !note.try_exists()? {
        return Ok(());
    }
    let _not_while_it_is_removed = FileLock::acquire(&lock_of(folder), PATIENCE)?;
    file::remove_file(&note)
}

async fn remove_all(session: &Session, call: &Call, folder: &Path) {
    let noted = || std::fs::read_dir(folder).into_iter().flatten().flatten();
    let left = |name: std::ffi::OsString| name.to_str().and_then(Made::of_cid);
    if !noted().any(|entry| left(entry.file_name()).is_some()) {
        return;
    }
    // Who has the lock removes it for us as well.
    let Ok(Some(_lock)) = FileLock::try_acquire(&lock_of(folder)) else { return };
    for made in noted().filter_map(|entry| left(entry.file_name())) {
        let path = folder.join(made.cid());
        let note = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        if !note.is_some_and(|note| note.is_of(session)) {
            continue;
        }
        let removed = match &made {
            Made::Vm(name) => remove_vm(session, call, name).await,
            Made::Disk(name) => remove_disk(session, call, name).await,
        };
        match removed {
            Ok(Remains::Expected) if !is_old(&path) => {}
            Ok(_) => {
                if let Err(error) = file::remove_file(&path) {
                    warn(&cannot_note(folder, &error).message);
                }
            }
            Err(fault) => warn(&format!("'{}' remains of a call that failed: {fault}", made.cid())),
        }
    }
}

impl Note {
    fn of(session: &Session) -> Self {
        Self { endpoints: session.config.endpoints.clone(), project: session.config.project.clone() }
    }

    /// Members come to a cluster and leave it.
    fn is_of(&self, session: &Session) -> bool {
        let has = |endpoint| session.config.endpoints.contains(endpoint);
        self.project == session.config.project && self.endpoints.iter().any(has)
    }
}

/// What may remain of a call after a look at the cluster.
enum Remains {
    Nothing,
    /// It was not there, and may come.
    Expected,
}

fn is_old(note: &Path) -> bool {
    let written = std::fs::metadata(note).and_then(|note| note.modified());
    written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > MAY_COME))
}

async fn remove_vm(session: &Session, call: &Call, name: &VmName) -> Result<Remains, Fault> {
    let Some(found) = session.client.find_instance(name.as_str()).await? else { return Ok(Remains::Expected) };
    let is_named = found.config.as_ref().is_some_and(|config| !tags::metadata(config).is_empty());
    if is_named || found.get(tags::DIRECTOR) != Some(call.context.director_uuid.as_str()) {
        return Ok(Remains::Nothing);
    }
    // Where nobody answers there is nothing to wait for.
    must_be_reachable(&found)?;
    session.client.wait_for_others(name.as_str()).await?;
    delete_vm::delete(session, name, &found).await?;
    Ok(Remains::Nothing)
}

async fn remove_disk(session: &Session, call: &Call, name: &DiskName) -> Result<Remains, Fault> {
    let Some(disk) = Disk::named(session, name.clone()).await? else { return Ok(Remains::Expected) };
    let has = |key: &str| disk.volume.get(key).is_some();
    let is_ours = disk.volume.get(tags::DIRECTOR) == Some(call.context.director_uuid.as_str());
    if has(tags::USED) || has(tags::ATTACHED_TO) || !is_ours {
        return Ok(Remains::Nothing);
    }
    delete_disk::delete(session, &disk).await?;
    Ok(Remains::Nothing)
}

fn cannot_note(folder: &Path, error: &std::io::Error) -> CpiError {
    CpiError::cloud(format!("cannot note in {} what may remain of a call: {error}", folder.display()))
}

fn warn(words: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "warning: {words}");
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// A team's disk type had files written anywhere on the director's machine.
    #[test]
    fn no_pool_leads_a_note_elsewhere() {
        let disk = |pool: &str| Made::Disk(DiskName::new(pool, Uuid::nil()));
        assert_eq!(disk("fast").file_name(), Some(format!("fast:disk-{}", Uuid::nil())));
        assert!(Made::Vm(VmName::new(Uuid::nil())).file_name().is_some());
        for pool in ["/etc/sudoers.d/x", "../../x", "a/b", "", "a:b", "a\0"] {
            assert_eq!(disk(pool).file_name(), None, "{pool:?}");
        }
    }
}
