//! Who has a port that a job wanted. VMs in `process` isolation share the ports of the machine, so one can be in another's way; what the
//! kernel shows of processes says which VM it is. VMs in containers have ports of their own, and none is found.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What programs say when they cannot have a port.
const IN_USE: [&str; 4] = ["address already in use", "address in use", "eaddrinuse", "port is already allocated"];
/// How far up the parents of a process are followed.
const MOST_PARENTS: usize = 64;
/// How much is read of a process's arguments, which it can make as long as it likes.
const LONGEST: u64 = 8 << 10;
/// How many files of all processes are looked at.
const MOST_FILES: usize = 1_000_000;

/// The ports that lines of a log say are in use.
pub(super) fn ports_in(lines: &[String]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for line in lines {
        let line = line.to_lowercase();
        if !IN_USE.iter().any(|words| line.contains(words)) {
            continue;
        }
        for word in
            line.split(|letter: char| letter.is_whitespace() || matches!(letter, '(' | ')' | ',' | '\'' | '"' | '='))
        {
            let end = word.rsplit(':').find(|part| !part.is_empty()).unwrap_or_default();
            let follows_a_colon = word.trim_end_matches(':').contains(':');
            let is_after_port = line.contains(&format!("port {end}")) || line.contains(&format!("port={end}"));
            if let Ok(port) = end.parse::<u16>()
                && (follows_a_colon || is_after_port)
                && port > 0
            {
                ports.insert(port);
            }
        }
    }
    ports
}

/// The cids of the VMs of this machine that listen on a port.
pub(super) fn vms_listening_on(port: u16) -> BTreeSet<String> {
    listeners(Path::new("/proc"), port).into_iter().filter_map(|pid| vm_of(Path::new("/proc"), pid)).collect()
}

/// The processes that listen on a port.
fn listeners(proc: &Path, port: u16) -> BTreeSet<u32> {
    let mut sockets = BTreeSet::new();
    for table in ["net/tcp", "net/tcp6"] {
        let Ok(table) = File::open(proc.join(table)) else { continue };
        let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
        sockets.extend(lines.filter_map(|line| listening_socket(&line, port)));
    }
    if sockets.is_empty() {
        return BTreeSet::new();
    }
    let pids =
        fs::read_dir(proc).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut files_left = MOST_FILES;
    let has_one = |pid: &u32| {
        let files = fs::read_dir(proc.join(pid.to_string()).join("fd")).into_iter().flatten().filter_map(Result::ok);
        let looked_at = files.take_while(|_| {
            files_left = files_left.saturating_sub(1);
            files_left > 0
        });
        looked_at.filter_map(|file| fs::read_link(file.path()).ok()).any(|to| sockets.contains(&*to.to_string_lossy()))
    };
    pids.filter(has_one).collect()
}

/// `socket:[INODE]` of a line of the kernel's table that is about somebody who listens on this port.
fn listening_socket(line: &str, port: u16) -> Option<String> {
    const LISTENS: &str = "0A";
    let words: Vec<&str> = line.split_whitespace().collect();
    let (_, local) = words.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(local, 16).ok()? == port && *words.get(3)? == LISTENS;
    is_it.then(|| words.get(9).map(|inode| format!("socket:[{inode}]")))?
}

/// The VM whose supervisor a process descends from. Supervisors are processes of the director's own user: others may call themselves what
/// they like.
fn vm_of(proc: &Path, mut pid: u32) -> Option<String> {
    for _ in 0..MOST_PARENTS {
        let process = proc.join(pid.to_string());
        let is_ours = process.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
        let mut arguments = Vec::new();
        File::open(process.join("cmdline")).ok()?.take(LONGEST).read_to_end(&mut arguments).ok()?;
        let arguments: Vec<_> = arguments.splitn(4, |byte| *byte == 0).map(String::from_utf8_lossy).collect();
        if let [_, verb, folder, ..] = arguments.as_slice()
            && verb == "vm-run"
            && is_ours
        {
            return Some(Path::new(&**folder).file_name()?.to_str()?.to_owned());
        }
        // The name of a program may have spaces and brackets; what follows the last one is plain.
        let state = fs::read(process.join("stat")).ok()?;
        let state = String::from_utf8_lossy(&state);
        pid = state.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_what_programs_say() {
        let cases = [
            ("bind to port 7777: Address already in use", vec![7777]),
            ("listen tcp 0.0.0.0:8080: bind: address already in use", vec![8080]),
            ("nginx: [emerg] bind() to [::]:80 failed (98: Address already in use)", vec![80]),
            ("Error: listen EADDRINUSE: address already in use :::3000", vec![3000]),
            ("OSError: [Errno 98] Address already in use: ('127.0.0.1', 9000)", vec![]),
            ("2026-11-17 10:00:00 port 7777 is fine", vec![]),
        ];
        for (line, expected) in cases {
            assert_eq!(ports_in(&[line.to_owned()]).into_iter().collect::<Vec<_>>(), expected, "{line}");
        }
    }

    #[test]
    fn who_listens_is_found_and_its_vm_by_its_supervisor() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners(Path::new("/proc"), port), BTreeSet::from([std::process::id()]));
        assert_eq!(vms_listening_on(port), BTreeSet::new(), "this is no VM");
        let proc = tempfile::tempdir().unwrap();
        for (pid, parent, arguments) in
            [(9, 5, "job\0"), (5, 3, "agent\0-b\0x\0"), (3, 1, "windlass\0vm-run\0/cloud/vms/vm-7\0")]
        {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cmdline"), arguments).unwrap();
            fs::write(folder.join("stat"), format!("{pid} (a ) b) S {parent} 1 1")).unwrap();
        }
        assert_eq!(vm_of(proc.path(), 9), Some("vm-7".to_owned()));
        assert_eq!(vm_of(proc.path(), 1), None);
        // Half a gigabyte of arguments took thirteen of the director's memory.
        let endless = File::create(proc.path().join("9/cmdline")).unwrap();
        endless.set_len(1 << 40).unwrap();
        assert_eq!(vm_of(proc.path(), 9), Some("vm-7".to_owned()));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(proc.path().join("3"), Some(65534), None).unwrap();
            assert_eq!(vm_of(proc.path(), 9), None, "another user's process says that it is a VM");
        }
    }
}
