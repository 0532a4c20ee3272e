//! What each method does to the daemon, and what it refuses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use windlass_cloud_incus::trust::{Established, Wanted, establish};
use windlass_rigs::lxd::{BRIDGE, POOL, PREFIX};
use windlass_rigs::own_machine::is_own_machine;

use crate::rig::{Asked, Site, networks, volume};

#[test]
fn vms_and_disks_live_on_a_real_daemon_and_nothing_is_left_of_them() {
    const NAME: &str = "methods::vms_and_disks_live_on_a_real_daemon_and_nothing_is_left_of_them";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(site) = Site::start(NAME) else { return };
    let stemcell = site.stemcell();
    a_vm_is_whole(&site, &stemcell);
    a_disk_has_one_owner(&site, &stemcell);
    a_late_detach_does_not_clear_the_next_claim(&site, &stemcell);
    a_disk_grows_and_is_kept(&site, &stemcell);
    a_half_made_vm_is_not_taken_for_a_whole_one(&site, &stemcell);
    pools_and_limits_are_those_of_the_types(&site, &stemcell);
    networks_are_made_and_deleted(&site, &stemcell);
    bad_input_is_named_and_changes_nothing(&site, &stemcell);
    two_directors_do_not_meet(&site);
    a_token_is_enough_for_a_project_and_a_certificate_for_it_alone(&site);
    site.ok("delete_stemcell", json!([stemcell]));
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.held(), Vec::<String>::new());
}

fn a_vm_is_whole(site: &Site, stemcell: &str) {
    let vm = site.vm(stemcell, 11);
    let instance = site.instance(&vm);
    let config = &instance["config"];
    for (key, value) in [
        ("user.windlass.director", "d-1"),
        ("user.windlass.stage", "ready"),
        ("user.windlass.agent", "agent-11"),
        ("user.windlass.group", "d-shop-web"),
        ("limits.memory", "64MiB"),
    ] {
        assert_eq!(config[key], value, "{config:#}");
    }
    assert_eq!(instance["status"], "Running");
    assert_eq!(instance["devices"]["eth0"]["ipv4.address"], "10.77.0.11");
    let settings = site.lxd().files_of_instance(&site.project, &vm).join("var/vcap/bosh/warden-cpi-agent-env.json");
    let metadata = fs::metadata(&settings).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "secrets are for root alone");
    assert!(metadata.len() > 0);
    let settings: Value = serde_json::from_slice(&fs::read(&settings).unwrap()).unwrap();
    assert_eq!(settings["vm"]["name"], vm.as_str());
    assert_eq!(settings["networks"]["default"]["preconfigured"], true);
    assert!(!config.to_string().contains("hunter2"), "the daemon's database has no secrets of the VM's");
    assert_eq!(site.ok("has_vm", json!([vm])), true);
    site.ok("set_vm_metadata", json!([vm, {"deployment": "shop", "job": "web", "index": 0}]));
    site.ok("set_vm_metadata", json!([vm, {"index": 1}]));
    let named = site.instance(&vm);
    assert_eq!(
        (&named["config"]["user.bosh.deployment"], &named["config"]["user.bosh.index"]),
        (&json!("shop"), &json!("1"))
    );
    site.ok("reboot_vm", json!([vm]));
    assert_eq!(site.instance(&vm)["status"], "Running");
    let (kind, message) = site.refused("create_vm", site.vm_arguments(stemcell, 11).with_agent("other"));
    assert_eq!(kind, "VMCreationFailed");
    assert!(message.contains("already defined on another NIC"), "{message}");
    site.ok("delete_vm", json!([vm]));
    site.ok("delete_vm", json!([vm]));
    assert_eq!(site.ok("has_vm", json!([vm])), false);
    assert_eq!(site.held(), [stemcell], "the refused one left nothing");
}

trait WithAgent {
    fn with_agent(self, agent: &str) -> Self;
}

impl WithAgent for Value {
    fn with_agent(mut self, agent: &str) -> Self {
        self[0] = json!(agent);
        self
    }
}

fn a_disk_has_one_owner(site: &Site, stemcell: &str) {
    let (one, two) = (site.vm(stemcell, 21), site.vm(stemcell, 22));
    let disk = site.disk(&one);
    // At once, in two processes: the daemon itself would attach it to both.
    let asked = [&one, &two].map(|vm| Asked::new("attach_disk", json!([vm, disk])));
    let answers = std::thread::scope(|scope| {
        let calls = asked.each_ref().map(|asked| scope.spawn(|| site.answer(asked)));
        calls.map(|call| call.join().unwrap())
    });
    let winners: Vec<usize> = (0..2).filter(|at| answers[*at]["error"].is_null()).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    let (winner, loser) = if winners[0] == 0 { (&one, &two) } else { (&two, &one) };
    assert_eq!(site.claim(&disk), winner.as_str());
    assert_eq!(site.lxd().volume(&site.project, volume(&disk))["used_by"].as_array().unwrap().len(), 1);
    assert_eq!(site.ok("get_disks", json!([winner])), json!([disk]));
    assert_eq!(site.ok("get_disks", json!([loser])), json!([]));
    let (_, message) = site.refused("attach_disk", json!([loser, disk]));
    assert!(message.contains(winner.as_str()) && message.contains("detach it there first"), "{message}");
    for (method, arguments) in [("delete_disk", json!([disk])), ("resize_disk", json!([disk, 64]))] {
        let (_, message) = site.refused(method, arguments);
        assert!(message.contains("detach it first"), "{message}");
    }
    assert_eq!(site.ok("attach_disk", json!([winner, disk]))["path"], format!("/var/vcap/disks/{}", volume(&disk)));
    // Deleting a VM frees its disks.
    site.ok("delete_vm", json!([winner]));
    assert_eq!(site.claim(&disk), Value::Null);
    site.ok("attach_disk", json!([loser, disk]));
    site.ok("delete_vm", json!([loser]));
    site.ok("delete_disk", json!([disk]));
    site.ok("delete_disk", json!([disk]));
    assert_eq!(site.ok("has_disk", json!([disk])), false);
}

fn a_late_detach_does_not_clear_the_next_claim(site: &Site, stemcell: &str) {
    let (one, two) = (site.vm(stemcell, 31), site.vm(stemcell, 32));
    let disk = site.disk(&one);
    site.ok("attach_disk", json!([one, disk]));
    site.ok("detach_disk", json!([one, disk]));
    assert_eq!(site.claim(&disk), Value::Null);
    site.ok("attach_disk", json!([two, disk]));
    site.ok("detach_disk", json!([one, disk]));
    assert_eq!(site.claim(&disk), two.as_str(), "it is the other's");
    assert_eq!(site.ok("get_disks", json!([two])), json!([disk]));
    // A claim for a VM that is gone holds nobody up.
    site.ok("detach_disk", json!([two, disk]));
    let path = format!("/1.0/storage-pools/fast/volumes/custom/{}?project={}", volume(&disk), site.project);
    let gone = "vm-00000000-0000-4000-8000-000000000000";
    site.lxd().ok("PATCH", &path, &json!({"config": {"user.windlass.attached_to": gone}}));
    site.ok("attach_disk", json!([two, disk]));
    for vm in [one, two] {
        site.ok("delete_vm", json!([vm]));
    }
    site.ok("delete_disk", json!([disk]));
}

fn a_disk_grows_and_is_kept(site: &Site, stemcell: &str) {
    let vm = site.vm(stemcell, 41);
    let disk = site.disk(&vm);
    site.ok("attach_disk", json!([vm, disk]));
    site.write(&disk, "precious");
    site.ok("set_disk_metadata", json!([disk, {"deployment": "shop"}]));
    let snapshot = site.ok("snapshot_disk", json!([disk, {"deployment": "shop"}]));
    site.ok("detach_disk", json!([vm, disk]));
    site.ok("resize_disk", json!([disk, 64]));
    site.ok("resize_disk", json!([disk, 64]));
    let grown = site.lxd().volume(&site.project, volume(&disk));
    assert_eq!((&grown["config"]["size"], &grown["config"]["user.bosh.deployment"]), (&json!("64MiB"), &json!("shop")));
    let (kind, message) = site.refused("resize_disk", json!([disk, 32]));
    assert_eq!(kind, "NotSupported", "{message}");
    assert_eq!(site.lxd().volume(&site.project, volume(&disk))["config"]["size"], "64MiB");
    site.ok("delete_vm", json!([vm]));
    assert_eq!(site.read(&disk), "precious", "a disk outlives its VM");
    let vm = site.vm(stemcell, 42);
    site.ok("attach_disk", json!([vm, disk]));
    assert_eq!(site.read(&disk), "precious");
    site.ok("delete_snapshot", json!([snapshot]));
    site.ok("delete_snapshot", json!([snapshot]));
    site.ok("delete_vm", json!([vm]));
    let owner = fs::metadata(site.lxd().files_of_volume(&site.project, volume(&disk))).map(|metadata| metadata.uid());
    assert!(owner.is_ok());
    site.ok("delete_disk", json!([disk]));
    assert_eq!(site.held(), [stemcell]);
}

fn pools_and_limits_are_those_of_the_types(site: &Site, stemcell: &str) {
    site.lxd().ok("POST", "/1.0/storage-pools", &json!({"name": "slow", "driver": "dir"}));
    let mut arguments = site.vm_arguments(stemcell, 45);
    arguments[2] = json!({"cpu": 1, "ram": 96, "ephemeral_disk_size": 256, "pool": "slow",
        "config": {"limits.processes": "200"}});
    let vm = site.ok("create_vm", arguments)[0].as_str().unwrap().to_owned();
    let made = site.instance(&vm);
    for (key, value) in [("limits.cpu", "1"), ("limits.memory", "96MiB"), ("limits.processes", "200")] {
        assert_eq!(made["config"][key], value);
    }
    let root = &made["devices"]["root"];
    assert_eq!((&root["pool"], &root["size"]), (&json!("slow"), &json!("3328MiB")), "the stemcell's room, and its own");
    let disk = site.ok("create_disk", json!([32, {"pool": "slow"}, vm]));
    let disk = disk.as_str().unwrap();
    assert!(disk.starts_with("slow:"), "{disk}");
    site.ok("attach_disk", json!([vm, disk]));
    let files = |disk: &str| site.lxd().files_in_pool(disk.split_once(':').unwrap().0, &site.project, volume(disk));
    fs::write(files(disk).join("data"), "precious").unwrap();
    site.ok("detach_disk", json!([vm, disk]));
    let moved = site.ok("update_disk", json!([disk, 64, {"pool": "fast"}]));
    let moved = moved.as_str().unwrap();
    assert!(moved.starts_with("fast:"), "{moved}");
    assert_eq!(fs::read_to_string(files(moved).join("data")).unwrap(), "precious");
    assert_eq!(site.lxd().volume(&site.project, volume(moved))["config"]["size"], "64MiB");
    assert_eq!(site.ok("has_disk", json!([disk])), false, "there is one of it");
    site.ok("attach_disk", json!([vm, moved]));
    site.ok("delete_vm", json!([vm]));
    site.ok("delete_disk", json!([moved]));
    assert_eq!(site.held(), [stemcell]);
}

/// Names of all networks that the daemon manages.
fn managed_networks(site: &Site) -> Vec<String> {
    let listed = site.lxd().ok("GET", "/1.0/networks?recursion=1", &Value::Null);
    let managed = listed.as_array().unwrap().iter().filter(|network| network["managed"] == true);
    managed.map(|network| network["name"].as_str().unwrap().to_owned()).collect()
}

fn networks_are_made_and_deleted(site: &Site, stemcell: &str) {
    let given = json!([{"type": "manual", "range": "10.78.0.0/24", "gateway": "10.78.0.1",
        "cloud_properties": {"filtering": true, "pool": "fast"}}]);
    let asked = Asked::new("create_network", given.clone());
    let made = site.answer(&asked)["result"].clone();
    let network = made[0].as_str().unwrap();
    assert_eq!(made[1], json!({"range": "10.78.0.0/24", "gateway": "10.78.0.1", "reserved": []}));
    assert_eq!(made[2], json!({"network": network, "filtering": true}));
    site.forget_answers();
    assert_eq!(site.answer(&asked)["result"], made, "a repeated call finds it");
    assert_eq!(managed_networks(site), [BRIDGE, network]);
    let there = site.lxd().ok("GET", &format!("/1.0/networks/{network}"), &Value::Null);
    let config = &there["config"];
    assert_eq!((&config["ipv4.nat"], &config["user.windlass.director"]), (&json!("false"), &json!("d-1")));
    let listed = site.listed();
    assert!(listed.contains(&("network", network.to_owned(), None)), "{listed:?}");

    // A size is enough, and no range is given out twice.
    let by_size = || site.ok("create_network", json!([{"type": "manual", "netmask_bits": 26, "cloud_properties": {}}]));
    let (one, two) = (by_size(), by_size());
    assert_eq!((&one[1]["range"], &two[1]["range"]), (&json!("10.247.0.0/26"), &json!("10.247.0.64/26")));
    assert_eq!(two[1]["gateway"], "10.247.0.65");

    let mut arguments = site.vm_arguments(stemcell, 81);
    arguments[3] = json!({"default": {"type": "manual", "ip": "10.78.0.20", "netmask": "255.255.255.0",
        "gateway": "10.78.0.1", "default": ["dns", "gateway"], "cloud_properties": made[2]}});
    let vm = site.ok("create_vm", arguments)[0].as_str().unwrap().to_owned();
    let card = site.instance(&vm)["devices"]["eth0"].clone();
    assert_eq!((&card["network"], &card["ipv4.address"]), (&json!(network), &json!("10.78.0.20")));
    assert_eq!(card["security.mac_filtering"], "true");
    let words = site.refused("delete_network", json!([network])).1;
    assert!(words.contains(&vm) && words.contains("delete them first"), "{words}");
    site.ok("delete_vm", json!([vm]));

    for (definition, words) in [
        (given[0].clone(), format!("overlaps 10.78.0.1/24 of the network '{network}'")),
        (json!({"range": "10.79.0.0/24", "gateway": "10.80.0.1"}), "is not in 10.79.0.0/24".to_owned()),
        (json!({"range": "10.79.0.0/31"}), "no room for a gateway and a VM".to_owned()),
        (json!({"range": "ten"}), "no subnet such as".to_owned()),
        (json!({}), "needs a range, or netmask_bits".to_owned()),
        (json!({"netmask_bits": 8}), "do not fit into 10.247.0.0/16".to_owned()),
        (json!({"type": "dynamic", "netmask_bits": 24}), "only manual networks".to_owned()),
        (json!({"netmask_bits": 24, "cloud_properties": {"type": "vpc"}}), "no type 'vpc'".to_owned()),
        (json!({"netmask_bits": 24, "cloud_properties": {"uplink": "x"}}), "say 'type: ovn'".to_owned()),
        (json!({"netmask_bits": 24, "cloud_properties": {"vpc": "x"}}), "vpc".to_owned()),
        // There is no OVN on this machine.
        (
            json!({"netmask_bits": 24, "cloud_properties": {"type": "ovn", "uplink": BRIDGE, "nat": true}}),
            "for 'type: ovn' the servers need OVN and an uplink".to_owned(),
        ),
    ] {
        let (_, message) = site.refused("create_network", json!([definition]));
        assert!(message.contains(&words), "{message}");
    }
    let theirs = site.answer(&Asked::new("delete_network", json!([network])).of_director("d-2"));
    assert!(theirs["error"]["message"].as_str().unwrap().contains("belongs to the director 'd-1'"), "{theirs}");
    for made in [network, one[0].as_str().unwrap(), two[0].as_str().unwrap()] {
        site.ok("delete_network", json!([made]));
        site.ok("delete_network", json!([made]));
    }
    // Those of the operator are no director's.
    site.ok("delete_network", json!([BRIDGE]));
    let stranger = "wl-0123456789ab";
    site.lxd().ok("POST", "/1.0/networks", &json!({"name": stranger, "type": "bridge"}));
    let words = site.refused("delete_network", json!([stranger])).1;
    assert!(words.contains("was not made by this CPI"), "{words}");
    site.lxd().ok("DELETE", &format!("/1.0/networks/{stranger}"), &Value::Null);
    assert_eq!(managed_networks(site), [BRIDGE]);
}

/// As a daemon leaves it that dies while it unpacks the image: a record that looks whole.
fn a_half_made_vm_is_not_taken_for_a_whole_one(site: &Site, stemcell: &str) {
    let asked = Asked::new("create_vm", site.vm_arguments(stemcell, 51));
    let vm = site.answer(&asked)["result"][0].as_str().unwrap().to_owned();
    let path = format!("/1.0/instances/{vm}?project={}", site.project);
    site.lxd().ok("PATCH", &path, &json!({"config": {"user.windlass.stage": "", "user.half": "yes"}}));
    site.forget_answers();
    let again = site.answer(&asked);
    assert_eq!(again["result"][0], vm.as_str(), "{again}");
    let made = site.instance(&vm);
    assert_eq!(made["config"]["user.half"], Value::Null, "it was made again");
    assert_eq!((&made["config"]["user.windlass.stage"], &made["status"]), (&json!("ready"), &json!("Running")));
    // One that a stranger made has no tags of ours.
    site.lxd().ok("PATCH", &path, &json!({"config": {"user.windlass.director": "", "user.windlass.id": ""}}));
    site.forget_answers();
    let refused = site.answer(&asked);
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("this CPI did not make it; delete or rename it"), "{refused}");
    assert_eq!(site.instance(&vm)["status"], "Running", "theirs is left alone");
    site.ok("delete_vm", json!([vm]));
}

fn bad_input_is_named_and_changes_nothing(site: &Site, stemcell: &str) {
    let before = site.held();
    let vm = |properties: Value, networks: Value| json!(["agent-x", stemcell, properties, networks, [], {}]);
    let mut elsewhere = networks(61);
    elsewhere["default"]["cloud_properties"] = json!({"network": "nowhere"});
    let mut vip = networks(62);
    vip["default"]["type"] = json!("vip");
    for (arguments, kind, words) in [
        (vm(json!({"instance_type": "virtual-machine"}), networks(60)), "NotSupported", "virtual machines"),
        (vm(json!({"pool": "nowhere"}), networks(60)), "CloudError", "no storage pool 'nowhere'"),
        (vm(json!({"cpus": 1}), networks(60)), "CloudError", "cpus"),
        (vm(json!({}), elsewhere), "CloudError", "no network 'nowhere'"),
        (vm(json!({}), vip), "NotSupported", "vip"),
        (vm(json!({}), json!({})), "CloudError", "at least one network"),
        (vm(json!({"config": {"raw.lxc": "x"}}), networks(60)), "CloudError", "raw.lxc"),
    ] {
        let (found, message) = site.refused("create_vm", arguments);
        assert!(found == kind && message.contains(words), "{found}: {message}");
    }
    let (_, message) = site.refused("create_disk", json!([32, {"pool": "nowhere"}, null]));
    assert!(message.contains("no storage pool 'nowhere'"), "{message}");
    let (_, message) = site.refused("create_stemcell", json!(["/nowhere/image", {}]));
    assert!(message.contains("/nowhere/image"), "{message}");
    let odd = "vm-00000000-0000-4000-8000-00000000000f";
    assert_eq!(site.ok("has_vm", json!([odd])), false);
    assert_eq!(site.refused("reboot_vm", json!([odd])).0, "VMNotFound");
    for odd in ["../../1.0", "disk-1", "fast:disk-1"] {
        assert_eq!(site.ok("has_disk", json!([odd])), false);
    }
    // Lists of a project that is not there are empty: nothing may count as gone because of that.
    for (changes, words) in [
        (json!({"project": "nowhere"}), "no project 'nowhere'"),
        (json!({"endpoints": ["unix:/nowhere/socket"]}), "/nowhere/socket"),
        (json!({"endpoints": ["https://127.0.0.1:1"]}), "certificate"),
        (json!({"endpoints": ["ftp://x"]}), "https://HOST:PORT"),
    ] {
        site.configure(changes);
        let (_, message) = site.refused("has_vm", json!([odd_vm()]));
        assert!(message.contains(words), "{message}");
    }
    site.configure(json!({}));
    assert_eq!(site.held(), before);
}

fn odd_vm() -> &'static str {
    "vm-00000000-0000-4000-8000-00000000000f"
}

/// Each has a project, and things of the same names are in both.
fn two_directors_do_not_meet(site: &Site) {
    let disk = site.disk("vm-00000000-0000-4000-8000-00000000000f");
    site.write(&disk, "ours");
    let other = site.lxd().make_project("d2");
    let of_other = |method: &str, arguments: Value| {
        site.configure(json!({"project": other}));
        let answer = site.answer(&Asked::new(method, arguments).of_director("d-2"));
        site.configure(json!({}));
        answer["result"].clone()
    };
    assert_eq!(of_other("has_disk", json!([disk])), false);
    let tags = json!({"size": "32MiB", "user.windlass.director": "d-2", "user.windlass.stage": "made"});
    let twin = json!({"name": volume(&disk), "type": "custom", "content_type": "filesystem", "config": tags});
    site.lxd().ok("POST", &format!("/1.0/storage-pools/{POOL}/volumes/custom?project={other}"), &twin);
    let theirs = site.lxd().files_of_volume(&other, volume(&disk)).join("data");
    fs::write(&theirs, "theirs").unwrap();
    assert_eq!(of_other("has_disk", json!([disk])), true);
    site.ok("resize_disk", json!([disk, 64]));
    assert_eq!(site.lxd().volume(&other, volume(&disk))["config"]["size"], "32MiB");
    let refused = site.answer(&Asked::new("delete_disk", json!([disk])).of_director("d-2"));
    assert!(refused["error"]["message"].as_str().unwrap().contains("belongs to the director 'd-1'"), "{refused}");
    site.ok("delete_disk", json!([disk]));
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    let ours = site.disk("vm-00000000-0000-4000-8000-00000000000f");
    of_other("delete_disk", json!([disk]));
    assert_eq!(site.lxd().held(&other), Vec::<String>::new());
    assert_eq!(site.ok("has_disk", json!([ours])), true);
    site.ok("delete_disk", json!([ours]));
}

/// A token as the server's operator makes it.
fn token(site: &Site, more: Value) -> String {
    let mut asked = json!({"type": "client", "name": "director", "token": true});
    for (key, value) in more.as_object().unwrap() {
        asked[key] = value.clone();
    }
    let made = site.lxd().ok("POST", "/1.0/certificates", &asked)["metadata"].clone();
    let token = json!({"client_name": "director", "fingerprint": made["fingerprint"], "addresses": made["addresses"],
        "secret": made["secret"], "expires_at": made["expiresAt"]});
    BASE64_STANDARD.encode(token.to_string())
}

/// Has the server trust a director, as `windlass cpi incus trust` does.
fn trusted(site: &Site, token: &str, project: &str, file: &Path) -> Result<Established, String> {
    trusted_with(site, token, project, file, [POOL, BRIDGE])
}

/// The same with this pool and this network.
fn trusted_with(
    site: &Site,
    token: &str,
    project: &str,
    file: &Path,
    [pool, network]: [&str; 2],
) -> Result<Established, String> {
    let (name, pool, network) = ("director".to_owned(), Some(pool.to_owned()), Some(network.to_owned()));
    let wanted = Wanted { project: project.to_owned(), name, pool, network };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let established = runtime.block_on(establish(token, &wanted, file));
    assert!(site.lxd().socket().exists());
    established.map_err(|error| windlass_contract::explain(&error))
}

/// A network's configuration is not for those who are confined to a project. There is a VM at 71.
fn addresses_have_one_holder_whatever_the_certificate_sees(site: &Site, stemcell: &str) {
    let (_, message) = site.refused("create_vm", site.vm_arguments(stemcell, 71).with_agent("other"));
    assert!(
        message.contains("already defined on another NIC") && message.contains("choose another address"),
        "{message}"
    );
    let mut dynamic = site.vm_arguments(stemcell, 73);
    dynamic[3]["default"] = json!({"type": "dynamic", "cloud_properties": {}});
    let made = site.ok("create_vm", dynamic);
    let ip = made[1]["default"]["ip"].as_str().unwrap();
    assert!(ip.starts_with(PREFIX) && ip != format!("{PREFIX}.71"), "{made}");
    site.ok("delete_vm", json!([made[0]]));
    // One without DHCP notes no addresses, and is used all the same.
    site.lxd().ok("PATCH", &format!("/1.0/networks/{BRIDGE}"), &json!({"config": {"ipv4.dhcp": "false"}}));
    let vm = site.vm(stemcell, 74);
    site.ok("delete_vm", json!([vm]));
    site.lxd().ok("PATCH", &format!("/1.0/networks/{BRIDGE}"), &json!({"config": {"ipv4.dhcp": "true"}}));
}

/// Over TLS, with rights in one project alone, and with an endpoint that is dead.
fn a_token_is_enough_for_a_project_and_a_certificate_for_it_alone(site: &Site) {
    site.lxd().ok("PATCH", "/1.0", &json!({"config": {"core.https_address": "127.0.0.1:8443"}}));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("incus.json");
    let project = site.project.replace("d1", "d3");
    let once = token(site, json!({}));
    for (named, words) in [(["nowhere", BRIDGE], "no storage pool 'nowhere'"), ([POOL, "nonet"], "no network 'nonet'")]
    {
        let missing = trusted_with(site, &once, &project, &file, named).unwrap_err();
        assert!(missing.contains(words) && missing.contains("run the same again"), "{missing}");
    }
    let established = trusted(site, &once, &project, &file).unwrap();
    assert!(established.made_project, "{established:?}");
    assert_eq!(established.endpoints, ["https://127.0.0.1:8443"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "it has the key");
    let known = site.lxd().ok("GET", &format!("/1.0/certificates/{}", established.fingerprint), &Value::Null);
    assert_eq!((&known["restricted"], &known["projects"]), (&json!(true), &json!([project])));
    let made = site.lxd().ok("GET", &format!("/1.0/projects/{project}"), &Value::Null)["config"].clone();
    assert_eq!((&made["restricted"], &made["features.storage.volumes"]), (&json!("true"), &json!("true")));
    // Interrupted and repeated, it finds what there is.
    let again = trusted(site, &once, &project, &file).unwrap();
    assert_eq!((again.made_project, again.fingerprint), (false, established.fingerprint));
    let used = trusted(site, &once, &project, &folder.path().join("other.json")).unwrap_err();
    assert!(used.contains("a token is good once"), "{used}");
    let file_of_other = trusted(site, &once, "another", &file).unwrap_err();
    assert!(file_of_other.contains("is not for the project 'another'"), "{file_of_other}");
    // A token that is for one project alone makes no other.
    let confined = token(site, json!({"restricted": true, "projects": [site.project]}));
    let refused = trusted(site, &confined, "nowhere", &folder.path().join("confined.json")).unwrap_err();
    assert!(refused.contains("may not make one") && refused.contains("--restricted --projects nowhere"), "{refused}");
    let confined = token(site, json!({"restricted": true, "projects": [site.project]}));
    let there = trusted(site, &confined, &site.project, &folder.path().join("there.json")).unwrap();
    assert!(!there.made_project);

    let written: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut tls = written["cloud"]["properties"]["incus"].clone();
    tls["endpoints"] = json!(["https://127.0.0.1:9", "https://127.0.0.1:8443"]);
    site.configure(tls.clone());
    let stemcell = site.stemcell();
    let vm = site.vm(&stemcell, 71);
    addresses_have_one_holder_whatever_the_certificate_sees(site, &stemcell);
    let disk = site.disk(&vm);
    site.ok("attach_disk", json!([vm, disk]));
    let snapshot = site.ok("snapshot_disk", json!([disk, {}]));
    site.ok("delete_snapshot", json!([snapshot]));
    site.ok("detach_disk", json!([vm, disk]));
    site.ok("resize_disk", json!([disk, 64]));
    site.ok("delete_disk", json!([disk]));
    let mut privileged = site.vm_arguments(&stemcell, 72);
    privileged[2]["privileged"] = json!(true);
    let (_, message) = site.refused("create_vm", privileged);
    assert!(message.contains("restricted.containers.privilege=allow"), "root of a member is not to be had: {message}");
    site.ok("delete_vm", json!([vm]));
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.lxd().held(&project), Vec::<String>::new());
    for (key, value, words) in [
        ("project", json!("default"), "certificate"),
        ("server_fingerprint", json!("0".repeat(64)), "server_fingerprint"),
        ("server_fingerprint", json!("nothing"), "64 hexadecimal digits"),
        ("certificate", json!("nothing"), "must be PEM"),
        ("certificate", json!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "is not understood"),
    ] {
        let mut changed = tls.clone();
        changed[key] = value;
        site.configure(changed);
        let (kind, message) = site.refused("has_vm", json!([odd_vm()]));
        assert!(kind == "CpiError" && message.contains(words), "{kind}: {message}");
    }
    site.configure(json!({}));
}
