//! Blobs: where they are found by their id, and where new ones go.
//!
//! The director puts blobs into the agent's own folder over HTTPS, and fetches them there; `upload_blob` has a folder of its
//! own. The blob store of the settings is asked last: a folder, or whatever a program of the stemcell knows how to reach
//! ([`external`]). A caller may also name the URL of a single blob ([`signed_url`]).

mod external;
mod signed_url;

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use windlass_durable::file;

pub(crate) use external::ExternalError;
pub(crate) use signed_url::{SignedUrl, SignedUrlError};

use crate::layout::{Base, is_name};
use crate::settings::Settings;
use external::External;
use windlass_archive::digest::{self, Digest, Mismatch};

/// The path by which settings mean the folder of the HTTPS server.
const HTTPS_STORE: &str = "/var/vcap/micro_bosh/data/cache";

/// why a blob cannot be had or kept
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    /// the id cannot be a file's name
    #[error("'{0}' cannot be the id of a blob, because it cannot name a file")]
    Id(String),
    #[error("getting {id} from blobstore: there is no such blob; looked in {}", looked_in(.places))]
    Missing { id: String, places: Vec<PathBuf> },
    /// it is something else
    #[error("getting {id} from blobstore: Checking blob '{id}'")]
    Digest {
        id: String,
        #[source]
        source: Mismatch,
    },
    /// what is at a signed URL is something else
    #[error("Checking downloaded blob digest")]
    SignedDigest(#[source] Mismatch),
    /// neither an id nor a URL
    #[error("Both signedURL and blobID are blank which is invalid")]
    Nowhere,
    /// a store of another kind did not do it
    #[error(transparent)]
    External(#[from] ExternalError),
    /// a signed URL did not do it
    #[error(transparent)]
    SignedUrl(#[from] SignedUrlError),
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

/// A blob in a file. One that was fetched for this purpose goes with it.
#[derive(Debug)]
pub(crate) struct Blob {
    path: PathBuf,
    is_temporary: bool,
}

impl Blob {
    /// A file that a blob can be fetched into.
    fn temporary(base: &Base) -> Self {
        Self { path: base.tmp().join(format!("blob-{}", uuid::Uuid::new_v4())), is_temporary: true }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn verify(&self, digest: &Digest) -> Result<(), Mismatch> {
        digest.verify(&mut File::open(&self.path)?)
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        if self.is_temporary {
            file::discard(&self.path);
        }
    }
}

/// The blobs that the agent can reach.
#[derive(Debug)]
pub(crate) struct Blobs<'a> {
    base: &'a Base,
    store: Option<&'a Value>,
}

/// Where the settings say that blobs are.
#[derive(Debug)]
enum Store<'a> {
    Folder(PathBuf),
    External(External<'a>),
}

impl<'a> Blobs<'a> {
    /// Those of an agent with these settings.
    pub(crate) fn new(base: &'a Base, settings: &'a Settings) -> Self {
        Self { base, store: settings.blobstore() }
    }

    /// A blob whose content is what `digest` says.
    pub(crate) fn find(&self, id: &str, digest: &Digest) -> Result<Blob, BlobError> {
        if !is_name(id) {
            return Err(BlobError::Id(id.to_owned()));
        }
        let mut places = vec![self.base.sensitive_blobs(), self.base.blobs()];
        let store = self.store()?;
        if let Store::Folder(folder) = &store
            && !places.contains(folder)
        {
            places.push(folder.clone());
        }
        let found = places.iter().map(|place| place.join(id)).find(|path| path.is_file());
        let blob = match (found, store) {
            (Some(path), _) => Blob { path, is_temporary: false },
            (None, Store::External(external)) => {
                let blob = Blob::temporary(self.base);
                external.get(id, &blob.path)?;
                blob
            }
            (None, Store::Folder(_)) => return Err(BlobError::Missing { id: id.to_owned(), places }),
        };
        blob.verify(digest).map_err(|source| BlobError::Digest { id: id.to_owned(), source })?;
        Ok(blob)
    }

    /// Removes a blob from the agent's own folders, if it is there.
    pub(crate) fn forget(&self, id: &str) -> Result<(), BlobError> {
        let places = [self.base.sensitive_blobs(), self.base.blobs()];
        for path in places.iter().filter(|_| is_name(id)).map(|place| place.join(id)) {
            file::remove_file(&path).map_err(|source| BlobError::Io { path, source })?;
        }
        Ok(())
    }

    /// The blob at a signed URL.
    pub(crate) fn find_signed(&self, url: &SignedUrl, digest: &Digest) -> Result<Blob, BlobError> {
        if !url.is_given() {
            return Err(BlobError::Nowhere);
        }
        let blob = Blob::temporary(self.base);
        url.get(self.ca(), &blob.path)?;
        blob.verify(digest).map_err(BlobError::SignedDigest)?;
        Ok(blob)
    }

    /// Moves a file into the store; returns the blob's id and SHA-1.
    pub(crate) fn put(&self, path: &Path) -> Result<(String, String), BlobError> {
        let _moved = Blob { path: path.to_owned(), is_temporary: true };
        let sha1 = digest_of(path, digest::sha1)?;
        let id = uuid::Uuid::new_v4().to_string();
        let store = match self.store()? {
            Store::External(external) => {
                external.put(path, &id)?;
                return Ok((id, sha1));
            }
            Store::Folder(store) => store,
        };
        let climbs = store.components().any(|component| component == Component::ParentDir);
        if climbs || !store.starts_with(self.base.path()) {
            return Err(BlobError::Outside { path: store });
        }
        file::create_private_dir(&store)
            .and_then(|()| file::rename(path, &store.join(&id)))
            .map_err(|source| BlobError::Io { path: store, source })?;
        Ok((id, sha1))
    }

    /// Moves a file to a signed URL, or without one into the store; returns its digests.
    pub(crate) fn put_signed(&self, url: &SignedUrl, path: &Path) -> Result<String, BlobError> {
        if !url.is_given() {
            return Ok(self.put(path)?.1);
        }
        let moved = Blob { path: path.to_owned(), is_temporary: true };
        let digests = format!("{};{}", digest_of(path, digest::sha1)?, digest_of(path, digest::sha512)?);
        url.put(self.ca(), moved.path())?;
        Ok(digests)
    }

    fn store(&self) -> Result<Store<'a>, BlobError> {
        let Some(store) = self.store else { return Ok(Store::Folder(self.base.blobs())) };
        match store["provider"].as_str().unwrap_or_default() {
            "local" => {}
            "" | "dummy" => return Ok(Store::Folder(self.base.blobs())),
            provider => return Ok(Store::External(External::new(self.base, provider, &store["options"])?)),
        }
        match store["options"]["blobstore_path"].as_str().unwrap_or_default() {
            "" | HTTPS_STORE => Ok(Store::Folder(self.base.blobs())),
            path => Ok(Store::Folder(PathBuf::from(path))),
        }
    }

    /// The CA of the store's certificate, if the settings name it.
    fn ca(&self) -> Option<&'a str> {
        self.store?.pointer("/options/tls/cert/ca")?.as_str().filter(|pem| !pem.is_empty())
    }
}

fn digest_of(path: &Path, digest: fn(&mut File) -> io::Result<String>) -> Result<String, BlobError> {
    File::open(path)
        .and_then(|mut content| digest(&mut content))
        .map_err(|source| BlobError::Io { path: path.to_owned(), source })
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
        assert_eq!(blobs.find("b", &hello).unwrap().path(), outside.join("b"));
        assert!(matches!(blobs.find("../shared/b", &hello), Err(BlobError::Id(_))));
        assert!(blobs.find("c", &hello).unwrap_err().to_string().contains("there is no such blob; looked in"));
        let new = base.tmp().join("new");
        std::fs::write(&new, "hello").unwrap();
        assert!(matches!(blobs.put(&new), Err(BlobError::Outside { .. })));
        let climbing = json!({"provider": "local", "options": {"blobstore_path": base.path().join("../shared")}});
        let climbing = Blobs { base: &base, store: Some(&climbing) };
        std::fs::write(&new, "hello").unwrap();
        assert!(matches!(climbing.put(&new), Err(BlobError::Outside { .. })));

        let https = json!({"provider": "local", "options": {"blobstore_path": HTTPS_STORE}});
        let blobs = Blobs { base: &base, store: Some(&https) };
        std::fs::write(&new, "hello").unwrap();
        let (id, sha1) = blobs.put(&new).unwrap();
        assert_eq!(sha1, hello.to_string());
        assert_eq!(blobs.find(&id, &hello).unwrap().path(), base.blobs().join(id));
        std::fs::write(base.sensitive_blobs().join("b"), "other").unwrap();
        assert!(matches!(blobs.find("b", &hello), Err(BlobError::Digest { .. })));
        assert_eq!(std::fs::read_dir(base.tmp()).unwrap().count(), 0, "nothing is left of what was moved");
    }

    #[test]
    fn a_provider_cannot_name_just_any_program() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        let hello = Digest::parse("aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d").unwrap();
        for (provider, words) in [("../../bin/sh", "cannot be part of a program's name"), ("nope", "must be in PATH")] {
            let store = json!({"provider": provider});
            let error = Blobs { base: &base, store: Some(&store) }.find("b", &hello).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
