//! Who is who in a user namespace.
//!
//! A user who may set ids has the same ids inside. Any other user is root inside and has no other id: `vcap` is another name of root then.

use std::fs;
use std::io;

use rustix::thread::CapabilitySet;

/// Gives the user namespace of a process its ids. The process was started by this one, and in a namespace of its own.
#[expect(clippy::disallowed_methods, reason = "ids of a user namespace, which end with it")]
pub(super) fn give(pid: u32) -> io::Result<()> {
    let rights = rustix::thread::capabilities(None)?;
    if rights.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        for kind in ["uid", "gid"] {
            let own = fs::read_to_string(format!("/proc/self/{kind}_map"))?;
            fs::write(format!("/proc/{pid}/{kind}_map"), same(&own))?;
        }
        return Ok(());
    }
    // The kernel wants this before somebody without rights maps groups.
    fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    fs::write(format!("/proc/{pid}/uid_map"), format!("0 {user} 1\n"))?;
    fs::write(format!("/proc/{pid}/gid_map"), format!("0 {group} 1\n"))
}

/// Whether there is nobody but root in the user namespace of this process.
pub(super) fn is_root_alone() -> io::Result<bool> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    Ok(extents(&map).map(|(_, count)| count).sum::<u64>() <= 1)
}

/// A map that gives everybody the same id again.
fn same(own: &str) -> String {
    extents(own).map(|(first, count)| format!("{first} {first} {count}\n")).collect()
}

/// The ids of a namespace: the first of each range, and how many there are.
fn extents(map: &str) -> impl Iterator<Item = (u64, u64)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
        let first = numbers.next()??;
        Some((first, numbers.nth(1)??))
    })
}

/// `/etc/passwd` or `/etc/group` in which `vcap` is another name of root.
pub(super) fn with_vcap_as_root(accounts: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if fields.first() == Some(&"vcap") && fields.len() > 3 {
            // The number of the user, or of the group; and that of the user's group.
            let numbers = if fields.len() > 4 { 2..4 } else { 2..3 };
            fields[numbers].fill("0");
        }
        fields.join(":") + "\n"
    };
    accounts.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_inside_as_far_as_there_are_any() {
        assert_eq!(same("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(same("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }

    #[test]
    fn vcap_becomes_root_and_nobody_else_does() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nvcap:x:1000:1000:vcap:/home/vcap:/bin/bash\n";
        assert_eq!(with_vcap_as_root(passwd), passwd.replace("1000:1000", "0:0"));
        let group = "root:x:0:\nvcap:x:1000:\nbosh_sudoers:x:1003:vcap\n";
        assert_eq!(with_vcap_as_root(group), group.replace("1000", "0"));
    }
}
