//! Instances: how they are, and why.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Versioned, or_default};

/// One line of the result of a `vms` or `instances` task.
#[derive(Debug, Deserialize)]
pub(crate) struct InstanceInfo {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) job_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) id: String,
    pub(crate) index: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) job_state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) ips: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) disk_cids: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) agent_id: String,
    pub(crate) active: Option<bool>,
    #[serde(default)]
    pub(crate) bootstrap: bool,
    #[serde(default)]
    pub(crate) ignore: bool,
    pub(crate) stemcell: Option<Versioned>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_created_at: String,
    #[serde(default)]
    pub(crate) cloud_properties: Value,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vitals: Vitals,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) processes: Vec<Process>,
    /// Whether its group is an errand, which has VMs only while it runs.
    #[serde(skip)]
    pub(crate) is_errand: bool,
}

/// How a VM is doing; agents write numbers as text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Vitals {
    #[serde(deserialize_with = "or_default")]
    pub(crate) uptime: Uptime,
    #[serde(deserialize_with = "or_default")]
    pub(crate) load: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) cpu: Cpu,
    #[serde(deserialize_with = "or_default")]
    pub(crate) mem: Usage,
    #[serde(deserialize_with = "or_default")]
    pub(crate) swap: Usage,
    #[serde(deserialize_with = "or_default")]
    pub(crate) disk: BTreeMap<String, Usage>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Uptime {
    pub(crate) secs: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cpu {
    pub(crate) total: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) sys: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) wait: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    #[serde(deserialize_with = "or_default")]
    pub(crate) percent: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) inode_percent: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) kb: String,
}

/// A process of a job; here numbers are numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) state: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) uptime: Uptime,
    #[serde(deserialize_with = "or_default")]
    pub(crate) mem: ProcessMemory,
    #[serde(deserialize_with = "or_default")]
    pub(crate) cpu: Cpu,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ProcessMemory {
    pub(crate) kb: Option<u64>,
    pub(crate) percent: Option<f64>,
}

impl InstanceInfo {
    /// `db/3f…`.
    pub(crate) fn slug(&self) -> String {
        format!("{}/{}", self.job_name, self.id)
    }

    /// As the original shows it: a VM on which nothing is to run is not "running".
    pub(crate) fn process_state(&self) -> String {
        if self.job_state == "running" && self.processes.is_empty() { String::new() } else { self.job_state.clone() }
    }

    /// Whether something is to run on it.
    pub(crate) fn is_wanted(&self) -> bool {
        let rests = self.is_errand && self.vm_cid.is_empty();
        !rests && !matches!(self.state.as_str(), "stopped" | "detached")
    }

    /// Whether everything that is to run does. What nobody wants to run is no failure.
    pub(crate) fn is_healthy(&self) -> bool {
        if !self.is_wanted() {
            return matches!(self.job_state.as_str(), "" | "stopped");
        }
        self.job_state == "running" && self.processes.iter().all(|process| process.state == "running")
    }
}

/// Why an instance is as it is.
#[derive(Debug, Deserialize)]
pub(crate) struct Explained {
    pub(crate) instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) state: String,
    pub(crate) converged: bool,
    pub(crate) ignored: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) az: String,
    pub(crate) vm: Option<ExplainedVm>,
    #[serde(default)]
    pub(crate) disks: Vec<ExplainedDisk>,
    /// The newest first.
    #[serde(default)]
    pub(crate) plans: Vec<ExplainedPlan>,
    /// Which of its jobs need Ruby, and for what.
    #[serde(default)]
    pub(crate) needs_ruby: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ExplainedVm {
    pub(crate) cid: String,
    pub(crate) agent_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    pub(crate) stemcell: String,
    pub(crate) created_at: i64,
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) ips: Vec<String>,
    #[serde(default)]
    pub(crate) cloud_properties: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ExplainedDisk {
    pub(crate) cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) name: String,
    pub(crate) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_cid: String,
    pub(crate) mounted: bool,
    #[serde(default)]
    pub(crate) hint: Value,
}

/// What a task did to it, why, and when.
#[derive(Debug, Deserialize)]
pub(crate) struct ExplainedPlan {
    pub(crate) task: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) state: String,
    pub(crate) started_at: Option<i64>,
    #[serde(default)]
    pub(crate) actions: Vec<ExplainedAction>,
    #[serde(default)]
    pub(crate) timeline: Vec<Moment>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ExplainedAction {
    pub(crate) action: String,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Moment {
    pub(crate) time: i64,
    /// Since 1970; directors of earlier versions do not tell it.
    pub(crate) milliseconds: Option<i64>,
    pub(crate) stage: String,
    pub(crate) what: String,
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
