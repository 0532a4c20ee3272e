//! What an agent can be asked for: one file per action, this table, and how arguments are read.

mod add_dynamic_disk;
mod add_persistent_disk;
mod apply;
mod arguments;
mod bundle_logs;
mod cancel_task;
mod compile_package;
mod compile_package_with_signed_url;
mod delete_arp_entries;
mod drain;
mod fetch_logs;
mod fetch_logs_with_signed_url;
mod get_state;
mod get_task;
mod info;
mod list_disk;
mod migrate_disk;
mod mount_disk;
mod ping;
mod prepare;
mod remove_dynamic_disk;
mod remove_file;
mod remove_persistent_disk;
mod run_errand;
mod run_script;
mod shutdown;
mod ssh;
mod start;
mod stop;
mod sync_dns;
mod sync_dns_with_signed_url;
mod unmount_disk;
mod update_settings;
mod upload_blob;

use std::io;
use std::path::PathBuf;

use serde_json::Value;

use crate::agent::Agent;
use crate::blobs::BlobError;
use crate::disks::DiskError;
use crate::logs::LogsError;
use crate::mbus::MbusError;
use crate::platform::PlatformError;
use crate::scripts::{ScriptError, ScriptsError};
use crate::server::tls::TlsError;
use crate::settings::SettingsError;
use crate::software::SoftwareError;
use crate::software::compile::CompileError;
use crate::spec::SpecError;
use crate::supervisor::SupervisorError;
use crate::tasks::TaskError;
use windlass_archive::digest::Mismatch;

pub(crate) use arguments::{ArgumentError, Arguments};

/// How an action is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With its result, from memory.
    Instant,
    /// With its result.
    Direct,
    /// With the id of a task.
    Task,
    /// With the id of a task that survives a restart of the agent.
    KeptTask,
    /// With its result for old callers, with the id of a task for directors.
    TaskFromProtocol3,
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    pub(crate) run: fn(&Agent, Arguments) -> Result<Value, ActionError>,
}

macro_rules! actions {
    ($($name:literal, $mode:ident, $module:ident;)*) => {
        &[$(Action { name: $name, mode: Mode::$mode, run: $module::run }),*]
    };
}

pub(crate) const ACTIONS: &[Action] = actions! {
    "ping", Instant, ping;
    "info", Instant, info;
    "get_task", Instant, get_task;
    "cancel_task", Instant, cancel_task;
    "get_state", Direct, get_state;
    "prepare", Task, prepare;
    "apply", Task, apply;
    "compile_package", Task, compile_package;
    "compile_package_with_signed_url", Task, compile_package_with_signed_url;
    "start", Direct, start;
    "stop", Task, stop;
    "drain", Task, drain;
    "run_script", Task, run_script;
    "run_errand", Task, run_errand;
    "list_disk", TaskFromProtocol3, list_disk;
    "add_persistent_disk", Task, add_persistent_disk;
    // The name that one document uses.
    "update_persistent_disk", Task, add_persistent_disk;
    "remove_persistent_disk", Task, remove_persistent_disk;
    "mount_disk", Task, mount_disk;
    "unmount_disk", Task, unmount_disk;
    "migrate_disk", Task, migrate_disk;
    "add_dynamic_disk", Task, add_dynamic_disk;
    "remove_dynamic_disk", Direct, remove_dynamic_disk;
    "update_settings", KeptTask, update_settings;
    "upload_blob", Task, upload_blob;
    "fetch_logs", Task, fetch_logs;
    "fetch_logs_with_signed_url", Task, fetch_logs_with_signed_url;
    "bundle_logs", Direct, bundle_logs;
    "remove_file", Direct, remove_file;
    "ssh", Direct, ssh;
    "sync_dns", Direct, sync_dns;
    "sync_dns_with_signed_url", Direct, sync_dns_with_signed_url;
    "delete_arp_entries", Direct, delete_arp_entries;
    "shutdown", Direct, shutdown;
};

impl Action {
    /// Whether it came with version 2 of the contract, to tell agents where disks are.
    pub(crate) fn takes_hints(&self) -> bool {
        matches!(self.name, "add_persistent_disk" | "update_persistent_disk" | "remove_persistent_disk")
    }
}

/// The action with this name.
pub(crate) fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// why an action failed, in the original's words where it has any
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    /// the arguments are not what the action takes
    #[error("Extracting method arguments from payload")]
    Arguments(#[from] ArgumentError),
    /// no task has this id
    #[error("Task with id {0} could not be found")]
    NoTask(String),
    /// the task that was asked for failed
    #[error("Task {id} result: {message}")]
    Task { id: String, message: String },
    /// the action cannot be cancelled
    #[error("not supported")]
    NotSupported,
    /// a drain for an update needs the next spec
    #[error("Drain update requires new spec")]
    DrainWithoutSpec,
    /// a kind of drain that no caller should ask for
    #[error("Unexpected call with drain type 'status'")]
    DrainStatus,
    /// the disk to mount or unmount is not known
    #[error("{doing}")]
    FindingDisk {
        doing: &'static str,
        #[source]
        source: DiskError,
    },
    /// the disk's hint cannot be kept
    #[error("Saving persistent disk hints")]
    KeepingDisk(#[source] DiskError),
    /// the dynamic disk's hint cannot be used
    #[error("Adding dynamic disk")]
    DynamicDisk(#[source] DiskError),
    /// an uploaded blob is not what its checksum says
    #[error("Payload corrupted. Checksum mismatch. Expected '{expected}'")]
    Payload {
        expected: String,
        #[source]
        source: Mismatch,
    },
    /// an uploaded blob is not encoded as it must be
    #[error("the payload is not valid base64")]
    NotBase64,
    /// a blob cannot be had or kept
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// the names of other instances cannot be had
    #[error("fetching new DNS records")]
    FetchingDns(#[source] BlobError),
    /// the logs cannot be packed
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error(transparent)]
    Scripts(#[from] ScriptsError),
    /// an errand that cannot be run
    #[error("Running errand script")]
    Errand(#[from] ScriptError),
    /// scripts of the agent before this one still run, or were to be ended
    #[error("a script that ran before is not over")]
    Unsettled(#[source] ScriptError),
    /// neither setup nor cleanup
    #[error("Unknown command for SSH method")]
    SshCommand,
    /// a name that no user can have
    #[error("'{0}' cannot be the name of a user")]
    SshUser(String),
    /// the users to remove are not described well
    #[error("SSH Cleanup: Compiling regexp")]
    UserRegex(#[source] regex_lite::Error),
    /// no network has an address
    #[error("No default ip could be found")]
    NoDefaultIp,
    /// the records have another version
    #[error("version from unpacked dns blob does not match version supplied by director")]
    DnsVersion,
    /// the records are none
    #[error("unmarshalling DNS records")]
    DnsRecords(#[source] serde_json::Error),
    /// the jobs cannot be started or stopped
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// the machine did not do it
    #[error("{doing}")]
    Platform {
        doing: &'static str,
        #[source]
        source: PlatformError,
    },
    /// the settings cannot be read or kept
    #[error("Refreshing the settings")]
    Settings(#[from] SettingsError),
    /// the new settings would keep the agent from coming back
    #[error("the new mbus settings cannot be used, so nothing was changed")]
    NewMbus(#[from] MbusError),
    /// the new certificate would keep the agent from coming back
    #[error("the new mbus certificate cannot be used, so nothing was changed")]
    NewCertificate(#[from] TlsError),
    /// the spec cannot be applied
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// its jobs or packages cannot be had
    #[error(transparent)]
    Software(#[from] SoftwareError),
    /// a package cannot be made
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// the task cannot be started
    #[error(transparent)]
    Starting(#[from] TaskError),
    /// a file cannot be changed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}
