//! Digests as operators and agents write them: items separated by `;`, each `<hex>` (SHA-1) or `<algorithm>:<hex>`.

use std::fs::File;
use std::io;
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use windlass_stemcell::digest::strongest;

/// why a file is not what it should be
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// nobody here can calculate it
    #[error("'{0}' is no digest of a known kind: use sha1, sha256 or sha512")]
    Unknown(String),
    /// it is another one
    #[error("Expected stream to have digest '{expected}' but was '{found}'")]
    Different {
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// the file cannot be read
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
}

/// Checks a file against the strongest digest that is given.
pub fn verify(path: &Path, digests: &str) -> Result<(), DigestError> {
    let (name, expected) = strongest(digests).ok_or_else(|| DigestError::Unknown(digests.to_owned()))?;
    let found = match name {
        "sha512" => hash::<Sha512>(path)?,
        "sha256" => hash::<Sha256>(path)?,
        _ => hash::<Sha1>(path)?,
    };
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let shown = |hex: &str| if name == "sha1" { hex.to_owned() } else { format!("{name}:{hex}") };
    Err(DigestError::Different { expected: shown(expected), found: shown(&found) })
}

fn hash<D: Digest + io::Write>(path: &Path) -> io::Result<String> {
    let mut hasher = D::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_digest_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "abc").unwrap();
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let sha256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        for right in [sha1, sha256, &format!("{sha1};{sha256}"), &format!("0000;{sha256}")] {
            verify(&path, right).unwrap();
        }
        for wrong in ["0000", &format!("{sha1};sha512:00"), "md5:00", ""] {
            assert!(verify(&path, wrong).is_err(), "{wrong}");
        }
    }
}
