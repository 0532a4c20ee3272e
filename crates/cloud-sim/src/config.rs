//! `cloud.properties.sim` of `cpi.json`. Everything in it is optional.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use windlass_contract::MiB;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::Method;
use windlass_contract::cpi::methods::{Info, NAMES};
use windlass_cpi::Config;

use crate::agents::AgentBehaviour;
use crate::catalogue::{self, VmType};
use crate::faults::Fault;

/// The configuration of the simulated cloud.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SimConfig {
    /// Where everything is kept; by default `sim` in Windlass's state directory.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
    /// How many milliseconds a method takes at least.
    #[serde(default)]
    pub latency: BTreeMap<String, u64>,
    /// What goes wrong, and when.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// How much there is.
    #[serde(default)]
    pub capacity: Capacity,
    /// The VM types on offer.
    #[serde(default = "catalogue::default")]
    pub catalogue: Vec<VmType>,
    /// What `attach_disk` does to the VM.
    #[serde(default)]
    pub attach_disk: AttachMode,
    /// How `update_disk` changes a disk.
    #[serde(default)]
    pub update_disk: UpdateMode,
    /// How `resize_disk` changes a disk.
    #[serde(default)]
    pub resize_disk: ResizeMode,
    /// What agents are like; `cloud_properties.agent` of a VM says what is different in its own.
    #[serde(default)]
    pub agents: AgentBehaviour,
    /// Whether jobs are taken: agents install them and say that they run, and nothing runs.
    #[serde(default)]
    pub pretend_jobs: bool,
    /// Whether every call is noted in `calls.log`, one line with the method's name.
    #[serde(default)]
    pub log_calls: bool,
    /// The executable that hosts the agents (`sim-host`); normally `windlass` beside the one that serves the call.
    #[serde(default)]
    pub windlass: Option<PathBuf>,
}

/// How much there is of everything; what is not said is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// How many VMs.
    #[serde(default)]
    pub vms: Option<u64>,
    /// Space for disks and snapshots.
    #[serde(default)]
    pub disk_mib: Option<MiB>,
}

/// What `attach_disk` does to the VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachMode {
    /// It sees the disk as it runs.
    #[default]
    Live,
    /// It is made again with the disk: some clouds of containers are like that. Its agent is away for as long as at a start,
    /// and has forgotten everything but what it was given to boot with.
    Recreate,
}

/// How `update_disk` changes a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateMode {
    /// The disk keeps its cid.
    #[default]
    InPlace,
    /// Another disk with the same content takes its place.
    Replace,
}

/// How `resize_disk` changes a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// It is larger then.
    #[default]
    Real,
    /// It is as it was, and the answer is a success: several clouds are like that.
    Pretended,
    /// It is as it was, and the answer says that it cannot be done.
    NotSupported,
}

/// Reads the configuration at `path`; without one, the simulated cloud just works.
pub(crate) fn load(path: Option<&Path>) -> Result<Config, CpiError> {
    match path {
        Some(path) => Config::load(path),
        None => Config::from_json(br#"{"cloud":{"plugin":"sim"}}"#),
    }
}

impl SimConfig {
    /// Refuses what would silently do nothing.
    pub(crate) fn check(&self) -> Result<(), CpiError> {
        for method in self.latency.keys() {
            check_method("latency", method)?;
        }
        for fault in &self.faults {
            check_method("faults", &fault.method)?;
            fault.check().map_err(|problem| CpiError::cpi(format!("'cloud.properties.sim.faults' has {problem}")))?;
        }
        Ok(())
    }

    /// The folder of everything.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, CpiError> {
        match &self.state_dir {
            Some(path) if path.is_absolute() => Ok(path.clone()),
            Some(path) => Err(CpiError::cpi(format!(
                "'cloud.properties.sim.state_dir' must be an absolute path, not '{}'",
                path.display()
            ))),
            None => windlass_durable::state_dir::default().map(|state| state.join("sim")).ok_or_else(|| {
                CpiError::cpi("this user has no home directory; set 'cloud.properties.sim.state_dir' or HOME")
            }),
        }
    }
}

fn check_method(section: &str, method: &str) -> Result<(), CpiError> {
    if method == Info::NAME {
        return Err(CpiError::cpi(format!(
            "'cloud.properties.sim.{section}' names 'info', which is answered without the cloud"
        )));
    }
    if !NAMES.contains(&method) {
        return Err(CpiError::cpi(format!(
            "'cloud.properties.sim.{section}' names '{method}', which is no CPI method"
        )));
    }
    Ok(())
}
