//! Digests as the ecosystem writes them: `<hex>` is SHA-1, others name their algorithm, several are joined by `;`.

use std::fs::File;
use std::io;
use std::path::Path;

use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};

/// Whether an image is the one that its manifest describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DigestCheck {
    Matches,
    /// It is another one.
    Differs {
        /// What the manifest says, for the strongest algorithm it names.
        expected: String,
        /// What the image has.
        actual: String,
    },
    /// The manifest's digest is none that we know, or empty. The original never checks it.
    Unknown,
}

/// Digests of an image that streams by, in all algorithms, because the manifest may come after the image.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    sha1: Sha1,
    sha256: Sha256,
    sha512: Sha512,
}

/// From the weakest to the strongest.
const ALGORITHMS: [&str; 3] = ["sha1", "sha256", "sha512"];

/// The strongest part of a digest: its algorithm, and the hexadecimal digits. None if no algorithm in it is known.
pub fn strongest(digest: &str) -> Option<(&'static str, &str)> {
    let parts = digest.split(';').map(|part| part.trim().split_once(':').unwrap_or(("sha1", part.trim())));
    let known = parts.filter_map(|(name, hex)| Some((ALGORITHMS.iter().position(|known| *known == name)?, hex)));
    let is_hex = |hex: &str| !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (strength, hex) = known.filter(|(_, hex)| is_hex(hex)).max_by_key(|(strength, _)| *strength)?;
    Some((ALGORITHMS[strength], hex))
}

impl Digests {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.sha512.update(bytes);
    }

    pub(crate) fn check(self, digest: &str) -> DigestCheck {
        let Some((algorithm, expected)) = strongest(digest) else { return DigestCheck::Unknown };
        let actual = match algorithm {
            "sha512" => hex(&self.sha512.finalize()),
            "sha256" => hex(&self.sha256.finalize()),
            _ => hex(&self.sha1.finalize()),
        };
        if actual.eq_ignore_ascii_case(expected) {
            return DigestCheck::Matches;
        }
        DigestCheck::Differs { expected: expected.to_owned(), actual }
    }
}

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
    Ok(hex(&hasher.finalize()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA1: &str = "a9993e364706816aba3e25717850c26c9cd0d89d";
    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn check(digest: &str) -> DigestCheck {
        let mut digests = Digests::default();
        digests.update(b"abc");
        digests.check(digest)
    }

    #[test]
    fn every_form_of_a_digest_is_checked_by_its_strongest_part() {
        assert_eq!(check(SHA1), DigestCheck::Matches);
        assert_eq!(check(&format!("sha1:{}", SHA1.to_uppercase())), DigestCheck::Matches);
        assert_eq!(check(&format!("sha256:{SHA256}")), DigestCheck::Matches);
        assert_eq!(check(&format!("{SHA1};sha256:{SHA256}")), DigestCheck::Matches);
        assert_eq!(check(&format!("00;sha256:{SHA256}")), DigestCheck::Matches);
        assert!(
            matches!(check(&format!("{SHA1};sha256:00")), DigestCheck::Differs { expected, .. } if expected == "00")
        );
        assert!(matches!(check("da39a3ee5e6b4b0d3255bfef95601890afd80709"), DigestCheck::Differs { .. }));
        for unknown in ["", "shawone", "md5:00", "sha256:"] {
            assert_eq!(check(unknown), DigestCheck::Unknown);
        }
    }

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
