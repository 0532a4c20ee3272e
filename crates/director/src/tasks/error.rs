//! Why tasks fail, and the numbers that the original has for it.

use windlass_blobs::BlobError;
use windlass_contract::explain;
use windlass_download::DownloadError;
use windlass_planning::names::CpiName;
use windlass_stemcell::digest;

use super::fetch_logs;

/// why a task failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// the documents are wrong
    #[error("{0}")]
    Input(String),
    /// its plan is large, and has to wait for another one
    #[error("another task with a large plan runs for the same team or user")]
    NoPlace,
    /// the request cannot be met, for a reason that the original has a number for
    #[error("{message}")]
    Refused { code: u32, message: String },
    /// logs were not fetched
    #[error(transparent)]
    Logs(#[from] fetch_logs::FetchLogsError),
    /// a file was not fetched
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// a file is not what it should be
    #[error(transparent)]
    Digest(#[from] digest::DigestError),
    #[error(transparent)]
    Operation(Box<windlass_operations::steps::OperationError>),
    /// a step outside of an operation failed
    #[error(transparent)]
    Step(#[from] windlass_operations::steps::StepError),
    /// a change in a cloud failed
    #[error(transparent)]
    Change(#[from] windlass_operations::clouds::ChangeError),
    /// the CPIs of the cpi config cannot be driven
    #[error(transparent)]
    Clouds(#[from] crate::RefreshError),
    #[error("{cpi} failed")]
    Cpi {
        cpi: CpiName,
        #[source]
        source: Box<windlass_cpi_client::CallError>,
    },
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error(transparent)]
    Ledger(#[from] windlass_operations::ledger::LedgerError),
    /// a lock is held
    #[error(transparent)]
    Lock(#[from] crate::store::LockError),
    /// a release cannot be used
    #[error(transparent)]
    Release(#[from] windlass_release::ReleaseError),
    /// jobs or packages are not to be had
    #[error(transparent)]
    Software(#[from] crate::software::SoftwareError),
    /// values of variables are not to be had
    #[error(transparent)]
    Variables(#[from] crate::variables::VariablesError),
    /// a blob cannot be kept or had
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// a folder cannot be made
    #[error("cannot make {}", path.display())]
    Folder {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// a stemcell cannot be read
    #[error("the stemcell cannot be used")]
    Stemcell(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// an instance could not be removed
    #[error("an instance could not be removed; delete-deployment --force goes on without its agent")]
    NotRemoved(#[source] Box<TaskError>),
    /// a problem is still there
    #[error("Error resolving problem '{problem}'")]
    NotResolved {
        problem: i64,
        #[source]
        source: Box<TaskError>,
    },
    #[error("{}", .0.iter().map(explain_error).collect::<Vec<_>>().join("\n"))]
    Several(Vec<TaskError>),
    /// what to do cannot be read
    #[error("what this task should do cannot be read; run the command again")]
    Unreadable(#[source] crate::store::StoreError),
    /// a mistake of ours
    #[error("the director panicked: {0}; this is a mistake in the director, and its log says where")]
    Panicked(String),
    /// the task was cancelled
    #[error("task cancelled")]
    Cancelled,
}

impl From<crate::blobs::CollectError> for TaskError {
    fn from(error: crate::blobs::CollectError) -> Self {
        match error {
            crate::blobs::CollectError::Store(error) => Self::Store(error),
            crate::blobs::CollectError::Blob(error) => Self::Blob(error),
        }
    }
}

impl From<windlass_operations::steps::OperationError> for TaskError {
    fn from(error: windlass_operations::steps::OperationError) -> Self {
        Self::Operation(Box::new(error))
    }
}

impl From<windlass_operations::steps::WorkError> for TaskError {
    fn from(error: windlass_operations::steps::WorkError) -> Self {
        match error {
            windlass_operations::steps::WorkError::Operation(error) => Self::Operation(error),
            windlass_operations::steps::WorkError::Step(error) => Self::Step(error),
        }
    }
}

fn explain_error(error: &TaskError) -> String {
    explain(error)
}

impl TaskError {
    pub(super) fn refused(code: u32, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }

    /// The code that the original has for this kind of error.
    pub(super) fn code(&self) -> u32 {
        match self {
            Self::Input(_) => 40000,
            Self::Refused { code, .. } => *code,
            Self::Download(error) if error.is_not_found() => 100002,
            Self::Download(_) => 100001,
            Self::Digest(_) => 50007,
            Self::Cancelled | Self::Logs(fetch_logs::FetchLogsError::Cancelled) => 10001,
            Self::Logs(_) => 450001,
            Self::Stemcell(_) => 50000,
            Self::Release(error) => error.code(),
            Self::Variables(_) => 540001,
            _ => 100,
        }
    }

    pub(super) fn is_cancellation(&self) -> bool {
        match self {
            Self::Cancelled | Self::Logs(fetch_logs::FetchLogsError::Cancelled) => true,
            Self::Step(error) => error.is_cancellation(),
            Self::Operation(error) => error.cause.is_cancellation(),
            Self::NotRemoved(error) | Self::NotResolved { source: error, .. } => error.is_cancellation(),
            Self::Several(errors) => errors.iter().all(Self::is_cancellation),
            _ => false,
        }
    }
}
