//! Tests of containers change networks and mounts, so each runs on a machine of its own, as far as it can tell: as root, in
//! network, mount and process namespaces that end with it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

pub(crate) use windlass_rigs::own_machine::is_own_machine;

use super::{Rig, read_json};

/// A small system with a shell, and `agent` as its agent.
pub(crate) fn system(rig: &Rig, agent: &str, more: &[(&str, &str)]) -> PathBuf {
    let path = rig.path("image");
    let mut tar = tar::Builder::new(GzEncoder::new(fs::File::create(&path).unwrap(), Compression::fast()));
    let header = |kind, size: usize| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size as u64);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    let busybox = fs::read("/bin/busybox").expect("install busybox-static");
    tar.append_data(&mut header(tar::EntryType::Regular, busybox.len()), "bin/busybox", busybox.as_slice()).unwrap();
    for name in ["sh", "sleep", "cat", "ip", "ping", "mount", "umount", "ls", "stat", "hostname", "dd", "touch", "tr"] {
        let mut link = header(tar::EntryType::Symlink, 0);
        tar.append_link(&mut link, format!("bin/{name}"), "busybox").unwrap();
    }
    for folder in ["proc/", "sys/", "dev/", "tmp/", "etc/", "mnt/"] {
        tar.append_data(&mut header(tar::EntryType::Directory, 0), folder, std::io::empty()).unwrap();
    }
    for (name, text) in [("var/vcap/bosh/bin/bosh-agent", agent)].iter().chain(more) {
        tar.append_data(&mut header(tar::EntryType::Regular, text.len()), name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
    path
}

/// Says that it runs, and stays.
pub(crate) const STAYING: &str = "#!/bin/sh\necho agent with $*\necho $$ > /var/vcap/pid\nexec sleep 1000\n";

impl Rig {
    /// A cloud of containers.
    pub(crate) fn of_containers() -> Self {
        let rig = Self::new();
        rig.configure(json!({"state_dir": rig.state(), "isolation": "container"}));
        rig
    }

    pub(crate) fn system_stemcell(&self) -> Value {
        self.ok("create_stemcell", json!([system(self, STAYING, &[]), {"name": "test"}]))
    }

    pub(crate) fn container_arguments(&self, stemcell: &Value, networks: Value) -> Value {
        let mut arguments = self.vm_arguments(stemcell, networks);
        arguments[2] = json!({"memory": 64});
        arguments
    }

    pub(crate) fn container(&self, stemcell: &Value, networks: Value) -> String {
        let created = self.ok("create_vm", self.container_arguments(stemcell, networks));
        let cid = created[0].as_str().unwrap().to_owned();
        self.remember(&cid);
        cid
    }

    /// The first process of a container.
    pub(crate) fn init(&self, cid: &str) -> u32 {
        let record = read_json(&self.vm_folder(cid).join("supervisor.json"));
        u32::try_from(record["init"]["pid"].as_u64().unwrap()).unwrap()
    }

    pub(crate) fn supervisor(&self, cid: &str) -> u32 {
        let record = read_json(&self.vm_folder(cid).join("supervisor.json"));
        u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap()
    }

    /// What a command says in a container.
    pub(crate) fn inside(&self, cid: &str, command: &str) -> String {
        let init = self.init(cid).to_string();
        let output = run("nsenter", &["--target", &init, "--all", "/bin/sh", "-c", command]);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// A file of a container.
    pub(crate) fn file(&self, cid: &str, path: &str) -> PathBuf {
        Path::new("/proc").join(self.init(cid).to_string()).join("root").join(path)
    }

    /// What of containers is on this machine, beyond their folders.
    pub(crate) fn traces(&self) -> Vec<String> {
        let mut traces = Vec::new();
        let mut matching = |output: String, words: &[&str]| {
            traces
                .extend(output.lines().filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned));
        };
        matching(said("ip", &["-o", "link"]), &["wl-", "wv"]);
        for family in ["-4", "-6"] {
            matching(said("ip", &[family, "rule"]), &["wl-", "detached", "unreachable"]);
            matching(said("ip", &[family, "route"]), &["wl-"]);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        matching(mounts, &[self.path("").to_str().unwrap()]);
        for process in fs::read_dir("/proc").unwrap() {
            let command = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
            matching(String::from_utf8_lossy(&command).replace('\0', " "), &["vm-run"]);
        }
        // Version 2 of control groups, and the many hierarchies of version 1.
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let made = fs::read_to_string(self.path("made")).unwrap_or_default();
            let groups = made.lines().map(|vm| hierarchy.join(format!("windlass-{vm}")));
            traces.extend(groups.filter(|group| group.exists()).map(|group| group.display().to_string()));
        }
        traces
    }

    /// Notes a VM whose traces are to be looked for: other tests have VMs at the same time.
    pub(crate) fn remember(&self, cid: &str) {
        let mut made = fs::File::options().create(true).append(true).open(self.path("made")).unwrap();
        writeln!(made, "{cid}").unwrap();
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// What a command says; it must succeed.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether somebody answers at an address.
pub(crate) fn answers(address: &str) -> bool {
    run("busybox", &["ping", "-c", "1", "-W", "2", address]).status.success()
}
