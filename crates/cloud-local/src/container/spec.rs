//! What a container is made of, in the words of the OCI runtime specification.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::boot::{AGENT, Boot};
use super::cgroup;
use super::confinement::Confinement;
use super::handover::STORE;
use super::limits::{Limits, USUAL_PROCESSES};
use super::sources::Sources;
use crate::machine::DISKS_IN_VM;
use crate::state::{ContainerRecord, VmRecord};
use crate::userland::{self, Userland};

/// What the programs of a stemcell need to be root for: its agent mounts, changes users and the network. Not among them:
/// making device files, loading modules, setting the clock, looking into other processes, and the machine's hardware.
/// Numbers are those of the kernel.
const CAPABILITIES: [(&str, u32); 25] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_FOWNER", 3),
    ("CAP_FSETID", 4),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_SETPCAP", 8),
    ("CAP_LINUX_IMMUTABLE", 9),
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_NET_BROADCAST", 11),
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_IPC_LOCK", 14),
    ("CAP_IPC_OWNER", 15),
    ("CAP_SYS_CHROOT", 18),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_BOOT", 22),
    ("CAP_SYS_NICE", 23),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_SYS_TTY_CONFIG", 26),
    ("CAP_LEASE", 28),
    ("CAP_AUDIT_WRITE", 29),
    ("CAP_SETFCAP", 31),
];

/// Of this machine, not of the VM.
const MASKED: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];

/// Of this machine, with whatever else is in `/proc/sys`; what is below `/proc/sys/net` is the VM's own.
const READ_ONLY: [&str; 12] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/mtrr",
    "/proc/sysrq-trigger",
    "/proc/sys/abi",
    "/proc/sys/debug",
    "/proc/sys/dev",
    "/proc/sys/fs",
    "/proc/sys/kernel",
    "/proc/sys/user",
    "/proc/sys/vm",
];

/// As stemcells set it: the original agent calls programs that lie beside it.
const PATH: &str = "/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The document for the container of `vm`. `store` is the folder of a disk that its agent finds mounted.
pub(super) fn document(vm: &VmRecord, container: &ContainerRecord, sources: &Sources, store: Option<&Path>) -> Value {
    let capabilities = permitted(own_capabilities());
    let is_systemd = container.boot == Boot::Systemd;
    let mut environment = vec![format!("PATH={PATH}")];
    if is_systemd {
        environment.push("container=windlass".to_owned());
    }
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
    let mut namespaces = kinds.map(|kind| json!({"type": kind})).to_vec();
    namespaces.extend(sources.user_namespace().map(|path| json!({"type": "user", "path": path})));
    json!({
        "ociVersion": "1.2.0",
        "hostname": vm.cid,
        "root": {"path": sources.root, "readonly": false},
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0, "umask": 0o022},
            "args": container.boot.command(),
            "env": environment,
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "inheritable": [],
                "permitted": capabilities,
                "ambient": [],
            },
            "noNewPrivileges": false,
        },
        "mounts": mounts(container, sources, is_systemd, store),
        "linux": {
            "cgroupsPath": cgroup::path(vm.cid.as_str()),
            "resources": resources(container.limits, cgroup::can_count_processes()),
            "namespaces": namespaces,
            "maskedPaths": MASKED,
            "readonlyPaths": read_only(container),
            "rootfsPropagation": "slave",
        },
    })
}

/// systemd makes groups of its own in that of its VM, and so do containers in it; for everybody else, limits are limits.
fn makes_groups(container: &ContainerRecord) -> bool {
    container.boot == Boot::Systemd || container.confinement == Confinement::Nesting
}

fn read_only(container: &ContainerRecord) -> Vec<PathBuf> {
    let groups = if makes_groups(container) { Vec::new() } else { cgroup::hierarchies().unwrap_or_default() };
    let groups = groups.into_iter().map(|group| group.point);
    // Kernels differ in what they have there.
    let kernel = fs::read_dir("/proc/sys").into_iter().flatten().flatten().map(|entry| entry.path());
    let kernel = kernel.filter(|path| !path.ends_with("net"));
    let paths: BTreeSet<PathBuf> = READ_ONLY.iter().map(PathBuf::from).chain(kernel).chain(groups).collect();
    paths.into_iter().collect()
}

fn mounts(container: &ContainerRecord, sources: &Sources, is_systemd: bool, store: Option<&Path>) -> Value {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
            "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}),
        json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue",
            "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
            "options": ["nosuid", "noexec", "nodev", "ro"]}),
        json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev", "relatime", if makes_groups(container) { "rw" } else { "ro" }]}),
        json!({"destination": DISKS_IN_VM, "type": "bind", "source": sources.disks,
            "options": ["rbind", "rslave", "ro"]}),
    ];
    if is_systemd {
        for place in ["/run", "/run/lock"] {
            mounts.push(json!({"destination": place, "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "nodev", "mode=755"]}));
        }
    }
    if container.userland == Userland::Host {
        mounts.extend(of_host());
    }
    if let Some(agent) = &sources.agent {
        mounts.push(json!({"destination": AGENT, "type": "bind", "source": agent, "options": ["bind", "ro"]}));
    }
    if let Some(disk) = store {
        // What the VM mounts inside of it stays there.
        mounts.push(json!({"destination": STORE, "type": "bind", "source": disk, "options": ["bind", "rprivate"]}));
    }
    Value::Array(mounts)
}

/// The programs of this machine, without what was added to it by hand.
fn of_host() -> Vec<Value> {
    let options = ["rbind", "rslave", "ro", "nosuid"];
    let shown = userland::shown().into_iter();
    let mut mounts: Vec<Value> =
        shown.map(|path| json!({"destination": path, "type": "bind", "source": path, "options": options})).collect();
    if Path::new(userland::LOCAL).is_dir() {
        mounts.push(json!({"destination": userland::LOCAL, "type": "tmpfs", "source": "none",
            "options": ["nosuid", "nodev", "ro", "mode=755", "size=4k"]}));
    }
    mounts
}

/// The length of the slices that CPU time is counted in, in microseconds.
const PERIOD: u64 = 100_000;

fn resources(limits: Limits, can_count_processes: bool) -> Value {
    let mut resources = json!({});
    if can_count_processes {
        resources["pids"] = json!({"limit": limits.processes.unwrap_or(USUAL_PROCESSES)});
    }
    if let Some(memory) = limits.memory {
        resources["memory"] = json!({"limit": memory << 20});
    }
    if let Some(millicpus) = limits.millicpus {
        resources["cpu"] = json!({"quota": millicpus * PERIOD / 1000, "period": PERIOD});
    }
    resources
}

/// We cannot give what we do not have.
fn permitted(own: u64) -> Vec<&'static str> {
    CAPABILITIES.iter().filter(|(_, number)| own & (1 << number) != 0).map(|(name, _)| *name).collect()
}

fn own_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_numbers_of_the_kernel() {
        assert_eq!(resources(Limits::default(), false), json!({}));
        assert_eq!(resources(Limits::default(), true), json!({"pids": {"limit": 8192}}));
        let limits = Limits { memory: Some(256), millicpus: Some(1500), ephemeral_disk: None, processes: Some(100) };
        let mut expected = json!({"memory": {"limit": 268_435_456}, "cpu": {"quota": 150_000, "period": 100_000}});
        assert_eq!(resources(limits, false), expected);
        expected["pids"] = json!({"limit": 100});
        assert_eq!(resources(limits, true), expected);
    }

    #[test]
    fn only_what_we_have_is_given_and_nothing_that_reaches_out_of_the_vm() {
        assert_eq!(permitted(0), Vec::<&str>::new());
        assert_eq!(permitted(1 << 21), ["CAP_SYS_ADMIN"]);
        let all = permitted(u64::MAX);
        for capability in ["CAP_MKNOD", "CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_TIME", "CAP_BPF"]
        {
            assert!(!all.contains(&capability), "{capability}");
        }
    }
}
