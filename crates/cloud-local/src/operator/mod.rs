//! What an operator does beside the CPI: look at the cloud, find addresses for it, remove what nobody owns or all of it, kill a VM,
//! read its settings.

mod destroy;
mod free_network;
mod garbage;
mod kill;
mod problems;
mod resources;
mod settings;

use std::io;
use std::path::Path;

use serde_json::json;
use windlass_contract::cpi::CpiError;
use windlass_cpi::Config;

pub use self::problems::Problem;
pub use self::resources::Resource;
pub use self::settings::Secrets;
use crate::cloud::LocalCloud;

/// What there is, and what does not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Everything that was made and not deleted.
    pub resources: Vec<Resource>,
    /// What killed calls and other accidents left.
    pub problems: Vec<Problem>,
}

impl LocalCloud {
    /// The cloud with the configuration at `config`.
    pub fn configured(config: &Path) -> Result<Self, CpiError> {
        Self::new(Config::load(config)?.plugin()?)
    }

    /// The cloud in the folder `state`, whose configuration is not known.
    pub fn in_folder(state: &Path) -> Result<Self, CpiError> {
        let config = serde_json::from_value(json!({"state_dir": state}));
        Self::new(config.map_err(|error| CpiError::cpi(format!("{} is no folder's name: {error}", state.display())))?)
    }

    /// Does `work` as root of a VM, in this thread: where a VM has users of its own, nobody else makes files on its disks.
    pub fn as_root_of<T>(&self, vm: &str, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.vms.read(vm).map_err(io::Error::other)?.and_then(|vm| vm.ids()) {
            Some(ids) => ids.as_root(work)?,
            None => work(),
        }
    }

    /// Everything, as it is now. Changes nothing.
    pub fn status(&self) -> Result<Status, CpiError> {
        Ok(Status { resources: resources::all(self)?, problems: problems::find(self)? })
    }
}
