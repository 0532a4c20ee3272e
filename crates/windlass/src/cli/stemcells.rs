//! Flags of `stemcell …`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum StemcellVerb {
    /// Build a stemcell around an agent: a minimal one, from a root file system or a Debian release, or, for development, with the
    /// programs of this machine
    Build(StemcellBuildArgs),
    /// Show what is inside a stemcell, and whether it is whole
    Inspect {
        /// Tarball
        file: PathBuf,
    },
    /// Change what a stemcell says of itself, or its agent; everything else stays as it is
    Repack(StemcellRepackArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StemcellBuildArgs {
    /// Where the tarball goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Agent; 'windlass-agent' beside this program, or else this program with the libraries it needs
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Name of the stemcell [default: windlass-minimal, windlass-rootfs, windlass-debian-SUITE or windlass-host]
    #[arg(long)]
    pub(crate) name: Option<String>,
    // Not `--version`'s usual meaning, but the one that people expect here.
    /// Version of the stemcell [default: 1, or with --userland one that follows from the packages of this machine]
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) stemcell_version: Option<String>,
    /// Operating system that deployments name [default: as the default name, or debian-SUITE]
    #[arg(long)]
    pub(crate) os: Option<String>,
    /// What the agent can do: 1 needs a registry, as stemcells did before 2019; 2 gets its settings from the CPI; 3 also
    /// knows signed URLs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) api_version: u32,
    /// Root file system to build from: a folder, or a tar, gzipped or not
    #[arg(long, value_name = "PATH", conflicts_with_all = ["debian", "busybox"])]
    pub(crate) rootfs: Option<PathBuf>,
    /// Debian release to build from, such as bookworm; needs mmdebstrap
    #[arg(long, value_name = "SUITE", conflicts_with = "busybox")]
    pub(crate) debian: Option<String>,
    /// Where Debian's packages come from
    #[arg(long, value_name = "URL", requires = "debian")]
    pub(crate) mirror: Option<String>,
    /// Debian package to install on top of the smallest system; may be repeated
    #[arg(long = "package", value_name = "NAME", requires = "debian")]
    pub(crate) packages: Vec<String>,
    /// For development, on the embedded cloud: VMs see the programs of the machine that they run on (/usr without /usr/local,
    /// read-only), and none of its homes, keys and other secrets. Without --agent the agent is that machine's, too
    #[arg(long, value_name = "WHOSE", conflicts_with_all = ["rootfs", "debian", "busybox"])]
    pub(crate) userland: Option<Userland>,
    /// Static busybox for a minimal stemcell; the one on the PATH if there is one
    #[arg(long, value_name = "FILE")]
    pub(crate) busybox: Option<PathBuf>,
}

/// Whose programs the VMs of a stemcell see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Userland {
    /// Those of the machine that they run on.
    Host,
}

#[derive(Debug, Args)]
pub(crate) struct StemcellRepackArgs {
    /// Tarball
    pub(crate) file: PathBuf,
    /// Where the new tarball goes
    pub(crate) output: PathBuf,
    /// Name of the stemcell
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Version of the stemcell
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) stemcell_version: Option<String>,
    /// Operating system that deployments name
    #[arg(long)]
    pub(crate) os: Option<String>,
    /// What the agent inside can do: 1 needs a registry, 2 does not, 3 also knows signed URLs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) api_version: Option<u32>,
    /// Cloud properties as YAML or JSON, merged into those there are
    #[arg(long, value_name = "YAML")]
    pub(crate) cloud_properties: Option<String>,
    /// Format of the image; may be repeated, and replaces those there are
    #[arg(long = "format", value_name = "FORMAT")]
    pub(crate) formats: Vec<String>,
    /// Another agent, which must be static
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Leave the image out, as light stemcells do
    #[arg(long, conflicts_with = "agent")]
    pub(crate) empty_image: bool,
}
