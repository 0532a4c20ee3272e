//! What a new VM is given to boot with.

use serde::{Serialize, Serializer};
use windlass_contract::settings::AgentSettings;
use windlass_contract::version::SettingsFrom;

/// The document for a new VM. It serialises to what the VM must be given.
///
/// Put what only the cloud knows into [`UserData::settings`], and say the VM's name with [`UserData::set_vm_name`]; do so,
/// too, when the call finds the VM that an interrupted one made. Both count also after the VM was made.
#[derive(Debug, Clone, PartialEq)]
pub struct UserData {
    /// The agent's settings in full.
    pub settings: AgentSettings,
}

impl UserData {
    /// A VM that is given its settings in full.
    pub(crate) fn complete(settings: AgentSettings) -> Self {
        Self { settings }
    }

    /// Names the VM, by convention by its cid.
    pub fn set_vm_name(&mut self, name: impl Into<String>) {
        self.settings.vm.name = name.into();
    }

    /// Where the VM gets its settings from.
    pub fn settings_from(&self) -> SettingsFrom {
        SettingsFrom::UserData
    }
}

impl Serialize for UserData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.settings.serialize(serializer)
    }
}
