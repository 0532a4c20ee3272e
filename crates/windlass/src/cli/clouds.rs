//! Flags of the built-in clouds and of CPIs: `cpi`, `local`, `sim`, `certify`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use windlass_contract::{DiskCid, Secret, VmCid};

use super::secret;

#[derive(Debug, Subcommand)]
pub(crate) enum CpiVerb {
    /// An Incus or LXD server, or a cluster of them: VMs are containers there
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Incus {
        /// Configuration, in the form of a cpi.json
        #[arg(long, value_name = "FILE", required = true)]
        config: Option<PathBuf>,
        #[command(subcommand)]
        verb: Option<IncusVerb>,
    },
    /// The embedded cloud: VMs on this machine
    Local {
        /// Configuration, in the form of a cpi.json
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// The simulated cloud: its VMs are agents in one process
    Sim {
        /// Configuration, in the form of a cpi.json; it works without one
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Compile and render the CPI of a release on this machine, for the director here and for certify
    #[command(after_help = INSTALL_HELP)]
    Install(CpiInstallArgs),
    /// Put another release, or other properties, in the place of an installed CPI
    Upgrade(CpiUpgradeArgs),
    /// List installed CPIs
    List,
    /// Show an installed CPI, and what it answers to info
    Show {
        /// Name
        name: String,
    },
    /// Remove an installed CPI with its packages, rendered files and properties
    Remove {
        /// Name
        name: String,
    },
}

pub(super) const INSTALL_HELP: &str = "Name it in director.yml ('cpi: {installed: NAME}'), as the type of an entry in a cpi config, or in \
'windlass certify --cpi NAME'. Packages are compiled here as create-env compiles them: with bash, tar, and what their packaging scripts \
start. Rendered files hold credentials, and only their owner can read them.";

#[derive(Debug, Args)]
pub(crate) struct CpiInstallArgs {
    /// Release tarball, of sources or compiled; or its URL with --sha1
    pub(crate) release: String,
    /// Job of the release that is the CPI
    #[arg(long, value_name = "NAME")]
    pub(crate) job: String,
    /// Properties of the job, as YAML
    #[arg(long, value_name = "FILE")]
    pub(crate) properties: Option<PathBuf>,
    /// Name to install it under [default: the job's]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Digest of a release that is downloaded
    #[arg(long, value_name = "DIGEST")]
    pub(crate) sha1: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CpiUpgradeArgs {
    /// Name of the installed CPI
    pub(crate) name: String,
    /// Release tarball, of sources or compiled; or its URL with --sha1
    pub(crate) release: String,
    /// Job of the release that is the CPI [default: the same as before]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// Properties of the job, as YAML [default: the same as before]
    #[arg(long, value_name = "FILE")]
    pub(crate) properties: Option<PathBuf>,
    /// Digest of a release that is downloaded
    #[arg(long, value_name = "DIGEST")]
    pub(crate) sha1: Option<String>,
}

/// `cpi incus …`.
#[derive(Debug, Subcommand)]
pub(crate) enum IncusVerb {
    /// Have a server or cluster trust a director: a project and a certificate of its own, from one token
    Trust(IncusTrustArgs),
    /// List everything in the project, also on members that are down
    List {
        /// Configuration, in the form of a cpi.json
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// `cpi incus trust`.
#[derive(Debug, Args)]
pub(crate) struct IncusTrustArgs {
    /// What 'incus config trust add NAME' or 'lxc config trust add --name NAME' prints; - reads it from stdin
    pub(crate) token: String,
    /// The director's project; it is made if it is not there
    #[arg(long, value_name = "NAME")]
    pub(crate) project: String,
    /// How the server's operator knows the certificate [default: the project's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The storage pool of VMs and disks that name none
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// The managed network of subnets that name none; a project that is made sees no other
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Where the CPI's configuration is written, with the key: for its owner alone
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

pub(super) const LOCAL_HELP: &str = "The cloud is that of the director on this machine (see --state-dir), or the one that --config \
describes. None of these verbs needs a director that runs.";

#[derive(Debug, Subcommand)]
pub(crate) enum LocalVerb {
    /// List all that there is, and what does not fit together
    Status {
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
    /// Remove what nobody owns, after showing it
    Gc {
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
    /// Kill a VM, as a power failure would; its disks stay
    Kill {
        /// VM
        vm_cid: VmCid,
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
    /// Print what a VM's agent was given
    Settings {
        /// VM
        vm_cid: VmCid,
        /// Print passwords and keys, too
        #[arg(long)]
        secrets: bool,
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
    /// Print the cids of all that there is, one per line
    List {
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
    /// Print how large a disk is, in MiB
    DiskSize {
        /// Disk
        disk_cid: DiskCid,
        #[command(flatten)]
        cloud: LocalCloudArgs,
    },
}

/// Which embedded cloud.
#[derive(Debug, Args)]
pub(crate) struct LocalCloudArgs {
    /// Configuration that its CPI is called with
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = SIM_HELP)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SimVerb>,
    /// Configuration that its CPI is called with
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

pub(super) const SIM_HELP: &str =
    "Agents need no host to be started by hand: the CPI starts one in the background when a VM is created, and it
ends when there are no VMs, or with its state directory. '--state-dir' is here the simulated cloud's own.";

#[derive(Debug, Subcommand)]
pub(crate) enum SimVerb {
    /// List all that there is
    Status {
        /// Configuration that its CPI is called with
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print the cids of all that there is, one per line
    List {
        /// Configuration that its CPI is called with
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print how large a disk is, in MiB
    DiskSize {
        /// Disk
        disk_cid: DiskCid,
        /// Configuration that its CPI is called with
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Switch a VM off, as if it had crashed; 'reboot_vm' switches it on again
    Kill {
        /// VM
        vm_cid: VmCid,
        /// Configuration that its CPI is called with
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print what a VM was given to boot with, secrets included
    Settings {
        /// VM
        vm_cid: VmCid,
        /// Configuration that its CPI is called with
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

pub(super) const CERTIFY_HELP: &str = "A check passes only when its promise was seen to be kept. Some need a way to look into the cloud, \
beside the contract; without --show-settings, --list or --disk-size they end as 'not observed'. Everything that was made \
is removed again. Exit status 0 means that all required checks passed and nothing optional was wrong.";

#[derive(Debug, Args)]
pub(crate) struct CertifyArgs {
    /// Command line of the CPI, for example 'windlass cpi sim', or the name of an installed one ('windlass cpi list')
    #[arg(long, value_name = "COMMAND", required_unless_present = "list_checks")]
    pub(crate) cpi: Option<String>,
    /// Networks, cloud properties and sizes, as YAML; the defaults fit the simulated and the embedded cloud
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Stemcell; a minimal one is built if absent
    #[arg(long, value_name = "FILE")]
    pub(crate) stemcell: Option<PathBuf>,
    /// Command that prints the agent's settings of {vm_cid} as JSON
    #[arg(long, value_name = "COMMAND")]
    pub(crate) show_settings: Option<String>,
    /// Command that prints the cids of everything that exists, one per line; nobody else may make anything meanwhile
    #[arg(long, value_name = "COMMAND")]
    pub(crate) list: Option<String>,
    /// Command that prints the size of {disk_cid} in MiB
    #[arg(long, value_name = "COMMAND")]
    pub(crate) disk_size: Option<String>,
    /// Only these checks: ids, or their beginnings
    #[arg(long, value_name = "ID", num_args = 1..)]
    pub(crate) only: Vec<String>,
    /// How to report
    #[arg(long, value_enum, default_value_t = CertifyFormat::Table)]
    pub(crate) format: CertifyFormat,
    /// Name all checks, and why they matter
    #[arg(long)]
    pub(crate) list_checks: bool,
    /// Instead of the checks, try the table of versions: director, CPI and stemcell in version 1 and 2
    #[arg(long, group = "table")]
    pub(crate) matrix: bool,
    /// Run the checks, then try the table of versions; one report of both
    #[arg(long, group = "table")]
    pub(crate) pipeline: bool,
    /// With --matrix: command line of the CPI when it speaks version 1; otherwise the profile's 'lower_version' makes it
    #[arg(long, value_name = "COMMAND", requires = "table")]
    pub(crate) cpi_v1: Option<String>,
    /// With --matrix: stemcell whose agent needs a registry; a minimal one is built if absent
    #[arg(long, value_name = "FILE", requires = "table")]
    pub(crate) stemcell_v1: Option<PathBuf>,
    /// The registry that the CPI is configured for, http://USER:PASSWORD@ADDRESS:PORT, which is run there meanwhile; without it,
    /// the table of versions names one in each call's context
    #[arg(long, value_name = "URL", value_parser = secret)]
    pub(crate) registry: Option<Secret>,
    /// End after about so many minutes: what has not been tried by then is not observed. With --pipeline half of them are for the
    /// checks
    #[arg(long, value_name = "MINUTES")]
    pub(crate) within: Option<u64>,
    /// With --registry: listen here, if VMs reach it by another address
    #[arg(long, value_name = "ADDR:PORT", requires = "registry")]
    pub(crate) registry_listen: Option<SocketAddr>,
}

/// How `certify` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CertifyFormat {
    /// For people
    Table,
    /// For scripts
    Json,
    /// For CI servers
    Junit,
}
