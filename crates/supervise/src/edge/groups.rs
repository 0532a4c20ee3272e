//! A control group for each service, below one that the supervisor was given. With it, processes that have left the tree of their
//! service's process still count as the service's.
//!
//! The kernel forgets no member of a group: what a service has started can be counted whatever became of its parents. Without a
//! group, only the tree below the process of the pid file is counted.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The file by which a process joins a group, and by which members are listed.
const MEMBERS: &str = "cgroup.procs";

/// The control group that this process is in; none where the kernel has no second version of them, or shows none.
pub fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mount.into_iter().find(|words| words.get(2) == Some(&"cgroup2"))?.get(1).copied()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(mount).join(own))
}

#[derive(Debug)]
pub(super) struct Groups {
    /// None where groups cannot be made.
    parent: Option<PathBuf>,
}

impl Groups {
    /// Groups below `parent`, which is made if it is missing.
    pub(super) fn below(parent: Option<&Path>) -> Self {
        let is_usable = |parent: &&Path| fs::create_dir_all(parent).is_ok() && parent.join(MEMBERS).exists();
        Self { parent: parent.filter(is_usable).map(Path::to_owned) }
    }

    pub(super) fn are_made(&self) -> bool {
        self.parent.is_some()
    }

    fn path(&self, service: &str) -> Option<PathBuf> {
        Some(self.parent.as_ref()?.join(file_name(service)))
    }

    /// The file by which a program joins the group of `service`, which is made for it.
    pub(super) fn entrance(&self, service: &str) -> Option<PathBuf> {
        let group = self.path(service)?;
        match fs::create_dir(&group) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => None,
            _ => Some(group.join(MEMBERS)),
        }
    }

    /// The processes that a service has now.
    pub(super) fn members(&self, service: &str) -> Vec<u32> {
        let Some(group) = self.path(service) else { return Vec::new() };
        let text = fs::read_to_string(group.join(MEMBERS)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Removes the groups of others than these services. The kernel keeps those that have members.
    pub(super) fn keep<'a>(&self, services: impl Iterator<Item = &'a str>) {
        let kept: HashSet<String> = services.map(file_name).collect();
        let groups = self.parent.iter().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
        for group in groups.filter(|group| group.file_type().is_ok_and(|kind| kind.is_dir())) {
            if group.file_name().to_str().is_some_and(|name| !kept.contains(name)) {
                let _ = fs::remove_dir(group.path());
            }
        }
    }
}

/// Names of services are anything; those of groups are letters that lead nowhere else.
fn file_name(service: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02x}"),
    };
    format!("service-{}", service.bytes().take(60).map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_lead_nowhere_else() {
        assert_eq!(file_name("web_1-a"), "service-web_1-a");
        assert_eq!(file_name("../x y"), "service-%2e%2e%2fx%20y");
        assert!(file_name(&"\u{1f980}".repeat(100)).len() < 255);
    }

    #[test]
    fn without_control_groups_there_are_none_and_nothing_fails() {
        let folder = tempfile::tempdir().unwrap();
        for groups in [Groups::below(None), Groups::below(Some(&folder.path().join("groups")))] {
            assert!(!groups.are_made());
            assert_eq!((groups.entrance("web"), groups.members("web")), (None, Vec::new()));
            groups.keep(["web"].into_iter());
        }
    }
}
