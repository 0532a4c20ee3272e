//! A minimal stemcell around an agent.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha1::{Digest, Sha1};
use windlass_contract::stemcell::StemcellManifest;
use windlass_contract::{ApiVersion, Object};
use windlass_durable::{file, kill_point};

use crate::archive::{IMAGE, MANIFEST};
use crate::digest::hex;
use crate::root_fs::{self, Content};

/// What to build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Where the stemcell goes.
    pub output: PathBuf,
    /// The executable of the agent. It must run without anything else: the stemcell has no libraries.
    pub agent: PathBuf,
    /// The stemcell's name.
    pub name: String,
    /// The stemcell's version.
    pub version: String,
    /// The operating system that deployments name.
    pub os: String,
    /// What the agent can do.
    pub api_version: ApiVersion,
}

impl BuildOptions {
    /// Our minimal stemcell, version 1, for an agent that needs no registry.
    pub fn new(agent: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            output: output.into(),
            agent: agent.into(),
            name: "windlass-minimal".into(),
            version: "1".into(),
            os: "windlass-minimal".into(),
            api_version: ApiVersion::V2,
        }
    }
}

/// a stemcell that cannot be built
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// a version that needs a registry
    #[error("a stemcell with api_version {0} would need a registry; build one with 2 or more")]
    OldApiVersion(ApiVersion),
    /// an empty name or version
    #[error("the stemcell's {0} must not be empty")]
    Empty(&'static str),
    /// the agent is not a file that can be read
    #[error("the agent '{}' cannot be packed into the stemcell", path.display())]
    Agent {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// the stemcell cannot be written
    #[error("the stemcell '{}' cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Builds a stemcell. It appears at its place when it is complete, and has the same bytes whenever the agent and the
/// options are the same. `progress` hears how many bytes of the agent are packed, and of how many.
pub fn build(options: &BuildOptions, progress: impl FnMut(u64, u64)) -> Result<(), BuildError> {
    for (what, value) in [("name", &options.name), ("version", &options.version), ("operating system", &options.os)] {
        if value.is_empty() {
            return Err(BuildError::Empty(what));
        }
    }
    if options.api_version < ApiVersion::V2 {
        return Err(BuildError::OldApiVersion(options.api_version));
    }
    let unusable = |source| BuildError::Agent { path: options.agent.clone(), source };
    let agent = File::open(&options.agent).map_err(unusable)?;
    let metadata = agent.metadata().map_err(unusable)?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Err(unusable(io::Error::other("it is not an executable file")));
    }
    let mut agent = Tracked { agent, done: 0, total: metadata.len(), progress };
    let unwritable = |source| BuildError::Write { path: options.output.clone(), source };
    let (mut image, sha1) = write_image(&options.version, &mut agent, &options.output).map_err(unwritable)?;
    // The tar's header says how long the agent is: one that changed meanwhile makes a broken image.
    if agent.done != agent.total {
        return Err(unusable(io::Error::other("it changed while it was read")));
    }
    let manifest = StemcellManifest {
        name: options.name.clone(),
        version: options.version.clone(),
        operating_system: Some(options.os.clone()),
        api_version: Some(options.api_version),
        sha1,
        stemcell_formats: vec!["warden-tar".into()],
        cloud_properties: Object::new(),
    };
    write_stemcell(&manifest, &mut image, &options.output).map_err(unwritable)
}

/// The compressed root file system, in a file without a name, and its digest.
fn write_image(version: &str, agent: &mut Tracked<impl FnMut(u64, u64)>, output: &Path) -> io::Result<(File, String)> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut image = tempfile::tempfile_in(folder)?;
    // Fast, because an agent of tens of megabytes is packed again with each build of it.
    let digesting = Digesting { file: BufWriter::new(&mut image), digest: Sha1::new() };
    let mut tar = tar::Builder::new(GzEncoder::new(digesting, Compression::fast()));
    for entry in root_fs::entries(version) {
        match &entry.content {
            Content::Folder => append(&mut tar, entry.path, entry.mode, tar::EntryType::Directory, 0, io::empty())?,
            Content::Text(text) => {
                append(&mut tar, entry.path, entry.mode, tar::EntryType::Regular, text.len() as u64, text.as_bytes())?;
            }
            Content::Agent => {
                let size = agent.total;
                append(&mut tar, entry.path, entry.mode, tar::EntryType::Regular, size, (&mut *agent).take(size))?;
            }
        }
    }
    let Digesting { mut file, digest } = tar.into_inner()?.finish()?;
    file.flush()?;
    drop(file);
    image.rewind()?;
    Ok((image, hex(&digest.finalize())))
}

fn write_stemcell(manifest: &StemcellManifest, image: &mut File, output: &Path) -> io::Result<()> {
    let manifest = windlass_manifest::to_yaml(&serde_json::to_value(manifest)?);
    let temporary = Temporary(file::beside(output)?);
    kill_point("before the stemcell is written");
    // Stored as it is: the image is compressed already.
    let target = BufWriter::new(File::create_new(&temporary.0)?);
    let mut tar = tar::Builder::new(GzEncoder::new(target, Compression::none()));
    append(&mut tar, MANIFEST, 0o644, tar::EntryType::Regular, manifest.len() as u64, manifest.as_bytes())?;
    append(&mut tar, IMAGE, 0o644, tar::EntryType::Regular, image.metadata()?.len(), image)?;
    let target = tar.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    target.sync_all()?;
    file::rename(&temporary.0, output)
}

/// A file that is removed unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An entry without anything that depends on who builds it, and when.
fn append(
    tar: &mut tar::Builder<impl Write>,
    path: &str,
    mode: u32,
    kind: tar::EntryType,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, path, content)
}

struct Digesting<W> {
    file: W,
    digest: Sha1,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The agent, telling how much of it was read.
struct Tracked<P> {
    agent: File,
    done: u64,
    total: u64,
    progress: P,
}

impl<P: FnMut(u64, u64)> Read for Tracked<P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.agent.read(buffer)?;
        if read > 0 {
            self.done += read as u64;
            (self.progress)(self.done, self.total);
        }
        Ok(read)
    }
}
