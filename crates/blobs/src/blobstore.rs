//! The blobs of a director.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, OnceCell};

use crate::cache::{Cache, LocalCopy};
use crate::error::{BlobAction, BlobError};
use crate::options::BlobstoreChoice;
use crate::store::{Listed, Store};

/// Blobs that belong together, by the name of their folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawer(pub &'static str);

impl Drawer {
    fn id(self, id: &str) -> String {
        format!("{}/{id}", self.0)
    }
}

/// A place with drawers, a limit, and copies on this machine of what is elsewhere.
#[derive(Debug)]
pub struct Blobstore {
    store: Store,
    /// Where blobs were before another place was chosen: what is not in the store is looked for there.
    before: Option<Store>,
    cache: Option<Cache>,
    drawers: &'static [Drawer],
    limit: Option<u64>,
    /// Bytes of all blobs, once they were counted.
    used: Mutex<Option<u64>>,
    owner: Option<String>,
    /// Whether the store says that its blobs are the owner's.
    claimed: OnceCell<()>,
}

/// A blob as a file of this machine, for as long as this is held.
#[derive(Debug)]
pub struct BlobFile(Where);

#[derive(Debug)]
enum Where {
    Kept(PathBuf),
    Copied(Arc<LocalCopy>),
}

impl AsRef<Path> for BlobFile {
    fn as_ref(&self) -> &Path {
        match &self.0 {
            Where::Kept(path) => path,
            Where::Copied(copy) => &copy.path,
        }
    }
}

impl Blobstore {
    /// Blobs in a folder of this machine.
    pub fn folder(root: &Path, drawers: &'static [Drawer]) -> Self {
        let store = Store::folder(root);
        Self {
            store,
            before: None,
            cache: None,
            drawers,
            limit: None,
            used: Mutex::default(),
            owner: None,
            claimed: OnceCell::new(),
        }
    }

    /// Blobs where they are chosen to be; `root` has their folders unless another place is chosen, and `cache` is for copies.
    pub fn open(
        choice: &BlobstoreChoice,
        root: &Path,
        cache: &Path,
        drawers: &'static [Drawer],
    ) -> Result<Self, BlobError> {
        let own = Self::folder(root, drawers);
        let store = match choice {
            BlobstoreChoice::Local(None) => return Ok(own),
            choice => Store::open(choice, root)?,
        };
        let unusable = |source: io::Error| BlobError::File {
            what: BlobAction::Fetch,
            id: String::new(),
            path: cache.to_owned(),
            source,
        };
        let cache = if choice.is_shared() { Some(Cache::new(cache).map_err(unusable)?) } else { None };
        Ok(Self { store, before: Some(own.store), cache, ..own })
    }

    /// The same with as many bytes as it may have.
    pub fn with_limit(self, limit: Option<u64>) -> Self {
        Self { limit, ..self }
    }

    /// The same for one director, which is called by its uuid.
    pub fn owned_by(self, owner: &str) -> Self {
        Self { owner: Some(owner.to_owned()), ..self }
    }

    /// What it is called in messages.
    pub fn place(&self) -> String {
        self.store.place()
    }

    /// Notes whose blobs these are; refuses those of another. Nothing is kept or removed before.
    pub async fn claim(&self) -> Result<(), BlobError> {
        let Some(owner) = &self.owner else { return Ok(()) };
        self.claimed.get_or_try_init(|| self.store.claim(owner)).await.copied()
    }

    /// Keeps a file, which is gone then from where it was.
    pub async fn keep(&self, drawer: Drawer, id: &str, from: &Path) -> Result<(), BlobError> {
        let failed =
            |source| BlobError::File { what: BlobAction::Keep, id: id.to_owned(), path: from.to_owned(), source };
        let size = std::fs::metadata(from).map_err(failed)?.len();
        self.claim().await?;
        self.must_fit(size).await?;
        self.store.adopt(&drawer.id(id), from).await?;
        if let Some(used) = &mut *self.used.lock().await {
            *used += size;
        }
        Ok(())
    }

    /// Refuses what would be too much, before anything is done for it.
    pub async fn must_fit(&self, size: u64) -> Result<(), BlobError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let wanted = self.used().await?.saturating_add(size);
        if wanted > limit { Err(BlobError::Limit { wanted, limit }) } else { Ok(()) }
    }

    /// The bytes of all blobs.
    pub async fn used(&self) -> Result<u64, BlobError> {
        let mut used = self.used.lock().await;
        if let Some(used) = *used {
            return Ok(used);
        }
        let mut total = 0;
        for drawer in self.drawers {
            total += self.list(*drawer).await?.iter().map(|blob| blob.size).sum::<u64>();
        }
        *used = Some(total);
        Ok(total)
    }

    /// A blob as a file of this machine. What comes from elsewhere is what its digest says.
    pub async fn file(&self, drawer: Drawer, id: &str, digest: Option<&str>) -> Result<BlobFile, BlobError> {
        let id = drawer.id(id);
        let missing = match (self.store.path(&id)?, &self.cache) {
            (Some(path), _) if path.is_file() => return Ok(BlobFile(Where::Kept(path))),
            (None, Some(cache)) => match cache.get(&self.store, &id, digest).await {
                Ok(copy) => return Ok(BlobFile(Where::Copied(copy))),
                Err(error) => error,
            },
            _ => BlobError::Missing { id: id.clone(), place: self.place() },
        };
        let before = self.before.as_ref().map_or(Ok(None), |before| before.path(&id))?;
        match before.filter(|path| missing.is_missing() && path.is_file()) {
            Some(path) => Ok(BlobFile(Where::Kept(path))),
            None => Err(missing),
        }
    }

    /// All blobs of a drawer, in no order.
    pub async fn list(&self, drawer: Drawer) -> Result<Vec<Listed>, BlobError> {
        let mut blobs: HashMap<String, Listed> = HashMap::new();
        for store in self.before.iter().chain([&self.store]) {
            blobs.extend(store.list(drawer.0).await?.into_iter().map(|blob| (blob.id.clone(), blob)));
        }
        Ok(blobs.into_values().collect())
    }

    /// Removes a blob. One that is not there is no mistake.
    pub async fn remove(&self, drawer: Drawer, id: &str) -> Result<(), BlobError> {
        self.claim().await?;
        let id = drawer.id(id);
        if let Some(cache) = &self.cache {
            cache.forget(&id);
        }
        for store in self.before.iter().chain([&self.store]) {
            store.remove(&id).await?;
        }
        // Counted again when somebody asks.
        *self.used.lock().await = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWERS: &[Drawer] = &[Drawer("one"), Drawer("other")];

    fn file(folder: &Path, content: &[u8]) -> PathBuf {
        let path = folder.join("file");
        std::fs::write(&path, content).unwrap();
        path
    }

    #[tokio::test]
    async fn what_would_be_too_much_is_refused_and_what_is_removed_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobstore::folder(&folder.path().join("blobs"), DRAWERS).with_limit(Some(3 << 20));
        blobs.keep(DRAWERS[0], "a", &file(folder.path(), &vec![0; 2 << 20])).await.unwrap();
        let from = file(folder.path(), &vec![0; 2 << 20]);
        let refused = blobs.keep(DRAWERS[1], "b", &from).await.unwrap_err().to_string();
        assert_eq!(
            refused,
            "the blobs would have 4 MiB, and the limit is 3 MiB; remove releases with 'clean-up --all', or raise 'blobs_limit' \
             in director.yml"
        );
        assert!(from.exists() && blobs.list(DRAWERS[1]).await.unwrap().is_empty());
        blobs.remove(DRAWERS[0], "a").await.unwrap();
        blobs.keep(DRAWERS[1], "b", &from).await.unwrap();
        assert_eq!(blobs.used().await.unwrap(), 2 << 20);
        assert!(!from.exists());
    }

    #[tokio::test]
    async fn blobs_of_the_place_before_are_still_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, chosen, cache) =
            (folder.path().join("own"), folder.path().join("chosen"), folder.path().join("cache"));
        let before = Blobstore::folder(&own, DRAWERS);
        before.keep(DRAWERS[0], "old", &file(folder.path(), b"old")).await.unwrap();
        let choice = BlobstoreChoice::Local(Some(chosen.clone()));
        let blobs = Blobstore::open(&choice, &own, &cache, DRAWERS).unwrap();
        blobs.keep(DRAWERS[0], "new", &file(folder.path(), b"new")).await.unwrap();
        assert!(chosen.join("one/new").is_file());
        let old = blobs.file(DRAWERS[0], "old", None).await.unwrap();
        assert_eq!(std::fs::read(old.as_ref()).unwrap(), b"old");
        let mut ids: Vec<String> = blobs.list(DRAWERS[0]).await.unwrap().into_iter().map(|blob| blob.id).collect();
        ids.sort();
        assert_eq!(ids, ["new", "old"]);
        blobs.remove(DRAWERS[0], "old").await.unwrap();
        let error = blobs.file(DRAWERS[0], "old", None).await.unwrap_err();
        assert!(error.is_missing(), "{error}");
        for id in ["../up", "a/../../up", ""] {
            assert!(blobs.file(DRAWERS[0], id, None).await.is_err(), "{id}");
        }
    }
}
