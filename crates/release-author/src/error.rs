//! Why a command of an author fails.

use std::io;
use std::path::PathBuf;

use windlass_archive::digest::{Mismatch, NoDigest};
use windlass_blobs::BlobError;
use windlass_manifest::{ParseError, Problem};
use windlass_release::version::{NoNext, NoVersion};
use windlass_release::{GraphError, ReleaseError};

/// why a command of an author fails
#[derive(Debug, thiserror::Error)]
pub enum AuthorError {
    /// a file cannot be read
    #[error("cannot read '{}'", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// a file cannot be written
    #[error("cannot write '{}'", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// a document is not YAML
    #[error("'{}' is not valid YAML", .0.display())]
    Yaml(PathBuf, #[source] ParseError),
    /// a document is not what it should be
    #[error("'{}' is not valid", .0.display())]
    Document(PathBuf, #[source] Problem),
    /// the directory says nowhere what the release is called
    #[error("Expected non-empty 'name' in config '{}'; check that this is the top of a release directory, or give --name", .0.display())]
    NoName(PathBuf),
    /// it says so twice
    #[error("Expected 'name' or 'final_name' but not both in config '{}'", .0.display())]
    TwoNames(PathBuf),
    /// something is there already
    #[error("{kind} '{name}' at '{}' already exists", path.display())]
    Exists {
        /// Job or package.
        kind: &'static str,
        name: String,
        path: PathBuf,
    },
    /// changes that no commit has
    #[error("Git repository has local modifications:\n\n{0}\n\ncommit them, or go on with --force")]
    Dirty(String),
    #[error("git {what}: {said}")]
    Git {
        /// What it was asked.
        what: String,
        said: String,
    },
    #[error("{}", lines(.0))]
    Several(Vec<AuthorError>),
    /// a job in a folder of another name
    #[error("Job directory '{folder}' does not match job name '{name}' in spec; rename one of them")]
    JobName {
        folder: String,
        /// In the spec.
        name: String,
    },
    /// a template that is not there
    #[error("'{}' lists the template '{template}', but there is no file '{}'", spec.display(), path.display())]
    NoTemplate {
        /// The job's spec.
        spec: PathBuf,
        template: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// a package without its script
    #[error("Expected to find '{}' for package '{package}'", path.display())]
    NoPackaging { path: PathBuf, package: String },
    /// nothing is called so
    #[error(
        "Missing files for pattern '{pattern}' of package '{package}': neither src/ nor blobs/ has any; correct 'files' in its spec, or add the blob"
    )]
    NoFiles { package: String, pattern: String },
    /// a pattern that means nothing
    #[error("the pattern '{pattern}' of package '{package}' {why}")]
    Pattern {
        package: String,
        pattern: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// a file in the place of a script
    #[error("Expected special '{file}' file to not be included via 'files' key for package '{package}'")]
    Special { file: &'static str, package: String },
    /// there is no folder of sources
    #[error("there is no folder '{}'; make one, also if no package has sources of its own", .0.display())]
    NoSources(PathBuf),
    /// a mode for which there is no fingerprint
    #[error("'{}' can be executed by others, but not by its owner; use 'chmod +x' or 'chmod -x'", .0.display())]
    Mode(PathBuf),
    /// a thing that no archive of a release has
    #[error("'{}' is {kind}, and a release has only files and links to them; remove it, or change the spec", path.display())]
    Kind { path: PathBuf, kind: &'static str },
    #[error("'{}' changed while it was packed; try again", .0.display())]
    Changed(PathBuf),
    /// a package that nobody has
    #[error("Expected to find package '{package}' since it's a dependency of {of}")]
    NoPackage {
        /// What is needed.
        package: String,
        of: String,
    },
    /// an archive that is said to exist
    #[error("Expected to find '{name}/{fingerprint}' in .dev_builds or .final_builds; vendor the package again")]
    NotBuilt { name: String, fingerprint: String },
    /// an archive that is nowhere
    #[error(
        "Cannot find blob named '{name}/{fingerprint}' with SHA1 '{digest}'; remove what is left of it with 'reset-release' and create the release again"
    )]
    NoArchive {
        /// Job, package or licence.
        name: String,
        fingerprint: String,
        digest: String,
    },
    #[error("'{}' failed: {said}", script.display())]
    PrePackaging {
        script: PathBuf,
        /// How it ended, and what it said last.
        said: String,
    },
    /// a version that is there
    #[error("Release version '{0}' already exists; give another --version, or none")]
    VersionExists(String),
    /// a final version that is there
    #[error("Release '{name}' version '{version}' already exists")]
    FinalExists { name: String, version: String },
    /// there is no version
    #[error("Expected to find at least one dev or final version of '{0}'; 'create-release' makes one")]
    NoReleases(String),
    /// a package to vendor that is not there
    #[error("Expected to find package '{package}' in the release '{release}'")]
    NotVendored { package: String, release: String },
    /// no store is configured
    #[error("Expected release blobstore to be configured: 'blobstore.provider' in '{}' {why}", path.display())]
    NoStore {
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// the store does not do what it should
    #[error(transparent)]
    Store(BlobError),
    /// a path that leads elsewhere
    #[error("Invalid blob path '{0}': must be a safe local path")]
    BlobPath(String),
    /// links among the blobs
    #[error("Bailing because symlinks found in blobs directory, such as '{}'; 'reset-release' removes them", .0.display())]
    BlobLinks(PathBuf),
    /// a link in place of a folder that is written to
    #[error("'{}' is a link, and nothing is written to where it leads; replace it by what it leads to", .0.display())]
    Link(PathBuf),
    /// a blob that is not there
    #[error("there is no blob '{0}' in blobs/; add it again with 'add-blob'")]
    NoBlob(String),
    /// no digest that could be checked
    #[error("'{what}' has no digest that can be checked: '{digest}'")]
    NoDigest {
        what: String,
        digest: String,
        #[source]
        source: NoDigest,
    },
    /// it is another one
    #[error("'{what}' is not what its digest says")]
    Digest {
        what: String,
        #[source]
        source: Mismatch,
    },
    #[error("there is no home directory for the archives of releases; set HOME")]
    NoHome,
    /// a release cannot be read
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// packages need each other
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Version(#[from] NoVersion),
    #[error(transparent)]
    NoNext(#[from] NoNext),
}

/// Each with its causes, one per line.
fn lines(errors: &[AuthorError]) -> String {
    let explained = |error: &AuthorError| {
        let mut text = format!("- {error}");
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    };
    errors.iter().map(explained).collect::<Vec<_>>().join("\n")
}

impl AuthorError {
    /// One error of many: all are told.
    pub(crate) fn of(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }
}
