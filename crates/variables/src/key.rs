//! The key that everything else is encrypted with. It is never in the database: it is in a file, in the environment, or a command
//! prints it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use windlass_durable::file;

/// How long a command may take to print the key.
const PATIENCE: Duration = Duration::from_secs(30);
const READ_BY_OTHERS: u32 = 0o077;

/// 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.fingerprint())
    }
}

/// Where the key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Only its owner may read it.
    File(PathBuf),
    /// The name of a variable of the environment.
    Environment(String),
    /// A program with its arguments, which prints the key.
    Command(Vec<String>),
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            // Arguments may have secrets.
            Self::Command(words) => write!(f, "the command {}", words.first().map_or("", String::as_str)),
        }
    }
}

/// why there is no key
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// the file is not there, or cannot be read
    #[error("cannot read the key of variables from {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// others could read it
    #[error("others may read the key of variables in {}; use chmod 600", .0.display())]
    ReadByOthers(PathBuf),
    /// the environment lacks it
    #[error("the environment variable {0} must hold the key of variables, and is not set")]
    Environment(String),
    /// the command cannot be run
    #[error("the command '{program}' must print the key of variables, and cannot be run")]
    Command {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("the command '{program}' must print the key of variables, and ended with {status}")]
    Failed { program: String, status: std::process::ExitStatus },
    /// what is there is no key
    #[error("{0} has no key of variables; a key has 32 bytes, written as base64 or as 64 hexadecimal digits")]
    NoKey(KeySource),
    /// the system has no random numbers
    #[error("the system has no random numbers")]
    Random,
}

impl Key {
    /// A new one.
    pub fn random() -> Result<Self, KeyError> {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }

    /// Reads base64 or hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bytes = if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
            (0..64).step_by(2).map(digits).collect::<Option<Vec<_>>>()?
        } else {
            STANDARD.decode(text).ok()?
        };
        bytes.try_into().ok().map(Self)
    }

    /// As it stands in a file.
    pub fn to_text(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Stands for the key, and tells nothing of it.
    pub fn fingerprint(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(b"windlass key of variables\0");
        hasher.update(self.0);
        hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl KeySource {
    pub async fn read(&self) -> Result<Key, KeyError> {
        let text = match self {
            Self::File(path) => read_file(path)?,
            Self::Environment(name) => {
                std::env::var(name).ok().filter(|text| !text.is_empty()).ok_or(KeyError::Environment(name.clone()))?
            }
            Self::Command(words) => run(words).await?,
        };
        Key::parse(&text).ok_or_else(|| KeyError::NoKey(self.clone()))
    }

    /// The key of somebody who has none yet: a file that is not there is made.
    pub async fn read_or_make(&self) -> Result<Key, KeyError> {
        match (self, self.read().await) {
            (Self::File(path), Err(KeyError::File { source, .. })) if source.kind() == io::ErrorKind::NotFound => {
                let key = Key::random()?;
                let failed = |source| KeyError::File { path: path.clone(), source };
                file::write(path, format!("{}\n", key.to_text()).as_bytes(), file::PRIVATE).map_err(failed)?;
                Ok(key)
            }
            (_, read) => read,
        }
    }
}

fn read_file(path: &Path) -> Result<String, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.mode() & READ_BY_OTHERS != 0 {
        return Err(KeyError::ReadByOthers(path.to_owned()));
    }
    Ok(text)
}

async fn run(words: &[String]) -> Result<String, KeyError> {
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    let failed = |source| KeyError::Command { program: program.to_owned(), source };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.map_err(|_| failed(io::ErrorKind::TimedOut.into()))?.map_err(failed)?;
    if !output.status.success() {
        return Err(KeyError::Failed { program: program.to_owned(), status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_key_comes_from_a_file_or_a_command_and_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("variables.key");
        let source = KeySource::File(path.clone());
        assert!(source.read().await.unwrap_err().to_string().contains("variables.key"));
        let key = source.read_or_make().await.unwrap();
        assert_eq!(source.read_or_make().await.unwrap(), key);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let printed = KeySource::Command(vec!["cat".to_owned(), path.display().to_string()]);
        assert_eq!(printed.read().await.unwrap(), key);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(source.read().await.unwrap_err().to_string().contains("chmod 600"));
    }

    #[tokio::test]
    async fn what_is_no_key_is_named_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        file::write(&path, b"hunter2", file::PRIVATE).unwrap();
        let said = KeySource::File(path).read().await.unwrap_err().to_string();
        assert!(said.contains("32 bytes") && !said.contains("hunter2"), "{said}");
        let said = KeySource::Command(vec!["false".to_owned()]).read().await.unwrap_err().to_string();
        assert!(said.contains("'false'"), "{said}");
        let said = KeySource::Environment("NO_SUCH_KEY_OF_VARIABLES".into()).read().await.unwrap_err().to_string();
        assert!(said.contains("NO_SUCH_KEY_OF_VARIABLES"), "{said}");
    }

    #[test]
    fn a_key_is_read_back_and_prints_its_fingerprint_only() {
        let key = Key::random().unwrap();
        assert_eq!(Key::parse(&key.to_text()), Some(key.clone()));
        let hex: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(Key::parse(&hex), Some(key.clone()));
        assert_eq!(format!("{key:?}"), format!("Key({})", key.fingerprint()));
        assert_ne!(Key::random().unwrap().fingerprint(), key.fingerprint());
    }
}
