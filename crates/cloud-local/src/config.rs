//! `cloud.properties.local` of `cpi.json`.

use std::path::PathBuf;

use serde::Deserialize;

/// The configuration of the embedded cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LocalConfig {
    /// Where everything is kept; absolute, because VMs outlive the process that made them.
    pub state_dir: PathBuf,
    /// How VMs are kept apart.
    #[serde(default)]
    pub isolation: Isolation,
    /// The executable that runs `vm-run`; normally the one that serves the call.
    #[serde(default)]
    pub windlass: Option<PathBuf>,
}

/// How VMs are kept apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The strongest that this machine allows.
    #[default]
    Auto,
    /// A folder and an agent per VM, on a loopback address, without privileges.
    Process,
}
