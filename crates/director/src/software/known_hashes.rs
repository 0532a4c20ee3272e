//! What templates gave before: hashes of it, never the contents. Plans of what was planned already cost little then.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use windlass_contract::Secret;
use windlass_planning::software::JobOfGroup;

/// So many are kept.
const MOST: usize = 50_000;

/// All that went into the files of an instance, hashed with a secret of this process, so that nobody can guess properties by it.
pub(super) type Key = [u8; 32];

/// Hashes of files, by what went into them.
#[derive(Debug)]
pub(super) struct KnownHashes {
    secret: Secret,
    known: Mutex<HashMap<Key, String>>,
}

impl Default for KnownHashes {
    fn default() -> Self {
        let secret = format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        Self { secret: Secret::new(secret), known: Mutex::default() }
    }
}

impl KnownHashes {
    /// Stands for jobs and what their templates see.
    pub(super) fn key<'a>(&self, seen: impl Iterator<Item = (&'a JobOfGroup, Value)>) -> Key {
        let mut hasher = Sha256::new();
        hasher.update(self.secret.reveal());
        for (job, spec) in seen {
            let provides: Vec<_> = job.provides.iter().map(|link| (&link.name, &link.link_type, link.group)).collect();
            let provides = serde_json::json!(provides).to_string();
            for part in [&job.release, &job.name, &job.version, &spec.to_string(), &provides] {
                hasher.update(part.len().to_be_bytes());
                hasher.update(part);
            }
        }
        hasher.finalize().into()
    }

    pub(super) fn get(&self, key: &Key) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(super) fn insert(&self, key: Key, hash: String) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, hash);
    }
}
