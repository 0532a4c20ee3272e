//! Why a blob cannot be kept or had.

use std::fmt;
use std::io;
use std::path::PathBuf;

use windlass_archive::digest::{Mismatch, NoDigest};

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobAction {
    Keep,
    Fetch,
    Remove,
    List,
}

impl fmt::Display for BlobAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Fetch => "fetch",
            Self::Remove => "remove",
            Self::List => "list",
        })
    }
}

/// why a blob cannot be kept or had
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// it is not there
    #[error("there is no blob '{id}' in {place}")]
    Missing {
        id: String,
        /// Where it should be.
        place: String,
    },
    /// a file cannot be used
    #[error("cannot {what} the blob '{id}': cannot use '{}'", path.display())]
    File {
        what: BlobAction,
        id: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the store refuses or fails
    #[error("{place} cannot {what} {}: {why}", blob(.id))]
    Remote {
        place: String,
        what: BlobAction,
        /// Empty where it is about all of them.
        id: String,
        /// In the store's words, without credentials.
        why: String,
    },
    /// there are no credentials to write with
    #[error(
        "{0} is read only without credentials: set 'access_key_id' and 'secret_access_key', 'json_key', or another 'credentials_source'"
    )]
    ReadOnly(String),
    /// an id that leads elsewhere
    #[error("'{0}' is no id of a blob")]
    Id(String),
    /// it would be too much
    #[error(
        "the blobs would have {} MiB, and the limit is {} MiB; remove releases with 'clean-up --all', or raise 'blobs_limit' in director.yml",
        .wanted >> 20, .limit >> 20
    )]
    Limit {
        /// With the new one, in bytes.
        wanted: u64,
        /// In bytes.
        limit: u64,
    },
    /// no digest that could be checked
    #[error("the blob '{id}' has no digest that can be checked: '{digest}'")]
    NoDigest {
        id: String,
        digest: String,
        #[source]
        source: NoDigest,
    },
    /// it is another one
    #[error("the blob '{id}' in {place} is not what its digest says")]
    Digest {
        id: String,
        place: String,
        #[source]
        source: Mismatch,
    },
    /// another director keeps its blobs there
    #[error(
        "{place} belongs to the director {owner}: two directors would remove each other's blobs; name another 'folder_name' or bucket"
    )]
    Owned {
        place: String,
        /// Its uuid.
        owner: String,
    },
    /// the options are of no use
    #[error("{place} cannot be used: {why}")]
    Unusable {
        place: String,
        /// Without credentials.
        why: String,
    },
    /// a mistake of ours
    #[error("working on a blob ended early; this is a defect of Windlass, please report it")]
    Panicked,
}

fn blob(id: &str) -> String {
    if id.is_empty() { "blobs".to_owned() } else { format!("the blob '{id}'") }
}

impl BlobError {
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}
