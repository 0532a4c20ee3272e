//! Blobs: where they are found by their id, and where new ones go.
//!
//! The director puts blobs into the agent's own folder over HTTPS, and fetches them there; `upload_blob` has a folder of its
//! own. A blob store of provider `local` is asked last.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use windlass_durable::file;

use crate::digest::{self, Digest, Mismatch};
use crate::layout::{Base, is_name};
use crate::settings::Settings;

/// The path by which settings mean the folder of the HTTPS server.
const HTTPS_STORE: &str = "/var/vcap/micro_bosh/data/cache";

/// why a blob cannot be had or kept
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    /// the id cannot be a file's name
    #[error("'{0}' cannot be the id of a blob, because it cannot name a file")]
    Id(String),
    /// it is nowhere
    #[error("getting {id} from blobstore: there is no such blob; looked in {}", looked_in(.places))]
    Missing { id: String, places: Vec<PathBuf> },
    /// it is something else
    #[error("getting {id} from blobstore: Checking blob '{id}'")]
    Digest {
        id: String,
        #[source]
        source: Mismatch,
    },
    /// the store is of another kind
    #[error("the blob store is of provider '{0}', and this agent uses stores of provider 'local' only")]
    Provider(String),
    /// the store is where this agent may not write
    #[error(
        "the blob store {path} is outside of the agent's base directory, where nothing is written; set it to {HTTPS_STORE}"
    )]
    Outside { path: PathBuf },
    /// it cannot be read or written
    #[error("cannot keep blobs in {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn looked_in(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The blobs that the agent can reach.
#[derive(Debug)]
pub(crate) struct Blobs<'a> {
    base: &'a Base,
    store: Option<&'a Value>,
}

impl<'a> Blobs<'a> {
    /// Those of an agent with these settings.
    pub(crate) fn new(base: &'a Base, settings: &'a Settings) -> Self {
        Self { base, store: settings.blobstore() }
    }

    /// The path of a blob whose content is what `digest` says.
    pub(crate) fn find(&self, id: &str, digest: &Digest) -> Result<PathBuf, BlobError> {
        if !is_name(id) {
            return Err(BlobError::Id(id.to_owned()));
        }
        let mut places = vec![self.base.sensitive_blobs(), self.base.blobs()];
        let store = self.store()?;
        if !places.contains(&store) {
            places.push(store);
        }
        let found = places.iter().map(|place| place.join(id)).find(|path| path.is_file());
        let path = found.ok_or_else(|| BlobError::Missing { id: id.to_owned(), places })?;
        let mut content = File::open(&path).map_err(|source| BlobError::Io { path: path.clone(), source })?;
        digest.verify(&mut content).map_err(|source| BlobError::Digest { id: id.to_owned(), source })?;
        Ok(path)
    }

    /// Moves a file into the store; returns the blob's id and SHA-1.
    pub(crate) fn put(&self, path: &Path) -> Result<(String, String), BlobError> {
        let store = self.store()?;
        let climbs = store.components().any(|component| component == Component::ParentDir);
        if climbs || !store.starts_with(self.base.path()) {
            return Err(BlobError::Outside { path: store });
        }
        let failed = |source| BlobError::Io { path: store.clone(), source };
        let sha1 = File::open(path).and_then(|mut content| digest::sha1(&mut content)).map_err(failed)?;
        let id = uuid::Uuid::new_v4().to_string();
        file::create_private_dir(&store).and_then(|()| file::rename(path, &store.join(&id))).map_err(failed)?;
        Ok((id, sha1))
    }

    fn store(&self) -> Result<PathBuf, BlobError> {
        let Some(store) = self.store else { return Ok(self.base.blobs()) };
        match store["provider"].as_str().unwrap_or_default() {
            "local" => {}
            "" => return Ok(self.base.blobs()),
            other => return Err(BlobError::Provider(other.to_owned())),
        }
        match store["options"]["blobstore_path"].as_str().unwrap_or_default() {
            "" | HTTPS_STORE => Ok(self.base.blobs()),
            path => Ok(PathBuf::from(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blobs_are_found_where_they_may_be_and_new_ones_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(&folder.path().join("base")).unwrap();
        let outside = folder.path().join("shared");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("b"), "hello").unwrap();
        let hello = Digest::parse("aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d").unwrap();
        let shared = json!({"provider": "local", "options": {"blobstore_path": outside}});
        let blobs = Blobs { base: &base, store: Some(&shared) };
        assert_eq!(blobs.find("b", &hello).unwrap(), outside.join("b"));
        assert!(matches!(blobs.find("../shared/b", &hello), Err(BlobError::Id(_))));
        assert!(blobs.find("c", &hello).unwrap_err().to_string().contains("there is no such blob; looked in"));
        let new = base.tmp().join("new");
        std::fs::write(&new, "hello").unwrap();
        assert!(matches!(blobs.put(&new), Err(BlobError::Outside { .. })));
        let climbing = json!({"provider": "local", "options": {"blobstore_path": base.path().join("../shared")}});
        let climbing = Blobs { base: &base, store: Some(&climbing) };
        assert!(matches!(climbing.put(&new), Err(BlobError::Outside { .. })));

        let https = json!({"provider": "local", "options": {"blobstore_path": HTTPS_STORE}});
        let blobs = Blobs { base: &base, store: Some(&https) };
        let (id, sha1) = blobs.put(&new).unwrap();
        assert_eq!(sha1, hello.to_string());
        assert_eq!(blobs.find(&id, &hello).unwrap(), base.blobs().join(id));
        std::fs::write(base.sensitive_blobs().join("b"), "other").unwrap();
        assert!(matches!(blobs.find("b", &hello), Err(BlobError::Digest { .. })));
        let dav = json!({"provider": "dav"});
        assert!(matches!(Blobs { base: &base, store: Some(&dav) }.find("b", &hello), Err(BlobError::Provider(_))));
    }
}
