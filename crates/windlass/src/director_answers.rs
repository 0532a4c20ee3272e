//! What the director answers. Only what we show is read; `null` stands for "unknown" nearly everywhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(crate) struct Info {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) uuid: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_version: String,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Feature>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Feature {
    pub(crate) status: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) description: String,
    pub(crate) started_at: Option<i64>,
    pub(crate) timestamp: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) result: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment: String,
}

impl Task {
    /// Whether it has yet to end.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "processing" | "cancelling")
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Needed {
    pub(crate) needed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Stemcell {
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) operating_system: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cid: String,
    #[serde(default)]
    pub(crate) deployments: Vec<Value>,
    #[serde(default)]
    pub(crate) api_version: Option<u32>,
}

/// A line, and whether it was `added` or `removed`.
#[derive(Debug, Deserialize)]
pub(crate) struct DiffLine(pub(crate) String, pub(crate) Option<String>);

#[derive(Debug, Deserialize)]
pub(crate) struct Diff {
    #[serde(default)]
    pub(crate) diff: Vec<DiffLine>,
    /// Pins the configs that the difference was made with.
    pub(crate) context: Option<Value>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CloudConfig {
    pub(crate) properties: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) team: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) created_at: String,
    #[serde(default)]
    pub(crate) current: bool,
}

/// What a deploy would do, in words.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) text: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) releases: Vec<Versioned>,
    #[serde(default)]
    pub(crate) stemcells: Vec<Versioned>,
    #[serde(default)]
    pub(crate) teams: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Versioned {
    pub(crate) name: String,
    pub(crate) version: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) manifest: Option<String>,
}

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
    pub(crate) processes: Vec<Value>,
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
}

#[derive(Debug, Deserialize)]
pub(crate) struct OrphanedDisk {
    pub(crate) disk_cid: String,
    pub(crate) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Disk {
    pub(crate) disk_cid: String,
    pub(crate) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_cid: String,
    #[serde(default)]
    pub(crate) mounted: bool,
    /// Where the agent finds it, in the words of the CPI.
    #[serde(default)]
    pub(crate) hint: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) resource: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) task_id: String,
    /// Seconds since 1970, as text.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timeout: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Leak {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) request_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) method: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) subject: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) why: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
