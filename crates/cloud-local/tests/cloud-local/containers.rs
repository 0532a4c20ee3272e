//! VMs as containers, on a machine of their own each: what a director, an operator and the machine's owner can rely on.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::rig::own_machine::{STAYING, answers, is_own_machine, said, system};
use crate::rig::{Rig, kill_hard, read_json, request, runs, wait_for};
use serde_json::{Value, json};
use sha2::Digest;
use windlass_cloud_local::LocalCloud;

fn manual(ip: &str) -> Value {
    json!({"default": {"type": "manual", "ip": ip, "netmask": "255.255.255.0", "gateway": "10.77.0.1"}})
}

#[test]
fn a_container_is_reached_at_all_its_addresses() {
    if !is_own_machine("containers::a_container_is_reached_at_all_its_addresses") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let networks = json!({
        "a": {"type": "manual", "ip": "10.77.0.5", "netmask": "255.255.255.0", "gateway": "10.77.0.1",
            "default": ["dns", "gateway"], "dns": ["10.77.0.2"], "prefix": "32", "nic_group": "0"},
        "b": {"type": "manual", "ip": "10.78.0.5", "netmask": "255.255.0.0", "gateway": "10.78.0.1"},
        "c": {"type": "manual", "ip": "fd00:7::5", "netmask": "ffff:ffff:ffff:ffff::", "gateway": "fd00:7::1",
            "default": ["gateway"]},
        "d": {"type": "dynamic"},
        "e": {"type": "vip", "ip": "192.0.2.9"},
    });
    let created = rig.ok("create_vm", rig.container_arguments(&stemcell, networks));
    let (cid, networks) = (created[0].as_str().unwrap(), &created[1]);
    assert_eq!((&networks["a"]["nic_group"], &networks["a"]["prefix"]), (&json!("0"), &json!("32")));
    let dynamic = networks["d"]["ip"].as_str().unwrap();
    for address in ["10.77.0.5", "10.78.0.5", "fd00:7::5", dynamic, "192.0.2.9"] {
        assert!(answers(address), "{address}");
    }
    let interfaces = rig.inside(cid, "ip -o addr");
    assert!(interfaces.contains("inet 10.77.0.5/24") && interfaces.contains("inet 10.78.0.5/16"), "{interfaces}");
    let defaults = |family: &str| rig.inside(cid, &format!("ip {family} route")).matches("default via").count();
    assert!(rig.inside(cid, "ip route").contains("default via 10.77.0.1"));
    assert!(rig.inside(cid, "ip -6 route").contains("default via fd00:7::1"));
    assert_eq!((defaults("-4"), defaults("-6")), (1, 1), "one way out per family");
    assert_eq!(fs::read_to_string(rig.file(cid, "etc/resolv.conf")).unwrap(), "nameserver 10.77.0.2\n");

    let settings = rig.file(cid, "var/vcap/bosh/warden-cpi-agent-env.json");
    assert_eq!(fs::metadata(&settings).unwrap().permissions().mode() & 0o777, 0o600);
    let settings = read_json(&settings);
    assert!(settings["networks"].as_object().unwrap().values().all(|network| network["preconfigured"] == true));
    assert_eq!(
        settings["env"]["bosh"]["mbus"]["urls"][0], "https://user:hunter2@0.0.0.0:6868",
        "env is passed verbatim"
    );
    assert_eq!(settings["networks"]["d"]["ip"], dynamic);
}

#[test]
fn a_container_has_a_root_processes_and_limits_of_its_own() {
    if !is_own_machine("containers::a_container_has_a_root_processes_and_limits_of_its_own") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let mut arguments = rig.container_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
    arguments[2] = json!({"memory": 48, "cpus": 0.5});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    let other = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));

    assert_eq!(rig.inside(cid, "hostname").trim(), cid);
    // BOSH's agent would make it for root alone.
    let data = fs::metadata(rig.file(cid, "var/vcap/data")).unwrap().permissions().mode();
    assert_eq!(data & 0o777, 0o755, "jobs that run as vcap have everything below it");
    rig.inside(cid, "echo mine > /etc/motd");
    assert!(!rig.file(&other, "etc/motd").exists(), "what one VM writes no other sees");
    let root = rig.state().join("stemcells").join(stemcell.as_str().unwrap()).join("root");
    assert!(!root.join("etc/motd").exists(), "nor does the stemcell");
    let pid: u32 = wait_for(|| fs::read_to_string(rig.file(cid, "var/vcap/pid")).ok()?.trim().parse().ok());
    assert!(pid < 20, "processes are counted anew: {pid}");
    assert!(!rig.inside(cid, "cat /proc/mounts").contains(rig.path("").join("cpi.json").to_str().unwrap()));
    let hungry = rig.inside(cid, "dd if=/dev/zero of=/dev/null bs=200M count=1; echo $?");
    assert!(hungry.trim() != "0", "more memory than the VM has: {hungry}");
    // Either version of control groups.
    let limit = ["memory", ""].iter().find_map(|hierarchy| {
        let group = std::path::Path::new("/sys/fs/cgroup").join(hierarchy).join(format!("windlass-{cid}"));
        ["memory.limit_in_bytes", "memory.max"].iter().find_map(|file| fs::read_to_string(group.join(file)).ok())
    });
    assert_eq!(limit.unwrap().trim(), (48 << 20).to_string());
    for command in ["echo 1 > /proc/sysrq-trigger", "echo 1 > /proc/sys/vm/drop_caches"] {
        let refused = rig.inside(cid, &format!("({command}) && echo did it"));
        assert!(!refused.contains("did it"), "{command}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", rig.init(cid))).unwrap();
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let bounds = u64::from_str_radix(bounds.trim(), 16).unwrap();
    for (name, number) in
        [("load modules", 16), ("look into processes", 19), ("set the clock", 25), ("make devices", 27)]
    {
        assert_eq!(bounds & 1 << number, 0, "nothing in a VM may {name}");
    }
}

#[test]
fn version_2_of_control_groups_will_do() {
    if !is_own_machine("containers::version_2_of_control_groups_will_do") {
        return;
    }
    said("mount", &["-t", "cgroup2", "none", "/sys/fs/cgroup"]);
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    // Without limits: what version 1 has of this machine's resources, version 2 cannot have.
    let mut arguments = rig.vm_arguments(&stemcell, manual("10.77.0.5"));
    arguments[2] = json!({});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    rig.remember(cid);
    let members = fs::read_to_string(format!("/sys/fs/cgroup/windlass-{cid}/cgroup.procs")).unwrap();
    assert!(members.lines().any(|pid| pid == rig.init(cid).to_string()), "{members}");
    kill_hard(rig.supervisor(cid));
    rig.ok("reboot_vm", json!([cid]));
    assert!(answers("10.77.0.5"));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());

    // The group itself must be free of processes where containers in the VM have limits.
    let mut arguments = rig.vm_arguments(&stemcell, manual("10.77.0.5"));
    arguments[2] = json!({"nesting": true});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    rig.remember(cid);
    let group = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/windlass-{cid}/{file}")).unwrap();
    assert_eq!(group("cgroup.procs"), "");
    assert!(group("init/cgroup.procs").lines().any(|pid| pid == rig.init(cid).to_string()));
    assert_eq!(group("cgroup.subtree_control"), group("cgroup.controllers"));
    rig.ok("reboot_vm", json!([cid]));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
}

#[test]
fn a_deleted_container_leaves_no_trace_and_its_bridge_goes_with_the_last() {
    if !is_own_machine("containers::a_deleted_container_leaves_no_trace_and_its_bridge_goes_with_the_last") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let mut networks = manual("10.77.0.5");
    networks["vip"] = json!({"type": "vip", "ip": "192.0.2.9"});
    let (one, other) = (rig.container(&stemcell, networks), rig.container(&stemcell, manual("10.77.0.6")));
    assert!(rig.inside(&one, "ping -c 1 -W 2 10.77.0.6").contains("1 packets received"), "neighbours see each other");
    assert_eq!(said("ip", &["-o", "link"]).matches(": wl-").count(), 1);
    rig.ok("delete_vm", json!([one]));
    assert!(answers("10.77.0.6") && !answers("192.0.2.9"));
    rig.ok("delete_vm", json!([other]));
    assert_eq!(rig.traces(), Vec::<String>::new());
    assert!(rig.list("vms").is_empty());
    rig.ok("delete_vm", json!([other]));
}

#[test]
fn addresses_and_routes_of_the_machine_are_left_alone() {
    if !is_own_machine("containers::addresses_and_routes_of_the_machine_are_left_alone") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    said("ip", &["link", "add", "office", "type", "bridge"]);
    said("ip", &["link", "set", "office", "up"]);
    said("ip", &["addr", "add", "10.50.0.1/24", "dev", "office"]);
    said("ip", &["route", "add", "10.60.0.0/16", "dev", "office"]);
    said("ip", &["addr", "add", "fd00:50::1/64", "dev", "office", "nodad"]);
    let vip = json!({"a": {"type": "dynamic"}, "b": {"type": "vip", "ip": "10.50.0.77"}});
    let v6 = json!({"a": {"ip": "fd00:50::7", "netmask": "ffff:ffff:ffff:ffff::"}});
    let within = |ip: &str| json!({"a": {"type": "manual", "ip": ip, "netmask": "255.255.255.0"}});
    let wide = json!({"a": {"type": "manual", "ip": "10.0.0.7", "netmask": "255.0.0.0"}});
    for networks in [within("10.50.0.7"), within("10.60.3.7"), wide, v6, vip] {
        let error = rig.refused("create_vm", rig.container_arguments(&stemcell, networks));
        assert!(error.contains("overlaps") && error.contains("office"), "{error}");
        assert!(rig.list("vms").is_empty() && rig.traces().is_empty());
    }
    let range = rig.refused("create_network", json!([{"type": "manual", "range": "10.60.1.0/24"}]));
    assert!(range.contains("overlaps 10.60.0.0/16 on office"), "{range}");
    let vm = rig.container(&stemcell, within("10.61.0.7"));
    let overlapping = json!({"a": {"type": "manual", "ip": "10.61.9.9", "netmask": "255.255.0.0"}});
    let error = rig.refused("create_vm", rig.container_arguments(&stemcell, overlapping));
    assert!(error.contains("overlaps 10.61.0.0/24"), "{error}");
    rig.ok("delete_vm", json!([vm]));
}

#[test]
fn an_address_has_one_holder_running_or_not_and_conflicts_name_it() {
    if !is_own_machine("containers::an_address_has_one_holder_running_or_not_and_conflicts_name_it") {
        return;
    }
    let (rig, neighbour) = (Rig::of_containers(), Rig::of_containers());
    let stemcell = rig.system_stemcell();
    let holder = rig.container(&stemcell, manual("10.77.0.5"));
    for state in ["running", "off"] {
        let error = rig.refused("create_vm", rig.container_arguments(&stemcell, manual("10.77.0.5")));
        assert!(error.starts_with("Bosh::Clouds::VMCreationFailed") && error.contains(&holder), "{state}: {error}");
        kill_hard(rig.supervisor(&holder));
    }
    let gateway = rig.refused("create_vm", rig.container_arguments(&stemcell, manual("10.77.0.1")));
    assert!(gateway.contains("this machine"), "{gateway}");
    let elsewhere = neighbour.system_stemcell();
    let error = neighbour.refused("create_vm", neighbour.container_arguments(&elsewhere, manual("10.77.0.6")));
    assert!(error.contains("overlaps"), "another cloud of this machine has the subnet: {error}");
    assert_eq!(rig.list("vms"), [holder]);
}

#[test]
fn a_container_reaches_out_only_where_it_is_configured() {
    if !is_own_machine("containers::a_container_reaches_out_only_where_it_is_configured") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    // Another machine, one hop away, that knows nothing of our subnets.
    let mut other = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
    let pid = other.id().to_string();
    wait_for(|| {
        (fs::read_link(format!("/proc/{pid}/ns/net")).ok()? != fs::read_link("/proc/self/ns/net").ok()?).then_some(())
    });
    for command in [
        &["ip", "link", "add", "out0", "type", "veth", "peer", "name", "in0", "netns", &pid][..],
        &["ip", "addr", "add", "203.0.113.1/24", "dev", "out0"],
        &["ip", "link", "set", "out0", "up"],
        &["nsenter", "-t", &pid, "-n", "ip", "addr", "add", "203.0.113.2/24", "dev", "in0"],
        &["nsenter", "-t", &pid, "-n", "ip", "link", "set", "in0", "up"],
        // So that only the lack of our rule could keep a VM from reaching it.
        &["nsenter", "-t", &pid, "-n", "ip", "route", "add", "10.77.0.0/24", "via", "203.0.113.1"],
    ] {
        said(command[0], &command[1..]);
    }
    let forwarding = "/proc/sys/net/ipv4/ip_forward";
    assert_eq!(fs::read_to_string(forwarding).unwrap().trim(), "0");
    let reaches = |cid: &str| rig.inside(cid, "ping -c 1 -W 2 203.0.113.2").contains("1 packets received");
    let vm = rig.container(&stemcell, manual("10.77.0.5"));
    assert!(answers("203.0.113.2") && !reaches(&vm));
    assert_eq!(fs::read_to_string(forwarding).unwrap().trim(), "0", "the machine's forwarding is not touched");
    fs::write(forwarding, "1").unwrap();
    assert!(!reaches(&vm), "not even on a machine that forwards for others");
    rig.ok("delete_vm", json!([vm]));
    fs::write(forwarding, "0").unwrap();

    said("nsenter", &["-t", &pid, "-n", "ip", "route", "del", "10.77.0.0/24"]);
    rig.configure(json!({"state_dir": rig.state(), "isolation": "container", "outbound": true}));
    let vm = rig.container(&stemcell, manual("10.77.0.5"));
    assert!(reaches(&vm), "{}", said("nft", &["list", "ruleset"]));
    rig.ok("delete_vm", json!([vm]));
    assert_eq!(rig.traces(), Vec::<String>::new());
    assert!(!said("nft", &["list", "ruleset"]).contains("windlass"));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn an_agent_that_ends_starts_again_among_its_mounts() {
    if !is_own_machine("containers::an_agent_that_ends_starts_again_among_its_mounts") {
        return;
    }
    let rig = Rig::of_containers();
    let agent = "#!/bin/sh\n[ -e /mnt/here ] || mount -t tmpfs none /mnt\ntouch /mnt/here\necho $$ >> /var/vcap/pids\n\
                 exec sleep 1000\n";
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, agent, &[]), {}]));
    let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
    let init = rig.init(&cid);
    let starts = || {
        let text = fs::read_to_string(rig.file(&cid, "var/vcap/pids")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = wait_for(|| starts().first().cloned());
    rig.inside(&cid, &format!("kill -9 {first}"));
    wait_for(|| (starts().len() > 1).then_some(()));
    assert_eq!(rig.init(&cid), init);
    assert_eq!(rig.inside(&cid, "cat /proc/mounts").matches(" /mnt ").count(), 1);
    let console = fs::read_to_string(rig.vm_folder(&cid).join("console.log")).unwrap();
    assert!(console.contains("the agent ended with signal 9"), "{console}");
    // The agent's log says the same.
    let log = fs::read_to_string(rig.file(&cid, "var/vcap/bosh/log/current")).unwrap();
    assert!(log.contains("the agent ended with signal 9"), "{log}");
}

#[test]
fn an_agent_finds_the_programs_beside_it() {
    if !is_own_machine("containers::an_agent_finds_the_programs_beside_it") {
        return;
    }
    let rig = Rig::of_containers();
    let agent = "#!/bin/sh\nbosh-agent-rc > /var/vcap/said 2>&1\nexec sleep 1000\n";
    let beside = [("var/vcap/bosh/bin/bosh-agent-rc", "#!/bin/sh\necho called\n")];
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, agent, &beside), {}]));
    let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
    let said =
        wait_for(|| fs::read_to_string(rig.file(&cid, "var/vcap/said")).ok().filter(|text| text.ends_with('\n')));
    assert_eq!(said, "called\n", "the original agent does not boot without it");
}

#[test]
fn each_kind_of_init_runs_first() {
    if !is_own_machine("containers::each_kind_of_init_runs_first") {
        return;
    }
    let rig = Rig::of_containers();
    let init = "#!/bin/sh\necho $0 is $$ > /tmp/init\ntrap 'exit 0' HUP INT\nwhile true; do sleep 1; done\n";
    let runit = system(&rig, STAYING, &[("usr/sbin/runsvdir-start", init)]);
    let runit = rig.ok("create_stemcell", json!([runit, {}]));
    let systemd = [("sbin/init", init), ("lib/systemd/system/bosh-agent.service", "")];
    let systemd = rig.ok("create_stemcell", json!([system(&rig, STAYING, &systemd), {}]));
    for (stemcell, program) in [(runit, "/usr/sbin/runsvdir-start"), (systemd, "/sbin/init")] {
        let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
        let said = wait_for(|| fs::read_to_string(rig.file(&cid, "tmp/init")).ok().filter(|text| text.ends_with('\n')));
        assert_eq!(said, format!("{program} is 1\n"));
        // Else an init that makes groups would make them among the machine's own.
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", rig.init(&cid))).unwrap();
        assert!(groups.lines().all(|line| line.ends_with(&format!(":/windlass-{cid}"))), "{groups}");
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(rig.traces(), Vec::<String>::new());
}

#[test]
fn a_container_comes_back_after_the_machine_lost_everything_but_its_files() {
    if !is_own_machine("containers::a_container_comes_back_after_the_machine_lost_everything_but_its_files") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let cid = rig.container(&stemcell, manual("10.77.0.5"));
    let (supervisor, init) = (rig.supervisor(&cid), rig.init(&cid));
    rig.inside(&cid, "echo kept > /etc/motd");
    kill_hard(supervisor);
    wait_for(|| (!runs(init)).then_some(()));
    assert_eq!(rig.ok("has_vm", json!([cid])), json!(true), "a VM that is off exists");
    let bridge =
        read_json(&rig.vm_folder(&cid).join("vm.json"))["container"]["wiring"]["interfaces"][0]["bridge"].clone();
    said("ip", &["link", "del", bridge.as_str().unwrap()]);
    said("umount", &[rig.vm_folder(&cid).join("disks").to_str().unwrap()]);
    rig.ok("reboot_vm", json!([cid]));
    assert!(answers("10.77.0.5"));
    assert_eq!(fs::read_to_string(rig.file(&cid, "etc/motd")).unwrap(), "kept\n");
    let init = rig.init(&cid);
    rig.ok("reboot_vm", json!([cid]));
    assert!(!runs(init) && answers("10.77.0.5"));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
    assert!(rig.refused("reboot_vm", json!([cid])).starts_with("Bosh::Clouds::VMNotFound"));
}

#[test]
fn auto_takes_what_the_machine_allows() {
    if !is_own_machine("containers::auto_takes_what_the_machine_allows") {
        return;
    }
    let rig = Rig::new();
    rig.configure(json!({"state_dir": rig.state()}));
    let stemcell = rig.system_stemcell();
    let isolation = |cid: &Value| read_json(&rig.vm_folder(cid.as_str().unwrap()).join("vm.json"))["isolation"].clone();
    let container = rig.ok("create_vm", rig.container_arguments(&stemcell, json!({"a": {"type": "dynamic"}})));
    assert_eq!(isolation(&container[0]), "container");
    let loopback = json!({"a": {"type": "manual", "ip": crate::rig::address()}});
    let process = rig.ok("create_vm", rig.vm_arguments(&rig.stemcell(), loopback));
    assert_eq!(isolation(&process[0]), "process");

    // Root in name only.
    let powerless = ["--bounding-set", "-all", "--inh-caps", "-all"];
    let weak = |isolation: &str| {
        rig.configure(json!({"state_dir": rig.path("weak"), "isolation": isolation}));
        let asked = crate::rig::request("create_network", json!([{"type": "manual", "netmask_bits": 24}]), "cpi-1");
        let request = rig.path("request");
        fs::write(&request, asked.to_string()).unwrap();
        let output = Command::new("setpriv")
            .args(powerless)
            .args([env!("CARGO_BIN_EXE_local-cpi"), "cpi"])
            .arg(rig.path("cpi.json"))
            .stdin(fs::File::open(request).unwrap())
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let range = weak("auto")["result"][1]["range"].as_str().unwrap().to_owned();
    assert!(range.starts_with("127."), "{range}");
    let error = weak("container")["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("no containers") && error.contains("'process'"), "{error}");
    rig.configure(json!({"state_dir": rig.state()}));
}

#[test]
fn what_cannot_be_a_container_is_refused_and_leaves_nothing() {
    if !is_own_machine("containers::what_cannot_be_a_container_is_refused_and_leaves_nothing") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let dynamic = json!({"a": {"type": "dynamic"}});
    let refused = |stemcell: &Value, properties: Value, networks: &Value| {
        let mut arguments = rig.vm_arguments(stemcell, networks.clone());
        arguments[2] = properties;
        rig.refused("create_vm", arguments)
    };
    for (properties, words) in [
        (json!({"memory": 1}), "at least 16 MiB"),
        (json!({"memory": -5}), "above zero"),
        (json!({"cpus": "all"}), "above zero"),
        (json!({"ephemeral_disk": 1u64 << 38}), "NoDiskSpace"),
    ] {
        let error = refused(&stemcell, properties, &dynamic);
        assert!(error.contains(words), "{error}");
    }
    let loopback =
        refused(&stemcell, json!({}), &json!({"a": {"type": "manual", "ip": "127.0.0.9", "netmask": "255.0.0.0"}}));
    assert!(loopback.contains("process isolation"), "{loopback}");
    let elsewhere =
        json!({"Infrastructure": {"Settings": {"Sources": [{"Type": "CDROM", "FileName": "env"}]}}}).to_string();
    let image = system(&rig, STAYING, &[("var/vcap/bosh/agent.json", &elsewhere)]);
    let vsphere = rig.ok("create_stemcell", json!([image, {}]));
    assert!(refused(&vsphere, json!({}), &dynamic).contains("use a stemcell for containers"));
    // As the original's stemcells for containers have it, also those from before version 2.
    let warden = json!({"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/env.json"}]}}});
    let image = system(&rig, STAYING, &[("var/vcap/bosh/agent.json", &warden.to_string())]);
    let warden = rig.ok("create_stemcell", json!([image, {}]));
    let mut old = request("create_vm", rig.container_arguments(&warden, dynamic.clone()), "cpi-1");
    old["context"]["vm"]["stemcell"]["api_version"] = json!(1);
    old["context"]["registry"] = json!({"endpoint": "http://127.0.0.1:1", "user": "writer", "password": "s3cret"});
    let error = rig.send(&old, None).unwrap()["error"].to_string();
    assert!(error.contains("never asks a registry"), "it would wait for its settings for ever: {error}");
    let broken = rig.ok("create_stemcell", json!([system(&rig, "#!/bin/missing\n", &[]), {}]));
    let error = refused(&broken, json!({}), &dynamic);
    assert!(error.starts_with("Bosh::Clouds::VMCreationFailed") && error.contains("cannot run"), "{error}");
    assert!(rig.list("vms").is_empty() && rig.traces().is_empty(), "{:?} {:?}", rig.list("vms"), rig.traces());
}

#[test]
fn light_stemcells_are_used_where_they_are_and_windows_is_refused() {
    if !is_own_machine("containers::light_stemcells_are_used_where_they_are_and_windows_is_refused") {
        return;
    }
    let rig = Rig::of_containers();
    let images = rig.path("images");
    let folder = images.join("root");
    fs::create_dir_all(&folder).unwrap();
    said("tar", &["xzf", system(&rig, STAYING, &[]).to_str().unwrap(), "-C", folder.to_str().unwrap()]);
    let empty = rig.path("empty");
    fs::write(&empty, "").unwrap();
    let layout = oci_layout(&images, &system(&rig, STAYING, &[]));
    rig.configure(json!({"state_dir": rig.state(), "isolation": "container", "image_folders": [images]}));
    let by_folder = [folder.to_str().unwrap().to_owned(), format!("dir:{}", folder.display())];
    for reference in by_folder.into_iter().chain([format!("oci:{layout}"), format!("oci:{layout}:latest")]) {
        let stemcell = rig.ok("create_stemcell", json!([empty, {"image_reference": reference}]));
        let cid = rig.container(&stemcell, manual("10.77.0.5"));
        assert!(answers("10.77.0.5"));
        rig.inside(&cid, "echo x > /etc/written");
        rig.ok("delete_vm", json!([cid]));
        rig.ok("delete_stemcell", json!([stemcell]));
    }
    assert!(folder.join("bin/busybox").exists() && !folder.join("etc/written").exists());
    let fetched = rig.refused("create_stemcell", json!([empty, {"image_reference": "cf/stemcell:1.2"}]));
    assert!(fetched.contains("nothing is fetched"), "{fetched}");
    std::os::unix::fs::symlink(rig.state(), images.join("state")).unwrap();
    for elsewhere in [rig.state(), rig.path("not there"), images.join("state"), images.join("../state"), "/etc".into()]
    {
        let elsewhere = elsewhere.display();
        for reference in [format!("dir:{elsewhere}"), format!("oci:{elsewhere}:latest")] {
            let refused = rig.refused("create_stemcell", json!([empty, {"image_reference": reference}]));
            assert!(refused.contains("'image_folders'"), "{reference}: {refused}");
        }
    }
    rig.configure(json!({"state_dir": rig.state(), "isolation": "container"}));
    let unnamed =
        rig.refused("create_stemcell", json!([empty, {"image_reference": format!("dir:{}", folder.display())}]));
    assert!(unnamed.contains("'image_folders'"), "{unnamed}");
    let windows = rig.refused("create_stemcell", json!([system(&rig, STAYING, &[]), {"os_type": "windows"}]));
    assert!(windows.starts_with("Bosh::Clouds::NotSupported") && windows.contains("Windows"), "{windows}");
    assert!(rig.list("stemcells").is_empty());
}

/// An OCI layout whose one image has one layer.
fn oci_layout(images: &std::path::Path, layer: &std::path::Path) -> String {
    let layout = images.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let store = |kind: &str, content: &[u8]| {
        let digest: String = sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(blobs.join(&digest), content).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"),
            "size": content.len()})
    };
    let layer = store("layer.v1.tar+gzip", &fs::read(layer).unwrap());
    let config = store("config.v1+json", b"{}");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = store("manifest.v1+json", manifest.to_string().as_bytes());
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "latest"});
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string()).unwrap();
    layout.to_str().unwrap().to_owned()
}

#[test]
fn an_operator_is_told_of_bridges_that_are_missing_or_left_over() {
    if !is_own_machine("containers::an_operator_is_told_of_bridges_that_are_missing_or_left_over") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let cid = rig.container(&stemcell, manual("10.77.0.5"));
    let cloud = LocalCloud::configured(&rig.config()).unwrap();
    let problems = || cloud.status().unwrap().problems;
    assert_eq!(problems(), []);
    let record = read_json(&rig.vm_folder(&cid).join("vm.json"));
    let bridge = record["container"]["wiring"]["interfaces"][0]["bridge"].as_str().unwrap().to_owned();
    said("ip", &["link", "del", &bridge]);
    let [problem] = problems().try_into().unwrap();
    assert!(problem.what == cid && problem.why.contains("is gone") && !problem.is_garbage(), "{problem:?}");
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(problems(), []);
    rig.ok("delete_vm", json!([cid]));

    // One of this cloud, and one of somebody else's.
    for (name, address) in [(bridge.as_str(), "10.77.0.1/24"), ("wl-00000000", "10.99.0.1/24")] {
        said("ip", &["link", "add", name, "type", "bridge"]);
        said("ip", &["addr", "add", address, "dev", name]);
    }
    let [problem] = problems().try_into().unwrap();
    assert!(problem.what == bridge && problem.is_garbage(), "{problem:?}");
    cloud.collect(&problem).unwrap();
    assert_eq!(problems(), []);
    let links = said("ip", &["-o", "link"]);
    assert!(!links.contains(&bridge) && links.contains("wl-00000000"), "{links}");
    said("ip", &["link", "del", "wl-00000000"]);
}

#[test]
fn networks_that_are_made_get_ranges_of_their_own() {
    if !is_own_machine("containers::networks_that_are_made_get_ranges_of_their_own") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let made: Vec<Value> = (0..3)
        .map(|_| {
            rig.ok("create_network", json!([{"type": "manual", "netmask_bits": 24, "cloud_properties": {"a": 1}}]))
        })
        .collect();
    let ranges: BTreeSet<&str> = made.iter().map(|network| network[1]["range"].as_str().unwrap()).collect();
    assert_eq!(ranges.len(), 3);
    assert_eq!(made[0][2]["a"], 1);
    let range = made[0][1]["range"].as_str().unwrap();
    let taken = rig.refused("create_network", json!([{"type": "manual", "range": range}]));
    assert!(taken.contains(made[0][0].as_str().unwrap()), "{taken}");
    let gateway = made[0][1]["gateway"].as_str().unwrap();
    let ip = format!("{}.17", gateway.rsplit_once('.').unwrap().0);
    let networks = json!({"a": {"type": "manual", "ip": ip, "netmask": "255.255.255.0", "gateway": gateway,
        "cloud_properties": made[0][2]}});
    let cid = rig.container(&stemcell, networks);
    assert!(rig.refused("delete_network", json!([made[0][0]])).contains(&cid));
    rig.ok("delete_vm", json!([cid]));
    for network in &made {
        rig.ok("delete_network", json!([network[0]]));
        rig.ok("delete_network", json!([network[0]]));
    }
    for (bad, words) in [
        (json!({"type": "manual", "range": "nonsense"}), "no subnet"),
        (json!({"type": "manual"}), "netmask_bits"),
        (json!({"type": "manual", "netmask_bits": 4}), "do not fit"),
        (json!({"type": "manual", "netmask_bits": 32}), "8 to 30 bits"),
        (json!({"type": "manual", "range": "127.9.0.0/24"}), "does not go with"),
        (json!({"type": "manual", "range": "10.9.0.0/24", "gateway": "10.8.0.1"}), "not in 10.9.0.0/24"),
        (json!({"type": "dynamic"}), "only manual"),
    ] {
        let error = rig.refused("create_network", json!([bad]));
        assert!(error.contains(words), "{error}");
    }
    assert!(rig.list("networks").is_empty());
}

#[test]
fn eight_containers_at_once_have_eight_addresses() {
    if !is_own_machine("containers::eight_containers_at_once_have_eight_addresses") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let cids: Vec<String> = std::thread::scope(|scope| {
        let make = || rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let address =
        |cid: &String| read_json(&rig.vm_folder(cid).join("vm.json"))["addresses"][0].as_str().unwrap().to_owned();
    let addresses: BTreeSet<String> = cids.iter().map(address).collect();
    assert_eq!(addresses.len(), 8);
    assert!(addresses.iter().all(|address| answers(address)));
    std::thread::scope(|scope| {
        for cid in &cids {
            let rig = &rig;
            scope.spawn(move || rig.ok("delete_vm", json!([cid])));
        }
    });
    assert_eq!(rig.traces(), Vec::<String>::new());
}

/// Tries what programs in a container may want, and stays; in a VM that nests, with a container of its own, as it were.
const TRYING: &str = r#"#!/bin/sh
try() { name=$1; shift; if "$@" > /dev/null 2>&1; then echo "$name: done"; else echo "$name: refused"; fi; }
group() { mkdir "$1/nested" && echo $$ > "$1/nested/cgroup.procs"; }
{
    try mount mount -t tmpfs none /mnt
    try log busybox dmesg
    try namespaces busybox unshare -m -u -i -n -p -f true
    for hierarchy in /sys/fs/cgroup/memory /sys/fs/cgroup; do
        [ ! -e $hierarchy/cgroup.procs ] || break
    done
    try group group $hierarchy
    busybox grep -E 'Seccomp:|NoNewPrivs' /proc/self/status
} > /var/vcap/trying
busybox mv /var/vcap/trying /var/vcap/tried
busybox unshare -m -p -f sleep 1000 &
exec sleep 1000
"#;

#[test]
fn programs_in_a_container_make_another_one_only_with_nesting() {
    if !is_own_machine("containers::programs_in_a_container_make_another_one_only_with_nesting") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, TRYING, &[]), {}]));
    let create = |nesting: Value| {
        let mut arguments = rig.container_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
        arguments[2] = json!({"memory": 64, "nesting": nesting});
        arguments
    };
    let tried = |cid: &str| wait_for(|| fs::read_to_string(rig.file(cid, "var/vcap/tried")).ok());
    let error = rig.refused("create_vm", create(json!("yes")));
    assert!(error.contains("'nesting' is \"yes\"; it must be true or false"), "{error}");
    assert!(rig.list("vms").is_empty());

    for (nesting, containers) in [(false, "refused"), (true, "done")] {
        let created = rig.ok("create_vm", create(json!(nesting)));
        let cid = created[0].as_str().unwrap();
        rig.remember(cid);
        let expected = format!(
            "mount: done\nlog: refused\nnamespaces: {containers}\ngroup: {containers}\nNoNewPrivs:\t0\nSeccomp:\t2\n"
        );
        assert_eq!(tried(cid), expected, "nesting: {nesting}");
        let status = LocalCloud::in_folder(&rig.state()).unwrap().status().unwrap();
        let vm = status.resources.iter().find(|resource| resource.cid == cid).unwrap();
        assert_eq!(vm.details.contains("nesting"), nesting, "{}", vm.details);
        rig.ok("delete_vm", json!([cid]));
        assert_eq!(rig.traces(), Vec::<String>::new(), "nesting: {nesting}");
    }
}

#[test]
fn a_container_that_was_made_before_there_was_a_filter_stays_as_it_was() {
    if !is_own_machine("containers::a_container_that_was_made_before_there_was_a_filter_stays_as_it_was") {
        return;
    }
    let rig = Rig::of_containers();
    let cid = rig.container(&rig.system_stemcell(), json!({"default": {"type": "dynamic"}}));
    let filters = || {
        let status = fs::read_to_string(format!("/proc/{}/status", rig.init(&cid))).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap().trim().to_owned()
    };
    assert_eq!(filters(), "2");
    let path = rig.vm_folder(&cid).join("vm.json");
    let mut record = read_json(&path);
    assert_eq!(record["container"].as_object_mut().unwrap().remove("confinement"), Some(json!("filtered")));
    fs::write(&path, record.to_string()).unwrap();
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(filters(), "0");
}
