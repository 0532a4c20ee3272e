//! The measurements and their flags, as the command line has them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// What one call to a CPI costs, against starting a process that does nothing
    CpiCall(BenchCpiCallArgs),
    /// How much a registry serves on each database, against nginx serving a file
    Registry(BenchRegistryArgs),
    /// How soon an agent answers, how often, and in how much memory, beside BOSH's that WINDLASS_ORIGINAL_AGENT names
    Agent(BenchAgentArgs),
    /// Hundreds of services under one supervisor, beside monit where it is installed
    Supervise(BenchSuperviseArgs),
    /// What VMs, disks and snapshots of the embedded cloud cost; as root, on a machine of its own and beside runc and crun
    Local(BenchLocalArgs),
    /// What VMs on an Incus or LXD server cost, beside the bare calls for the same image
    Incus(BenchIncusArgs),
    /// Kill the embedded cloud's CPI at each of its steps and see that nothing is lost or left over
    Kills(BenchKillsArgs),
    /// How much the API answers over TLS, against a bare server
    Api(BenchApiArgs),
    /// What it costs a director to ask every agent how it is
    Health(BenchHealthArgs),
    /// What templates of many instances cost: natively, by a caged Ruby, by a plain one, and by one process per file
    Render(BenchRenderArgs),
    /// How many questions for names of instances an agent answers, beside a bare server that sends packets back
    Dns(BenchDnsArgs),
    /// What a large release costs: to create, to upload and to upload again, beside BOSH's command line
    Release(BenchReleaseArgs),
    /// Everything that this machine and this build can measure, in one table
    All(BenchAllArgs),
    /// How long deploys of many instances take on the simulated cloud, against the sum of what the cloud takes
    Deploy(BenchDeployArgs),
}

#[derive(Debug, Args)]
pub struct BenchAllArgs {
    /// Smaller sizes: a few minutes instead of a quarter of an hour, and figures that vary more
    #[arg(long)]
    pub quick: bool,
}

#[derive(Debug, Args)]
pub struct BenchRenderArgs {
    /// How many instances, each with ten templates
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = at_least_one)]
    pub instances: usize,
    /// How many files one process each is measured with
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one)]
    pub processes: usize,
}

#[derive(Debug, Args)]
pub struct BenchDnsArgs {
    /// How many records there are
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one)]
    pub records: usize,
    /// How many questions are asked in each round
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one)]
    pub questions: usize,
}

#[derive(Debug, Args)]
pub struct BenchReleaseArgs {
    /// How many packages
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = at_least_one)]
    pub packages: usize,
    /// How large they are together
    #[arg(long, value_name = "MIB", default_value_t = 300, value_parser = at_least_one)]
    pub mib: usize,
    /// How often everything is done, of which the best counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub runs: usize,
    /// BOSH's command line [env: WINDLASS_ORIGINAL_BOSH]
    #[arg(long, value_name = "FILE", env = "WINDLASS_ORIGINAL_BOSH", hide_env = true)]
    pub bosh: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchApiArgs {
    /// How many instances the deployment has
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    pub instances: usize,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub connections: usize,
    /// How long each is measured, three times in turn
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}

#[derive(Debug, Args)]
pub struct BenchHealthArgs {
    /// How many agents; several numbers are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1000], value_parser = at_least_one)]
    pub instances: Vec<usize>,
    /// How often all are asked
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
}

#[derive(Debug, Args)]
pub struct BenchAgentArgs {
    /// How often each agent is started
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub runs: usize,
    /// How often it is asked each time
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = at_least_one)]
    pub pings: usize,
    /// The agent to measure [default: windlass-agent beside this program, else this program itself]
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchSuperviseArgs {
    /// How many services
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_one)]
    pub services: usize,
    /// How long nothing happens while the cost of that is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = at_least_one)]
    pub seconds: usize,
    /// The agent to measure [default: windlass-agent beside this program, else this program itself]
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchLocalArgs {
    /// How often a VM with a disk is made and deleted
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub runs: usize,
    /// How many VMs are made one after the other
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    pub vms: usize,
    /// How often that is done
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub rows: usize,
    /// How many VMs are made several at a time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = at_least_one)]
    pub at_once: usize,
    /// How many at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    pub width: usize,
}

#[derive(Debug, Args)]
pub struct BenchIncusArgs {
    /// The CPI's configuration; its project must be empty, its network reachable from here
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// How often a VM is made and deleted, each way in turn
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub runs: usize,
    /// How many are made at once
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub at_once: usize,
}

#[derive(Debug, Args)]
pub struct BenchKillsArgs {
    /// Only these methods of the embedded cloud, such as attach_disk, or only 'director'
    #[arg(value_name = "METHOD")]
    pub methods: Vec<String>,
    /// Kill at one in N steps only, chosen by a seed that is printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub every: usize,
}

/// `bench deploy`. The defaults are those of every figure that is quoted.
#[derive(Debug, Args)]
pub struct BenchDeployArgs {
    /// How many instances; several numbers are measured one after the other
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1000], value_parser = at_least_one)]
    pub instances: Vec<usize>,
    /// Milliseconds that create_vm takes
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub create_vm: u64,
    /// Milliseconds that every other CPI call takes
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub call: u64,
    /// Milliseconds from the creation of a VM to its agent's first answer
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub agent: u64,
    /// How many at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one)]
    pub at_once: usize,
    /// Each instance has a job with ten templates, which are rendered, sent and installed
    #[arg(long)]
    pub jobs: bool,
    /// On the embedded cloud of this machine, whose calls take as long as they take
    #[arg(long)]
    pub embedded: bool,
    /// The program to measure; this one if absent
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchCpiCallArgs {
    /// Command line of the CPI; the simulated cloud if absent
    #[arg(long, value_name = "COMMAND")]
    pub cpi: Option<String>,
    /// How often each call is made
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_least_one)]
    pub runs: usize,
}

#[derive(Debug, Args)]
pub struct BenchRegistryArgs {
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub connections: usize,
    /// How long each is measured, three times in turn
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Size of a VM's settings
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = at_least_one)]
    pub size: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing can be told from no run".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
