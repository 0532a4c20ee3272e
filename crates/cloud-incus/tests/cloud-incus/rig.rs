//! A director's project on a real daemon, and calls as a director makes them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use flate2::Compression;
use serde_json::{Value, json};
use std::io::Write;
use uuid::Uuid;
use windlass_rigs::lxd::cluster::Cluster;
use windlass_rigs::lxd::{BRIDGE, Lxd, POOL, PREFIX};

use crate::simulated::Simulated;

const CPI: &str = env!("CARGO_BIN_EXE_incus-cpi");

/// A project on a daemon, and the CPI that uses it.
pub(crate) struct Site {
    daemons: Daemons,
    pub(crate) project: String,
    pub(crate) folder: tempfile::TempDir,
}

/// What the project is on.
enum Daemons {
    One(Lxd),
    Three(Cluster),
    Simulated(Simulated),
}

/// A call that can be made again.
#[derive(Debug, Clone)]
pub(crate) struct Asked(Value);

impl Asked {
    pub(crate) fn new(method: &str, arguments: Value) -> Self {
        let context =
            json!({"director_uuid": "d-1", "request_id": Uuid::new_v4(), "vm": {"stemcell": {"api_version": 3}}});
        Self(json!({"method": method, "arguments": arguments, "context": context, "api_version": 2}))
    }

    pub(crate) fn of_director(mut self, director: &str) -> Self {
        self.0["context"]["director_uuid"] = json!(director);
        self
    }
}

impl Site {
    pub(crate) fn start(test: &str) -> Option<Self> {
        Some(Self::on(Daemons::One(Lxd::start(test)?)))
    }

    pub(crate) fn start_cluster(test: &str) -> Option<Self> {
        Some(Self::on(Daemons::Three(Cluster::start(test)?)))
    }

    /// On a cluster that is not real, and needs neither root nor a daemon.
    pub(crate) fn simulated() -> Self {
        Self::on(Daemons::Simulated(Simulated::start()))
    }

    fn on(daemons: Daemons) -> Self {
        let mut site = Self { daemons, project: "p".to_owned(), folder: tempfile::tempdir().unwrap() };
        if !matches!(site.daemons, Daemons::Simulated(_)) {
            site.project = site.lxd().make_project("d1");
            fs::write(site.image(), minimal_image()).unwrap();
        }
        site.configure(json!({}));
        site
    }

    /// The daemon, or the cluster's first member.
    pub(crate) fn lxd(&self) -> &Lxd {
        match &self.daemons {
            Daemons::One(lxd) => lxd,
            Daemons::Three(cluster) => cluster.member(1),
            Daemons::Simulated(_) => panic!("this site has no real daemon"),
        }
    }

    /// As above, to kill it.
    pub(crate) fn lxd_mut(&mut self) -> &mut Lxd {
        match &mut self.daemons {
            Daemons::One(lxd) => lxd,
            Daemons::Three(cluster) => cluster.member_mut(1),
            Daemons::Simulated(_) => panic!("this site has no real daemon"),
        }
    }

    /// A member of the real cluster.
    pub(crate) fn member(&self, number: usize) -> &Lxd {
        match &self.daemons {
            Daemons::Three(cluster) => cluster.member(number),
            _ => panic!("this site is no real cluster"),
        }
    }

    pub(crate) fn simulation(&self) -> &Simulated {
        match &self.daemons {
            Daemons::Simulated(simulated) => simulated,
            _ => panic!("this site is real"),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        match &self.daemons {
            Daemons::Three(cluster) => cluster,
            _ => panic!("this site is no real cluster"),
        }
    }

    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        match &mut self.daemons {
            Daemons::Three(cluster) => cluster,
            _ => panic!("this site is no real cluster"),
        }
    }

    fn endpoints(&self) -> Vec<String> {
        let endpoint = |lxd: &Lxd| format!("unix:{}", lxd.socket().display());
        match &self.daemons {
            Daemons::One(lxd) => vec![endpoint(lxd)],
            // The first is the one that tests kill.
            Daemons::Three(cluster) => [2, 1, 3].map(|number| endpoint(cluster.member(number))).to_vec(),
            Daemons::Simulated(simulated) => vec![simulated.endpoint()],
        }
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn configure(&self, changes: Value) {
        let mut incus = json!({"endpoints": self.endpoints(), "project": self.project,
            "pool": POOL, "network": BRIDGE, "state_dir": self.folder.path().join("state")});
        for (key, value) in changes.as_object().unwrap() {
            incus[key] = value.clone();
        }
        let config = json!({"cloud": {"plugin": "incus", "properties": {"incus": incus}}});
        fs::write(self.folder.path().join("cpi.json"), config.to_string()).unwrap();
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(CPI);
        command
            .arg(self.folder.path().join("cpi.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// One process with this request.
    pub(crate) fn run(&self, mut command: Command, asked: &Asked) -> Output {
        Self::begin(&mut command, asked).wait_with_output().unwrap()
    }

    /// As above, while something else happens.
    pub(crate) fn begin(command: &mut Command, asked: &Asked) -> Child {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(asked.0.to_string().as_bytes()).unwrap();
        child
    }

    pub(crate) fn answer(&self, asked: &Asked) -> Value {
        let output = self.run(self.command(), asked);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    pub(crate) fn ok(&self, method: &str, arguments: Value) -> Value {
        let asked = Asked::new(method, arguments);
        let answer = self.answer(&asked);
        assert_eq!(answer["error"], Value::Null, "{asked:?}: {answer}");
        answer["result"].clone()
    }

    /// The type and the message of a refusal.
    pub(crate) fn refused(&self, method: &str, arguments: Value) -> (String, String) {
        let answer = self.answer(&Asked::new(method, arguments));
        let error = &answer["error"];
        assert!(error.is_object(), "{method}: {answer}");
        let text = |key: &str| error[key].as_str().unwrap().to_owned();
        (text("type").trim_start_matches("Bosh::Clouds::").to_owned(), text("message"))
    }

    pub(crate) fn stemcell(&self) -> String {
        let properties = json!({"name": "bosh-incus-minimal", "version": "1"});
        self.ok("create_stemcell", json!([self.image(), properties])).as_str().unwrap().to_owned()
    }

    /// The arguments of a VM with the address `PREFIX.last`.
    pub(crate) fn vm_arguments(&self, stemcell: &str, last: u8) -> Value {
        json!([format!("agent-{last}"), stemcell, {"ram": 64}, networks(last), [],
            {"bosh": {"mbus": {"urls": ["https://u:p@0.0.0.0:6868"]}, "group": "d-shop-web", "password": "hunter2"}}])
    }

    pub(crate) fn vm(&self, stemcell: &str, last: u8) -> String {
        self.ok("create_vm", self.vm_arguments(stemcell, last))[0].as_str().unwrap().to_owned()
    }

    pub(crate) fn disk(&self, vm: &str) -> String {
        self.ok("create_disk", json!([32, {}, vm])).as_str().unwrap().to_owned()
    }

    /// As if the CPI had been killed before it could note its answers, but with the ids that it chose.
    pub(crate) fn forget_answers(&self) {
        let mut folders = vec![self.folder.path().join("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else if entry.path().extension().is_some_and(|extension| extension == "json") {
                    let mut record: Value = serde_json::from_slice(&fs::read(entry.path()).unwrap()).unwrap();
                    record["answer"] = Value::Null;
                    fs::write(entry.path(), record.to_string()).unwrap();
                }
            }
        }
    }

    /// What the daemon has in the project.
    pub(crate) fn held(&self) -> Vec<String> {
        self.lxd().held(&self.project)
    }

    /// What `windlass cpi incus list` shows: kinds, names and members.
    pub(crate) fn listed(&self) -> Vec<(&'static str, String, Option<String>)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listed =
            runtime.block_on(windlass_cloud_incus::operator::list(&self.folder.path().join("cpi.json"))).unwrap();
        listed.into_iter().map(|found| (found.kind, found.cid, found.member)).collect()
    }

    /// An instance as the daemon has it.
    pub(crate) fn instance(&self, vm: &str) -> Value {
        self.lxd().ok("GET", &format!("/1.0/instances/{vm}?project={}", self.project), &Value::Null)
    }

    /// The claim of a disk.
    pub(crate) fn claim(&self, disk: &str) -> Value {
        self.lxd().volume(&self.project, volume(disk))["config"]["user.windlass.attached_to"].clone()
    }

    /// Writes to a disk's pool, as its VM would.
    pub(crate) fn write(&self, disk: &str, text: &str) {
        let folder = self.lxd().files_of_volume(&self.project, volume(disk));
        fs::write(folder.join("data"), text).unwrap();
    }

    pub(crate) fn read(&self, disk: &str) -> String {
        let folder = self.lxd().files_of_volume(&self.project, volume(disk));
        fs::read_to_string(folder.join("data")).unwrap_or_default()
    }
}

/// The volume of a disk's cid.
pub(crate) fn volume(disk: &str) -> &str {
    disk.split_once(':').unwrap().1
}

pub(crate) fn networks(last: u8) -> Value {
    json!({"default": {"type": "manual", "ip": format!("{PREFIX}.{last}"), "netmask": "255.255.255.0",
        "gateway": format!("{PREFIX}.1"), "dns": [], "default": ["dns", "gateway"], "cloud_properties": {}}})
}

/// The smallest stemcell: a shell, and an agent that only stays.
fn minimal_image() -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), Compression::fast()));
    let busybox = fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox")).unwrap();
    let sources = json!([{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}]);
    let config = json!({"Infrastructure": {"Settings": {"Sources": sources}}, "RunsJobs": true}).to_string();
    let files: [(&str, u32, &[u8]); 3] = [
        ("bin/busybox", 0o755, &busybox),
        ("var/vcap/bosh/bin/bosh-agent", 0o755, b"#!/bin/sh\nexec sleep 100000\n"),
        ("var/vcap/bosh/agent.json", 0o644, config.as_bytes()),
    ];
    for (path, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        builder.append_data(&mut header, path, content).unwrap();
    }
    for applet in ["sh", "ip", "mkdir", "sleep", "kill"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    for folder in ["dev/", "proc/", "sys/", "tmp/", "run/", "etc/"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        builder.append_data(&mut header, folder, &b""[..]).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}
