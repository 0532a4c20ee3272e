//! Files of VMs, as their root makes them.

use std::fs;
use std::path::Path;

use nix::unistd::{setfsgid, setfsuid};

/// Does `work` as root of the VM that `path` leads into by one of its processes (`/proc/PID/root/…`). A VM may have users of its own, and then
/// nobody else makes files where it sees them. A path that leads elsewhere is anybody's.
pub fn as_root_at<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> T {
    let pid = path.strip_prefix("/proc").ok().and_then(|path| path.iter().next()?.to_str());
    let Some(pid) = pid else { return work() };
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap();
    let root: u32 = map.split_whitespace().nth(1).unwrap().parse().unwrap();
    let as_root = || {
        // Only of this thread.
        setfsgid(root.into());
        setfsuid(root.into());
        work()
    };
    std::thread::scope(|scope| scope.spawn(as_root).join().unwrap())
}

/// Writes a file as root of the VM that its path leads into.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    let content = content.as_ref();
    as_root_at(path, || fs::write(path, content).unwrap());
}
