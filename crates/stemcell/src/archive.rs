//! The tarball of a stemcell, read as a stream.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use windlass_archive::Refusal;
use windlass_contract::stemcell::StemcellManifest;
use windlass_manifest::{Document, ParseError, Problem};

use crate::meter::Meter;
use crate::tarball::{self, Budget, Limits, Tarball};

/// The name of the manifest in the tarball.
pub const MANIFEST: &str = "stemcell.MF";
/// The name of the image in the tarball.
pub const IMAGE: &str = "image";

/// Manifests are a few hundred bytes; nobody needs this much.
const LARGEST_MANIFEST: u64 = 1024 * 1024;

/// a stemcell that cannot be read
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// the file cannot be opened
    #[error("the stemcell '{}' cannot be opened", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the file is something else, or damaged
    #[error("'{}' is not a tarball, or it is damaged; download or build the stemcell again", path.display())]
    NotTarball {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// it takes more than it may
    #[error("the stemcell '{}' is refused", path.display())]
    Refused {
        path: PathBuf,
        #[source]
        source: Refusal,
    },
    /// one of the two files is missing
    #[error("'{}' is not a stemcell: it contains no '{name}'", path.display())]
    Missing {
        path: PathBuf,
        /// What is missing.
        name: &'static str,
    },
    /// one of the two files is a link or something else
    #[error("'{name}' in the stemcell is not a regular file")]
    NotRegular { name: &'static str },
    /// one of the two files is there twice
    #[error("'{name}' is in the stemcell more than once")]
    Twice { name: &'static str },
    /// an entry that points outside the stemcell
    #[error("the stemcell is hostile: its entry '{name}' points outside of it")]
    Outside {
        /// The entry's name.
        name: String,
    },
    /// the manifest is too large to be one
    #[error("the stemcell's {MANIFEST} is larger than {} KiB", LARGEST_MANIFEST / 1024)]
    ManifestTooLarge,
    /// the manifest is not YAML
    #[error("the stemcell's {MANIFEST} is not valid YAML")]
    Yaml(#[source] ParseError),
    /// the manifest misses something
    #[error("the stemcell's {MANIFEST} cannot be used")]
    Manifest(#[source] Problem),
    /// a file cannot be written
    #[error("'{}' cannot be written while unpacking the stemcell", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ReadError {
    /// What is wrong with the archive at `path`.
    pub(crate) fn of_archive(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match Refusal::of(&source) {
            Some(source) => Self::Refused { path, source },
            None => Self::NotTarball { path, source },
        }
    }
}

/// Somebody who takes the image as it streams by.
pub(crate) trait ImageSink {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &[u8]) -> Result<(), ReadError>;
}

/// Reads the tarball at `path` from its start to its end, within `limits`, streaming the image into `sink`, and gives the manifest with its
/// text. Everything besides the two files is passed over.
pub(crate) fn read(
    path: &Path,
    limits: Limits,
    meter: &Meter<'_>,
    sink: &mut impl ImageSink,
) -> Result<(StemcellManifest, String), ReadError> {
    let damaged = |source| ReadError::of_archive(path, source);
    let (mut manifest, mut image) = (None, false);
    Tarball::within(open(path, meter)?, &Budget::new(limits)).each(damaged, |entry| {
        let Some(name) = role(&entry.path_bytes())? else { return Ok(()) };
        if !entry.header().entry_type().is_file() {
            return Err(ReadError::NotRegular { name });
        }
        if (name == IMAGE && image) || (name == MANIFEST && manifest.is_some()) {
            return Err(ReadError::Twice { name });
        }
        if name == MANIFEST {
            manifest = Some(manifest_text(entry, damaged)?);
            return Ok(());
        }
        image = true;
        stream(entry, sink, damaged)
    })?;
    let missing = |name| ReadError::Missing { path: path.to_owned(), name };
    let text = manifest.ok_or_else(|| missing(MANIFEST))?;
    if !image {
        return Err(missing(IMAGE));
    }
    Ok((parse(&text)?, text))
}

/// Opens a stemcell, compressed or not.
pub(crate) fn open<'m>(path: &Path, meter: &'m Meter<'_>) -> Result<Box<dyn Read + 'm>, ReadError> {
    let unreadable = |source| ReadError::Open { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size == 0 {
        return Err(ReadError::NotTarball { path: path.to_owned(), source: io::Error::other("it is empty") });
    }
    tarball::open(path, meter).map_err(unreadable)
}

/// Which of the two files an entry is; none for the others.
pub(crate) fn role(name: &[u8]) -> Result<Option<&'static str>, ReadError> {
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let mut parts = path.components().filter(|part| *part != Component::CurDir);
    if parts.clone().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(ReadError::Outside { name: path.display().to_string() });
    }
    Ok(match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) => [MANIFEST, IMAGE].into_iter().find(|known| *known == name),
        _ => None,
    })
}

fn stream(
    entry: &mut impl Read,
    sink: &mut impl ImageSink,
    damaged: impl Fn(io::Error) -> ReadError,
) -> Result<(), ReadError> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match entry.read(&mut buffer).map_err(&damaged)? {
            0 => return Ok(()),
            read => sink.take(&buffer[..read])?,
        }
    }
}

fn manifest_text<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    damaged: impl Fn(io::Error) -> ReadError,
) -> Result<String, ReadError> {
    if entry.size() > LARGEST_MANIFEST {
        return Err(ReadError::ManifestTooLarge);
    }
    let mut text = String::new();
    entry.read_to_string(&mut text).map_err(&damaged)?;
    Ok(text)
}

fn parse(text: &str) -> Result<StemcellManifest, ReadError> {
    let document = Document::parse(text).map_err(ReadError::Yaml)?;
    let root = document.root();
    // Read one by one first, because these two explain better what is wrong: unquoted versions are a classic.
    let identity = ["name", "version"].into_iter().try_for_each(|field| root.field(field)?.string().map(drop));
    identity.and_then(|()| root.decode()).map_err(ReadError::Manifest)
}
