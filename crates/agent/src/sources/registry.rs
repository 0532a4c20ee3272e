//! A registry: where the settings are of agents that could not be given them in full.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use windlass_contract::registry::RegistryLocation;
use windlass_contract::settings::AgentSettings;
use windlass_registry::{Client, RegistryError};

/// How long a registry may not know this VM: the CPI tells it at the end of `create_vm`, and the VM is there before.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// why a registry has no settings
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// it cannot be asked
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// it does not know the VM
    #[error(
        "the registry has no settings for '{id}' after {PATIENCE:?}; check that the CPI and the agent use the same registry"
    )]
    Unknown { id: String },
    /// it is a file, and cannot be read
    #[error("the registry is the file {path}, which holds no settings")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the agent cannot ask
    #[error("cannot start to ask the registry")]
    Runtime(#[source] io::Error),
}

/// The settings of the VM `id`, with the credentials that are in the endpoint or else beside it.
pub(super) fn fetch(location: &RegistryLocation, id: &str) -> Result<AgentSettings, FetchError> {
    let endpoint = &location.endpoint;
    if !endpoint.reveal().starts_with("http") {
        let path = PathBuf::from(endpoint.reveal());
        let read = std::fs::read(&path)
            .and_then(|bytes| Ok(serde_json::from_slice(&bytes).map_err(|_| io::ErrorKind::InvalidData)?));
        return read.map_err(|source| FetchError::File { path, source });
    }
    let mut client = Client::new(endpoint)?;
    if let Some(user) = location.user.as_ref().filter(|user| !user.is_empty()) {
        client = client.or_credentials(user, location.password.clone().unwrap_or_default());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let deadline = Instant::now() + PATIENCE;
    runtime.block_on(async {
        loop {
            match client.get(id).await? {
                Some(settings) => return Ok(settings),
                None if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
                None => return Err(FetchError::Unknown { id: id.to_owned() }),
            }
        }
    })
}
