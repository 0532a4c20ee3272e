//! Instances: how they are, and why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::MiB;
use crate::null::or_default;

/// An instance or a VM in a list that the records answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct InstanceSummary {
    #[serde(default, with = "crate::null::text")]
    pub agent_id: String,
    #[serde(default, with = "crate::null::text")]
    pub cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub job: String,
    #[serde(default)]
    pub index: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    #[serde(default, with = "crate::null::text")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ips: Vec<String>,
    #[serde(default, with = "crate::null::text")]
    pub vm_created_at: String,
    /// Of instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects_vm: Option<bool>,
    /// Of VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Of VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_nats_credentials: Option<bool>,
}

/// One line of the result of a `vms` or `instances` task. A director hands on what agents say of vitals and processes as it is,
/// and clients read of it what they show.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(bound(deserialize = "V: Deserialize<'de> + Default, P: Deserialize<'de>"))]
pub struct InstanceInfo<V = Vitals, P = Process> {
    #[serde(default, with = "crate::null::text")]
    pub vm_cid: String,
    #[serde(default)]
    pub active: Option<bool>,
    #[serde(default, with = "crate::null::text")]
    pub vm_created_at: String,
    #[serde(default)]
    pub cloud_properties: Value,
    #[serde(default, with = "crate::null::text")]
    pub disk_cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub disk_cids: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub ips: Vec<String>,
    #[serde(default, with = "crate::null::text")]
    pub agent_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub job_name: String,
    #[serde(default)]
    pub index: Option<i64>,
    /// `running`, `failing`, `unresponsive agent`, …; empty without a VM.
    #[serde(default, with = "crate::null::text")]
    pub job_state: String,
    /// `started`, `stopped` or `detached`: what it should be.
    #[serde(default, deserialize_with = "or_default")]
    pub state: String,
    #[serde(default, with = "crate::null::text")]
    pub vm_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub vitals: V,
    #[serde(default = "Vec::new", deserialize_with = "or_default")]
    pub processes: Vec<P>,
    #[serde(default, with = "crate::null::text")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    #[serde(default)]
    pub bootstrap: bool,
    #[serde(default)]
    pub ignore: bool,
    #[serde(default)]
    pub stemcell: Option<StemcellOfInstance>,
    /// Whether its group is an errand, which has VMs only while it runs.
    #[serde(skip)]
    pub is_errand: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StemcellOfInstance {
    pub name: String,
    pub version: String,
    #[serde(default)]
    pub api_version: Option<u32>,
}

/// How a VM is doing; agents write numbers as text.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Vitals {
    #[serde(deserialize_with = "or_default")]
    pub uptime: Uptime,
    #[serde(deserialize_with = "or_default")]
    pub load: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub cpu: Cpu,
    #[serde(deserialize_with = "or_default")]
    pub mem: Usage,
    #[serde(deserialize_with = "or_default")]
    pub swap: Usage,
    #[serde(deserialize_with = "or_default")]
    pub disk: BTreeMap<String, Usage>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Uptime {
    pub secs: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub total: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    #[serde(deserialize_with = "or_default")]
    pub sys: String,
    #[serde(deserialize_with = "or_default")]
    pub wait: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    #[serde(deserialize_with = "or_default")]
    pub percent: String,
    #[serde(deserialize_with = "or_default")]
    pub inode_percent: String,
    #[serde(deserialize_with = "or_default")]
    pub kb: String,
}

/// A process of a job; here numbers are numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    #[serde(deserialize_with = "or_default")]
    pub uptime: Uptime,
    #[serde(deserialize_with = "or_default")]
    pub mem: ProcessMemory,
    #[serde(deserialize_with = "or_default")]
    pub cpu: Cpu,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessMemory {
    pub kb: Option<u64>,
    pub percent: Option<f64>,
}

impl InstanceInfo {
    /// `db/3f…`.
    pub fn slug(&self) -> String {
        format!("{}/{}", self.job_name, self.id)
    }

    /// As the original shows it: a VM on which nothing is to run is not "running".
    pub fn process_state(&self) -> String {
        if self.job_state == "running" && self.processes.is_empty() { String::new() } else { self.job_state.clone() }
    }

    /// Whether something is to run on it.
    pub fn is_wanted(&self) -> bool {
        let rests = self.is_errand && self.vm_cid.is_empty();
        !rests && !matches!(self.state.as_str(), "stopped" | "detached")
    }

    /// Whether everything that is to run does. What nobody wants to run is no failure.
    pub fn is_healthy(&self) -> bool {
        if !self.is_wanted() {
            return matches!(self.job_state.as_str(), "" | "stopped");
        }
        self.job_state == "running" && self.processes.iter().all(|process| process.state == "running")
    }
}

/// Why an instance is as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explained {
    /// `GROUP/ID`.
    pub instance: String,
    #[serde(default)]
    pub index: i64,
    #[serde(default, with = "crate::null::text")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub state: String,
    pub converged: bool,
    pub ignored: bool,
    pub vm: Option<ExplainedVm>,
    #[serde(default)]
    pub disks: Vec<ExplainedDisk>,
    /// The newest first.
    #[serde(default)]
    pub plans: Vec<ExplainedPlan>,
    /// Which of its jobs need Ruby, and for what.
    #[serde(default)]
    pub needs_ruby: Vec<String>,
    /// How many plans are too large to be looked through.
    #[serde(default)]
    pub plans_left_out: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainedVm {
    pub cid: String,
    pub agent_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    /// In Unix seconds.
    pub created_at: i64,
    pub ready: bool,
    /// `NAME/VERSION`.
    pub stemcell: String,
    #[serde(default)]
    pub ips: Vec<String>,
    #[serde(default)]
    pub cloud_properties: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainedDisk {
    pub cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    pub size: MiB,
    #[serde(default, with = "crate::null::text")]
    pub vm_cid: String,
    pub mounted: bool,
    #[serde(default)]
    pub active: bool,
    #[serde(default)]
    pub hint: Value,
}

/// What a task did to it, why, and when.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainedPlan {
    pub task: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub state: String,
    /// In Unix seconds.
    pub started_at: Option<i64>,
    /// In Unix seconds.
    #[serde(default)]
    pub finished_at: Option<i64>,
    #[serde(default)]
    pub actions: Vec<ExplainedAction>,
    #[serde(default)]
    pub timeline: Vec<Moment>,
    /// How much of the task's log was not looked through for the timeline, because it is long.
    #[serde(default)]
    pub bytes_left_out: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainedAction {
    pub action: String,
    pub reason: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Moment {
    /// In Unix seconds.
    pub time: i64,
    /// Since 1970; directors of earlier versions do not tell it.
    pub milliseconds: Option<i64>,
    pub stage: String,
    pub what: String,
}

/// An instance that lets a user in. A VM may have written it: how one comes there is not its to say.
#[derive(Debug, Clone, Deserialize)]
pub struct SshHost {
    #[serde(default, deserialize_with = "or_default")]
    pub status: String,
    #[serde(default)]
    pub ip: Option<String>,
    #[serde(default)]
    pub host_public_key: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub job: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_without_a_vm_is_read() {
        let line = r#"{"vm_cid":null,"active":null,"disk_cids":[],"ips":[],"agent_id":null,"job_name":"smoke","index":0,
            "job_state":null,"state":"started","vm_type":null,"az":"z1","id":"04","bootstrap":true,"ignore":false,
            "stemcell":null,"processes":null}"#;
        let instance: InstanceInfo = serde_json::from_str(line).unwrap();
        assert_eq!(instance.slug(), "smoke/04");
        assert_eq!(instance.vm_cid, "");
        assert_eq!(instance.process_state(), "");
    }
}
