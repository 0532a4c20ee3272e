//! What an agent can be asked for: one file per action, this table, and how arguments are read.

mod add_persistent_disk;
mod apply;
mod arguments;
mod cancel_task;
mod drain;
mod get_state;
mod get_task;
mod info;
mod list_disk;
mod mount_disk;
mod ping;
mod prepare;
mod remove_persistent_disk;
mod run_script;
mod shutdown;
mod start;
mod stop;
mod unmount_disk;
mod update_settings;

use std::io;
use std::path::PathBuf;

use serde_json::Value;

use crate::agent::Agent;
use crate::disks::DiskError;
use crate::mbus::MbusError;
use crate::platform::PlatformError;
use crate::server::tls::TlsError;
use crate::settings::SettingsError;
use crate::spec::SpecError;
use crate::tasks::TaskError;

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

/// An action.
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

const ACTIONS: &[Action] = actions! {
    "ping", Instant, ping;
    "info", Instant, info;
    "get_task", Instant, get_task;
    "cancel_task", Instant, cancel_task;
    "get_state", Direct, get_state;
    "prepare", Task, prepare;
    "apply", Task, apply;
    "start", Direct, start;
    "stop", Task, stop;
    "drain", Task, drain;
    "run_script", Task, run_script;
    "list_disk", TaskFromProtocol3, list_disk;
    "add_persistent_disk", Task, add_persistent_disk;
    // The name that one document uses.
    "update_persistent_disk", Task, add_persistent_disk;
    "remove_persistent_disk", Task, remove_persistent_disk;
    "mount_disk", Task, mount_disk;
    "unmount_disk", Task, unmount_disk;
    "update_settings", KeptTask, update_settings;
    "shutdown", Direct, shutdown;
};

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
