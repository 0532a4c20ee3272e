//! An agent inside of another process, beside thousands of others: for simulated VMs.
//!
//! It is the same agent with the same server and the same files. It shares the process's runtime, costs a task and a listening
//! socket while nobody talks to it, restarts in place, and changes nothing outside of its folder (it has the platform
//! `directory`: a disk is a directory).

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::boot::{self, BootError, Booted, Ending, Parts};
use crate::config::{Config, Registry};
use crate::layout::Base;
use crate::mbus::Mbus;
use crate::settings::{LOOK_AGAIN, SettingsError};
use crate::sources::SettingsSource;
use crate::supervisor::SupervisorKind;
use crate::{platform, server};

/// What becomes of a message to a simulated agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// It is done and answered.
    Answered,
    /// Nothing is done, and this is answered.
    Refused(String),
    /// Nothing is done, and the connection ends.
    Dropped,
    /// It is done, and the connection ends without the answer.
    AnswerLost,
}

/// What an agent is like to talk to.
pub trait Simulation: Debug + Send + Sync {
    /// Waits before a message is looked at, and says what becomes of it. An agent whose wait never ends is silent.
    fn before<'a>(&'a self, method: &'a str) -> Pin<Box<dyn Future<Output = Handling> + Send + 'a>>;

    /// How large the disk on `store` pretends to be, in KiB.
    fn persistent_disk_kib(&self, _store: &Path) -> Option<u64> {
        None
    }
}

/// An agent to be run.
#[derive(Debug, Clone)]
pub struct Embedded {
    /// Everything that the agent owns is below, as `/var/vcap` elsewhere. Nobody else may use it.
    pub base: PathBuf,
    /// The file with what the VM was given to boot with.
    pub user_data: PathBuf,
    /// Whether that only says in which registry the settings are. Then the agent is one from before version 2 of the contract,
    /// which finds disks in its settings alone.
    pub from_registry: bool,
    /// The VM's address. An agent that is told to listen on all addresses listens here, because the others belong to other VMs.
    pub address: IpAddr,
    /// Whether it takes jobs. Their scripts then run on this machine, as the user of this process.
    pub runs_jobs: bool,
    /// What it is like to talk to.
    pub simulation: Arc<dyn Simulation>,
}

/// Why an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Told,
    /// It powered its VM off.
    PoweredOff,
}

/// why an agent cannot run
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EmbeddedError(BootError);

impl Embedded {
    /// Runs the agent until `end`, or until somebody tells it to power its VM off. It comes back by itself when new settings need
    /// that.
    pub async fn run(&self, end: impl Future<Output = ()>) -> Result<Ended, EmbeddedError> {
        let mut end = std::pin::pin!(end);
        loop {
            let this = self.clone();
            let booted = tokio::task::spawn_blocking(move || this.boot()).await;
            let booted = booted.map_err(|error| BootError::Runtime(error.into())).and_then(|booted| booted);
            let Booted { agent, mut endings, .. } = match booted {
                // Not in the thread that boots it: thousands may wait at once.
                Err(BootError::Settings(SettingsError::None { may_come: true, .. })) => {
                    tokio::select! {
                        () = tokio::time::sleep(LOOK_AGAIN) => continue,
                        () = &mut end => return Ok(Ended::Told),
                    }
                }
                booted => booted.map_err(EmbeddedError)?,
            };
            let listener = self.listen(&agent.gate.current().mbus).await.map_err(EmbeddedError)?;
            let end = async {
                tokio::select! {
                    Some(ending) = endings.recv() => ending,
                    () = &mut end => Ending::Signal,
                }
            };
            match server::serve(listener, agent, end).await {
                Ending::Restart => {}
                Ending::Shutdown => return Ok(Ended::PoweredOff),
                Ending::Signal => return Ok(Ended::Told),
            }
        }
    }

    fn boot(self) -> Result<Booted, BootError> {
        let base = Base::prepare(&self.base).map_err(|source| BootError::Base { path: self.base, source })?;
        let config = Config {
            sources: vec![SettingsSource::File(self.user_data)],
            registry: if self.from_registry { Registry::ByServerName } else { Registry::Unused },
            takes_hints: !self.from_registry,
            linux: Default::default(),
        };
        let platform = platform::find("directory", &base, &config.linux)?;
        let supervisor = SupervisorKind::Simulated { runs_jobs: self.runs_jobs };
        let (patience, simulation) = (Duration::ZERO, Some(self.simulation));
        boot::start(Parts { base, platform, supervisor, lock: None, patience, simulation }, config)
    }

    async fn listen(&self, mbus: &Mbus) -> Result<TcpListener, BootError> {
        let host = match mbus.host.parse::<IpAddr>() {
            Ok(every) if every.is_unspecified() => self.address.to_string(),
            _ => mbus.host.clone(),
        };
        boot::listen(&host, mbus.port).await
    }
}
