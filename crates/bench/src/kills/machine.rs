//! The machine itself, asked what is left of a cloud: not what the cloud says of it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to let go of what ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks for traces of a cloud.
pub(super) struct Watch {
    folder: PathBuf,
    /// All VMs that there ever were.
    vms: BTreeSet<String>,
}

impl Watch {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), vms: BTreeSet::new() }
    }

    pub(super) fn remember(&mut self, listed: &BTreeSet<(&'static str, String)>) {
        self.vms.extend(listed.iter().filter(|(kind, _)| *kind == "vm").map(|(_, cid)| cid.clone()));
    }

    /// Fails, naming the first, if a mount, loop device, process, control group, interface or file is left.
    pub(super) fn nothing_is_left(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.traces()?.first() {
                None => return Ok(()),
                Some(first) if Instant::now() > deadline => {
                    return Err(io::Error::other(format!("left on the machine: {first}")));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn traces(&self) -> io::Result<Vec<String>> {
        let mut traces = Vec::new();
        let folder = self.folder.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        traces.extend(mounts.lines().filter(|line| line.contains(&folder)).map(|line| format!("mount {line}")));
        for device in entries(Path::new("/sys/block"))? {
            let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            if file.contains(&folder) {
                traces.push(format!("loop device {} of {}", device.display(), file.trim()));
            }
        }
        for process in entries(Path::new("/proc"))? {
            let command = fs::read(process.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.contains("vm-run") && command.contains(&folder) {
                traces.push(format!("process {}: {command}", process.display()));
            }
        }
        let hierarchies = entries(Path::new("/sys/fs/cgroup")).unwrap_or_default();
        for hierarchy in hierarchies.into_iter().chain([PathBuf::from("/sys/fs/cgroup")]) {
            let groups = self.vms.iter().map(|vm| hierarchy.join(format!("windlass-{vm}")));
            traces.extend(groups.filter(|group| group.exists()).map(|group| format!("group {}", group.display())));
        }
        if windlass_cloud_local::own_machine::is_inside() {
            let names = entries(Path::new("/sys/class/net"))?;
            let names = names.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
            let ours = names.filter(|name| name.starts_with("wl-") || name.starts_with("wv"));
            traces.extend(ours.map(|name| format!("interface {name}")));
        }
        for shelf in ["stemcells", "vms", "disks", "snapshots", "networks"] {
            let left = entries(&self.folder.join("cloud").join(shelf)).unwrap_or_default();
            traces.extend(left.iter().map(|path| path.display().to_string()));
        }
        Ok(traces)
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}
