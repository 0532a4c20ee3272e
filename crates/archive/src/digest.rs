//! Digests as directors write them: items separated by `;`, each `<hex>` (SHA-1) or `<algorithm>:<hex>`.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Deserializer};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

/// The algorithms, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    fn find(name: &str) -> Option<Self> {
        match name {
            "sha1" => Some(Self::Sha1),
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    fn hex(self, source: &mut impl Read) -> io::Result<String> {
        match self {
            Self::Sha1 => hash::<Sha1>(source),
            Self::Sha256 => hash::<Sha256>(source),
            Self::Sha512 => hash::<Sha512>(source),
        }
    }

    /// SHA-1 has no prefix.
    fn show(self, hex: &str) -> String {
        match self {
            Self::Sha1 => hex.to_owned(),
            Self::Sha256 => format!("sha256:{hex}"),
            Self::Sha512 => format!("sha512:{hex}"),
        }
    }
}

fn hash<D: sha2::Digest + io::Write>(source: &mut impl Read) -> io::Result<String> {
    let mut hasher = D::new();
    io::copy(source, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The SHA-1 of what `source` holds, as blob stores are told.
pub fn sha1(source: &mut impl Read) -> io::Result<String> {
    Algorithm::Sha1.hex(source)
}

/// The SHA-512 of what `source` holds, with its prefix.
pub fn sha512(source: &mut impl Read) -> io::Result<String> {
    Ok(Algorithm::Sha512.show(&Algorithm::Sha512.hex(source)?))
}

/// One or more digests of the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    text: String,
    /// The strongest that this agent knows.
    strongest: Option<(Algorithm, String)>,
}

/// why a text is no digest
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDigest {
    #[error("no digest algorithm found. Supported algorithms: sha1, sha256, sha512")]
    Empty,
    /// it has two of one kind
    #[error("Multiple digests of the same algorithm '{algorithm}' found in digests '{text}'")]
    Twice { algorithm: String, text: String },
}

/// why content is not what its digest says
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// it is something else
    #[error("Expected stream to have digest '{expected}' but was '{found}'")]
    Differs { expected: String, found: String },
    /// only algorithms that this agent does not know
    #[error("Computing digest from stream: Unable to create digest of unknown algorithm '{0}'")]
    Unknown(String),
    /// it cannot be read
    #[error("Computing digest from stream")]
    Io(#[from] io::Error),
}

impl Digest {
    /// Reads the text of a digest.
    pub fn parse(text: &str) -> Result<Self, NoDigest> {
        let mut seen: Vec<&str> = Vec::new();
        let mut strongest: Option<(Algorithm, String)> = None;
        for item in text.split(';').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, hex) = item.split_once(':').unwrap_or(("sha1", item));
            if seen.contains(&name) {
                return Err(NoDigest::Twice { algorithm: name.to_owned(), text: text.to_owned() });
            }
            seen.push(name);
            if let Some(algorithm) = Algorithm::find(name)
                && strongest.as_ref().is_none_or(|(strongest, _)| algorithm > *strongest)
            {
                strongest = Some((algorithm, hex.to_owned()));
            }
        }
        if seen.is_empty() { Err(NoDigest::Empty) } else { Ok(Self { text: text.to_owned(), strongest }) }
    }

    /// Checks that `source` holds what the digest says.
    pub fn verify(&self, source: &mut impl Read) -> Result<(), Mismatch> {
        let Some((algorithm, expected)) = &self.strongest else {
            return Err(Mismatch::Unknown(self.text.split(':').next().unwrap_or_default().to_owned()));
        };
        let found = algorithm.hex(source)?;
        if found.eq_ignore_ascii_case(expected) {
            return Ok(());
        }
        Err(Mismatch::Differs { expected: algorithm.show(expected), found: algorithm.show(&found) })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA1: &str = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
    const SHA256: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn verify(text: &str) -> Result<(), String> {
        let digest = Digest::parse(text).map_err(|error| error.to_string())?;
        digest.verify(&mut &b"hello"[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn the_strongest_known_digest_decides() {
        for right in [
            SHA1.to_owned(),
            SHA256.to_owned(),
            format!("{SHA1};{SHA256}"),
            format!("0;{SHA256}"),
            format!("x:1;{SHA1}"),
        ] {
            assert_eq!(verify(&right), Ok(()), "{right}");
        }
        assert!(verify(&format!("{SHA1};sha256:00")).unwrap_err().contains("'sha256:00' but was 'sha256:2cf24"));
    }

    #[test]
    fn wrong_digests_are_refused_in_the_originals_words() {
        for (text, words) in [
            ("aa", format!("Expected stream to have digest 'aa' but was '{SHA1}'")),
            ("", "no digest algorithm found. Supported algorithms: sha1, sha256, sha512".to_owned()),
            ("aa;bb", "Multiple digests of the same algorithm 'sha1' found in digests 'aa;bb'".to_owned()),
            ("zz:1", "Computing digest from stream: Unable to create digest of unknown algorithm 'zz'".to_owned()),
        ] {
            assert_eq!(verify(text), Err(words));
        }
    }
}
