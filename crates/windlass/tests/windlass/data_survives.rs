//! What software writes through its agent's mount is there again, whatever happens to VM and disk: the promise that operators of
//! stateful software rely on, with the real CPI, the real agent and the disks of each isolation.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_agent_client::{Agent, AgentAccess, AgentClient, ClientTls, Outcome};
use windlass_contract::{AgentId, DiskCid, DiskHint};
use windlass_pki::Authority;
use windlass_rigs::own_machine::is_own_machine;
use windlass_rigs::vm_root::{self, as_root_at};

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
    isolation: &'static str,
    stemcell: String,
    pub(crate) runtime: tokio::runtime::Runtime,
    authority: Authority,
    agents: AgentClient,
}

pub(crate) struct Vm {
    pub(crate) cid: String,
    pub(crate) agent: Agent,
}

impl Site {
    /// One whose stemcell is built with these flags.
    pub(crate) fn with(isolation: &'static str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Alone in its folder: an agent that stands beside it may be of another build.
        let windlass = folder.path().join("windlass");
        std::os::unix::fs::symlink(WINDLASS, &windlass).unwrap();
        let local = json!({"state_dir": folder.path().join("state"), "isolation": isolation, "windlass": windlass});
        let config = json!({"cloud": {"plugin": "local", "properties": {"local": local}}});
        fs::write(folder.path().join("cpi.json"), config.to_string()).unwrap();
        let tarball = folder.path().join("stemcell.tgz");
        let built = Command::new(WINDLASS)
            .args(["stemcell", "build"])
            .args(flags)
            .arg("--output")
            .arg(&tarball)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let unpacked = folder.path().join("stemcell");
        fs::create_dir(&unpacked).unwrap();
        let mut properties = windlass_stemcell::unpack(&tarball, &unpacked).unwrap().cloud_properties;
        properties.insert("name".into(), "test".into());
        let authority = Authority::new().unwrap();
        let agents = AgentClient::new(ClientTls::new(&authority, &authority.new_client().unwrap())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut site = Self { folder, isolation, stemcell: String::new(), runtime, authority, agents };
        let image = unpacked.join("image");
        site.stemcell = site.ok("create_stemcell", json!([image, properties])).as_str().unwrap().to_owned();
        site
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn ok(&self, method: &str, arguments: Value) -> Value {
        let context = json!({"director_uuid": "d", "request_id": uuid::Uuid::new_v4().to_string(),
            "vm": {"stemcell": {"api_version": 2}}});
        let request = json!({"method": method, "arguments": arguments, "api_version": 2, "context": context});
        let mut child = Command::new(WINDLASS)
            .args(["cpi", "local", "--config"])
            .arg(self.folder.path().join("cpi.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["error"], Value::Null, "{method}: {output:?}");
        answer["result"].clone()
    }

    pub(crate) fn vm(&self) -> Vm {
        let agent_id = AgentId::random();
        let access = AgentAccess::new(&self.authority, &agent_id, &[]).unwrap();
        let networks = json!({"default": {"type": "dynamic"}});
        let created = self.ok("create_vm", json!([agent_id, self.stemcell, {}, networks, [], {"bosh": access.env}]));
        let address: IpAddr = created[1]["default"]["ip"].as_str().unwrap().parse().unwrap();
        let agent = self.agents.agent(access.endpoint(agent_id, vec![address]));
        self.runtime.block_on(agent.wait_until_ready(Duration::from_secs(60))).unwrap();
        Vm { cid: created[0].as_str().unwrap().to_owned(), agent }
    }

    fn disk(&self, size: u64, properties: Value) -> DiskCid {
        DiskCid::new(self.ok("create_disk", json!([size, properties, null])).as_str().unwrap()).unwrap()
    }

    /// Attaches and has the agent mount; gives the place where software on the VM finds the data.
    fn mount(&self, vm: &Vm, disk: &DiskCid) -> PathBuf {
        let hint = DiskHint::try_from(self.ok("attach_disk", json!([vm.cid, disk]))).unwrap();
        self.runtime.block_on(vm.agent.add_and_mount_disk(disk, &hint)).unwrap();
        let folder = self.state().join("vms").join(&vm.cid);
        if self.isolation == "process" {
            return folder.join("base/store");
        }
        self.root(vm).join("var/vcap/store")
    }

    /// What a VM sees as its root, through its first process.
    pub(crate) fn root(&self, vm: &Vm) -> PathBuf {
        let record = self.state().join("vms").join(&vm.cid).join("supervisor.json");
        let supervisor: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        Path::new("/proc").join(supervisor["init"]["pid"].to_string()).join("root")
    }

    fn unmount(&self, vm: &Vm, disk: &DiskCid) {
        self.runtime.block_on(vm.agent.unmount_disk(disk)).unwrap();
        self.ok("detach_disk", json!([vm.cid, disk]));
        let forgotten = self.runtime.block_on(vm.agent.remove_persistent_disk(disk)).unwrap();
        assert_eq!(forgotten, Outcome::Done, "the agent of this stemcell knows it");
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Site {
    fn drop(&mut self) {
        for vm in fs::read_dir(self.state().join("vms")).into_iter().flatten().flatten() {
            let cid = vm.file_name().into_string().unwrap();
            if cid.starts_with("vm-") {
                self.ok("delete_vm", json!([cid]));
            }
        }
    }
}

/// Files of many sizes, with text that tells them apart.
fn write_tree(root: &Path) {
    for number in 0..40_usize {
        let folder = root.join(format!("tree/{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        let content: Vec<u8> = (0..number * number * 300).map(|byte| (byte * (number + 1) % 251) as u8).collect();
        fs::write(folder.join(format!("file-{number}")), content).unwrap();
    }
    std::os::unix::fs::symlink("0/file-0", root.join("tree/link")).unwrap();
}

/// Every file below a folder, with what is in it.
fn read_tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                // Made by mkfs, in images alone.
                if name != Path::new("lost+found") {
                    folders.push(path);
                }
            } else if kind.is_symlink() {
                files.insert(name, fs::read_link(path).unwrap().into_os_string().into_encoded_bytes());
            } else {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Snapshot, growth, a move to another VM, the end of the first VM, and a new disk from the snapshot.
fn survives(isolation: &'static str, flags: &[&str]) {
    let site = Site::with(isolation, flags);
    let (first, second) = (site.vm(), site.vm());
    let disk = site.disk(96, json!({}));
    let store = site.mount(&first, &disk);
    as_root_at(&store, || write_tree(&store));
    let written = read_tree(&store);
    assert_eq!(written.len(), 41);
    // Taken while it is mounted and in use.
    let snapshot = site.ok("snapshot_disk", json!([disk, {"index": 0}]));
    vm_root::write(&store.join("tree/later"), "after the snapshot");
    let later = read_tree(&store);

    site.unmount(&first, &disk);
    assert!(!store.join("tree").exists(), "without the disk there is no data at its place");
    site.ok("resize_disk", json!([disk, 160]));
    let store = site.mount(&second, &disk);
    site.ok("delete_vm", json!([first.cid]));
    assert_eq!(read_tree(&store), later);
    if isolation == "container" {
        let space = rustix::fs::statvfs(&store).unwrap();
        let size = (space.f_blocks * space.f_frsize) >> 20;
        assert!((130..=160).contains(&size), "the file system grew with its disk: {size} MiB");
    }

    let third = site.vm();
    let restored = site.disk(160, json!({"snapshot_cid": snapshot}));
    let copy = site.mount(&third, &restored);
    assert_eq!(read_tree(&copy), written, "what the snapshot saw, and nothing of later");
    vm_root::write(&copy.join("tree/0/file-0"), "changed in the copy");
    assert_eq!(read_tree(&store), later, "a copy is not the original");

    // A VM that dies takes nothing with it.
    site.ok("delete_vm", json!([second.cid]));
    let fourth = site.vm();
    assert_eq!(read_tree(&site.mount(&fourth, &disk)), later);
    for (vm, disk) in [(&third, &restored), (&fourth, &disk)] {
        site.unmount(vm, disk);
        site.ok("delete_vm", json!([vm.cid]));
        site.ok("delete_disk", json!([disk]));
    }
    site.ok("delete_snapshot", json!([snapshot]));
}

#[test]
fn data_written_through_an_agent_survives_everything_in_process_isolation() {
    survives("process", &[]);
}

#[test]
fn data_written_through_an_agent_survives_everything_in_a_root_of_its_own() {
    survives("process", &["--userland", "host"]);
}

#[test]
fn data_written_through_an_agent_survives_everything_in_containers() {
    if is_own_machine("data_survives::data_written_through_an_agent_survives_everything_in_containers") {
        survives("container", &[]);
    }
}
