//! Flags of verbs that send stemcells and releases to the director, or get them from it.

use std::path::PathBuf;

use clap::Args;

use super::author::DirArgs;
use super::slug::Slug;

#[derive(Debug, Args)]
pub(crate) struct UploadStemcellArgs {
    /// Tarball, or http(s):// URL that the director fetches
    pub(crate) source: String,
    /// Replace the one with the same name and version
    #[arg(long)]
    pub(crate) fix: bool,
    /// With a URL: do nothing if a stemcell of this name is there
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// With a URL: in this version
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) stemcell_version: Option<String>,
    /// With a URL: digest of the tarball
    #[arg(long, value_name = "DIGEST")]
    pub(crate) sha1: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportReleaseArgs {
    /// NAME/VERSION
    pub(crate) release: Slug,
    /// OS/VERSION of the stemcell that it is compiled for
    #[arg(value_name = "OS/VERSION")]
    pub(crate) stemcell: Slug,
    /// Only this job with its packages; may be given several times
    #[arg(long = "job", value_name = "NAME")]
    pub(crate) jobs: Vec<String>,
    /// Where the tarball goes
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct UploadReleaseArgs {
    /// Tarball, release directory, manifest of a version, git repository, or http(s):// URL that the director fetches; without it
    /// the latest version of --dir
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Give it the next version that the director does not have
    #[arg(long)]
    pub(crate) rebase: bool,
    /// Store its jobs and packages again
    #[arg(long)]
    pub(crate) fix: bool,
    /// With a URL: do nothing if a release of this name is there. Without a file: the release of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// With a URL: in this version
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) release_version: Option<String>,
    /// With a URL: digest of the tarball
    #[arg(long, value_name = "DIGEST")]
    pub(crate) sha1: Option<String>,
    /// With a URL: do nothing if it is there compiled for this stemcell
    #[arg(long, value_name = "OS/VERSION")]
    pub(crate) stemcell: Option<String>,
}
