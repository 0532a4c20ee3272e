//! Blob stores of any other kind: a program `bosh-blobstore-<provider>` that the stemcell brings along.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_durable::{file, kill_point};

use crate::layout::{Base, is_name};

/// How often a blob is asked for before the store counts as failed.
const TRIES: u32 = 3;
/// How long one try may take: the program may move gigabytes.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// How often the program is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How much of what the program complains about is told.
const COMPLAINT: u64 = 1000;

/// why a store of another kind did not do it
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExternalError {
    /// the provider's name leads elsewhere
    #[error("'{0}' cannot be the provider of a blob store, because it cannot be part of a program's name")]
    Provider(String),
    /// the program cannot be run
    #[error("cannot run {program}, which a blob store of this provider needs; it must be in PATH")]
    Program {
        program: String,
        #[source]
        source: io::Error,
    },
    /// the program says that it failed
    #[error("Shelling out to {program} cli, tried {TRIES} times: {status}: {complaint}")]
    Failed { program: String, status: ExitStatus, complaint: String },
    /// the program does not come to an end
    #[error("{program} did not end within {PATIENCE:?}")]
    TimedOut { program: String },
    /// its options cannot be kept
    #[error("cannot keep the options of the blob store in {path}")]
    Options {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A store that a program knows how to use.
#[derive(Debug)]
pub(super) struct External<'a> {
    program: String,
    options: &'a Value,
    config: PathBuf,
    tmp: PathBuf,
}

impl<'a> External<'a> {
    pub(super) fn new(base: &Base, provider: &str, options: &'a Value) -> Result<Self, ExternalError> {
        if !is_name(provider) {
            return Err(ExternalError::Provider(provider.to_owned()));
        }
        Ok(Self {
            program: format!("bosh-blobstore-{provider}"),
            options,
            config: base.bosh().join("etc").join(format!("blobstore-{provider}.json")),
            tmp: base.tmp(),
        })
    }

    /// Fetches a blob into a new file.
    pub(super) fn get(&self, id: &str, path: &Path) -> Result<(), ExternalError> {
        self.run(&["get".as_ref(), id.as_ref(), path])
    }

    /// Stores a file as a blob.
    pub(super) fn put(&self, path: &Path, id: &str) -> Result<(), ExternalError> {
        self.run(&["put".as_ref(), path, id.as_ref()])
    }

    fn run(&self, arguments: &[&Path]) -> Result<(), ExternalError> {
        self.write_options().map_err(|source| ExternalError::Options { path: self.config.clone(), source })?;
        let mut tries = 1;
        loop {
            match self.once(arguments) {
                Err(ExternalError::Failed { .. }) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// The program reads its options, which hold secrets, from a file.
    fn write_options(&self) -> io::Result<()> {
        if let Some(folder) = self.config.parent() {
            file::create_private_dir(folder)?;
        }
        let options = serde_json::to_vec(self.options)?;
        if std::fs::read(&self.config).is_ok_and(|known| known == options) {
            return Ok(());
        }
        file::write(&self.config, &options, file::PRIVATE)
    }

    fn once(&self, arguments: &[&Path]) -> Result<(), ExternalError> {
        let failed = |source| ExternalError::Program { program: self.program.clone(), source };
        kill_point("before a blob store's program is run");
        let mut complaint = self.complaint_file().map_err(failed)?;
        let mut child = Command::new(&self.program)
            .arg("-c")
            .arg(&self.config)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaint.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if Instant::now() < deadline => std::thread::sleep(LOOK),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(ExternalError::TimedOut { program: self.program.clone() });
                }
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut text = Vec::new();
        let read = complaint.seek(SeekFrom::Start(0)).and_then(|_| complaint.take(COMPLAINT).read_to_end(&mut text));
        let complaint = match read {
            Ok(_) => without_secrets(String::from_utf8_lossy(&text).trim(), self.options),
            Err(error) => error.to_string(),
        };
        Err(ExternalError::Failed { program: self.program.clone(), status, complaint })
    }

    /// A file without a name, so that nothing is left of it.
    #[expect(clippy::disallowed_methods, reason = "a file without a name is nobody's but ours")]
    fn complaint_file(&self) -> io::Result<File> {
        let path = self.tmp.join(format!("complaint-{}", uuid::Uuid::new_v4()));
        let file = File::options().read(true).write(true).create_new(true).mode(file::PRIVATE).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }
}

/// What a program complains about, without what its options say: some of that is secret.
fn without_secrets(text: &str, options: &Value) -> String {
    match options {
        Value::String(secret) if secret.len() > 3 => text.replace(secret.as_str(), "<redacted>"),
        Value::Array(items) => items.iter().fold(text.to_owned(), |text, item| without_secrets(&text, item)),
        Value::Object(items) => items.values().fold(text.to_owned(), |text, item| without_secrets(&text, item)),
        _ => text.to_owned(),
    }
}
