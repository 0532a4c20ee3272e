//! The verbs that are a conversation with a director, with the names, aliases and flags of BOSH.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use windlass_manifest::interpolate::Strictness;

use super::configs::{
    ConfigsArgs, DiffConfigArgs, DocumentArgs, NameArgs, OneConfigArgs, UpdateConfigArgs, UpdateNamedConfigArgs,
};
use super::slug::{Instance, Selection, Slug};
use super::uploads::{ExportReleaseArgs, UploadReleaseArgs, UploadStemcellArgs};
use super::visits::{
    CP_HELP, CpArgs, EXEC_HELP, ExecArgs, LogsArgs, PcapArgs, RunErrandArgs, SCP_HELP, ScpArgs, SshArgs,
};
use crate::interpolation::InterpolationArgs;

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

/// `leaks`.
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

/// `deploy`.
#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show secrets in the difference
    #[arg(long)]
    pub(crate) no_redact: bool,
    /// Upload the releases of the manifest again that have a URL, and replace what is broken of them
    #[arg(long)]
    pub(crate) fix_releases: bool,
    /// Upload no release, although the manifest has URLs
    #[arg(long)]
    pub(crate) skip_upload_releases: bool,
    /// Take the latest values of variables, whatever their update mode
    #[arg(long)]
    pub(crate) force_latest_variables: bool,
    /// Do not drain, on all instances or only on those of a group; may be repeated
    #[arg(long, value_name = "GROUP[/ID]", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) skip_drain: Vec<String>,
}

/// `plan`.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Exit with 2 if something would change, with 0 if nothing would, and with 1 if that cannot be told
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

/// What `plan` and `deploy` have in common.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Manifest; '-' is the standard input
    pub(crate) manifest: PathBuf,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
    /// A variable without a value is an error, before anything is sent
    #[arg(long)]
    pub(crate) var_errs: bool,
    /// A value that is not used is an error, before anything is sent
    #[arg(long)]
    pub(crate) var_errs_unused: bool,
    /// Recreate all VMs
    #[arg(long)]
    pub(crate) recreate: bool,
    /// Recreate all disks; what is on them is copied
    #[arg(long)]
    pub(crate) recreate_persistent_disks: bool,
    /// Recreate VMs that were made before this time, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) recreate_vms_created_before: Option<String>,
    /// Recreate VMs whose agent does not answer
    #[arg(long)]
    pub(crate) fix: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
}

impl PlanArgs {
    /// What is a mistake in the manifest.
    pub(crate) fn strictness(&self) -> Strictness {
        Strictness { missing: self.var_errs, unused: self.var_errs_unused }
    }

    /// What of it the director is told, with `deploy` and with `plan`.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        let switches = [
            ("recreate", self.recreate || self.recreate_vms_created_before.is_some()),
            ("recreate_persistent_disks", self.recreate_persistent_disks),
            ("fix", self.fix),
        ];
        query.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true".to_owned())));
        query.extend(self.recreate_vms_created_before.clone().map(|time| ("recreate_vms_created_before", time)));
        query.extend(self.pace.query());
        query
    }
}

/// How many at once, instead of what the manifest says.
#[derive(Debug, Args)]
pub(crate) struct PaceArgs {
    /// Instances to try first: a number or a percentage
    #[arg(long, value_name = "N")]
    pub(crate) canaries: Option<String>,
    /// Instances at once: a number or a percentage
    #[arg(long, value_name = "N")]
    pub(crate) max_in_flight: Option<String>,
}

impl PaceArgs {
    /// What of it the director is told.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let canaries = self.canaries.clone().map(|canaries| ("canaries", canaries));
        canaries.into_iter().chain(self.max_in_flight.clone().map(|most| ("max_in_flight", most))).collect()
    }
}

/// `vms`.
#[derive(Debug, Args)]
pub(crate) struct VmsArgs {
    /// Also show load, memory and disks
    #[arg(long)]
    pub(crate) vitals: bool,
    /// Also show what the cloud was asked for
    #[arg(long)]
    pub(crate) cloud_properties: bool,
}

/// `instances`.
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

/// What `start`, `stop`, `restart` and `recreate` have in common.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// GROUP or GROUP/ID; everything if absent
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Option<Selection>,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// Bring the whole deployment to its manifest on the way; that is the default
    #[arg(long)]
    pub(crate) converge: bool,
    /// Touch nothing but the one instance
    #[arg(long, conflicts_with_all = ["converge", "canaries", "max_in_flight"])]
    pub(crate) no_converge: bool,
}

/// Whether to drain.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Do not drain
    #[arg(long)]
    pub(crate) skip_drain: bool,
}

/// `recreate`.
#[derive(Debug, Args)]
pub(crate) struct RecreateArgs {
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) drain: DrainArgs,
    /// Also those whose agent does not answer
    #[arg(long)]
    pub(crate) fix: bool,
    /// Only VMs that were made before this time, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) vms_created_before: Option<String>,
    /// Only show what would happen
    #[arg(long, conflicts_with = "no_converge")]
    pub(crate) dry_run: bool,
}

/// `cloud-check`.
#[derive(Debug, Args)]
pub(crate) struct CloudCheckArgs {
    /// Take the default resolution of every problem; for VMs that do not answer it is to leave them, as with BOSH, and
    /// --resolution recreate_vm replaces them
    #[arg(short, long, conflicts_with_all = ["report", "resolutions"])]
    pub(crate) auto: bool,
    /// Repair in this way whatever can be, such as recreate_vm, and leave the rest; may be repeated
    #[arg(long = "resolution", value_name = "RESOLUTION")]
    pub(crate) resolutions: Vec<String>,
    /// Only list what is wrong
    #[arg(short, long, conflicts_with = "resolutions")]
    pub(crate) report: bool,
}

/// `tasks`.
#[derive(Debug, Args)]
pub(crate) struct TasksArgs {
    /// Also those that ended; the last N
    #[arg(short, long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "30")]
    pub(crate) recent: Option<u32>,
    /// Of every type, also those that only look
    #[arg(short, long)]
    pub(crate) all: bool,
}

/// `task`.
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

/// `events`.
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

/// `clean-up`.
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

/// `curl`.
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
