//! The columns that `vms` and `instances` have in common.

use windlass_director_client::answers::{InstanceInfo, Process, ProcessMemory, Uptime, Usage};

use crate::formats;

/// Which columns are shown, in the order of the original.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Columns {
    pub(super) processes: bool,
    pub(super) deployment: bool,
    /// Of `instances`.
    pub(super) details: bool,
    /// Of `vms`.
    pub(super) vm: bool,
    pub(super) cloud_properties: bool,
    pub(super) vitals: bool,
}

impl Columns {
    pub(super) fn header(self) -> Vec<&'static str> {
        let mut header = vec!["Instance"];
        header.extend(self.processes.then_some("Process"));
        header.extend(["Process State", "AZ", "IPs"]);
        header.extend(self.deployment.then_some("Deployment"));
        if self.details {
            header.extend(["State", "VM CID", "VM Type", "Disk CIDs", "Agent ID", "Index", "Bootstrap", "Ignore"]);
        }
        if self.vm {
            header.extend(["VM CID", "VM Type", "Active", "Stemcell"]);
        }
        header.extend(self.cloud_properties.then_some("Cloud Properties"));
        if self.vitals {
            header.extend(["VM Created At", "Uptime", "Load\n(1m, 5m, 15m)", "CPU\nTotal", "CPU\nUser", "CPU\nSys"]);
            header.extend(["CPU\nWait", "Memory\nUsage", "Swap\nUsage"]);
            header.extend(["System\nDisk Usage", "Ephemeral\nDisk Usage", "Persistent\nDisk Usage"]);
        }
        header
    }

    /// What a person sees of a row: BOSH shows no state where nothing is to run, and people want to see that all is well.
    pub(super) fn shown(self, mut row: Vec<String>, info: &InstanceInfo) -> Vec<String> {
        let state = self.header().iter().position(|name| *name == "Process State");
        if let Some(cell) = state.and_then(|index| row.get_mut(index)).filter(|cell| cell.is_empty()) {
            *cell = info.job_state.clone();
        }
        row
    }

    pub(super) fn instance(self, deployment: &str, info: &InstanceInfo) -> Vec<String> {
        let mut row = vec![info.slug()];
        row.extend(self.processes.then(String::new));
        row.extend([info.process_state(), info.az.clone(), info.ips.join("\n")]);
        row.extend(self.deployment.then(|| deployment.to_owned()));
        if self.details {
            row.extend([
                info.state.clone(),
                info.vm_cid.clone(),
                info.vm_type.clone(),
                info.disk_cids.join("\n"),
                info.agent_id.clone(),
                info.index.map(|index| index.to_string()).unwrap_or_default(),
                info.bootstrap.to_string(),
                info.ignore.to_string(),
            ]);
        }
        if self.vm {
            let stemcell = info.stemcell.as_ref().map(|it| format!("{}/{}", it.name, it.version));
            let active = info.active.map(|active| active.to_string());
            row.extend([info.vm_cid.clone(), info.vm_type.clone()]);
            row.extend([active.unwrap_or_default(), stemcell.unwrap_or_default()]);
        }
        row.extend(self.cloud_properties.then(|| formats::yaml_cell(&info.cloud_properties)));
        if self.vitals {
            let vitals = &info.vitals;
            row.extend([
                formats::date_of_director(&info.vm_created_at),
                uptime(&vitals.uptime),
                vitals.load.join(", "),
            ]);
            row.extend([cpu_total(vitals.cpu.total), percent(&vitals.cpu.user), percent(&vitals.cpu.sys)]);
            row.extend([percent(&vitals.cpu.wait), memory(&vitals.mem), memory(&vitals.swap)]);
            let disk = |name: &str| vitals.disk.get(name).map(disk).unwrap_or_default();
            row.extend(["system", "ephemeral", "persistent"].map(disk));
        }
        row
    }

    /// A process stands below its instance.
    pub(super) fn process(self, slug: String, process: &Process) -> Vec<String> {
        let cell = |name: &'static str| match name {
            "Instance" => slug.clone(),
            "Process" => process.name.clone(),
            "Process State" => process.state.clone(),
            "Uptime" => uptime(&process.uptime),
            "CPU\nTotal" => cpu_total(process.cpu.total),
            "Memory\nUsage" => process_memory(&process.mem),
            _ => String::new(),
        };
        self.header().into_iter().map(cell).collect()
    }
}

fn uptime(uptime: &Uptime) -> String {
    let Some(seconds) = uptime.secs else { return String::new() };
    let (days, hours) = (seconds / 86400, seconds / 3600 % 24);
    format!("{days}d {hours}h {}m {}s", seconds / 60 % 60, seconds % 60)
}

fn cpu_total(total: Option<f64>) -> String {
    total.map(|total| format!("{total:.1}%")).unwrap_or_default()
}

fn percent(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}%") }
}

fn memory(usage: &Usage) -> String {
    match usage.kb.parse::<u64>() {
        Ok(kb) if !usage.percent.is_empty() => format!("{}% ({})", usage.percent, formats::size_si(kb * 1000)),
        _ => String::new(),
    }
}

fn process_memory(memory: &ProcessMemory) -> String {
    match (memory.percent, memory.kb) {
        (Some(percent), Some(kb)) => format!("{percent:.1}% ({})", formats::size_si(kb * 1000)),
        _ => String::new(),
    }
}

fn disk(usage: &Usage) -> String {
    if usage.percent.is_empty() || usage.inode_percent.is_empty() {
        return String::new();
    }
    format!("{}% ({}i%)", usage.percent, usage.inode_percent)
}
