//! A cluster of three: zones, placement, and a member that dies, comes back, and is declared dead.

use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

use crate::rig::{Asked, Site, networks, volume};

/// Networks of a VM in a cluster whose bridge is one per member.
fn local(last: u8) -> Value {
    let mut networks = networks(last);
    networks["default"]["cloud_properties"] = json!({"local": true});
    networks
}

fn vm(site: &Site, stemcell: &str, last: u8, properties: Value, disks: Value) -> String {
    let arguments = json!([format!("agent-{last}"), stemcell, properties, local(last), disks, {}]);
    site.ok("create_vm", arguments)[0].as_str().unwrap().to_owned()
}

fn refused(site: &Site, stemcell: &str, networks: Value, properties: Value, disks: Value) -> String {
    site.refused("create_vm", json!(["agent-x", stemcell, properties, networks, disks, {}])).1
}

fn place(site: &Site, vm: &str) -> String {
    site.instance(vm)["location"].as_str().unwrap().to_owned()
}

#[test]
fn a_cluster_places_vms_with_their_disks_and_a_dead_member_is_not_taken_for_gone() {
    const NAME: &str = "cluster::a_cluster_places_vms_with_their_disks_and_a_dead_member_is_not_taken_for_gone";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(mut site) = Site::start_cluster(NAME) else { return };
    let stemcell = site.stemcell();
    networks_are_on_all_members(&site, &stemcell);
    let vms = zones_are_members(&site, &stemcell);
    let disk = disks_bind_vms(&site, &stemcell, &vms);
    an_evacuated_member_gets_nothing_and_its_vms_are_elsewhere(&site, &stemcell, &vms);
    a_dead_member_keeps_what_it_has(&mut site, &stemcell, &vms, &disk);
    what_was_declared_dead_is_gone(&mut site, &vms);
    for vm in &vms {
        site.ok("delete_vm", json!([vm]));
    }
    site.ok("delete_disk", json!([disk]));
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.held(), Vec::<String>::new(), "nothing is left");
}

/// Also when the call was killed after some members were told of it.
fn networks_are_on_all_members(site: &Site, stemcell: &str) {
    let asked = |properties: Value| {
        let definition = json!({"type": "manual", "range": "10.78.0.0/24", "cloud_properties": properties});
        Asked::new("create_network", json!([definition]))
    };
    let words = site.answer(&asked(json!({})))["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("a bridge of its own on each member") && words.contains("'local: true'"), "{words}");
    let asked = asked(json!({"local": true, "target": "@z1"}));
    let mut command = site.command();
    command.env(windlass_durable::kill_point::KILL_AT, "4");
    assert!(!site.run(command, &asked).status.success(), "it was to be killed");
    let made = site.answer(&asked)["result"].clone();
    let network = made[0].as_str().unwrap();
    assert_eq!(
        made[2],
        json!({"network": network, "local": true}),
        "a zone's target holds nobody of another zone to it"
    );
    let path = format!("/1.0/networks/{network}");
    let mut there = site.lxd().ok("GET", &path, &Value::Null);
    there["locations"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!((&there["status"], &there["locations"]), (&json!("Created"), &json!(["n1", "n2", "n3"])));
    let networks = json!({"default": {"type": "manual", "ip": "10.78.0.20", "netmask": "255.255.255.0",
        "gateway": "10.78.0.1", "cloud_properties": made[2]}});
    let vm = site.ok("create_vm", json!(["agent-n", stemcell, {"target": "@z2"}, networks, [], {}]));
    assert_eq!(place(site, vm[0].as_str().unwrap()), "n2");
    site.ok("delete_vm", json!([vm[0]]));
    site.ok("delete_network", json!([network]));
    assert_eq!(site.lxd().ask("GET", &path, &Value::Null).unwrap()["error_code"], 404);
}

fn zones_are_members(site: &Site, stemcell: &str) -> Vec<String> {
    let words = refused(site, stemcell, networks(10), json!({}), json!([]));
    assert!(words.contains("a bridge of its own on each member") && words.contains("'local: true'"), "{words}");
    let zone = |number: u8| vm(site, stemcell, 10 + number, json!({"target": format!("@z{number}")}), json!([]));
    let vms: Vec<String> = (1..=3).map(zone).collect();
    assert_eq!(vms.iter().map(|vm| place(site, vm)).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    for target in ["@nowhere", "nowhere"] {
        let words = refused(site, stemcell, local(20), json!({"target": target}), json!([]));
        assert!(words.contains("exist") || words.contains("not found"), "{words}");
    }
    vms
}

fn location(site: &Site, disk: &str) -> Value {
    site.lxd().volume(&site.project, volume(disk))["location"].clone()
}

/// The disk is on n2, and stays attached to the VM there.
fn disks_bind_vms(site: &Site, stemcell: &str, vms: &[String]) -> String {
    let disk = site.disk(&vms[1]);
    assert_eq!(location(site, &disk), "n2", "it is with the VM that it is for");
    disks_follow_vms(site, stemcell, vms, &disk);
    let with_disk = vm(site, stemcell, 22, json!({}), json!([disk]));
    assert_eq!(place(site, &with_disk), "n2");
    site.ok("delete_vm", json!([with_disk]));
    let elsewhere = site.ok("create_disk", json!([32, {"target": "@z3"}, null]));
    let elsewhere = elsewhere.as_str().unwrap();
    assert_eq!(location(site, elsewhere), "n3");
    site.ok("delete_disk", json!([elsewhere]));
    site.ok("attach_disk", json!([vms[1], disk]));
    disk
}

/// With their data and their snapshots, and only one remains.
fn disks_follow_vms(site: &Site, stemcell: &str, vms: &[String], disk: &str) {
    let files = |member: usize| site.member(member).files_of_volume(&site.project, volume(disk));
    std::fs::write(files(2).join("data"), "precious").unwrap();
    let snapshot = site.ok("snapshot_disk", json!([disk, {}]));
    site.ok("attach_disk", json!([vms[0], disk]));
    assert_eq!(location(site, disk), "n1");
    assert_eq!(std::fs::read_to_string(files(1).join("data")).unwrap(), "precious");
    let snapshots = site.held().iter().filter(|name| name.starts_with(volume(disk)) && name.contains("/snap-")).count();
    assert_eq!(snapshots, 1);
    let listed = ("snapshot", snapshot.as_str().unwrap().to_owned(), Some("n1".to_owned()));
    assert!(site.listed().contains(&listed), "{:?}", site.listed());
    site.ok("delete_snapshot", json!([snapshot]));
    site.ok("detach_disk", json!([vms[0], disk]));
    let in_z3 = vm(site, stemcell, 21, json!({"target": "@z3"}), json!([disk]));
    assert_eq!(place(site, &in_z3), "n3", "its zone comes first");
    site.ok("attach_disk", json!([in_z3, disk]));
    assert_eq!(std::fs::read_to_string(files(3).join("data")).unwrap(), "precious");
    site.ok("delete_vm", json!([in_z3]));
    site.ok("attach_disk", json!([vms[1], disk]));
    assert_eq!(location(site, disk), "n2");
    site.ok("detach_disk", json!([vms[1], disk]));
}

/// The operator takes everything away from a member, and puts it back. Incus moves VMs only within their group.
fn an_evacuated_member_gets_nothing_and_its_vms_are_elsewhere(site: &Site, stemcell: &str, vms: &[String]) {
    let zone = json!({"description": "", "members": ["n1", "n3"]});
    site.lxd().ok("PUT", "/1.0/cluster/groups/z3", &zone);
    site.lxd().ok("POST", "/1.0/cluster/groups", &json!({"name": "alone", "members": ["n3"]}));
    let state = |action: &str| {
        site.cluster().done(1, "POST", "/1.0/cluster/members/n3/state", &json!({"action": action}));
    };
    state("evacuate");
    assert_eq!(place(site, &vms[2]), "n1");
    assert_eq!(site.ok("has_vm", json!([vms[2]])), true);
    assert_eq!(site.instance(&vms[2])["status"], "Running");
    let in_zone = vm(site, stemcell, 24, json!({"target": "@z3"}), json!([]));
    assert_eq!(place(site, &in_zone), "n1", "the zone's other member");
    site.ok("delete_vm", json!([in_zone]));
    let (kind, words) =
        site.refused("create_vm", json!(["agent-e", stemcell, {"target": "@alone"}, local(25), [], {}]));
    assert_eq!(kind, "VMCreationFailed", "{words}");
    let (_, words) = site.refused("create_disk", json!([32, {"target": "@alone"}, null]));
    assert!(words.contains("no member of '@alone' is online"), "{words}");
    state("restore");
    assert_eq!(place(site, &vms[2]), "n3");
    assert_eq!(site.instance(&vms[2])["status"], "Running");
}

fn a_dead_member_keeps_what_it_has(site: &mut Site, stemcell: &str, vms: &[String], disk: &str) {
    site.cluster_mut().member_mut(2).kill_daemon();
    // At once, and when the cluster knows.
    for known in [false, true] {
        if known {
            site.cluster().wait_until_member_is(2, "Offline");
        }
        assert_eq!(site.ok("has_vm", json!([vms[1]])), true);
        assert_eq!(site.ok("has_disk", json!([disk])), true);
        let listed = ("disk", disk.to_owned(), Some("n2".to_owned()));
        assert!(site.listed().contains(&listed), "{:?}", site.listed());
        for (method, arguments) in [
            ("delete_vm", json!([vms[1]])),
            ("detach_disk", json!([vms[1], disk])),
            ("delete_disk", json!([disk])),
            ("attach_disk", json!([vms[0], disk])),
        ] {
            let (kind, words) = site.refused(method, arguments);
            assert_eq!(kind, "CloudError", "{method}: {words}");
        }
        let (_, words) = site.refused("delete_vm", json!([vms[1]]));
        assert!(words.contains("'n2'") && words.contains("may still run") && words.contains("by force"), "{words}");
        let zone = json!(["agent-y", stemcell, {"target": "@z2"}, local(30), [], {}]);
        assert_eq!(site.refused("create_vm", zone).0, "VMCreationFailed");
        let other = vm(site, stemcell, 31, json!({"target": "@z1"}), json!([]));
        site.ok("delete_vm", json!([other]));
    }
    site.cluster_mut().member_mut(2).start_daemon();
    site.cluster().wait_until_member_is(2, "Online");
    assert_eq!(site.ok("get_disks", json!([vms[1]])), json!([disk]), "it is back as it was");
    site.ok("detach_disk", json!([vms[1], disk]));
}

/// The operator removes a member by force: that is their word that it is dead.
fn what_was_declared_dead_is_gone(site: &mut Site, vms: &[String]) {
    site.cluster_mut().member_mut(3).kill_daemon();
    site.cluster().wait_until_member_is(3, "Offline");
    assert_eq!(site.ok("has_vm", json!([vms[2]])), true);
    site.cluster().done(1, "DELETE", "/1.0/cluster/members/n3?force=1", &Value::Null);
    assert_eq!(site.ok("has_vm", json!([vms[2]])), false);
}
