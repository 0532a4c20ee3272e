//! Where final archives and blobs are kept for everybody who works on a release.

use std::path::{Path, PathBuf};
use std::thread;

use uuid::Uuid;
use windlass_blobs::{BlobError, BlobstoreChoice};
use windlass_manifest::Object;

use crate::error::AuthorError;

/// How often a blob is fetched that did not come whole.
const TRIES: usize = 3;

/// A store of blobs, each with an id of its own.
#[derive(Debug)]
pub(crate) enum Store {
    /// A folder, or a bucket of an object store.
    There(windlass_blobs::Store),
    /// None is configured: what needs one fails with the reason.
    Missing { config: PathBuf, why: String },
}

impl Store {
    /// The store of a provider with its options; otherwise why there is none.
    pub(crate) fn open(provider: &str, options: &Object, release: &Path) -> Result<Self, String> {
        let choice = BlobstoreChoice::read(provider, options).map_err(|error| error.to_string())?.relative_to(release);
        if matches!(choice, BlobstoreChoice::Local(None)) {
            return Err("is 'local', and needs 'blobstore_path' among its options".to_owned());
        }
        let store = windlass_blobs::Store::open(&choice, release);
        store.map(Self::There).map_err(|error| format!("is '{provider}': {error}"))
    }

    /// Refused before anything is done that needs one.
    pub(crate) fn must_exist(&self) -> Result<(), AuthorError> {
        self.there().map(|_| ())
    }

    fn there(&self) -> Result<&windlass_blobs::Store, AuthorError> {
        match self {
            Self::There(store) => Ok(store),
            Self::Missing { config, why } => Err(AuthorError::NoStore { path: config.clone(), why: why.clone() }),
        }
    }

    /// Keeps a file; its id.
    pub(crate) fn put(&self, from: &Path) -> Result<String, AuthorError> {
        let id = Uuid::new_v4().to_string();
        let store = self.there()?;
        wait_for(store.put(&id, from)).map_err(AuthorError::Store)?;
        Ok(id)
    }

    /// Fetches a blob to `into`, if it is what its digest says.
    pub(crate) fn get(&self, id: &str, digest: &str, into: &Path) -> Result<(), AuthorError> {
        let store = self.there()?;
        let mut tries = 1;
        loop {
            match wait_for(store.get(id, Some(digest), into)) {
                Err(BlobError::Remote { .. } | BlobError::Digest { .. }) if tries < TRIES => tries += 1,
                fetched => return fetched.map_err(AuthorError::Store),
            }
        }
    }
}

/// Waits for a store, in a thread of its own: who works on a release directory may be anywhere.
fn wait_for<T: Send>(work: impl Future<Output = Result<T, BlobError>> + Send) -> Result<T, BlobError> {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|_| BlobError::Panicked);
    thread::scope(|threads| threads.spawn(|| runtime()?.block_on(work)).join()).map_err(|_| BlobError::Panicked)?
}
