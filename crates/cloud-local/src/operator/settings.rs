//! What a VM's agent was given.

use serde_json::Value;
use windlass_contract::VmCid;
use windlass_contract::cpi::CpiError;

use crate::cloud::LocalCloud;
use crate::machine::Machine;

/// What becomes of passwords and keys in settings that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// Replaced by a word that says so.
    Hidden,
    /// As they are.
    Shown,
}

impl LocalCloud {
    /// The document that a VM was given to boot with.
    pub fn settings(&self, vm: &VmCid, secrets: Secrets) -> Result<Value, CpiError> {
        let (Some(folder), Some(_)) = (self.vms.path(vm.as_str()), self.vms.read(vm.as_str())?) else {
            return Err(CpiError::vm_not_found(vm));
        };
        let path = Machine::new(folder).settings();
        let unreadable = |error: &dyn std::error::Error| {
            CpiError::cloud(format!("cannot read the settings of '{vm}' at {}: {error}", path.display()))
        };
        let bytes = std::fs::read(&path).map_err(|error| unreadable(&error))?;
        let settings: Value = serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?;
        Ok(match secrets {
            Secrets::Shown => settings,
            Secrets::Hidden => windlass_contract::cpi::redaction::without_credentials(settings),
        })
    }
}
