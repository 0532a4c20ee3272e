//! Containers on networks: addresses, bridges, and what the machine has of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::rig::own_machine::{answers, is_own_machine, said};
use crate::rig::{Rig, kill_hard, read_json, wait_for};
use serde_json::{Value, json};
use windlass_cloud_local::LocalCloud;

pub(crate) fn manual(ip: &str) -> Value {
    json!({"default": {"type": "manual", "ip": ip, "netmask": "255.255.255.0", "gateway": "10.77.0.1"}})
}

#[test]
fn a_container_is_reached_at_all_its_addresses() {
    if !is_own_machine("container_networks::a_container_is_reached_at_all_its_addresses") {
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
fn addresses_and_routes_of_the_machine_are_left_alone() {
    if !is_own_machine("container_networks::addresses_and_routes_of_the_machine_are_left_alone") {
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
    if !is_own_machine("container_networks::an_address_has_one_holder_running_or_not_and_conflicts_name_it") {
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
    if !is_own_machine("container_networks::a_container_reaches_out_only_where_it_is_configured") {
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

/// Says on an interface of a VM, as any root there can, that it is the router of all who listen.
fn advertise_router(init: u32, link: u32) {
    use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sockopt};
    let namespace = fs::File::open(format!("/proc/{init}/ns/net")).unwrap();
    let inside = move || {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).unwrap();
        let socket = rustix::net::socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
        sockopt::set_ipv6_multicast_hops(&socket, 255).unwrap();
        // For half an hour, with a prefix from which everybody is to have an address.
        let mut advertisement = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        advertisement.extend([3, 4, 64, 0xc0, 0, 0, 28, 32, 0, 0, 14, 16, 0, 0, 0, 0]);
        advertisement.extend("2001:db8:bad::".parse::<std::net::Ipv6Addr>().unwrap().octets());
        let everybody = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, link);
        rustix::net::sendto(&socket, &advertisement, SendFlags::empty(), &everybody).unwrap();
    };
    std::thread::spawn(inside).join().unwrap();
}

#[test]
fn a_vm_does_not_become_the_router_of_the_machine_or_of_other_vms() {
    if !is_own_machine("container_networks::a_vm_does_not_become_the_router_of_the_machine_or_of_other_vms") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let [evil, other] = ["10.77.0.5", "10.77.0.6"].map(|ip| rig.container(&stemcell, manual(ip)));
    // It needs an address to speak with.
    wait_for(|| {
        let addresses = rig.inside(&evil, "ip -6 addr show dev eth0");
        (addresses.contains("scope link") && !addresses.contains("tentative")).then_some(())
    });
    let link = rig.inside(&evil, "cat /sys/class/net/eth0/ifindex").trim().parse().unwrap();
    advertise_router(rig.init(&evil), link);
    // Whatever comes from there afterwards comes after it.
    assert!(answers("10.77.0.5") && rig.inside(&other, "ping -c 1 -W 2 10.77.0.5").contains("1 packets received"));
    for routes in [said("ip", &["-6", "route"]), rig.inside(&other, "ip -6 route")] {
        assert!(!routes.contains("default") && !routes.contains("2001:db8:bad::"), "{routes}");
    }
    for vm in [evil, other] {
        rig.ok("delete_vm", json!([vm]));
    }
}

/// The kernel has room for a thousand neighbours of all network namespaces together. While one VM took it all, no VM of any network that had
/// just been made was reached; and a bridge noted hardware addresses without end.
#[test]
fn vms_are_found_without_asking_for_them_and_bridges_note_nobody() {
    if !is_own_machine("container_networks::vms_are_found_without_asking_for_them_and_bridges_note_nobody") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let networks = json!({
        "a": manual("10.77.0.5")["default"],
        "b": {"type": "manual", "ip": "fd00:7::5", "netmask": "ffff:ffff:ffff:ffff::", "gateway": "fd00:7::1"},
        "c": {"type": "vip", "ip": "192.0.2.9"},
    });
    let cid = rig.container(&stemcell, networks);
    let other = rig.container(&stemcell, manual("10.77.0.6"));
    let known = || said("ip", &["neigh", "show", "nud", "permanent"]);
    for ip in ["10.77.0.5", "10.77.0.6", "fd00:7::5", "192.0.2.9"] {
        assert!(known().lines().any(|line| line.starts_with(&format!("{ip} "))), "{ip} is not in {}", known());
        assert!(answers(ip), "{ip}");
    }
    assert!(rig.inside(&cid, "ip neigh").contains("10.77.0.1") && rig.inside(&cid, "ip neigh").contains("PERMANENT"));

    let noted = || said("bridge", &["fdb", "show"]).lines().filter(|line| line.contains("02:66:")).count();
    let spoof = "ip link set eth0 down; ip link set eth0 address 02:66:00:00:00:01; ip link set eth0 up; ping -c 1 -W 1 10.77.0.6";
    rig.inside(&cid, spoof);
    assert_eq!(noted(), 0, "{}", said("bridge", &["fdb", "show"]));
    assert!(answers("10.77.0.6"), "others are where they were");
    for vm in [&cid, &other] {
        rig.ok("delete_vm", json!([vm]));
    }
    assert_eq!(known(), "");
    assert_eq!(rig.traces(), Vec::<String>::new());
}

#[test]
fn an_operator_is_told_of_bridges_that_are_missing_or_left_over() {
    if !is_own_machine("container_networks::an_operator_is_told_of_bridges_that_are_missing_or_left_over") {
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
    if !is_own_machine("container_networks::networks_that_are_made_get_ranges_of_their_own") {
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
    if !is_own_machine("container_networks::eight_containers_at_once_have_eight_addresses") {
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
