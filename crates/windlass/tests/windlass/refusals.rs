//! What cannot succeed is refused before anything stops: the embedded cloud tells its limits, and the director plans with them.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;

/// Everything of the cloud that a deploy could change.
fn what_there_is(site: &Site) -> (Vec<String>, Vec<String>, Vec<i32>) {
    (site.in_cloud("vms"), site.in_cloud("disks"), site.vm_processes())
}

/// Plans and deploys, both of which must be refused with these words and change nothing.
fn is_refused(site: &Site, words: &[&str]) {
    let before = what_there_is(site);
    let records = (site.rows(&["-d", "example", "vms"]), site.rows(&["disks"]));
    for verb in [&["plan"][..], &["-n", "-d", "example", "deploy"]] {
        let said = site.fails(&[verb, &[site.manifest().as_str()]].concat());
        assert!(words.iter().all(|word| said.contains(word)), "{verb:?}: {words:?} in {said}");
    }
    assert_eq!(what_there_is(site), before);
    assert_eq!((site.rows(&["-d", "example", "vms"]), site.rows(&["disks"])), records);
}

fn replace(site: &Site, file: &str, from: &str, to: &str) {
    let path = site.file(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

fn update_cloud_config(site: &Site) {
    site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
}

/// An instance that was stopped for a disk or a network that nobody can have would stay down.
#[test]
fn what_the_cloud_cannot_have_is_refused_while_the_vm_runs_on() {
    let site = Site::ready_to_deploy();
    site.deploy();
    let agent = format!("{}.2:6868", site.prefix());
    TcpStream::connect(&agent).unwrap();

    replace(&site, "manifest.yml", "persistent_disk_type: disk", "persistent_disk: 900000000");
    is_refused(
        &site,
        &["instance_groups[0]: ", "a disk of 900000000 MiB", "the largest in this cloud has 67108864 MiB", "(line 5)"],
    );
    replace(&site, "manifest.yml", "persistent_disk: 900000000", "persistent_disk_type: disk");

    let range = format!("{}.0/24", site.prefix());
    replace(
        &site,
        "cloud-config.yml",
        &format!("{range}, gateway: {}.1", site.prefix()),
        "10.11.12.0/24, gateway: 10.11.12.1",
    );
    update_cloud_config(&site);
    is_refused(&site, &["its network 'default' cannot be had: 10.11.12.0/24 is not in 127.0.0.0/8"]);
    TcpStream::connect(&agent).unwrap();

    replace(
        &site,
        "cloud-config.yml",
        "10.11.12.0/24, gateway: 10.11.12.1",
        &format!("{range}, gateway: {}.1", site.prefix()),
    );
    update_cloud_config(&site);
    assert!(site.ok(&["plan", &site.manifest()]).contains("nothing to do"));
}

/// A director whose records were restored, or a second one, does not know who has an address.
#[test]
fn an_address_that_a_stranger_has_is_refused_before_anything_is_made() {
    let (first, second) = (Site::ready_to_deploy(), Site::ready_to_deploy());
    first.deploy();
    replace(&second, "cloud-config.yml", &format!("{}.", second.prefix()), &format!("{}.", first.prefix()));
    update_cloud_config(&second);
    let taken = format!("the address {}.2 is taken in the cloud by another VM of this machine", first.prefix());
    let said = second.fails(&["plan", &second.manifest()]);
    assert!(said.contains(&taken), "{said}");
    let said = second.fails(&["-n", "-d", "example", "deploy", &second.manifest()]);
    assert!(said.contains(&taken), "{said}");
    assert_eq!(what_there_is(&second), Default::default());

    // Its own VM is no stranger.
    first.ok(&["-n", "-d", "example", "recreate"]);
    first.ok(&["-n", "-d", "example", "delete-deployment"]);
    second.deploy();
}

#[test]
fn a_network_of_the_machine_is_refused_while_the_container_runs_on() {
    if !is_own_machine("refusals::a_network_of_the_machine_is_refused_while_the_container_runs_on") {
        return;
    }
    let added = Command::new("ip").args(["address", "add", "10.93.9.1/24", "dev", "lo"]).status().unwrap();
    assert!(added.success());
    let site = Site::ready_with_containers("");
    site.deploy();
    replace(&site, "cloud-config.yml", "10.93.8.", "10.93.9.");
    update_cloud_config(&site);
    is_refused(
        &site,
        &["10.93.9.0/24 overlaps 10.93.9.0/24, which is used by the machine on lo; choose another range"],
    );
    TcpStream::connect("10.93.8.2:6868").unwrap();
    // Its own bridge is in nobody's way.
    replace(&site, "cloud-config.yml", "10.93.9.", "10.93.8.");
    update_cloud_config(&site);
    site.ok(&["-n", "-d", "example", "recreate"]);
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

/// The director serves, says in its log what the CPI said, and so do `doctor` and every task that needs the CPI.
#[test]
fn a_cpi_that_does_not_start_is_named_with_its_own_words_before_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let cpi = folder.path().join("their-cpi");
    fs::write(&cpi, "#!/bin/sh\necho 'Traceback of their CPI' >&2\necho 'their.json is missing' >&2\nexit 7\n")
        .unwrap();
    fs::set_permissions(&cpi, fs::Permissions::from_mode(0o755)).unwrap();
    let mut site = Site::start_with_settings(&format!("cpi: {{exec: {}}}\n", cpi.display()));
    let words = ["Traceback of their CPI", "their.json is missing", "exit status: 7"];
    let has_all = |text: &str| words.iter().all(|word| text.contains(word));
    site.wait_until("the log tells of the CPI", |site| {
        let log = site.director_log();
        log.contains("the CPI does not answer 'info'") && has_all(&log)
    });
    site.ok(&["env"]);
    let said = site.fails(&["doctor"]);
    assert!(has_all(&said) && said.contains("their-cpi"), "{said}");
    let stemcell = site.file("stemcell.tgz");
    let stemcell = stemcell.to_str().unwrap();
    site.ok(&["stemcell", "build", "--output", stemcell]);
    let said = site.fails(&["upload-stemcell", stemcell]);
    assert!(has_all(&said) && said.contains("the director's default CPI failed"), "{said}");
}
