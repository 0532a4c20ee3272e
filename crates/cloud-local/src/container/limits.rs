//! How much of the machine a VM may use, from its `cloud_properties`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;

/// Less memory than this starts nothing.
const LEAST_MEMORY: u64 = 16;

/// Fewer processes than this start no agent with its jobs.
const LEAST_PROCESSES: u64 = 32;

/// The kernel numbers no more than these.
const MOST_PROCESSES: u64 = 1 << 22;

/// What a VM may start that does not say: enough for large software, and a quarter of what the kernel numbers unless it is told
/// otherwise, so that no VM takes the numbers of all others.
pub(super) const USUAL_PROCESSES: u64 = 8192;

/// How much a VM may use; what is not said is not limited, but for processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// In MiB.
    pub(crate) memory: Option<u64>,
    /// In thousandths of a CPU.
    pub(crate) millicpus: Option<u64>,
    /// In MiB; must be free when the VM is made, and is not held back for it.
    pub(crate) ephemeral_disk: Option<u64>,
    /// Threads count, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<u64>,
}

impl Limits {
    /// By the names that clouds of this kind use: `memory` or `ram` in MiB, `cpus` or `cpu`, `ephemeral_disk` or
    /// `ephemeral_disk_size` in MiB; and by one of ours, `processes`.
    pub(crate) fn of(cloud_properties: &Object) -> Result<Self, CpiError> {
        let number = |names: &[&str]| -> Result<Option<f64>, CpiError> {
            let Some((name, value)) = names
                .iter()
                .find_map(|name| Some((name, cloud_properties.get(*name)?)))
                .filter(|(_, value)| !value.is_null())
            else {
                return Ok(None);
            };
            match value {
                Value::Number(number) if number.as_f64().is_some_and(|number| number > 0.0 && number < 1e12) => {
                    Ok(number.as_f64())
                }
                _ => Err(CpiError::cloud(format!("the VM's '{name}' is {value}; it must be a number above zero"))),
            }
        };
        let limits = Self {
            memory: number(&["memory", "ram"])?.map(whole),
            millicpus: number(&["cpus", "cpu"])?.map(|cpus| whole(cpus * 1000.0).max(10)),
            ephemeral_disk: number(&["ephemeral_disk", "ephemeral_disk_size"])?.map(whole),
            processes: number(&["processes"])?.map(|processes| whole(processes).min(MOST_PROCESSES)),
        };
        if limits.memory.is_some_and(|memory| memory < LEAST_MEMORY) {
            return Err(CpiError::cloud(format!("a VM needs at least {LEAST_MEMORY} MiB of memory to start")));
        }
        if limits.processes.is_some_and(|processes| processes < LEAST_PROCESSES) {
            return Err(CpiError::cloud(format!("a VM needs at least {LEAST_PROCESSES} processes to start")));
        }
        Ok(limits)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and below 10^15 by then")]
fn whole(number: f64) -> u64 {
    number.ceil() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(properties: Value) -> Result<Limits, CpiError> {
        Limits::of(properties.as_object().unwrap())
    }

    #[test]
    fn limits_go_by_any_of_their_names() {
        assert_eq!(limits(json!({})).unwrap(), Limits::default());
        let all = limits(json!({"memory": 512, "cpus": 1.5, "ephemeral_disk": 1024, "later": true})).unwrap();
        let expected =
            Limits { memory: Some(512), millicpus: Some(1500), ephemeral_disk: Some(1024), ..Limits::default() };
        assert_eq!(all, expected);
        assert_eq!(limits(json!({"ram": 512, "cpu": 1.5, "ephemeral_disk_size": 1024})).unwrap(), all);
        assert_eq!(limits(json!({"processes": 100})).unwrap().processes, Some(100));
        assert_eq!(limits(json!({"processes": 1e9})).unwrap().processes, Some(4_194_304), "the kernel refuses more");
    }

    #[test]
    fn limits_of_vms_that_were_made_before_there_were_more_are_read() {
        let before = json!({"memory": 512, "millicpus": null, "ephemeral_disk": null});
        let expected = Limits { memory: Some(512), ..Limits::default() };
        assert_eq!(serde_json::from_value::<Limits>(before).unwrap(), expected);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (properties, word) in [
            (json!({"memory": -1}), "memory"),
            (json!({"cpus": "two"}), "cpus"),
            (json!({"cpus": 0}), "cpus"),
            (json!({"memory": 1}), "at least 16 MiB"),
            (json!({"memory": 1e300}), "memory"),
            (json!({"processes": "many"}), "processes"),
            (json!({"processes": 3}), "at least 32 processes"),
        ] {
            let error = limits(properties).unwrap_err().message;
            assert!(error.contains(word), "{error}");
        }
    }
}
