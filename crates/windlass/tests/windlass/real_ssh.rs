//! Visits to VMs with a real ssh server and a real tcpdump, which are those of this machine in a system of their own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;

const PROGRAMS: &[&str] = &[
    "sh",
    "bash",
    "cat",
    "id",
    "mkdir",
    "mv",
    "ssh-keygen",
    "sshd",
    "sudo",
    "tail",
    "tcpdump",
    "useradd",
    "userdel",
    "usermod",
];
/// Where programs have parts that they look for themselves, where there are such.
const PARTS: &[&str] = &["/usr/lib/openssh", "/usr/lib/sudo", "/usr/libexec/sudo", "/usr/libexec/openssh"];
const PERMIT: &str = "auth required pam_permit.so\naccount required pam_permit.so\n\
    session required pam_permit.so\npassword required pam_permit.so\n";

fn found(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    });
    below.collect()
}

/// The libraries of a program, and its loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let lines = String::from_utf8(listed.stdout).unwrap();
    lines.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A system with an ssh server; none if this machine lacks a part of it.
fn system(root: &Path) -> Option<()> {
    let mut wanted = BTreeSet::new();
    for name in PROGRAMS {
        let Some(path) = found(name) else {
            println!("needs {name}: install openssh-server, sudo and tcpdump");
            return None;
        };
        wanted.insert(path);
    }
    wanted.extend(PARTS.iter().flat_map(|folder| files(Path::new(folder))));
    let security = |folder: fs::DirEntry| folder.path().join("security/pam_permit.so");
    wanted.extend(fs::read_dir("/usr/lib").unwrap().flatten().map(security).filter(|path| path.is_file()));
    let needed: Vec<PathBuf> = wanted.iter().flat_map(|path| libraries(path)).collect();
    wanted.extend(needed);
    for folder in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc/ssh", "etc/pam.d", "etc/sudoers.d", "run", "tmp"]
    {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    for path in wanted {
        let target = root.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&path, &target).unwrap();
    }
    let write = |path: &str, mode: u32, text: &str| {
        fs::write(root.join(path), text).unwrap();
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    let people = "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/sh\ntcpdump:x:101:101::/:/bin/sh\n";
    write("etc/passwd", 0o644, people);
    write("etc/shadow", 0o640, "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\ntcpdump:!:19000::::::\n");
    write("etc/group", 0o644, "root:x:0:\nshadow:x:42:\ntcpdump:x:101:\nnogroup:x:65534:\n");
    write("etc/ssh/sshd_config", 0o644, "UsePAM yes\nPasswordAuthentication no\n");
    write("etc/sudoers", 0o440, "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n");
    ["sshd", "sudo", "other"].iter().for_each(|name| write(&format!("etc/pam.d/{name}"), 0o644, PERMIT));
    Some(())
}

/// Whether some process of this machine has this name.
fn runs(name: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok()).any(|comm| comm.trim() == name)
}

/// Users of visits in all VMs.
fn visitors(site: &Site) -> Vec<String> {
    let vms = site.in_cloud("vms");
    let lists = vms.iter().map(|vm| site.store(vm).parent().unwrap().join("../../etc/passwd"));
    let lines = lists.flat_map(|list| fs::read_to_string(list).unwrap().lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line.starts_with("bosh_")).collect()
}

/// The packets of a capture, or none if it is not one.
fn packets(file: &Path) -> Option<Vec<Vec<u8>>> {
    let bytes = fs::read(file).ok()?;
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    (word(0)? == 0xa1b2_c3d4).then_some(())?;
    let (mut at, mut packets) = (24, Vec::new());
    while let Some(length) = word(at + 8) {
        packets.push(bytes.get(at + 16..at + 16 + length as usize)?.to_vec());
        at += 16 + length as usize;
    }
    Some(packets)
}

/// A capture would be empty, mix up machines, or go on in the VMs when nobody looks any more.
#[test]
fn real_traffic_of_several_vms_is_captured_over_real_ssh_and_nothing_is_left_there() {
    if !is_own_machine("real_ssh::real_traffic_of_several_vms_is_captured_over_real_ssh_and_nothing_is_left_there") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    if system(folder.path()).is_none() {
        return;
    }
    let mut site = Site::ready_with_containers_from(folder.path().to_str().unwrap(), "");
    site.write_documents(2);
    site.deploy();

    let said = site.ok(&["-d", "example", "ssh", "db", "-c", "id -un; sudo id -un"]);
    let lines: Vec<&str> =
        said.lines().filter_map(|line| line.split_once(": stdout | ").map(|(_, text)| text)).collect();
    assert_eq!(lines.iter().filter(|line| **line == "root").count(), 2, "{said}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("bosh_")).count(), 2, "{said}");

    let rows = site.rows(&["-d", "example", "vms"]);
    let addresses: Vec<&str> = rows.iter().map(|row| row["ips"].as_str().unwrap()).collect();
    let file = site.file("all.pcap");
    for signal in ["-INT", "-TERM"] {
        let words = ["-n", "-d", "example", "pcap", "-o", file.to_str().unwrap(), "-f", "udp and port 7777"];
        let mut pcap = site.verb(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Each tcpdump says so once it captures.
        let mut errors = BufReader::new(pcap.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listening = errors.by_ref().filter(|line| line.contains("listening on")).take(2).count();
        assert_eq!((listening, addresses.len()), (2, 2), "{}", site.director_log());
        let rest = std::thread::spawn(move || errors.collect::<Vec<_>>());
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        for address in &addresses {
            sender.send_to(format!("for {address};").as_bytes(), (*address, 7777)).unwrap();
            sender.send_to(b"not asked for", (*address, 7778)).unwrap();
        }
        let came = |text: &str| {
            packets(&file).unwrap_or_default().iter().filter(|packet| packet.ends_with(text.as_bytes())).count()
        };
        site.wait_until("the packets of both", |_| {
            addresses.iter().all(|address| came(&format!("for {address};")) == 1)
        });
        // Nothing more comes, and they end all the same.
        assert!(runs("tcpdump"));
        assert!(Command::new("kill").args([signal, &pcap.id().to_string()]).status().unwrap().success());
        let ended = pcap.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?} {:?}", rest.join());
        assert_eq!(packets(&file).unwrap().len(), 2);
        site.wait_until("the end of the captures", |_| !runs("tcpdump"));
        site.wait_until("the end of the users", |site| visitors(site).is_empty());
    }
    let refused = site.fails(&["-n", "-d", "example", "pcap", "-o", file.to_str().unwrap(), "-i", "no0"]);
    assert!(refused.contains("not everything was captured"), "{refused}");
    // Control groups outlive namespaces.
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}
