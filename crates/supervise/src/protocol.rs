//! What clients ask and are told. The form is frozen: an agent may be older or newer than its supervisor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::commands::{Command, Selection};
use crate::machine::snapshot::MonitText;
use crate::machine::status::ServiceStatus;

/// The socket's name in the supervisor's folder.
pub const SOCKET: &str = "supervise.sock";

/// The longest line that is taken.
pub const LONGEST_LINE: u64 = 16 << 20;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum Request {
    /// These files from now on, and no others.
    Load { files: Vec<MonitText> },
    /// Do this to these.
    Command { command: Command, of: Selection },
    /// How is everybody?
    Status,
    /// What happened?
    Events {
        /// After the event with this number.
        after: u64,
    },
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is so from now on, also after a restart of the supervisor. Starts and stops go on after this.
    Done,
    /// How everybody is.
    Status(Vec<ServiceStatus>),
    Events(Vec<Happening>),
    /// It was refused, and nothing has changed.
    Refused(String),
    /// It is so, but could not be made to last.
    Unsaved(String),
}

/// Something that is worth an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happening {
    /// Rises by one.
    pub number: u64,
    /// Seconds since 1970.
    pub at: u64,
    pub service: String,
    /// What happened, in monit's words.
    pub event: String,
    /// The same as a sentence.
    pub text: String,
    /// What follows from it, in monit's words, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// The path of the socket in `folder`, by a handle on the folder: a socket's path may not be longer than 107 bytes. It is good
/// as long as the handle.
pub(crate) fn socket_in(folder: &Path) -> io::Result<(File, PathBuf)> {
    let handle = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", handle.as_raw_fd()));
    Ok((handle, path))
}
