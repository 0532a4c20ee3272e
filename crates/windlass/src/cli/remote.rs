//! The verbs that are a conversation with a director, with the names, aliases and flags of BOSH.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::changes::{ChangeArgs, CloudCheckArgs, DeployArgs, DrainArgs, LookArgs, RecreateArgs};
use super::configs::{
    ConfigsArgs, DiffConfigArgs, DocumentArgs, NameArgs, OneConfigArgs, UpdateConfigArgs, UpdateNamedConfigArgs,
};
use super::slug::{Instance, Slug};
use super::uploads::{ExportReleaseArgs, UploadReleaseArgs, UploadStemcellArgs};
use super::visits::{
    CP_HELP, CpArgs, EXEC_HELP, ExecArgs, LogsArgs, PcapArgs, RunErrandArgs, SCP_HELP, ScpArgs, SshArgs,
};

/// What to ask of a director.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteVerb {
    /// Show the director
    #[command(alias = "environment")]
    Env {
        /// Also show when its certificates expire
        #[arg(long)]
        details: bool,
    },

    /// Upload a stemcell
    #[command(alias = "us")]
    UploadStemcell(UploadStemcellArgs),
    /// List stemcells
    #[command(alias = "ss")]
    Stemcells,
    /// Delete a stemcell
    #[command(alias = "dels")]
    DeleteStemcell {
        /// NAME/VERSION
        stemcell: Slug,
        /// Ignore errors of the cloud
        #[arg(long)]
        force: bool,
    },
    /// Upload a release
    #[command(alias = "ur")]
    UploadRelease(UploadReleaseArgs),
    /// List releases
    #[command(alias = "rs")]
    Releases,
    /// Show the jobs and packages of a release, and what needs Ruby
    InspectRelease {
        /// NAME/VERSION
        release: String,
    },
    /// Compile a release that the deployment uses for a stemcell, and fetch it as a tarball
    #[command(alias = "expr")]
    ExportRelease(ExportReleaseArgs),
    /// Delete a release, or one of its versions
    #[command(alias = "delr")]
    DeleteRelease {
        /// NAME or NAME/VERSION
        release: String,
        /// Ignore errors
        #[arg(long)]
        force: bool,
    },

    /// Change the cloud config
    #[command(alias = "ucc")]
    UpdateCloudConfig(UpdateNamedConfigArgs),
    /// Print the cloud config
    #[command(alias = "cc")]
    CloudConfig(NameArgs),
    /// Change the runtime config
    #[command(alias = "urc")]
    UpdateRuntimeConfig {
        #[command(flatten)]
        config: UpdateNamedConfigArgs,
        /// Show secrets in the difference
        #[arg(long)]
        no_redact: bool,
        /// Upload the releases of the config again that have a URL, and replace what is broken of them
        #[arg(long)]
        fix_releases: bool,
    },
    /// Print the runtime config
    #[command(alias = "rc")]
    RuntimeConfig(NameArgs),
    /// Change the CPI config
    UpdateCpiConfig {
        #[command(flatten)]
        config: DocumentArgs,
        /// Show secrets in the difference
        #[arg(long)]
        no_redact: bool,
    },
    /// Print the CPI config
    CpiConfig,
    /// List configs
    #[command(alias = "cs")]
    Configs(ConfigsArgs),
    /// Show a config, by its id or by type and name
    #[command(alias = "c")]
    Config(OneConfigArgs),
    /// Change a config
    #[command(alias = "uc")]
    UpdateConfig(UpdateConfigArgs),
    /// Delete a config, by its id or by type and name
    #[command(alias = "dc")]
    DeleteConfig(OneConfigArgs),
    /// Compare two configs, by id or by content
    DiffConfig(DiffConfigArgs),

    /// Make a deployment what a manifest says: create, change and remove what differs
    #[command(alias = "d")]
    Deploy(DeployArgs),
    /// Show what 'deploy' would do, and why
    Plan(LookArgs),
    /// List deployments
    #[command(aliases = ["ds", "deps"])]
    Deployments,
    /// Show a deployment
    #[command(alias = "dep")]
    Deployment,
    /// Print the manifest of a deployment
    #[command(alias = "man")]
    Manifest,
    /// Delete a deployment; its disks become orphans
    #[command(alias = "deld")]
    DeleteDeployment {
        /// Ignore errors of the cloud and of agents
        #[arg(long)]
        force: bool,
    },
    /// List the variables of a deployment that the director knows
    #[command(alias = "vars")]
    Variables,
    /// Give the director values of variables, from a file such as '--vars-store' keeps
    ImportVariables {
        /// Names and values, in YAML; names without '/' are those of the deployment
        path: PathBuf,
    },
    /// Write the values of a deployment's variables to a file for '--vars-store'
    ExportVariables {
        /// Where to
        path: PathBuf,
    },

    /// List VMs
    Vms(VmsArgs),
    /// List instances
    #[command(alias = "is")]
    Instances(InstancesArgs),
    /// Show why an instance is as it is: its state, its disks, and the plans and steps that made it so
    Explain {
        /// GROUP/ID
        instance: Instance,
    },
    /// Start instances
    Start(ChangeArgs),
    /// Stop instances; with --hard their VMs are deleted, and their disks kept
    Stop {
        #[command(flatten)]
        change: ChangeArgs,
        /// Stop processes only; that is the default
        #[arg(long, conflicts_with = "hard")]
        soft: bool,
        /// Delete VMs, and keep their disks
        #[arg(long)]
        hard: bool,
        #[command(flatten)]
        drain: DrainArgs,
    },
    /// Restart the processes of instances
    Restart {
        #[command(flatten)]
        change: ChangeArgs,
        #[command(flatten)]
        drain: DrainArgs,
    },
    /// Recreate VMs; their disks are carried over
    Recreate(RecreateArgs),
    /// Find what is wrong with a deployment, and repair it
    #[command(aliases = ["cck", "cloudcheck"])]
    CloudCheck(CloudCheckArgs),
    /// Choose how to repair what is wrong with a deployment, and write that down
    CreateRecoveryPlan {
        /// File to write
        path: PathBuf,
    },
    /// Repair what is wrong with a deployment as it was written down
    Recover {
        /// File that create-recovery-plan wrote
        path: PathBuf,
    },
    /// Leave an instance alone from now on
    Ignore {
        /// GROUP/ID
        instance: Instance,
    },
    /// Care for an ignored instance again
    Unignore {
        /// GROUP/ID
        instance: Instance,
    },
    /// Switch the resurrector on or off
    UpdateResurrection {
        /// on or off
        #[arg(value_parser = on_or_off, value_name = "on|off", action = clap::ArgAction::Set)]
        enabled: bool,
    },
    /// Delete a VM; its instance stays and can be recreated
    DeleteVm {
        /// VM
        cid: String,
    },
    /// List VMs that were replaced and are not deleted yet
    OrphanedVms,
    /// Fetch the logs of instances
    Logs(LogsArgs),
    /// Run a command on instances through their agents, without an ssh server
    #[command(after_help = EXEC_HELP)]
    Exec(ExecArgs),
    /// Copy files to instances or from them through their agents, without an ssh server
    #[command(after_help = CP_HELP)]
    Cp(CpArgs),
    /// Open a shell on an instance, or run a command on instances
    Ssh(SshArgs),
    /// Copy files to instances or from them
    #[command(after_help = SCP_HELP)]
    Scp(ScpArgs),
    /// Capture the network traffic of instances, with tcpdump on them
    Pcap(PcapArgs),
    /// List errands
    #[command(alias = "es")]
    Errands,
    /// Run an errand by the name of its job or group
    RunErrand(RunErrandArgs),

    /// List disks with their hints, or orphans
    Disks {
        /// Only disks that no instance uses any more
        #[arg(short, long)]
        orphaned: bool,
    },
    /// Give a disk to a stopped instance; the one it had becomes an orphan
    AttachDisk {
        /// GROUP/ID
        instance: Instance,
        /// Disk
        disk_cid: String,
        /// Properties of the disk from now on; 'copy' takes those of the disk before it
        #[arg(long, value_name = "PROPERTIES")]
        disk_properties: Option<String>,
    },
    /// Take a disk from its instance and keep it as an orphan
    OrphanDisk {
        /// Disk
        cid: String,
    },
    /// Delete an orphaned disk
    DeleteDisk {
        /// Disk
        cid: String,
    },
    /// List orphaned networks
    Networks {
        /// Only networks that no deployment uses any more; there are no others to list
        #[arg(short, long)]
        orphaned: bool,
    },
    /// Delete an orphaned network
    DeleteNetwork {
        /// Network
        name: String,
    },
    /// List snapshots
    Snapshots {
        /// GROUP/ID, which changes nothing: all are listed, as by BOSH
        #[arg(hide = true)]
        instance: Option<Instance>,
    },
    /// Take snapshots of the disks of an instance, or of all
    TakeSnapshot {
        /// GROUP/ID; all instances if absent
        instance: Option<Instance>,
    },
    /// Delete a snapshot
    DeleteSnapshot {
        /// Snapshot
        cid: String,
    },
    /// Delete all snapshots of a deployment
    DeleteSnapshots,

    /// List running tasks, or recent ones
    #[command(alias = "ts")]
    Tasks(TasksArgs),
    /// Follow a task, or show one that ended
    #[command(alias = "t")]
    Task(TaskArgs),
    /// Cancel a task at its next checkpoint
    #[command(alias = "ct")]
    CancelTask {
        /// Number of the task
        id: u64,
    },
    /// Cancel tasks at their next checkpoints
    #[command(alias = "cts")]
    CancelTasks {
        /// Only of these types, such as update_deployment
        #[arg(short, long = "type", value_name = "TYPE")]
        types: Vec<String>,
        /// In these states: queued (the default), processing
        #[arg(short, long = "state", value_name = "STATE")]
        states: Vec<String>,
    },
    /// List what was done, by whom
    Events(EventsArgs),
    /// Show one event
    Event {
        /// Number of the event
        id: String,
    },
    /// List locks
    Locks,
    /// Remove a lock that no running task holds
    Unlock {
        /// Name of a deployment, or TYPE:RESOURCE as locks lists them
        name: String,
    },
    /// Send a test to the webhook of the director, and say whether it took it
    TestWebhook,
    /// Remove what nothing uses
    CleanUp(CleanUpArgs),
    /// List what the clouds may hold that nothing owns, or delete it
    Leaks(LeaksArgs),
    /// Send a request to the director
    Curl(CurlArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LeaksArgs {
    /// Delete this VM, disk, snapshot or stemcell, which a cloud has and the director does not know; may be repeated
    #[arg(long, value_name = "CID")]
    pub(crate) delete: Vec<String>,
    /// The CPI of what is deleted, where a cpi config names several
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, requires = "delete")]
    pub(crate) cpi: String,
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" | "yes" | "enable" | "true" => Ok(true),
        "off" | "no" | "disable" | "false" => Ok(false),
        _ => Err("expected 'on' or 'off'"),
    }
}

#[derive(Debug, Args)]
pub(crate) struct VmsArgs {
    /// Also show load, memory and disks
    #[arg(long)]
    pub(crate) vitals: bool,
    /// Also show what the cloud was asked for
    #[arg(long)]
    pub(crate) cloud_properties: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstancesArgs {
    /// Also show state, VM, disks and agent
    #[arg(short = 'i', long)]
    pub(crate) details: bool,
    /// Also show load, memory and disks
    #[arg(long)]
    pub(crate) vitals: bool,
    /// Also show processes
    #[arg(short, long)]
    pub(crate) ps: bool,
    /// Only those where something fails
    #[arg(short, long)]
    pub(crate) failing: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TasksArgs {
    /// Also those that ended; the last N
    #[arg(short, long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "30")]
    pub(crate) recent: Option<u32>,
    /// Of every type, also those that only look
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Number of the task; the running one if absent
    pub(crate) id: Option<u64>,
    /// Print its events as they are
    #[arg(long, group = "output")]
    pub(crate) event: bool,
    /// Print the director's log of it
    #[arg(long, group = "output")]
    pub(crate) debug: bool,
    /// Print what the CPI said
    #[arg(long, group = "output")]
    pub(crate) cpi: bool,
    /// Print its result
    #[arg(long, group = "output")]
    pub(crate) result: bool,
    /// Without a number: of every type, also those that only look
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Before the event of this number
    #[arg(long, value_name = "ID")]
    pub(crate) before_id: Option<String>,
    /// Before this time, such as '2026-11-16 10:00:00'
    #[arg(long, value_name = "TIME")]
    pub(crate) before: Option<String>,
    /// After this time
    #[arg(long, value_name = "TIME")]
    pub(crate) after: Option<String>,
    /// Of this task
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// Of this instance
    #[arg(long, value_name = "GROUP/ID")]
    pub(crate) instance: Option<String>,
    /// By this user
    #[arg(long, value_name = "NAME")]
    pub(crate) event_user: Option<String>,
    /// Of this action
    #[arg(long)]
    pub(crate) action: Option<String>,
    /// About this type of thing
    #[arg(long, value_name = "TYPE")]
    pub(crate) object_type: Option<String>,
    /// About the thing of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) object_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CleanUpArgs {
    /// Everything that nothing uses, orphaned disks too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only show what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep orphaned disks, even with --all
    #[arg(long)]
    pub(crate) keep_orphaned_disks: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CurlArgs {
    /// Path, with its query
    pub(crate) path: String,
    /// Method
    #[arg(short = 'X', long, default_value = "GET")]
    pub(crate) method: String,
    /// Header, as 'NAME: VALUE'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// File with the body
    #[arg(long, value_name = "PATH")]
    pub(crate) body: Option<PathBuf>,
    /// Also print the headers of the answer
    #[arg(short = 'i', long)]
    pub(crate) show_headers: bool,
}
