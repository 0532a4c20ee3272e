//! Why a CPI is not installed.

use std::io;
use std::path::{Path, PathBuf};

use windlass_release::GraphError;

/// why a CPI is not installed
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// the release is not among those that were given
    #[error("the job '{job}' is of release '{release}', which is not there; the releases are {has}")]
    NoRelease { job: String, release: String, has: String },
    /// the release has no such job
    #[error("the release '{release}' has no job '{job}'; it has {has}")]
    NoJob { release: String, job: String, has: String },
    /// a job is named twice
    #[error("the job '{0}' is there twice; name it once")]
    Twice(String),
    /// no job is a CPI
    #[error(
        "none of the jobs {jobs} has a template that is rendered to 'bin/cpi', so none of them is a CPI; name the one that is"
    )]
    NoCpi { jobs: String },
    #[error("the jobs {jobs} are rendered to 'bin/cpi' each; keep the one that is meant")]
    SeveralCpis { jobs: String },
    /// packages need what is not there
    #[error("the packages of release '{release}' cannot be brought into an order")]
    Graph {
        release: String,
        #[source]
        source: GraphError,
    },
    /// a package is only named
    #[error(
        "the release '{release}' names the package '{package}' but does not contain it; make its tarball with \
         'create-release --tarball', or take a complete one"
    )]
    NoPackage { release: String, package: String },
    /// two releases bring different packages of one name
    #[error(
        "the package '{package}' is in the releases '{first}' and '{second}' with different content, and only one can be \
         installed; take the jobs from releases that agree"
    )]
    Collision { package: String, first: String, second: String },
    /// a program is missing
    #[error("{why}, and this machine has no '{tool}'; install it")]
    NoTool { why: String, tool: &'static str },
    /// properties have the wrong form
    #[error("the properties of job '{job}' cannot be used: {}", problems.join("; "))]
    Properties { job: String, problems: Vec<String> },
    /// a template cannot be rendered
    #[error("the job '{job}' cannot be rendered")]
    Render {
        job: String,
        #[source]
        source: Box<windlass_render::RenderError>,
    },
    /// an archive cannot be unpacked
    #[error("the package '{package}' cannot be unpacked: {said}")]
    Unpack { package: String, said: String },
    /// a packaging script failed
    #[error(
        "the package '{package}' cannot be compiled: its packaging script {ended}. The whole log is in '{}', and ends \
         with:\n{end}", log.display()
    )]
    Compile { package: String, ended: String, log: PathBuf, end: String },
    /// another run is at it
    #[error(
        "another run works in '{}', or a packaging script that a killed run left there; wait for its end", folder.display()
    )]
    InUse { folder: PathBuf },
    /// somebody wanted it to stop
    #[error("stopped; packages that are compiled are kept for the next try")]
    Stopped,
    /// a name that cannot be used
    #[error("a CPI cannot be called '{name}': {why}")]
    Name { name: String, why: String },
    /// the name is taken
    #[error(
        "a CPI '{name}' is installed already; 'windlass cpi upgrade {name} RELEASE' replaces it, 'windlass cpi remove {name}' removes it"
    )]
    Exists { name: String },
    /// there is none of this name
    #[error("no CPI '{name}' is installed; there {have}. Install it with 'windlass cpi install'")]
    NotInstalled { name: String, have: String },
    /// its record is damaged
    #[error("'{}' is damaged; remove the CPI and install it again", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// a file cannot be used
    #[error("cannot use '{}'", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    move |source| InstallError::File { path, source }
}

/// `'a', 'b'`, or `none`.
pub(crate) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("'{name}'")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
