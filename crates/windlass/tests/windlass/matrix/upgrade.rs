//! From stemcells that need a registry to those that do not, and back, with the disk; and a registry that goes away in
//! between.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_agent_client::{Agent, AgentAccess, AgentClient, ClientTls};
use windlass_contract::{AgentId, DiskCid, DiskHint, Secret};
use windlass_pki::Authority;
use windlass_registry::Credentials;
use windlass_registry::server::{Config, Registry};

use super::{Site, WINDLASS};
use windlass_rigs::vm_root;

const BOOT: Duration = Duration::from_secs(60);

/// A director of version 2 by hand, on the embedded cloud.
struct Director {
    site: Site,
    runtime: tokio::runtime::Runtime,
    authority: Authority,
    agents: AgentClient,
    addresses: u8,
    network: [u8; 2],
}

struct Vm {
    cid: String,
    agent_id: AgentId,
    agent: Agent,
    /// The version of its stemcell.
    stemcell: u64,
}

impl Director {
    fn new() -> Self {
        let authority = Authority::new().unwrap();
        let agents = AgentClient::new(ClientTls::new(&authority, &authority.new_client().unwrap())).unwrap();
        let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
        Self {
            site: Site::new("local", json!({"isolation": "process"})),
            runtime: tokio::runtime::Runtime::new().unwrap(),
            authority,
            agents,
            addresses: 10,
            network: [64 + a % 64, b],
        }
    }

    fn registry(&self) -> Registry {
        let database = Secret::new(format!("sqlite:{}", self.site.path("registry.db").display()));
        let writer = Credentials { user: "writer".into(), password: Secret::new("s3cret") };
        let mut config = Config::new(self.site.registry, database, vec![writer]);
        config.count_instances = true;
        self.runtime.block_on(Registry::start(config)).unwrap()
    }

    fn stop(&self, registry: Registry) {
        self.runtime.block_on(registry.stop());
    }

    /// A stemcell of this version, in the cloud.
    fn stemcell(&self, version: u64) -> String {
        let tarball = self.site.path(&format!("stemcell-{version}.tgz"));
        let built = Command::new(WINDLASS)
            .args(["stemcell", "build", "--api-version", &version.to_string(), "--output"])
            .arg(&tarball)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let folder = self.site.path(&format!("stemcell-{version}"));
        std::fs::create_dir(&folder).unwrap();
        windlass_stemcell::unpack(&tarball, &folder).unwrap();
        self.must("create_stemcell", json!([folder.join("image"), {}]), version).as_str().unwrap().to_owned()
    }

    /// One call: a director of version 2 about a stemcell of this version.
    fn call(&self, method: &str, arguments: Value, stemcell: u64) -> Result<Value, String> {
        let context =
            json!({"director_uuid": "d", "request_id": "cpi-1", "vm": {"stemcell": {"api_version": stemcell}}});
        let request = json!({"method": method, "arguments": arguments, "context": context, "api_version": 2});
        let mut child = Command::new(WINDLASS)
            .args(["cpi", "local", "--config"])
            .arg(self.site.path("cpi.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        match &answer["error"] {
            Value::Null => Ok(answer["result"].clone()),
            error => Err(error.to_string()),
        }
    }

    fn must(&self, method: &str, arguments: Value, stemcell: u64) -> Value {
        self.call(method, arguments, stemcell).unwrap()
    }

    /// The arguments of a new VM, and how its agent will be reached.
    fn new_vm(&mut self, stemcell: &str) -> (Value, AgentId, Agent) {
        self.addresses += 1;
        let address = IpAddr::from([127, self.network[0], self.network[1], self.addresses]);
        let agent_id = AgentId::random();
        let access = AgentAccess::new(&self.authority, &agent_id, &[address]).unwrap();
        let network = json!({"type": "manual", "ip": address, "netmask": "255.255.255.0", "gateway": "127.0.0.1",
            "dns": [], "default": ["dns", "gateway"], "cloud_properties": {}});
        let arguments = json!([agent_id, stemcell, {}, {"net": network}, [], {"bosh": access.env}]);
        (arguments, agent_id.clone(), self.agents.agent(access.endpoint(agent_id, vec![address])))
    }

    fn create_vm(&mut self, stemcell: &str, version: u64) -> Vm {
        let (arguments, agent_id, agent) = self.new_vm(stemcell);
        let cid = self.must("create_vm", arguments, version)[0].as_str().unwrap().to_owned();
        self.runtime.block_on(agent.wait_until_ready(BOOT)).unwrap();
        Vm { cid, agent_id, agent, stemcell: version }
    }

    fn attach_and_mount(&self, vm: &Vm, disk: &str) -> PathBuf {
        let hint = DiskHint::try_from(self.must("attach_disk", json!([vm.cid, disk]), vm.stemcell)).unwrap();
        let cid = DiskCid::new(disk).unwrap();
        self.runtime.block_on(vm.agent.add_and_mount_disk(&cid, &hint)).unwrap();
        self.site.path("state").join("vms").join(&vm.cid).join("base/store")
    }

    fn unmount_and_detach(&self, vm: &Vm, disk: &str) {
        self.runtime.block_on(vm.agent.unmount_disk(&DiskCid::new(disk).unwrap())).unwrap();
        self.must("detach_disk", json!([vm.cid, disk]), vm.stemcell);
    }
}

impl Drop for Director {
    /// Whatever a failed test leaves is a process in a folder that goes away.
    fn drop(&mut self) {
        let vms = std::fs::read_dir(self.site.path("state").join("vms")).into_iter().flatten().flatten();
        for vm in vms.filter(|vm| !vm.file_name().as_encoded_bytes().starts_with(b".")) {
            let _ = self.call("delete_vm", json!([vm.file_name().to_string_lossy()]), 2);
        }
    }
}

#[test]
fn a_vm_leaves_the_registry_with_its_disk_and_can_come_back() {
    let mut director = Director::new();
    let registry = director.registry();
    let stemcells = [director.stemcell(1), director.stemcell(2)];
    let disk = director.must("create_disk", json!([64, {}, null]), 1).as_str().unwrap().to_owned();
    let mut written = Vec::new();
    for version in [1, 2, 1] {
        let before = registry.instances();
        let vm = director.create_vm(&stemcells[version as usize - 1], version);
        let store = director.attach_and_mount(&vm, &disk);
        for (name, text) in &written {
            assert_eq!(std::fs::read_to_string(store.join(name)).unwrap(), *text, "of a VM before this one");
        }
        let entry = (format!("from-{}", vm.cid), uuid::Uuid::new_v4().to_string());
        vm_root::write(&store.join(&entry.0), &entry.1);
        written.push(entry);
        if version == 2 {
            assert_eq!(registry.instances(), before, "the registry was touched for a VM that needs none");
        } else {
            assert!(
                registry
                    .instances()
                    .iter()
                    .any(|(id, counts)| counts.writes > 0 && !before.iter().any(|it| it.0 == *id))
            );
        }
        director.unmount_and_detach(&vm, &disk);
        director.must("delete_vm", json!([vm.cid]), version);
        let client = windlass_registry::Client::new(&Secret::new(registry.endpoint())).unwrap();
        let client = client.with_credentials("writer", Secret::new("s3cret"));
        for (id, _) in registry.instances() {
            let record = director.runtime.block_on(client.get(&id)).unwrap();
            assert!(record.is_none(), "the registry still knows {id}, agent {}", vm.agent_id);
        }
    }
    director.stop(registry);
}

#[test]
fn a_registry_that_goes_away_between_any_two_steps_is_named_and_the_step_works_when_it_is_back() {
    let mut director = Director::new();
    let registry = director.registry();
    let stemcell = director.stemcell(1);
    let disk = director.must("create_disk", json!([64, {}, null]), 1).as_str().unwrap().to_owned();
    let endpoint = director.site.registry.to_string();
    let named = |error: &str| assert!(error.contains(&endpoint) && !error.contains("s3cret"), "{error}");

    director.stop(registry);
    let (arguments, agent_id, agent) = director.new_vm(&stemcell);
    named(&director.call("create_vm", arguments.clone(), 1).unwrap_err());
    let left = std::fs::read_dir(director.site.path("state").join("vms")).unwrap().count();
    assert_eq!(left, 0, "a VM that cannot get its settings is of no use");

    let registry = director.registry();
    let cid = director.must("create_vm", arguments, 1)[0].as_str().unwrap().to_owned();
    director.runtime.block_on(agent.wait_until_ready(BOOT)).unwrap();
    let vm = Vm { cid, agent_id, agent, stemcell: 1 };

    director.stop(registry);
    named(&director.call("attach_disk", json!([vm.cid, disk]), 1).unwrap_err());
    let registry = director.registry();
    director.must("attach_disk", json!([vm.cid, disk]), 1);

    director.stop(registry);
    let cid = DiskCid::new(&disk).unwrap();
    let error = director.runtime.block_on(vm.agent.mount_disk(&cid, None)).unwrap_err();
    assert!(error.to_string().contains(&disk), "{error}");
    let registry = director.registry();
    director.runtime.block_on(vm.agent.mount_disk(&cid, None)).unwrap();
    director.runtime.block_on(vm.agent.unmount_disk(&cid)).unwrap();

    director.stop(registry);
    named(&director.call("detach_disk", json!([vm.cid, disk]), 1).unwrap_err());
    let registry = director.registry();
    director.must("detach_disk", json!([vm.cid, disk]), 1);

    director.stop(registry);
    named(&director.call("delete_vm", json!([vm.cid]), 1).unwrap_err());
    let registry = director.registry();
    director.must("delete_vm", json!([vm.cid]), 1);
    director.stop(registry);
}
