//! What happens to the machine at a boot, in the original's order: read it top to bottom.

use std::io;

use windlass_contract::settings::AgentSettings;
use windlass_durable::file;

use super::Linux;
use super::command::{CommandError, exists, tool};
use super::directories::{DirectoryError, is_wanted};
use super::ephemeral::EphemeralError;
use super::network::NetworkError;

/// why the machine is not ready
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// a program of the stemcell failed
    #[error("Setting up runtime configuration")]
    Runtime(#[source] CommandError),
    /// the machine has no network
    #[error("Setting up networking")]
    Network(#[source] NetworkError),
    /// there is no place for data
    #[error("Setting up ephemeral disk")]
    Disks(#[source] EphemeralError),
    /// folders are not as they should be
    #[error("Setting up data dir")]
    Folders(#[source] DirectoryError),
    /// the time servers are not known
    #[error("Setting up NTP servers")]
    Ntp(#[source] io::Error),
    #[error("Starting up logging and auditing utilities")]
    Logging(#[source] CommandError),
}

impl Linux {
    pub(super) fn set_up_machine(&self, settings: &AgentSettings) -> Result<(), SetupError> {
        if exists("bosh-agent-rc") {
            tool("bosh-agent-rc", [""; 0]).run().map_err(SetupError::Runtime)?;
        }
        if settings.env.bosh.other.get("ipv6").is_some_and(|ipv6| ipv6["enable"] == true) {
            self.enable_ipv6().map_err(SetupError::Network)?;
        }
        self.set_up_network(&settings.networks).map_err(SetupError::Network)?;
        self.set_up_disks(settings).map_err(SetupError::Disks)?;
        self.set_up_system_folders().map_err(SetupError::Folders)?;
        self.set_time(settings).map_err(SetupError::Ntp)?;
        let logging = self.base.bosh().join("bin/bosh-start-logging-and-auditing");
        if logging.exists() {
            tool(&logging.to_string_lossy(), [""; 0]).run().map_err(SetupError::Logging)?;
        }
        self.set_up_data(settings).map_err(SetupError::Folders)?;
        self.set_up_temporary().map_err(SetupError::Folders)?;
        self.set_up_home().map_err(SetupError::Folders)?;
        for (key, list) in
            [("remove_dev_tools", "dev_tools_file_list"), ("remove_static_libraries", "static_libraries_list")]
        {
            if is_wanted(settings, key) {
                self.remove_listed(list).map_err(SetupError::Folders)?;
            }
        }
        Ok(())
    }

    fn set_time(&self, settings: &AgentSettings) -> io::Result<()> {
        let servers = settings.env.bosh.ntp.as_ref().or(settings.ntp.as_ref());
        let Some(servers) = servers.filter(|servers| !servers.is_empty()) else { return Ok(()) };
        let folder = self.base.bosh().join("etc");
        std::fs::create_dir_all(&folder)?;
        file::write(&folder.join("ntpserver"), servers.join(" ").as_bytes(), 0o644)?;
        if exists("sync-time")
            && let Err(error) = tool("sync-time", [""; 0]).run()
        {
            // The daemon will do it later.
            tracing::debug!("{error}");
        }
        Ok(())
    }
}
