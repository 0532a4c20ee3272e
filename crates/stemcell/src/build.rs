//! A stemcell around an agent.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use windlass_contract::stemcell::StemcellManifest;
use windlass_contract::{ApiVersion, Object};

use crate::accounts::Accounts;
use crate::archive::{IMAGE, MANIFEST};
use crate::base::{self, Listing, RootFsError};
use crate::busybox::Busybox;
use crate::debian::{Bootstrap, Debian, DebianError};
use crate::host;
use crate::meter::Meter;
use crate::pack::{self, ImagePack, NewStemcell, PutError};
use crate::program::{self, ProgramError};
use crate::root_fs::{self, AGENT_FOLDER, Content, Entry, Setup};
use crate::tarball;

#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Where the stemcell goes.
    pub output: PathBuf,
    /// The executable of the agent. Libraries that it needs come with it.
    pub agent: PathBuf,
    /// What is in the stemcell besides the agent.
    pub base: Base,
    /// The stemcell's name.
    pub name: String,
    /// The stemcell's version.
    pub version: String,
    /// The operating system that deployments name.
    pub os: String,
    /// What the agent can do. Below 2 it needs a registry, and is told so.
    pub api_version: ApiVersion,
}

/// What is in a stemcell besides the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// Nothing, or a busybox that is static.
    Minimal { busybox: Option<PathBuf> },
    /// A root file system: a tar, compressed with gzip or not, or a folder.
    RootFs(PathBuf),
    /// A Debian system.
    Debian(Debian),
    /// Nothing: VMs see the programs of the machine that they run on. For development, on the embedded cloud.
    Host {
        /// Whether the agent is packed; otherwise it is a program of that machine, too.
        packs_agent: bool,
    },
}

/// Name and operating system of stemcells with the programs of the machine that their VMs run on.
pub const HOST: &str = "windlass-host";

/// The version of such a stemcell: it changes with the packages of this machine.
pub fn host_version() -> io::Result<String> {
    crate::host::version(Path::new("/"))
}

impl BuildOptions {
    /// Our minimal stemcell, version 1, for an agent that needs no registry.
    pub fn new(agent: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            output: output.into(),
            agent: agent.into(),
            base: Base::Minimal { busybox: None },
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
    /// a version that does not exist
    #[error("there is no stemcell with api_version {0}; the first is 1")]
    ApiVersion(ApiVersion),
    /// an empty name or version
    #[error("the stemcell's {0} must not be empty")]
    Empty(&'static str),
    /// the agent is not a file that can be read
    #[error("the agent '{}' cannot be packed into the stemcell", path.display())]
    Agent {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the agent's libraries are not there
    #[error("the agent cannot be packed into the stemcell")]
    Libraries(#[from] ProgramError),
    /// the busybox is none
    #[error("the busybox '{}' cannot be used", path.display())]
    Busybox {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the root file system cannot be used
    #[error("the root file system '{path}' cannot become a stemcell")]
    RootFs {
        /// Its path, or the suite.
        path: String,
        #[source]
        source: RootFsError,
    },
    /// no Debian system could be made
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// the stemcell cannot be written
    #[error("the stemcell '{}' cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Builds a stemcell. It appears at its place when it is complete, and has the same bytes whenever the agent, the base and
/// the options are the same. `progress` hears how many bytes were packed, and of how many if that is known.
pub fn build(options: &BuildOptions, mut progress: impl FnMut(u64, Option<u64>)) -> Result<(), BuildError> {
    for (what, value) in [("name", &options.name), ("version", &options.version), ("operating system", &options.os)] {
        if value.is_empty() {
            return Err(BuildError::Empty(what));
        }
    }
    if options.api_version < ApiVersion::V1 {
        return Err(BuildError::ApiVersion(options.api_version));
    }
    let setup = setup(options)?;
    let meter = Meter::new(&mut progress);
    let unwritable = |source| BuildError::Write { path: options.output.clone(), source };
    let mut image = pack::begin_image(&options.output).map_err(unwritable)?;
    match &options.base {
        Base::Minimal { busybox } => pack_minimal(options, &setup, busybox.as_deref(), &mut image, &meter)?,
        Base::RootFs(path) => pack_root_fs(path, &setup, &mut image, &meter)
            .map_err(|source| BuildError::RootFs { path: path.display().to_string(), source })?,
        Base::Debian(debian) => pack_debian(debian, &setup, &mut image, &meter)?,
        Base::Host { packs_agent } => pack_host(options, &setup, *packs_agent, &mut image, &meter)?,
    }
    let (image, sha1) = pack::end_image(image).map_err(unwritable)?;
    let is_host = matches!(options.base, Base::Host { .. });
    let manifest = StemcellManifest {
        name: options.name.clone(),
        version: options.version.clone(),
        operating_system: Some(options.os.clone()),
        api_version: Some(options.api_version),
        sha1,
        stemcell_formats: vec![if is_host { HOST } else { "warden-tar" }.into()],
        cloud_properties: if is_host { host_properties() } else { Object::new() },
    };
    write_stemcell(&manifest, &image, &options.output).map_err(unwritable)
}

/// What the embedded cloud must know. What is compiled with the programs of one machine may not run on another.
fn host_properties() -> Object {
    Object::from_iter([("userland".into(), "host".into()), ("export_compiled_packages".into(), false.into())])
}

fn setup(options: &BuildOptions) -> Result<Setup, BuildError> {
    let (agent, needs, runs_jobs) = match options.base {
        // That of the machine is ours.
        Base::Host { packs_agent: false } => (PathBuf::new(), None, true),
        _ => (
            usable_agent(&options.agent)?,
            program::needs(&options.agent, Path::new(AGENT_FOLDER))?,
            program::is_our_agent(&options.agent)
                .map_err(|source| BuildError::Agent { path: options.agent.clone(), source })?,
        ),
    };
    let (stemcell_version, api_version) = (options.version.clone(), options.api_version);
    Ok(Setup { stemcell_version, api_version, agent, needs, runs_jobs })
}

/// Refuses what can be seen to be no agent.
pub(crate) fn usable_agent(path: &Path) -> Result<PathBuf, BuildError> {
    let unusable = |source| BuildError::Agent { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(unusable)?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Err(unusable(io::Error::other("it is not an executable file")));
    }
    Ok(path.to_owned())
}

fn pack_minimal(
    options: &BuildOptions,
    setup: &Setup,
    busybox: Option<&Path>,
    image: &mut ImagePack,
    meter: &Meter<'_>,
) -> Result<(), BuildError> {
    let unwritable = |source| BuildError::Write { path: options.output.clone(), source };
    let busybox = busybox
        .map(|path| Busybox::of(path).map_err(|source| BuildError::Busybox { path: path.to_owned(), source }))
        .transpose()?;
    let Ok(accounts) = Accounts::minimal().with_vcap("/bin/sh") else {
        return Err(unwritable(io::Error::other("the minimal root file system has a user of its own")));
    };
    pack_entries(options, &root_fs::minimal(setup, &accounts, busybox.as_ref()), image, meter)
}

fn pack_host(
    options: &BuildOptions,
    setup: &Setup,
    packs_agent: bool,
    image: &mut ImagePack,
    meter: &Meter<'_>,
) -> Result<(), BuildError> {
    let unwritable = |source| BuildError::Write { path: options.output.clone(), source };
    let Ok(accounts) = Accounts::minimal().with_vcap(host::shell()) else {
        return Err(unwritable(io::Error::other("the minimal root file system has a user of its own")));
    };
    pack_entries(options, &root_fs::of_host(setup, &accounts, packs_agent), image, meter)
}

fn pack_entries(
    options: &BuildOptions,
    entries: &[Entry],
    image: &mut ImagePack,
    meter: &Meter<'_>,
) -> Result<(), BuildError> {
    let unwritable = |source| BuildError::Write { path: options.output.clone(), source };
    let sources = entries.iter().filter_map(|entry| match &entry.content {
        Content::File(path) => Some(path),
        _ => None,
    });
    meter.expect(sources.filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum());
    for entry in entries {
        image.put(entry, meter).map_err(|error| match (error, &entry.content) {
            (PutError::Read(source), Content::File(path)) => BuildError::Agent { path: path.clone(), source },
            (PutError::Read(source) | PutError::Write(source), _) => unwritable(source),
        })?;
    }
    Ok(())
}

fn pack_root_fs(path: &Path, setup: &Setup, image: &mut ImagePack, meter: &Meter<'_>) -> Result<(), RootFsError> {
    let own = own_bytes(setup);
    let seen = if path.is_dir() {
        let listing = Listing::of(path)?;
        meter.expect(listing.bytes + own);
        base::from_folder(&listing, image, meter)?
    } else {
        let mut file = File::open(path).map_err(RootFsError::Read)?;
        base::refuse_other_compression(&tarball::first_bytes(&mut file).map_err(RootFsError::Read)?)?;
        meter.expect(file.metadata().map_err(RootFsError::Read)?.len() + own);
        base::from_tar(tarball::open(path, meter).map_err(RootFsError::Read)?, image)?
    };
    seen.complete(setup, image, meter)
}

fn pack_debian(debian: &Debian, setup: &Setup, image: &mut ImagePack, meter: &Meter<'_>) -> Result<(), BuildError> {
    let failed = |source| BuildError::RootFs { path: debian.suite.clone(), source };
    let mut bootstrap = Bootstrap::start(debian)?;
    let Some(output) = bootstrap.output() else { return Err(failed(RootFsError::Empty)) };
    let seen = match base::from_tar(meter.read(output), image) {
        // Then it is its fault, if it failed.
        Err(damaged @ RootFsError::Damaged(_)) => {
            return Err(bootstrap.end().err().map_or(failed(damaged), Into::into));
        }
        other => other.map_err(failed)?,
    };
    bootstrap.end()?;
    seen.complete(setup, image, meter).map_err(failed)
}

/// Bytes of the agent and its libraries.
fn own_bytes(setup: &Setup) -> u64 {
    let libraries = setup.needs.iter().flat_map(|needs| needs.libraries.values().map(|library| &library.source));
    let files = libraries.chain([&setup.agent]);
    files.filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn write_stemcell(manifest: &StemcellManifest, image: &File, output: &Path) -> io::Result<()> {
    let manifest = windlass_manifest::to_yaml(&serde_json::to_value(manifest)?);
    let mut stemcell = NewStemcell::create(output)?;
    stemcell.put(MANIFEST, manifest.len() as u64, manifest.as_bytes())?;
    stemcell.put(IMAGE, image.metadata()?.len(), image)?;
    stemcell.finish(output)
}
