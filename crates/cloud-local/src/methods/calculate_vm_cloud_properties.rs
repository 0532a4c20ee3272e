//! `calculate_vm_cloud_properties`: the limits of a container, if this machine has so much at all.

use std::fs;
use std::path::Path;

use serde_json::json;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CalculateVmCloudProperties;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, asked: CalculateVmCloudProperties) -> Result<Object, CpiError> {
    let wanted = asked.desired;
    let cpus = std::thread::available_parallelism().map_or(u64::MAX, |cpus| cpus.get() as u64);
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)).unwrap_or(u64::MAX);
    let state = &cloud.config.state_dir;
    let there = state.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let space =
        rustix::fs::statvfs(there).map_or(u64::MAX, |space| space.f_blocks.saturating_mul(space.f_frsize) >> 20);
    for (what, wanted, has) in [
        ("CPUs", wanted.cpu, cpus),
        ("MiB of memory", wanted.ram.0, memory),
        ("MiB of disk", wanted.ephemeral_disk_size.0, space),
    ] {
        if wanted > has {
            return Err(CpiError::cloud(format!("{wanted} {what} are asked for, and this machine has {has}")));
        }
    }
    let sizes = [("cpus", wanted.cpu), ("memory", wanted.ram.0), ("ephemeral_disk", wanted.ephemeral_disk_size.0)];
    // Nought is no limit.
    Ok(sizes.into_iter().filter(|(_, size)| *size > 0).map(|(name, size)| (name.to_owned(), json!(size))).collect())
}

/// In MiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1024)
}
