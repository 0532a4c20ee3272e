//! The machine that a process runs on, as far as its pid means something there.

use std::fs;

use serde::{Deserialize, Serialize};

/// Where a pid means something: one boot of a machine, and one namespace of pids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// For people.
    pub name: String,
    machine: String,
    boot: String,
    pids: String,
}

impl Host {
    /// Where this process runs.
    pub fn here() -> Self {
        let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let pids = fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default();
        Self {
            name: text("/proc/sys/kernel/hostname"),
            machine: text("/etc/machine-id"),
            boot: text("/proc/sys/kernel/random/boot_id"),
            pids,
        }
    }

    /// Whether pids mean the same here and there.
    pub fn has_same_pids(&self, other: &Self) -> bool {
        (&self.boot, &self.pids) == (&other.boot, &other.pids)
    }

    /// Whether it has the same names, so that the other is this one before it was started again. Two that run at the same time
    /// must have different ones.
    pub fn has_same_name(&self, other: &Self) -> bool {
        (&self.name, &self.machine) == (&other.name, &other.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_was_booted_is_the_same_with_other_pids() {
        let here = Host::here();
        assert!(here.has_same_pids(&Host::here()) && here.has_same_name(&Host::here()));
        let booted = Host { boot: "another".to_owned(), ..here.clone() };
        assert!(!here.has_same_pids(&booted) && here.has_same_name(&booted));
        let elsewhere = Host { name: "elsewhere".to_owned(), ..booted };
        assert!(!here.has_same_pids(&elsewhere) && !here.has_same_name(&elsewhere));
        let restarted = Host { pids: "pid:[1]".to_owned(), ..here.clone() };
        assert!(!here.has_same_pids(&restarted), "a container that was started again");
    }
}
