//! Fetches logs from agents: each packs its own; those of several are packed once more.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use windlass_agent_client::{CallError, Cancellation};
use windlass_archive::Limits;
use windlass_durable::file;
use windlass_operations::{clock, full_disk};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::Selection;
use windlass_planning::records::{InstanceRecord, VmRecord};
use windlass_stemcell::digest::{self, DigestError};

use super::update_deployment::all;
use super::{TaskError, TaskLog};
use crate::Director;
use crate::blobs::{self, CollectError, LOGS_OF_A_USER};
use crate::store::Contact;

/// How many agents are asked at once.
const AT_ONCE: usize = 32;
/// How large the packed logs of one VM may be: no VM fills the director's disk.
const LARGEST: u64 = 1 << 30;
/// How long an agent may take to end what nobody waits for any more. It does one thing after the other, and would come to nothing else.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is looked how much there is of all logs of a task.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// why logs were not fetched
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchLogsError {
    #[error(transparent)]
    Agent(#[from] CallError),
    /// the agent answered something else
    #[error("the agent's answer to fetch_logs names no blob")]
    Answer(#[source] serde_json::Error),
    /// the agent lost it
    #[error("the agent packed its logs as blob {0}, but does not have it")]
    Missing(String),
    /// the logs changed on their way
    #[error("the logs are damaged")]
    Damaged(#[from] DigestError),
    /// the disk has no room for them
    #[error("there is no space left for the logs in {}; free some on this machine", .0.display())]
    NoSpace(PathBuf),
    /// they are more than a user may have
    #[error(
        "the logs of all instances have more than {0} GiB together; fetch those of fewer instances, or of some jobs with --job"
    )]
    TooMuch(u64),
    /// nobody waits for them any more
    #[error("the task was cancelled before the logs were here")]
    Cancelled,
    /// the logs cannot be written
    #[error("the logs cannot be written")]
    Write(#[from] io::Error),
    /// the logs cannot be kept
    #[error("the logs cannot be kept")]
    Keep(#[from] CollectError),
}

/// What agents answer.
#[derive(Debug, Deserialize)]
struct Packed {
    blobstore_id: String,
    sha1: String,
}

/// Gives the id of the blob that has the logs.
pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    selection: &Selection,
    (kind, filters): (&str, &[String]),
) -> Result<String, TaskError> {
    let contacts = director.store.contacts(deployment).await?;
    let chosen: Vec<_> = contacts.iter().filter_map(|instance| with_vm(instance, selection)).collect();
    if chosen.is_empty() {
        let reason = format!("no instance with a VM in deployment '{deployment}' is meant; see instances");
        return Err(TaskError::refused(70001, reason));
    }
    let time = clock::rfc3339(clock::now()).replace([':', '-'], "");
    let file_name = |record: &InstanceRecord| format!("{}.{}.{time}.tgz", record.group, record.id);
    let folder = director.folders.temporary().join(format!("logs-{}", log.task()));
    file::create_private_dir(&folder).map_err(FetchLogsError::from)?;
    let result = async {
        let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
        for (record, vm) in &chosen {
            let stage = log.stage(&format!("Fetching logs for {} ({})", record.name(), record.index), &[], 1);
            let part = stage.part("Finding and packing log files");
            let into = folder.join(file_name(record));
            each.push(Box::pin(async move {
                let cancellation = Cancellation::when({
                    let log = log.clone();
                    move || log.is_cancelled()
                });
                let fetching = fetch_some(director, vm, (kind, filters), &into, LARGEST, cancellation);
                Ok(part.run(unless_cancelled(log, ENDING, fetching)).await.map(drop)?)
            }));
        }
        tokio::select! {
            fetched = all(Box::new(each.into_iter()), AT_ONCE) => fetched?,
            too_much = too_much(&folder, LOGS_OF_A_USER) => return Err(too_much.into()),
        }
        let packed = match chosen.as_slice() {
            [(record, _)] => folder.join(file_name(record)),
            _ => {
                let stage = log.stage("Fetching group of logs", &[], 1);
                let together = folder.join(".together");
                let packing = pack(folder.clone(), together.clone());
                stage.part("Packing log files together").run(packing).await.map_err(FetchLogsError::from)?;
                together
            }
        };
        Ok(blobs::keep_logs(director, log.task(), &packed).await.map_err(FetchLogsError::from)?)
    }
    .await;
    if let Err(error) = file::remove_tree(&folder) {
        log.warning(&format!("cannot remove {}: {error}", folder.display()));
    }
    result
}

fn with_vm<'c>(instance: &'c Contact, selection: &Selection) -> Option<(&'c InstanceRecord, &'c VmRecord)> {
    let vm = instance.vm.as_ref().filter(|vm| vm.ready && selection.includes(&instance.record))?;
    Some((&instance.record, vm))
}

/// Ends with a task that is cancelled, or has so much time if that was before.
async fn unless_cancelled<T>(
    log: &TaskLog,
    patience: Duration,
    work: impl Future<Output = Result<T, FetchLogsError>>,
) -> Result<T, FetchLogsError> {
    let cancelled = async {
        log.cancelled().await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        done = work => done,
        () = cancelled => Err(FetchLogsError::Cancelled),
    }
}

/// Logs that have no more bytes than this when they are packed; gives their digest as the agent wrote it. The agent is told when they
/// are not wanted any more.
pub(super) async fn fetch_some(
    director: &Director,
    vm: &VmRecord,
    (kind, filters): (&str, &[String]),
    into: &Path,
    largest: u64,
    cancellation: Cancellation,
) -> Result<String, FetchLogsError> {
    let agent = director.agents.of(vm).until(cancellation);
    let answer = match agent.call("fetch_logs", vec![json!(kind), json!(filters)]).await {
        Err(CallError::Cancelled { .. }) => return Err(FetchLogsError::Cancelled),
        answer => answer?,
    };
    let packed: Packed = serde_json::from_value(answer).map_err(FetchLogsError::Answer)?;
    let fetched = tokio::select! {
        fetched = agent.get_blob(&packed.blobstore_id, into, largest) => fetched?,
        full = no_space(into) => return Err(full),
    };
    if !fetched {
        return Err(FetchLogsError::Missing(packed.blobstore_id));
    }
    let (into, expected) = (into.to_owned(), packed.sha1.clone());
    let verified = tokio::task::spawn_blocking(move || digest::verify(&into, &expected)).await;
    verified.map_err(io::Error::other)??;
    Ok(packed.sha1)
}

async fn no_space(into: &Path) -> FetchLogsError {
    let folder = into.parent().unwrap_or(Path::new("."));
    full_disk::wait_for(folder).await.map_or_else(Into::into, |()| FetchLogsError::NoSpace(folder.to_owned()))
}

/// Waits until the logs in a folder have more bytes than a user may have of them.
async fn too_much(folder: &Path, most: u64) -> FetchLogsError {
    loop {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let size: u64 = entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
        if size > most {
            return FetchLogsError::TooMuch(most >> 30);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The logs of the jobs on one VM, kept as a blob: its id, and its digest as the agent wrote it. A task that is cancelled waits for
/// them for as long as `patience`.
pub(super) async fn fetch_blob(
    director: &Director,
    log: &TaskLog,
    vm: &VmRecord,
    patience: Duration,
) -> Result<(String, String), FetchLogsError> {
    let temporary = director.folders.temporary().join(format!("logs-{}", uuid::Uuid::new_v4()));
    let kept: Result<_, FetchLogsError> = async {
        let fetching = fetch_some(director, vm, ("job", &[]), &temporary, LARGEST, Cancellation::default());
        let digest = unless_cancelled(log, patience, fetching).await?;
        Ok((blobs::keep_logs(director, log.task(), &temporary).await?, digest))
    }
    .await;
    if kept.is_err() {
        // What it left is of no use to anybody.
        let _ = file::remove_file(&temporary);
    }
    kept
}

/// Packs the files of a folder, from file to file.
async fn pack(folder: PathBuf, into: PathBuf) -> io::Result<()> {
    let packed = tokio::task::spawn_blocking(move || {
        let names = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names = names?;
        names.sort();
        let sizes = names.iter().map(|name| Ok(folder.join(name).metadata()?.len()));
        if sizes.sum::<io::Result<u64>>()? > Limits::of_space(&folder)?.bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "there is no space left to pack them together"));
        }
        let compressed = flate2::write::GzEncoder::new(File::create_new(&into)?, flate2::Compression::fast());
        let mut archive = tar::Builder::new(compressed);
        for name in names {
            archive.append_path_with_name(folder.join(&name), &name)?;
        }
        archive.into_inner()?.finish()?.sync_all()
    });
    packed.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four VMs with a gigabyte each filled the disk, and nobody could change anything.
    #[tokio::test]
    async fn logs_that_vms_send_leave_the_disk_its_reserve() {
        // A file system without room.
        let full = no_space(Path::new("/proc/logs")).await.to_string();
        assert!(full.contains("no space left for the logs in /proc; free some"), "{full}");
        let folder = tempfile::tempdir().unwrap();
        let waits = tokio::time::timeout(LOOK_AGAIN, no_space(&folder.path().join("logs"))).await;
        assert!(waits.is_err(), "there is space");
        std::fs::write(folder.path().join("a"), "x").unwrap();
        let waits = tokio::time::timeout(2 * LOOK_AGAIN, too_much(folder.path(), 1)).await;
        assert!(waits.is_err(), "there is no more than that");
        assert!(matches!(too_much(folder.path(), 0).await, FetchLogsError::TooMuch(0)));
        pack(folder.path().to_owned(), folder.path().join("together")).await.unwrap();
    }
}
