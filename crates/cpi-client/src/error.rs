//! Why a call failed, and what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use windlass_contract::RequestId;
use windlass_contract::cpi::CpiError;

/// a call to a CPI that has no answer, or an error for an answer
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// the executable is not one
    #[error("the CPI '{}' is not an executable file; correct its path or its permissions", executable.display())]
    NotExecutable {
        /// What should have been run.
        executable: PathBuf,
    },
    /// the process did not start
    #[error("the CPI '{}' could not be started for '{method}'", executable.display())]
    Spawn {
        /// What should have been run.
        executable: PathBuf,
        method: String,
        #[source]
        source: io::Error,
    },
    /// values of variables are not to be had
    #[error("'{method}' was not sent: variables in the properties of the CPI '{cpi}' have no values: {why}")]
    NoValues {
        cpi: String,
        method: String,
        /// Which, and why; never the values.
        why: String,
    },
    /// the caller could not record the process
    #[error("'{method}' was not sent: the CPI's process could not be recorded, and was killed")]
    NotRecorded {
        method: String,
        #[source]
        source: io::Error,
    },
    /// no answer in time
    #[error(
        "the CPI did not answer '{method}' within {after:?} and was killed with its process group; look in the cloud for \
         what it may have left (request {request_id})"
    )]
    Deadline {
        method: String,
        /// The deadline.
        after: Duration,
        request_id: String,
    },
    /// something was answered that is not a response
    #[error(
        "the CPI gave no valid answer to '{method}': {what}; look in the cloud for what it may have left, and in the CPI's \
         log for the cause (request {request_id}){}", quoted(.stdout, .stderr)
    )]
    InvalidAnswer {
        method: String,
        /// What is wrong with the answer.
        what: String,
        /// The start of what came on stdout, without secrets.
        stdout: String,
        /// The first and the last lines that came on stderr, without secrets.
        stderr: String,
        request_id: String,
    },
    /// the CPI reports a version that is not one
    #[error(
        "the CPI's info reports api_version {reported}, which is not a whole number of at least 0; correct the CPI"
    )]
    OddVersion {
        /// What it reports, as JSON.
        reported: String,
    },
    /// the CPI answered with an error
    #[error("the CPI answered '{method}' with an error (request {request_id})")]
    Cpi {
        method: String,
        request_id: String,
        #[source]
        source: CpiError,
    },
}

fn quoted(stdout: &str, stderr: &str) -> String {
    let mut text = String::new();
    for (name, content) in [("stdout", stdout), ("stderr", stderr)] {
        if !content.is_empty() {
            text.push_str(&format!("; {name}: {content}"));
        }
    }
    text
}

impl CallError {
    /// The error that the CPI answered with, if that is what happened.
    pub fn cpi_error(&self) -> Option<&CpiError> {
        match self {
            Self::Cpi { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether the call may have had an effect in the cloud that nobody heard of. False means: surely not, or the CPI
    /// answered and so knows best.
    pub fn effect_is_unknown(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::InvalidAnswer { .. })
    }
}

pub(crate) fn request_id(id: Option<&RequestId>) -> String {
    id.map_or_else(|| "without id".to_owned(), ToString::to_string)
}
