//! One place for blobs.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use windlass_archive::digest::Digest;
use windlass_durable::file;

use crate::bucket::Bucket;
use crate::error::{BlobAction, BlobError};
use crate::folder::Folder;
use crate::options::BlobstoreChoice;

/// A place for blobs. Ids may have folders in them.
#[derive(Debug, Clone)]
pub struct Store(Place);

#[derive(Debug, Clone)]
enum Place {
    Folder(Folder),
    Bucket(Bucket),
}

/// A blob that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub id: String,
    /// In bytes.
    pub size: u64,
    pub modified: SystemTime,
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| BlobError::Panicked)?
}

impl Store {
    pub fn folder(root: &Path) -> Self {
        Self(Place::Folder(Folder::new(root.to_owned())))
    }

    /// The store that is chosen. One that is not reachable shows when it is used.
    pub fn open(choice: &BlobstoreChoice, default_folder: &Path) -> Result<Self, BlobError> {
        match choice {
            BlobstoreChoice::Local(path) => Ok(Self::folder(path.as_deref().unwrap_or(default_folder))),
            BlobstoreChoice::S3(options) => Ok(Self(Place::Bucket(Bucket::s3(options)?))),
            BlobstoreChoice::Gcs(options) => Ok(Self(Place::Bucket(Bucket::gcs(options)?))),
        }
    }

    /// What it is called in messages.
    pub fn place(&self) -> String {
        match &self.0 {
            Place::Folder(folder) => folder.place(),
            Place::Bucket(bucket) => bucket.place().to_owned(),
        }
    }

    /// Where the file of a blob is, if its store is a folder.
    pub(crate) fn path(&self, id: &str) -> Result<Option<PathBuf>, BlobError> {
        match &self.0 {
            Place::Folder(folder) => folder.path(id).map(Some),
            Place::Bucket(_) => Ok(None),
        }
    }

    /// Keeps a copy of a file.
    pub async fn put(&self, id: &str, from: &Path) -> Result<(), BlobError> {
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, id, from) = (folder.clone(), id.to_owned(), from.to_owned());
                blocking(move || folder.put(&id, &from)).await
            }
            Place::Bucket(bucket) => bucket.put(id, from).await,
        }
    }

    /// Keeps a file, which is gone then from where it was.
    pub async fn adopt(&self, id: &str, from: &Path) -> Result<(), BlobError> {
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, id, from) = (folder.clone(), id.to_owned(), from.to_owned());
                blocking(move || folder.adopt(&id, &from)).await
            }
            Place::Bucket(bucket) => {
                bucket.put(id, from).await?;
                let failed = |source| BlobError::File {
                    what: BlobAction::Keep,
                    id: id.to_owned(),
                    path: from.to_owned(),
                    source,
                };
                file::remove_file(from).map_err(failed)
            }
        }
    }

    /// Fetches a blob to `into`, where nothing appears unless it is what its digest says.
    pub async fn get(&self, id: &str, digest: Option<&str>, into: &Path) -> Result<(), BlobError> {
        let (id, digest, into) = (id.to_owned(), digest.map(str::to_owned), into.to_owned());
        match &self.0 {
            Place::Folder(folder) => {
                let folder = folder.clone();
                blocking(move || folder.get(&id, digest.as_deref(), &into)).await
            }
            Place::Bucket(bucket) => {
                let failed =
                    |source| BlobError::File { what: BlobAction::Fetch, id: id.clone(), path: into.clone(), source };
                let temporary = file::beside(&into).map_err(failed)?;
                let fetched = bucket.get(&id, &temporary).await;
                if fetched.is_err() {
                    let _ = file::remove_file(&temporary);
                    return fetched;
                }
                let place = bucket.place().to_owned();
                blocking(move || finish(&id, digest.as_deref(), &temporary, &into, &place)).await
            }
        }
    }

    /// The blobs whose ids begin with `drawer/`, without that, in no order.
    pub async fn list(&self, drawer: &str) -> Result<Vec<Listed>, BlobError> {
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, drawer) = (folder.clone(), drawer.to_owned());
                blocking(move || folder.list(&drawer)).await
            }
            Place::Bucket(bucket) => bucket.list(drawer).await,
        }
    }

    /// Removes a blob. One that is not there is no mistake.
    pub async fn remove(&self, id: &str) -> Result<(), BlobError> {
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, id) = (folder.clone(), id.to_owned());
                blocking(move || folder.remove(&id)).await
            }
            Place::Bucket(bucket) => bucket.remove(id).await,
        }
    }

    /// Notes whose blobs these are; refuses those of another owner.
    pub(crate) async fn claim(&self, owner: &str) -> Result<(), BlobError> {
        match &self.0 {
            // The folder is in the director's own state directory.
            Place::Folder(_) => Ok(()),
            Place::Bucket(bucket) => bucket.claim(owner).await,
        }
    }
}

/// Lets `fetch` write a file beside `into`, which becomes `into` if it is what the digest says.
pub(crate) fn checked(
    id: &str,
    digest: Option<&str>,
    into: &Path,
    place: &str,
    fetch: impl FnOnce(&Path) -> Result<(), BlobError>,
) -> Result<(), BlobError> {
    let failed = |source| BlobError::File { what: BlobAction::Fetch, id: id.to_owned(), path: into.to_owned(), source };
    let temporary = file::beside(into).map_err(failed)?;
    match fetch(&temporary) {
        Ok(()) => finish(id, digest, &temporary, into, place),
        Err(error) => {
            let _ = file::remove_file(&temporary);
            Err(error)
        }
    }
}

fn finish(id: &str, digest: Option<&str>, temporary: &Path, into: &Path, place: &str) -> Result<(), BlobError> {
    let failed = |source| BlobError::File { what: BlobAction::Fetch, id: id.to_owned(), path: into.to_owned(), source };
    let finished = digest
        .map_or(Ok(()), |digest| verify(id, digest, temporary, place))
        .and_then(|()| std::fs::File::open(temporary).and_then(|file| file.sync_all()).map_err(failed))
        .and_then(|()| file::rename(temporary, into).map_err(failed));
    if finished.is_err() {
        let _ = file::remove_file(temporary);
    }
    finished
}

fn verify(id: &str, digest: &str, path: &Path, place: &str) -> Result<(), BlobError> {
    let no_digest = |source| BlobError::NoDigest { id: id.to_owned(), digest: digest.to_owned(), source };
    let failed = |source| BlobError::File { what: BlobAction::Fetch, id: id.to_owned(), path: path.to_owned(), source };
    let parsed = Digest::parse(digest).map_err(no_digest)?;
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let differs = |source| BlobError::Digest { id: id.to_owned(), place: place.to_owned(), source };
    parsed.verify(&mut file).map_err(differs)
}
