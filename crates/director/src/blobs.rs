//! What the director keeps as blobs: archives of releases, and what tasks made for operators to fetch. Where they are is set in
//! `director.yml`.
//!
//! A blob is referenced when a record names it. A kill may leave one without a record; those are counted by `clean-up --dry-run`
//! and removed by the next upload or deletion of a release, or by `clean-up --all`.

use std::collections::{HashMap, HashSet};

use windlass_blobs::{BlobError, Blobstore, Drawer};
use windlass_operations::clock;

use crate::Director;
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::store::StoreError;

/// Jobs and packages of releases.
pub(crate) const RELEASES: Drawer = Drawer("releases");
/// What tasks made, such as logs.
pub(crate) const MADE: Drawer = Drawer("blobs");

/// How long logs are kept for operators to fetch.
const LOGS_KEPT: i64 = 10 * 24 * 60 * 60;

/// How many bytes of logs one user may have here; of more, the oldest go. A team chooses what its VMs log, and how often it is fetched.
pub(crate) const LOGS_OF_A_USER: u64 = 4 << 30;

/// why blobs cannot be looked after
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// Where the settings say.
pub(crate) fn open(settings: &Settings, folders: &StateDir, uuid: &str) -> Result<Blobstore, BlobError> {
    let opened = Blobstore::open(&settings.blobstore, folders.kept(), &folders.cached_blobs(), &[RELEASES, MADE])?;
    Ok(opened.with_limit(settings.blobs_limit).owned_by(uuid))
}

/// Finds blobs that no record names.
pub(crate) async fn unreferenced(director: &Director) -> Result<Vec<(Drawer, String)>, CollectError> {
    let mut found = Vec::new();
    for (drawer, known) in
        [(RELEASES, director.store.release_blobs().await?), (MADE, director.store.made_blobs().await?)]
    {
        found.extend(unknown(director, drawer, &known).await?.into_iter().map(|id| (drawer, id)));
    }
    Ok(found)
}

async fn unknown(director: &Director, drawer: Drawer, known: &HashSet<String>) -> Result<Vec<String>, BlobError> {
    let listed = director.blobs.list(drawer).await?.into_iter().map(|blob| blob.id);
    Ok(listed.filter(|id| !known.contains(id)).collect())
}

/// Removes files that no release has: of uploads that were killed, and of releases that were deleted. The caller has the lock of
/// releases.
pub(crate) async fn remove_unknown_of_releases(director: &Director) -> Result<usize, CollectError> {
    let _turn = director.release_files.write().await;
    let known = director.store.release_blobs().await?;
    remove(director, RELEASES, unknown(director, RELEASES, &known).await?).await
}

/// Removes everything that no record names. The caller has the lock of releases.
pub(crate) async fn remove_unreferenced(director: &Director) -> Result<usize, CollectError> {
    let of_releases = remove_unknown_of_releases(director).await?;
    let _turn = director.release_files.write().await;
    let known = director.store.made_blobs().await?;
    Ok(of_releases + remove(director, MADE, unknown(director, MADE, &known).await?).await?)
}

async fn remove(director: &Director, drawer: Drawer, ids: Vec<String>) -> Result<usize, CollectError> {
    for id in &ids {
        director.blobs.remove(drawer, id).await?;
    }
    Ok(ids.len())
}

/// Keeps packed logs under a new id, which is on record first. Those that are old go.
pub(crate) async fn keep_logs(director: &Director, task: i64, file: &std::path::Path) -> Result<String, CollectError> {
    keep_some_logs(director, task, file, LOGS_OF_A_USER).await
}

async fn keep_some_logs(
    director: &Director,
    task: i64,
    file: &std::path::Path,
    most: u64,
) -> Result<String, CollectError> {
    let now = clock::now();
    let mut going = director.store.logs_before(now - LOGS_KEPT).await?;
    let of_user = director.store.logs_of_user_of(task).await?;
    if !of_user.is_empty() {
        let listed = director.blobs.list(MADE).await?;
        let sizes: HashMap<String, u64> = listed.into_iter().map(|blob| (blob.id, blob.size)).collect();
        // One that is not there says so when it is kept.
        let mut size = file.metadata().map_or(0, |file| file.len());
        for id in of_user {
            size += sizes.get(&id).copied().unwrap_or_default();
            if size > most && !going.contains(&id) {
                going.push(id);
            }
        }
    }
    for id in going {
        director.blobs.remove(MADE, &id).await?;
        director.store.forget_logs(&id).await?;
    }
    let id = uuid::Uuid::new_v4().to_string();
    director.store.add_logs(&id, task, now).await?;
    windlass_durable::kill_point("before logs are kept");
    director.blobs.keep(MADE, &id, file).await?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewTask;
    use crate::tasks::Job;
    use crate::testing::TestDirector;

    /// A team could fill the director's disk with the logs of its VMs for ten days.
    #[tokio::test]
    async fn a_users_oldest_logs_make_room_for_the_newest_and_those_of_others_stay() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let task = async |user: &str| {
            let task = NewTask { job: Job::DeleteOrphanedVms, user: user.to_owned(), context_id: String::new() };
            director.store.add_task(&task).await.unwrap()
        };
        let (eve, ann) = (task("eve").await, task("ann").await);
        let folder = tempfile::tempdir().unwrap();
        let keep = async |task: i64| {
            let file = folder.path().join("logs");
            std::fs::write(&file, [0; 100]).unwrap();
            keep_some_logs(director, task, &file, 250).await.unwrap()
        };
        let of_ann = keep(ann).await;
        let mut of_eve = Vec::new();
        for _ in 0..4 {
            of_eve.push(keep(eve).await);
        }
        let left: HashSet<String> = director.blobs.list(MADE).await.unwrap().into_iter().map(|blob| blob.id).collect();
        assert!(left.contains(&of_ann) && left.contains(&of_eve[3]) && left.len() == 3, "{left:?}");
        assert_eq!(director.store.made_blobs().await.unwrap(), left);
    }
}
