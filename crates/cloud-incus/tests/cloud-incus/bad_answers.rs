//! What clusters answer on their bad days: each is an error that names the remedy, and nothing is lost by it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rig::{Asked, Site, volume};
use crate::simulated::Said;

const VM: &str = "vm-00000000-0000-4000-8000-000000000001";
const DISK: &str = "fast:disk-00000000-0000-4000-8000-000000000002";

fn with_disk() -> Site {
    let site = Site::simulated();
    site.simulation().add_vm(VM, "n2");
    site.simulation().add_disk(volume(DISK), "n2", "precious");
    site
}

#[test]
fn servers_that_cannot_be_used_are_named_with_the_remedy() {
    let root = |changes: Value| {
        let mut root = json!({"api_version": "1.0", "auth": "trusted", "api_extensions": [], "environment": {}});
        for (key, value) in changes.as_object().unwrap() {
            root[key] = value.clone();
        }
        Said::Document(root)
    };
    for (said, kind, words) in [
        (root(json!({"api_version": "2.0"})), "CpiError", "speaks version '2.0' of the API"),
        (root(json!({"auth": "untrusted"})), "CpiError", "does not trust the client certificate"),
        (root(json!({})), "CpiError", "use Incus from 6.0 or LXD from 5.0"),
        (Said::Refusal(500, "panic in handler"), "CloudError", "panic in handler"),
    ] {
        let site = with_disk();
        site.simulation().says("GET /1.0?", said);
        let (found, message) = site.refused("has_disk", json!([DISK]));
        assert!(found == kind && message.contains(words), "{found}: {message}");
    }
}

#[test]
fn a_project_that_is_not_ours_or_shares_its_disks_is_not_used() {
    for (key, value, words) in [
        ("user.windlass.director", "d-2", "belongs to the director 'd-2'; give each director a project of its own"),
        ("features.storage.volumes", "false", "shares things with the project 'default'"),
    ] {
        let site = with_disk();
        site.simulation().change(|world| world.project.insert(key.to_owned(), value.to_owned()));
        for (method, arguments) in [("has_disk", json!([DISK])), ("delete_disk", json!([DISK]))] {
            let (kind, message) = site.refused(method, arguments);
            assert!(kind == "CpiError" && message.contains(words), "{message}");
        }
        assert_eq!(site.simulation().volumes().len(), 1);
    }
}

#[test]
fn a_name_that_a_stranger_took_is_told_and_theirs_is_left_alone() {
    let site = with_disk();
    let asked = Asked::new("create_disk", json!([64, {}, null]));
    let made = site.answer(&asked)["result"].as_str().unwrap().to_owned();
    site.forget_answers();
    site.simulation().change(|world| {
        let theirs = world.volumes.iter_mut().find(|found| found.name == volume(&made)).unwrap();
        theirs.config.retain(|key, _| !key.starts_with("user."));
    });
    let answer = site.answer(&asked);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("this CPI did not make it; delete or rename it"), "{message}");
    assert_eq!(site.simulation().volumes().len(), 2);
}

#[test]
fn a_full_pool_and_an_operation_that_fails_after_a_success_status_lose_nothing() {
    for (said, kind, words) in [
        (Said::Refusal(500, "write: no space left on device"), "NoDiskSpace", "make the pool larger"),
        (Said::Failure("Disk quota exceeded"), "NoDiskSpace", "make the pool larger"),
        (Said::Failure("Storage pool is unavailable"), "CloudError", "Storage pool is unavailable"),
    ] {
        // The copy of a disk that moves.
        let site = with_disk();
        let other = "vm-00000000-0000-4000-8000-000000000003";
        site.simulation().add_vm(other, "n1");
        site.simulation().says("POST /1.0/storage-pools/fast/volumes/custom?", said);
        let (found, message) = site.refused("attach_disk", json!([other, DISK]));
        assert!(found == kind && message.contains(words), "{found}: {message}");
        let volumes = site.simulation().volumes();
        let disk = (volumes[0].member.as_str(), volumes[0].stage(), volumes[0].config.get("user.windlass.attached_to"));
        assert_eq!((volumes.len(), disk), (1, ("n2", "made", None)), "it is where it was, and free");
    }
}

#[test]
fn a_member_that_answers_slowly_is_waited_for_and_half_an_answer_is_asked_again() {
    let site = with_disk();
    site.simulation().says("GET /1.0/storage-pools/fast/volumes/custom?", Said::Late(Duration::from_secs(2)));
    let begun = Instant::now();
    assert_eq!(site.ok("has_disk", json!([DISK])), true);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let site = with_disk();
    site.simulation().says("PATCH /1.0/instances", Said::Half);
    let (_, message) = site.refused("attach_disk", json!([VM, DISK]));
    assert!(message.contains("attach the disk") && message.contains("was lost"), "{message}");
    let tries = site.simulation().change(|world| world.asked.iter().filter(|it| it.starts_with("PATCH")).count());
    assert_eq!(tries, 4, "each time after a look at what is there");
}

#[test]
fn a_disk_never_shrinks_whatever_the_pool_would_do() {
    let site = with_disk();
    let (kind, message) = site.refused("resize_disk", json!([DISK, 32]));
    assert!(kind == "NotSupported" && message.contains("copy its content to a new disk"), "{message}");
    assert_eq!(site.simulation().change(|world| world.asked.clone()), Vec::<String>::new());
}

#[test]
fn a_certificate_that_has_ended_is_named_before_anybody_is_asked() {
    let site = with_disk();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["director".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = parameters.self_signed(&key).unwrap().pem();
    site.configure(json!({"endpoints": ["https://127.0.0.1:1"], "certificate": certificate,
        "private_key": key.serialize_pem(), "server_fingerprint": "0".repeat(64)}));
    let (kind, message) = site.refused("has_disk", json!([DISK]));
    assert!(kind == "CpiError" && message.contains("the client certificate has expired; make a new one"), "{message}");
}

#[test]
fn a_network_of_ovn_spans_the_members_and_is_asked_for_once() {
    let site = Site::simulated();
    let properties = json!({"type": "ovn", "uplink": "lan", "nat": true, "target": "@z1"});
    let made = site.ok(
        "create_network",
        json!([{"type": "manual", "range": "10.78.0.0/24", "gateway": "10.78.0.254", "cloud_properties": properties}]),
    );
    let name = made[0].as_str().unwrap();
    assert_eq!(made[2], json!({"network": name}), "its VMs may be in any zone");
    let (asked, networks) = site.simulation().change(|world| (world.asked.clone(), world.networks.clone()));
    assert_eq!(asked, ["POST /networks"], "members are not told one by one");
    let (sent, mut config) = (&networks[name], networks[name]["config"].clone());
    assert_eq!(sent["type"], "ovn");
    config.as_object_mut().unwrap().retain(|key, _| !key.starts_with("user."));
    assert_eq!(
        config,
        json!({"ipv4.address": "10.78.0.254/24", "ipv4.nat": "true", "ipv6.address": "none", "network": "lan"})
    );
    site.ok("delete_network", json!([name]));
    assert!(site.simulation().change(|world| world.networks.is_empty()));
}

#[test]
fn a_range_that_somebody_else_chose_at_the_same_time_is_given_up() {
    let site = Site::simulated();
    site.simulation()
        .says("POST /1.0/networks", Said::Refusal(500, "failed to create listening socket: Address already in use"));
    let (_, message) =
        site.refused("create_network", json!([{"netmask_bits": 24, "cloud_properties": {"local": true}}]));
    assert!(message.contains("give a range"), "{message}");
    let tries = site.simulation().change(|world| world.asked.iter().filter(|it| it.starts_with("POST")).count());
    assert!(tries > 1, "another one is tried");
    assert!(site.simulation().change(|world| world.networks.is_empty()));
}
