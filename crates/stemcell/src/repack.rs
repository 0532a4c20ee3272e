//! A stemcell that says something else of itself, or has another agent. Everything else in it stays as it is.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};
use windlass_contract::{ApiVersion, Object};
use windlass_manifest::Document;

use crate::ReadError;
use crate::archive::{self, IMAGE, ImageSink, MANIFEST};
use crate::digest::hex;
use crate::meter::Meter;
use crate::pack::{self, ImagePack, NewStemcell, PutError};
use crate::program::{self, ProgramError};
use crate::root_fs::AGENT;
use crate::tarball::{GZIP, Limits, TarEntry, Tarball, inside};

/// What to change. What is none stays.
#[derive(Debug, Clone, Default)]
pub struct RepackOptions {
    pub input: PathBuf,
    /// Where the new one goes; may be the same.
    pub output: PathBuf,
    pub name: Option<String>,
    pub version: Option<String>,
    /// The operating system that deployments name.
    pub os: Option<String>,
    /// What its agent can do.
    pub api_version: Option<ApiVersion>,
    /// Merged into its cloud properties, key by key.
    pub cloud_properties: Object,
    pub formats: Option<Vec<String>>,
    /// Another agent, which must be static.
    pub agent: Option<PathBuf>,
    /// Whether the image is left out, as light stemcells do.
    pub empty_image: bool,
}

/// a stemcell that cannot be repacked
#[derive(Debug, thiserror::Error)]
pub enum RepackError {
    /// it cannot be read
    #[error(transparent)]
    Read(#[from] ReadError),
    /// an empty name or version
    #[error("the stemcell's {0} must not be empty")]
    Empty(&'static str),
    /// a version that does not exist
    #[error("there is no stemcell with api_version {0}; the first is 1")]
    ApiVersion(ApiVersion),
    /// both an agent and no image
    #[error("an empty image has no place for an agent; ask for one of them")]
    AgentWithoutImage,
    /// the agent cannot be read
    #[error("the agent '{}' cannot be packed into the stemcell", path.display())]
    Agent {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the agent is no program
    #[error("the agent cannot be packed into the stemcell")]
    Program(#[from] ProgramError),
    /// the agent needs libraries
    #[error("the agent '{}' needs shared libraries, which the stemcell may not have; use a static one", .0.display())]
    NotStatic(PathBuf),
    /// the image has no agent
    #[error("the stemcell's image has no '/{AGENT}'; only a root file system with an agent can get another one")]
    NoAgent,
    /// the image is something else, or damaged
    #[error("the stemcell's image is not the tar of a root file system, or it is damaged")]
    Image(#[source] io::Error),
    /// an entry of the image that leads out of it
    #[error("the stemcell's image has an entry '{0}' that leads out of it")]
    Outside(String),
    /// the stemcell cannot be written
    #[error("the stemcell '{}' cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Writes the stemcell with the changes. It appears at its place when it is complete. `progress` hears how many bytes were
/// read, and of how many.
pub fn repack(options: &RepackOptions, mut progress: impl FnMut(u64, Option<u64>)) -> Result<(), RepackError> {
    check(options)?;
    let size = std::fs::metadata(&options.input)
        .map_err(|source| ReadError::Open { path: options.input.clone(), source })?
        .len();
    let meter = Meter::new(&mut progress);
    // Once to see that it is whole, once for the image if it changes, once to copy.
    meter.expect(size * if options.agent.is_some() { 3 } else { 2 });
    let (_, text) = archive::read(&options.input, Limits::default(), &meter, &mut Ignored)?;
    let image = match &options.agent {
        Some(agent) => Some(image_with(agent, options, &meter)?),
        None if options.empty_image => {
            let empty = tempfile::tempfile().map_err(|source| unwritable(options, source))?;
            Some((empty, hex(&<sha1::Sha1 as sha1::Digest>::digest(b""))))
        }
        None => None,
    };
    let manifest = changed(&text, options, image.as_ref().map(|(_, sha1)| sha1.as_str()))?;
    write(options, &manifest, image.as_ref().map(|(file, _)| file), &meter)
}

fn check(options: &RepackOptions) -> Result<(), RepackError> {
    for (what, value) in [("name", &options.name), ("version", &options.version), ("operating system", &options.os)] {
        if value.as_ref().is_some_and(String::is_empty) {
            return Err(RepackError::Empty(what));
        }
    }
    if let Some(version) = options.api_version.filter(|version| *version < ApiVersion::V1) {
        return Err(RepackError::ApiVersion(version));
    }
    let Some(agent) = &options.agent else { return Ok(()) };
    if options.empty_image {
        return Err(RepackError::AgentWithoutImage);
    }
    if program::needs(agent, Path::new("/"))?.is_some() {
        return Err(RepackError::NotStatic(agent.clone()));
    }
    Ok(())
}

fn unwritable(options: &RepackOptions, source: io::Error) -> RepackError {
    RepackError::Write { path: options.output.clone(), source }
}

fn damaged(options: &RepackOptions, source: io::Error) -> RepackError {
    ReadError::of_archive(&options.input, source).into()
}

struct Ignored;

impl ImageSink for Ignored {
    fn take(&mut self, _: &[u8]) -> Result<(), ReadError> {
        Ok(())
    }
}

/// The manifest with the changes; keys that we do not know stay, and so do its words if nothing changes.
fn changed(text: &str, options: &RepackOptions, sha1: Option<&str>) -> Result<String, RepackError> {
    let document = Document::parse(text).map_err(ReadError::Yaml)?;
    let before = document.node().to_json();
    let mut manifest = before.clone();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            manifest[key] = value;
        }
    };
    set("name", options.name.as_deref().map(Value::from));
    set("version", options.version.as_deref().map(Value::from));
    set("operating_system", options.os.as_deref().map(Value::from));
    set("api_version", options.api_version.map(|version| version.0.into()));
    set("sha1", sha1.map(Value::from));
    set("stemcell_formats", options.formats.as_ref().map(|formats| json!(formats)));
    // An early name of the same.
    if options.api_version.is_some()
        && let Some(fields) = manifest.as_object_mut()
    {
        fields.shift_remove("sc_api_version");
    }
    if !options.cloud_properties.is_empty() {
        let mut properties = manifest["cloud_properties"].as_object().cloned().unwrap_or_default();
        properties.extend(options.cloud_properties.clone());
        manifest["cloud_properties"] = properties.into();
    }
    Ok(if manifest == before { text.to_owned() } else { windlass_manifest::to_yaml(&manifest) })
}

/// The image of the stemcell with another agent, and its digest.
fn image_with(agent: &Path, options: &RepackOptions, meter: &Meter<'_>) -> Result<(File, String), RepackError> {
    let mut image = pack::begin_image(&options.output).map_err(|source| unwritable(options, source))?;
    let mut found = false;
    Tarball::new(archive::open(&options.input, meter)?).each(
        |source| damaged(options, source),
        |entry| {
            if archive::role(&entry.path_bytes())? != Some(IMAGE) {
                return Ok(());
            }
            let mut start = Vec::new();
            entry.by_ref().take(GZIP.len() as u64).read_to_end(&mut start).map_err(RepackError::Image)?;
            let is_gzip = start == GZIP;
            let content = Cursor::new(start).chain(entry);
            let content: Box<dyn Read + '_> =
                if is_gzip { Box::new(MultiGzDecoder::new(content)) } else { Box::new(content) };
            Tarball::new(content).each(RepackError::Image, |entry| {
                found |= copy_into_image(entry, agent, options, &mut image)?;
                Ok(())
            })
        },
    )?;
    if !found {
        return Err(RepackError::NoAgent);
    }
    pack::end_image(image).map_err(|source| unwritable(options, source))
}

/// Copies an entry, or puts the agent in its place; says whether it did the latter.
fn copy_into_image(
    entry: &mut TarEntry<'_, impl Read>,
    agent: &Path,
    options: &RepackOptions,
    image: &mut ImagePack,
) -> Result<bool, RepackError> {
    let name = entry.path_bytes().into_owned();
    let path = inside(&name).ok_or_else(|| RepackError::Outside(String::from_utf8_lossy(&name).into_owned()))?;
    let kind = entry.header().entry_type();
    if kind.is_pax_global_extensions() {
        return Ok(false);
    }
    let is_agent = path == Path::new(AGENT) && kind.is_file();
    let put = if is_agent {
        let unusable = |source| RepackError::Agent { path: agent.to_owned(), source };
        let file = File::open(agent).map_err(unusable)?;
        let size = file.metadata().map_err(unusable)?.len();
        image.replace(entry, &path, size, file)
    } else {
        image.copy(entry, if path.as_os_str().is_empty() { Path::new("./") } else { &path }, |_| {})
    };
    put.map_err(|error| match error {
        PutError::Read(source) => RepackError::Image(source),
        PutError::Write(source) => unwritable(options, source),
    })?;
    Ok(is_agent)
}

fn write(options: &RepackOptions, manifest: &str, image: Option<&File>, meter: &Meter<'_>) -> Result<(), RepackError> {
    let unwritable = |source| unwritable(options, source);
    let mut stemcell = NewStemcell::create(&options.output).map_err(unwritable)?;
    Tarball::new(archive::open(&options.input, meter)?).each(
        |source| damaged(options, source),
        |entry| {
            let Some(path) = inside(&entry.path_bytes()) else { return Ok(()) };
            if path.as_os_str().is_empty() || entry.header().entry_type().is_pax_global_extensions() {
                return Ok(());
            }
            let pack = stemcell.pack();
            let put = match (archive::role(&entry.path_bytes())?, image) {
                (Some(MANIFEST), _) => pack.replace(entry, &path, manifest.len() as u64, manifest.as_bytes()),
                (Some(IMAGE), Some(image)) => {
                    let size = image.metadata().map_err(unwritable)?.len();
                    pack.replace(entry, &path, size, image)
                }
                _ => pack.copy(entry, &path, |_| {}),
            };
            put.map_err(|error| match error {
                PutError::Read(source) => damaged(options, source),
                PutError::Write(source) => unwritable(source),
            })
        },
    )?;
    stemcell.finish(&options.output).map_err(unwritable)
}
