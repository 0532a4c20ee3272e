//! Copies on this machine of blobs that are elsewhere: many VMs get the same packages.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use windlass_durable::file;

use crate::error::BlobError;
use crate::store::Store;

/// What copies take, unless more of them are in use at once.
const MOST: u64 = 2 << 30;

#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    most: u64,
    /// For names of files and for the order of use.
    turn: AtomicU64,
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    copy: Arc<OnceCell<Arc<LocalCopy>>>,
    used: u64,
}

/// A file that goes with its last user.
#[derive(Debug)]
pub(crate) struct LocalCopy {
    pub(crate) path: PathBuf,
    size: u64,
}

impl Drop for LocalCopy {
    fn drop(&mut self) {
        file::discard(&self.path);
    }
}

impl Cache {
    /// A cache in `folder`, which is its own: what an earlier run left there is removed.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        if folder.exists() {
            file::remove_tree(folder)?;
        }
        file::create_private_dir(folder)?;
        let (turn, entries) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { folder: folder.to_owned(), most: MOST, turn, entries })
    }

    /// The copy of a blob. Who asks for it while it is fetched waits for the same.
    pub(crate) async fn get(&self, store: &Store, id: &str, digest: Option<&str>) -> Result<Arc<LocalCopy>, BlobError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let copy = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.entry(id.to_owned()).or_insert_with(|| Entry { copy: Arc::default(), used: turn });
            entry.used = turn;
            entry.copy.clone()
        };
        let fetching = || async {
            let path = self.folder.join(turn.to_string());
            store.get(id, digest, &path).await?;
            let size = std::fs::metadata(&path).map_or(0, |found| found.len());
            Ok(Arc::new(LocalCopy { path, size }))
        };
        let fetched = copy.get_or_try_init(fetching).await.cloned();
        self.make_room(id);
        fetched
    }

    /// A blob that is removed from its store is of no use here either.
    pub(crate) fn forget(&self, id: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Lets go of what was used least recently, but not of `wanted`.
    fn make_room(&self, wanted: &str) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |entry: &Entry| entry.copy.get().map_or(0, |copy| copy.size);
        let mut total: u64 = entries.values().map(size).sum();
        while total > self.most {
            let others = entries.iter().filter(|(id, entry)| *id != wanted && entry.copy.initialized());
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone()) else { return };
            total -= entries.remove(&oldest).as_ref().map_or(0, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn copies_are_shared_and_the_oldest_go_but_not_from_who_uses_them() {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::folder(there.path());
        for id in ["a", "b", "c"] {
            std::fs::write(there.path().join(id), [b'x'; 100]).unwrap();
        }
        let digest = windlass_archive::digest::sha1(&mut &[b'x'; 100][..]).unwrap();
        let mut cache = Cache::new(&here.path().join("cache")).unwrap();
        cache.most = 200;
        let first = cache.get(&store, "a", Some(&digest)).await.unwrap();
        let again = cache.get(&store, "a", Some(&digest)).await.unwrap();
        assert_eq!(first.path, again.path);
        let second = cache.get(&store, "b", Some(&digest)).await.unwrap().path.clone();
        cache.get(&store, "c", Some(&digest)).await.unwrap();
        assert!(first.path.exists(), "it is in use");
        let path = first.path.clone();
        drop((first, again));
        assert!(!path.exists(), "it was let go of");
        assert!(second.exists());
        cache.get(&store, "a", Some("00")).await.unwrap_err();
        assert_eq!(std::fs::read_dir(here.path().join("cache")).unwrap().count(), 2, "what is wrong is not kept");
    }
}
