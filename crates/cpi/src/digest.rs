//! Names of files for what callers name as they like.

use sha2::{Digest, Sha256};

/// Each part is preceded by its length, so that no two lists of parts look alike.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
