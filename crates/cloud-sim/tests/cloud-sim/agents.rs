//! The agents of simulated VMs: CPI calls by real processes, messages over real TLS.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Rig, read_json, request, unique, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_agent_client::{Agent, AgentAccess, AgentClient, CallError, ClientTls, Deadlines};
use windlass_cloud_sim::records::VmRecord;
use windlass_contract::{AgentId, DiskCid, DiskHint, VmCid};
use windlass_pki::Authority;
use windlass_rigs::recording_registry::RecordingRegistry;

const PATIENCE: Duration = Duration::from_secs(30);

/// A simulated cloud, and a caller whom its agents obey.
struct Site {
    rig: Rig,
    authority: Authority,
    client: AgentClient,
    stemcell: Value,
}

/// A VM, and its agent as its director sees it.
struct Vm {
    cid: Value,
    address: IpAddr,
    agent: Agent,
}

impl Site {
    fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(properties: Value) -> Self {
        let authority = Authority::new().unwrap();
        let client = AgentClient::new(ClientTls::new(&authority, &authority.new_client().unwrap())).unwrap();
        let rig = Rig::with(properties);
        let stemcell = rig.stemcell();
        Self { rig, authority, client, stemcell }
    }

    /// A VM with an agent that may be different.
    fn vm(&self, agent: Value) -> Vm {
        self.vm_by(request("create_vm", json!([]), &unique()), agent)
    }

    fn vm_by(&self, mut create: Value, agent: Value) -> Vm {
        let id = AgentId::random();
        let access = AgentAccess::new(&self.authority, &id, &[]).unwrap();
        let networks = json!({"default": {"type": "dynamic"}});
        create["arguments"] = json!([id, self.stemcell, {"agent": agent}, networks, [], {"bosh": access.env}]);
        let answer = self.rig.send(&create, None).unwrap();
        assert_eq!(answer["error"], Value::Null);
        // Version 1 answers the cid alone.
        let cid = answer["result"].get(0).unwrap_or(&answer["result"]).clone();
        let record = self.rig.state().join("vms").join(cid.as_str().unwrap()).join("vm.json");
        let record: VmRecord = serde_json::from_value(read_json(&record)).unwrap();
        let address = record.agent_address().unwrap();
        Vm { cid, address, agent: self.client.agent(access.endpoint(id, vec![address])) }
    }

    /// A VM whose agent answered.
    async fn ready(&self) -> Vm {
        let vm = self.vm(json!({}));
        vm.answers().await;
        vm
    }

    fn disk(&self) -> DiskCid {
        DiskCid::new(self.rig.disk(64).as_str().unwrap()).unwrap()
    }

    fn attach(&self, vm: &Vm, disk: &DiskCid) -> DiskHint {
        serde_json::from_value(self.rig.ok("attach_disk", json!([vm.cid, disk]))).unwrap()
    }

    fn kill_host(&self) {
        let host = self.rig.host().expect("a host");
        host.signal(Signal::KILL).unwrap();
        wait_for(|| (!host.is_running()).then_some(()));
    }
}

impl Vm {
    async fn answers(&self) {
        if let Err(error) = self.agent.wait_until_ready(PATIENCE).await {
            panic!("{error}: {:?}", error.last);
        }
    }

    /// Nobody is there, or the agent of another test's VM, which got the address.
    async fn is_gone(&self) -> bool {
        let brief = Deadlines { message: Duration::from_secs(1), ..Deadlines::default() };
        matches!(self.agent.with_deadlines(brief).ping().await, Err(CallError::Unreachable { .. }))
    }

    /// It has the message, and does not answer.
    async fn is_silent(&self) -> bool {
        let brief = Deadlines { message: Duration::from_millis(300), ..Deadlines::default() };
        matches!(self.agent.with_deadlines(brief).ping().await, Err(CallError::TimedOut { .. }))
    }
}

/// A file on a disk.
fn data(hint: &DiskHint) -> std::path::PathBuf {
    Path::new(hint.get("path").unwrap()).join("data")
}

#[tokio::test]
async fn a_simulated_vm_is_driven_from_its_creation_to_its_deletion() {
    let site = Site::new();
    let vm = site.ready().await;
    let state = vm.agent.get_state(true).await.unwrap();
    assert_eq!((&state.other["agent_id"], &state.other["vm"]["name"]), (&json!(vm.agent.id()), &vm.cid));
    let stranger = Authority::new().unwrap();
    let stranger = ClientTls {
        ca_pem: site.authority.certificate().to_owned(),
        ..ClientTls::new(&stranger, &stranger.new_client().unwrap())
    };
    let (id, access) = (vm.agent.id().clone(), AgentAccess::new(&site.authority, vm.agent.id(), &[]).unwrap());
    let stranger = AgentClient::new(stranger).unwrap().agent(access.endpoint(id, vec![vm.address]));
    assert!(stranger.ping().await.is_err(), "it obeys its director and nobody else");

    let disk = site.disk();
    let hint = site.attach(&vm, &disk);
    vm.agent.add_and_mount_disk(&disk, &hint).await.unwrap();
    assert_eq!(vm.agent.list_disk().await.unwrap(), std::slice::from_ref(&disk));
    fs::write(data(&hint), "precious").unwrap();
    vm.agent.unmount_disk(&disk).await.unwrap();
    assert!(vm.agent.list_disk().await.unwrap().is_empty());
    site.rig.ok("detach_disk", json!([vm.cid, disk]));
    let refused = vm.agent.add_and_mount_disk(&disk, &hint).await.unwrap_err();
    assert!(refused.to_string().contains("check that the disk is attached to this VM"), "{refused}");

    let hint = site.attach(&vm, &disk);
    vm.agent.mount_disk(&disk, None).await.unwrap();
    assert_eq!(fs::read(data(&hint)).unwrap(), b"precious");
    site.rig.ok("delete_vm", json!([vm.cid]));
    assert!(vm.is_gone().await, "when delete_vm has answered");
    assert!(site.rig.list("vms").is_empty());
    assert_eq!(fs::read(site.rig.content("disks", &json!(disk))).unwrap(), b"precious");
}

#[tokio::test]
async fn the_data_of_a_disk_moves_to_the_next_one() {
    let site = Site::new();
    let vm = site.ready().await;
    let (old, new) = (site.disk(), site.disk());
    for disk in [&old, &new] {
        vm.agent.add_and_mount_disk(disk, &site.attach(&vm, disk)).await.unwrap();
    }
    fs::write(site.rig.content("disks", &json!(old)), "precious").unwrap();
    vm.agent.migrate_disk(&old, &new).await.unwrap();
    assert_eq!(fs::read(site.rig.content("disks", &json!(new))).unwrap(), b"precious");
}

#[tokio::test]
async fn an_agent_never_comes_up_comes_late_or_is_slow_as_told() {
    let site = Site::with(json!({"agents": {"latency": 50}}));
    let never = site.vm(json!({"never_up": true}));
    let started = Instant::now();
    let late = site.vm(json!({"delay": 1500, "latency": 0}));
    let slow = site.ready().await;
    let asked = Instant::now();
    slow.agent.ping().await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(50));
    late.answers().await;
    assert!(started.elapsed() >= Duration::from_millis(1500), "it came too early");
    assert!(never.is_gone().await);
    let kept = site.rig.ok("has_vm", json!([never.cid]));
    assert_eq!(kept, json!(true), "the cloud has it all the same");
}

#[tokio::test]
async fn an_agent_stops_answering_after_so_many_messages_or_so_long_as_told() {
    let site = Site::new();
    let counts = site.vm(json!({"silent_after_messages": 3}));
    counts.answers().await;
    counts.agent.ping().await.unwrap();
    counts.agent.ping().await.unwrap();
    assert!(counts.is_silent().await && counts.is_silent().await);
    assert!(!counts.is_gone().await, "it listens, and says nothing");
    site.rig.ok("reboot_vm", json!([counts.cid]));
    counts.answers().await;

    let tires = site.vm(json!({"silent_after": 200}));
    tires.answers().await;
    let deadline = Instant::now() + PATIENCE;
    while !tires.is_silent().await {
        assert!(Instant::now() < deadline, "it answers for ever");
    }
}

#[tokio::test]
async fn a_disk_that_does_not_appear_cannot_be_mounted() {
    let site = Site::with(json!({"faults": [
        {"method": "create_vm", "nth": 2, "fault": "bad_agent", "agent": {"misses_disks": true}}
    ]}));
    let (good, bad) = (site.ready().await, site.ready().await);
    for (vm, is_good) in [(&good, true), (&bad, false)] {
        let disk = site.disk();
        let mounted = vm.agent.add_and_mount_disk(&disk, &site.attach(vm, &disk)).await;
        assert_eq!(mounted.is_ok(), is_good, "{mounted:?}");
        assert_eq!(vm.agent.list_disk().await.unwrap().len(), usize::from(is_good));
    }
}

#[tokio::test]
async fn what_was_switched_off_is_off_until_it_is_rebooted() {
    let site = Site::new();
    let (shut_down, killed) = (site.ready().await, site.ready().await);
    let disk = site.disk();
    shut_down.agent.add_and_mount_disk(&disk, &site.attach(&shut_down, &disk)).await.unwrap();
    shut_down.agent.shutdown().await.unwrap();
    let is_off = || site.rig.status().vms.iter().filter(|vm| vm.is_off).count();
    wait_for(|| (is_off() == 1).then_some(()));
    windlass_cloud_sim::kill(Some(&site.rig.config()), &VmCid::new(killed.cid.as_str().unwrap()).unwrap()).unwrap();
    assert!(shut_down.is_gone().await && killed.is_gone().await && is_off() == 2);

    // Another host finds them as they are.
    site.kill_host();
    let another = site.ready().await;
    assert!(shut_down.is_gone().await && killed.is_gone().await);
    for vm in [&shut_down, &killed] {
        site.rig.ok("reboot_vm", json!([vm.cid]));
        vm.answers().await;
    }
    assert_eq!(shut_down.agent.list_disk().await.unwrap(), [disk], "it is mounted again at the start");
    another.agent.ping().await.unwrap();
}

#[tokio::test]
async fn a_killed_host_is_replaced_by_the_next_call_and_no_agent_is_lost() {
    let site = Site::new();
    let (one, other) = (site.ready().await, site.ready().await);
    let (disk, second) = (site.disk(), site.disk());
    one.agent.add_and_mount_disk(&disk, &site.attach(&one, &disk)).await.unwrap();
    site.kill_host();
    assert!(one.is_gone().await && other.is_gone().await);
    site.attach(&other, &second);
    one.answers().await;
    other.answers().await;
    assert_eq!(one.agent.list_disk().await.unwrap(), [disk]);
}

#[tokio::test]
async fn of_hosts_that_start_at_once_one_stays() {
    let site = Site::new();
    let first = site.ready().await;
    site.kill_host();
    // Several calls find no host, and each starts one.
    let vms: Vec<Vm> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| site.vm(json!({})))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    for vm in vms.iter().chain([&first]) {
        vm.answers().await;
    }
    let state = site.rig.state();
    let hosts = || {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path().join("cmdline"));
        let command_lines = processes.filter_map(|path| String::from_utf8(fs::read(path).ok()?).ok());
        command_lines.filter(|line| line.contains("sim-host") && line.contains(state.to_str().unwrap())).count()
    };
    wait_for(|| (hosts() == 1).then_some(()));
    // One that is started by hand leaves them to it, too.
    let mut late = Command::new(env!("CARGO_BIN_EXE_sim-cpi"));
    let late = late.arg("sim-host").arg(&state).stdin(Stdio::null()).output().unwrap();
    assert!(late.status.success(), "{late:?}");
    assert_eq!(hosts(), 1);
}

#[tokio::test]
async fn a_host_ends_with_its_state_folder_and_when_there_are_no_vms() {
    let site = Site::new();
    let vm = site.ready().await;
    let host = site.rig.host().unwrap();
    // Gone at once, whatever the agents write into it.
    fs::rename(site.rig.state(), site.rig.path("elsewhere")).unwrap();
    wait_for(|| (!host.is_running()).then_some(()));
    assert!(vm.is_gone().await);

    let site = Site::new();
    let vm = site.ready().await;
    let host = site.rig.host().unwrap();
    site.rig.ok("delete_vm", json!([vm.cid]));
    wait_for(|| (!host.is_running()).then_some(()));
    site.ready().await;
}

#[tokio::test]
async fn an_address_that_does_not_exist_here_has_no_agent_and_needs_no_host() {
    let site = Site::new();
    let networks = json!({"a": {"type": "manual", "ip": "10.0.0.9"}});
    site.rig.ok("create_vm", json!([unique(), site.stemcell, {}, networks, [], {}]));
    let vms = site.rig.status().vms;
    assert_eq!((vms[0].agent_address(), site.rig.host()), (None, None));

    // With several, the one of the network with the gateway.
    let networks = json!({"a": {"type": "manual", "ip": "127.194.0.9"},
        "b": {"type": "manual", "ip": "127.194.0.10", "default": ["dns", "gateway"]}, "c": {"type": "manual", "ip": "10.0.0.8"}});
    let never = json!({"agent": {"never_up": true}});
    let created = site.rig.ok("create_vm", json!([unique(), site.stemcell, never, networks, [], {}]));
    let vms = site.rig.status().vms;
    let vm = vms.iter().find(|vm| vm.cid.as_str() == created[0]).unwrap();
    assert_eq!(vm.agent_address().unwrap().to_string(), "127.194.0.10");
}

/// An agent from before version 2 finds its settings and its disks in the registry, and knows no hints.
#[tokio::test]
async fn the_agent_of_an_old_stemcell_gets_its_settings_from_the_registry() {
    let site = Site::new();
    let registry = RecordingRegistry::start();
    let mut old = request("create_vm", json!([]), &unique());
    let properties =
        json!({"endpoint": format!("http://{}", registry.address()), "user": "admin", "password": "secret"});
    old["context"]["registry"] = properties.clone();
    old["context"]["vm"]["stemcell"]["api_version"] = json!(1);
    let vm = site.vm_by(old.clone(), json!({}));
    vm.answers().await;
    let disk = site.disk();
    let mut attach = request("attach_disk", json!([vm.cid, disk]), &unique());
    attach["context"] = old["context"].clone();
    attach["context"]["request_id"] = json!(unique());
    let hint = site.rig.send(&attach, None).unwrap()["result"].clone();
    assert!(hint["path"].is_string(), "the hint follows the request's version: {hint}");
    let unknown = vm.agent.call("add_persistent_disk", vec![json!(disk), hint]).await.unwrap_err();
    assert!(unknown.is_unknown_message(), "{unknown}");
    vm.agent.mount_disk(&disk, None).await.unwrap();
    assert_eq!(vm.agent.list_disk().await.unwrap(), [disk]);
    let asked = registry.take();
    assert!(asked.iter().any(|asked| asked.method == "GET" && asked.user != "admin"), "with credentials of its own");
}

/// What a director with many VMs needs: few descriptors and threads for each, and all of them back after a restart.
/// `WINDLASS_SIM_AGENTS=5000` shows that this holds for as many.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_agents_share_a_process() {
    const CALLERS: usize = 4;
    let wanted = std::env::var("WINDLASS_SIM_AGENTS").map_or(200, |number| number.parse().unwrap());
    let site = Site::new();
    let vms: Vec<Vm> = std::thread::scope(|scope| {
        let create = || (0..wanted / CALLERS).map(|_| site.vm(json!({}))).collect::<Vec<_>>();
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(create)).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    for round in ["as they came", "after a restart"] {
        let started = Instant::now();
        for vm in &vms {
            vm.answers().await;
        }
        let process = Path::new("/proc").join(site.rig.host().unwrap().pid.to_string());
        let count = |what: &str| fs::read_dir(process.join(what)).unwrap().count();
        let (descriptors, threads) = (count("fd"), count("task"));
        let status = fs::read_to_string(process.join("status")).unwrap();
        let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        let agents = vms.len();
        println!(
            "{round}, {agents} agents: {descriptors} descriptors, {threads} threads, {memory}, {:?}",
            started.elapsed()
        );
        // A listening socket each, and the connection that just answered.
        assert!(descriptors < 2 * agents + 50, "{descriptors} descriptors for {agents} agents");
        assert!(threads < 80, "{threads} threads for {agents} agents");
        if round == "as they came" {
            site.kill_host();
            site.rig.ok("reboot_vm", json!([vms[0].cid]));
        }
    }
}

/// As with clouds of containers: a machine that is made again with its disks, and gets its settings after its agent runs.
#[tokio::test]
async fn a_vm_that_is_made_again_by_attach_disk_has_its_disk_and_an_agent_that_forgot_everything() {
    let site = Site::with(json!({"attach_disk": "recreate", "agents": {"delay": 200, "settings_delay": 300}}));
    let vm = site.vm(json!({}));
    let begun = Instant::now();
    vm.answers().await;
    assert!(begun.elapsed() >= Duration::from_millis(400), "it came up after {:?}", begun.elapsed());
    let (first, second) = (site.disk(), site.disk());
    let hint = site.attach(&vm, &first);
    assert!(vm.is_gone().await, "it is away for a while");
    vm.answers().await;
    vm.agent.add_and_mount_disk(&first, &hint).await.unwrap();
    fs::write(data(&hint), "precious").unwrap();

    // Asked again, it has the disk already, and stays as it is.
    assert_eq!(site.attach(&vm, &first), hint);
    assert_eq!(vm.agent.list_disk().await.unwrap(), std::slice::from_ref(&first));

    let second_hint = site.attach(&vm, &second);
    vm.answers().await;
    assert!(vm.agent.list_disk().await.unwrap().is_empty(), "nobody told the new machine about its disks");
    for (disk, hint) in [(&first, &hint), (&second, &second_hint)] {
        vm.agent.add_and_mount_disk(disk, hint).await.unwrap();
    }
    assert_eq!(fs::read_to_string(data(&hint)).unwrap(), "precious");
    let record = &site.rig.status().vms[0];
    assert_eq!((record.boots, record.is_off), (3, false));
}
