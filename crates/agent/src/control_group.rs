//! What a container uses, and what it may use at most: the machine's own files speak of everybody on it.

use std::fs;
use std::path::Path;

/// Where the container's group is, in the container.
pub(crate) const TOP: &str = "/sys/fs/cgroup";

/// Control groups as the machine sees them; a container has a namespace of its own.
const NAMESPACE: &str = "/proc/self/ns/cgroup";
const OF_MACHINE: &str = "cgroup:[4026531835]";

/// Whether the group at [`TOP`] is that of a container.
pub(crate) fn is_own() -> bool {
    fs::read_link(NAMESPACE).is_ok_and(|namespace| namespace != Path::new(OF_MACHINE))
}

/// Kibibytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) used: u64,
    /// None, if it may use all that the machine has. Groups of version 1 tell a huge number instead.
    pub(crate) limit: Option<u64>,
}

/// Without pages of files, which the kernel gives up as soon as memory is needed.
pub(crate) fn memory(top: &Path) -> Option<Memory> {
    let v1 = top.join("memory");
    let (group, used, limit, idle) = if v1.is_dir() {
        (v1.as_path(), "memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
    } else {
        (top, "memory.current", "memory.max", "inactive_file")
    };
    let idle = entry(&group.join("memory.stat"), idle).unwrap_or_default();
    Some(Memory {
        used: number(&group.join(used))?.saturating_sub(idle) / 1024,
        limit: number(&group.join(limit)).map(|bytes| bytes / 1024),
    })
}

/// Microseconds of processors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    pub(crate) user: u64,
    pub(crate) system: u64,
}

pub(crate) fn processor_time(top: &Path) -> Option<ProcessorTime> {
    let of = |file: &Path, user, system, unit: u64| {
        Some(ProcessorTime { user: entry(file, user)? * unit, system: entry(file, system)? * unit })
    };
    of(&top.join("cpu.stat"), "user_usec", "system_usec", 1)
        // Ticks, of which all machines that we run on have 100 in a second.
        .or_else(|| of(&top.join("cpuacct/cpuacct.stat"), "user", "system", 10_000))
}

/// How many processors its time is counted against, if that is limited.
pub(crate) fn processors(top: &Path) -> Option<f64> {
    let v2 = fs::read_to_string(top.join("cpu.max")).ok();
    let (quota, period) = match v2.as_deref().and_then(|text| text.split_once(' ')) {
        Some((quota, period)) => (quota.parse().ok()?, period.trim().parse().ok()?),
        None => (number(&top.join("cpu/cpu.cfs_quota_us"))?, number(&top.join("cpu/cpu.cfs_period_us"))?),
    };
    (period > 0).then(|| quota as f64 / period as f64)
}

/// A file of one number; none where it says `max` or `-1`.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The number beside a name.
fn entry(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        folder
    }

    #[test]
    fn both_versions_of_groups_are_read() {
        let v2 = group(&[
            ("memory.current", "20971520\n"),
            ("memory.max", "67108864\n"),
            ("memory.stat", "anon 4096\ninactive_file 1048576\n"),
            ("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n"),
            ("cpu.max", "50000 100000\n"),
        ]);
        let v1 = group(&[
            ("memory/memory.usage_in_bytes", "20971520\n"),
            ("memory/memory.limit_in_bytes", "67108864\n"),
            ("memory/memory.stat", "inactive_file 4096\ntotal_inactive_file 1048576\n"),
            ("cpuacct/cpuacct.stat", "user 2\nsystem 1\n"),
            ("cpu/cpu.cfs_quota_us", "50000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        for (folder, unit) in [(&v2, 10), (&v1, 10_000)] {
            assert_eq!(memory(folder.path()), Some(Memory { used: 19 * 1024, limit: Some(64 * 1024) }));
            assert_eq!(processor_time(folder.path()), Some(ProcessorTime { user: 2 * unit, system: unit }));
            assert_eq!(processors(folder.path()), Some(0.5));
        }
    }

    #[test]
    fn a_group_without_limits_may_use_all() {
        let v2 = group(&[("memory.current", "1048576\n"), ("memory.max", "max\n"), ("cpu.max", "max 100000\n")]);
        assert_eq!(memory(v2.path()), Some(Memory { used: 1024, limit: None }));
        assert_eq!(processors(v2.path()), None);
        let v1 = group(&[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")]);
        assert_eq!(processors(v1.path()), None);
    }
}
