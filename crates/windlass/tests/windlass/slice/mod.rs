//! The slice: one VM, one disk mounted by its hint, no registry, end to end, with real parts only: a director process, a
//! CPI process per call, an agent process per VM, TLS between them.

mod kills;

use std::fs;

use serde_json::json;

use crate::site::Site;
use windlass_database::PrivatePostgres;
use windlass_rigs::vm_root;

/// What a newcomer does in the first minutes, from an empty state directory on.
fn whole_path(site: &Site) {
    assert_eq!(site.rows(&["stemcells"])[0]["name"], "windlass-minimal");

    let plan = site.ok(&["plan", &site.manifest()]);
    assert!(plan.contains("create VM: the instance is new"), "{plan}");
    assert!(site.in_cloud("vms").is_empty(), "a plan changes nothing");
    site.deploy();

    let vms = site.rows(&["-d", "example", "vms"]);
    assert_eq!(vms.len(), 1);
    assert_eq!(site.rows(&["-d", "example", "instances"]).len(), 1);
    let first_vm = site.in_cloud("vms")[0].clone();
    assert_eq!(vms[0]["vm_cid"], first_vm.as_str());

    // The hint that the CPI answered is stored, and the agent mounted the disk by it.
    let disks = site.rows(&["disks"]);
    let disk = site.in_cloud("disks")[0].clone();
    let data = site.state_dir().canonicalize().unwrap().join("cloud/disks").join(&disk).join("data");
    assert_eq!(disks[0]["disk_cid"], disk.as_str());
    assert_eq!(disks[0]["hint"], json!({"path": data}).to_string());
    assert_eq!(disks[0]["mounted"], "true");

    // The agent booted from its full settings: no registry was named, and none was missed.
    let settings = site.settings(&first_vm);
    assert!(settings["agent_id"].is_string(), "{settings}");
    assert_eq!(settings.get("registry"), None);
    assert_eq!(settings["disks"]["persistent"], json!({}));

    vm_root::write(&site.store(&first_vm).join("precious"), "data");
    assert!(site.deploy().contains("Preparing deployment"), "a second deploy finds nothing to do");
    assert_eq!(site.in_cloud("vms"), [first_vm.as_str()]);

    site.ok(&["-n", "-d", "example", "recreate", "db/0"]);
    let second_vm = site.in_cloud("vms")[0].clone();
    assert_ne!(first_vm, second_vm);
    assert_eq!(fs::read_to_string(site.store(&second_vm).join("precious")).unwrap(), "data");
    assert_eq!(site.in_cloud("disks"), [disk.as_str()], "the same disk, and no other");

    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(site.in_cloud("vms").is_empty());
    assert!(site.vm_processes().is_empty(), "no process of a VM is left");
    assert_eq!(site.rows(&["disks", "--orphaned"])[0]["disk_cid"], disk.as_str());
    assert_eq!(fs::read_to_string(data.join("precious")).unwrap(), "data", "an orphan keeps its data");
    assert!(site.rows(&["leaks"]).is_empty());
}

#[test]
fn one_vm_one_disk_no_registry_twice_in_parallel() {
    let other = std::thread::spawn(|| whole_path(&Site::ready_to_deploy()));
    whole_path(&Site::ready_to_deploy());
    other.join().unwrap();
}

#[test]
fn a_director_on_postgresql_goes_the_whole_path() {
    let postgres = PrivatePostgres::start().unwrap();
    whole_path(&Site::ready_to_deploy_with_database(Some(postgres.url())));
}

#[test]
fn several_instances_come_and_go_with_their_disks() {
    let site = Site::ready_to_deploy();
    site.write_documents(3);
    site.deploy();
    assert_eq!((site.in_cloud("vms").len(), site.in_cloud("disks").len()), (3, 3));
    site.write_documents(1);
    site.deploy();
    assert_eq!((site.in_cloud("vms").len(), site.in_cloud("disks").len()), (1, 3), "disks are orphaned, not deleted");
    assert_eq!(site.rows(&["disks", "--orphaned"]).len(), 2);
    assert_eq!(site.rows(&["disks"]).len(), 1);
}

#[test]
fn a_director_that_is_stopped_finishes_its_task_and_the_operator_sees_it() {
    let mut site = Site::ready_to_deploy();
    site.write_documents(8);
    let manifest = site.manifest();
    let mut deploy = site.verb(&["-n", "-d", "example", "deploy", &manifest]).spawn().unwrap();
    site.wait_until("the deploy's first VM", |site| !site.in_cloud("vms").is_empty());
    site.terminate_director();
    assert!(deploy.wait().unwrap().success(), "{}", site.director_log());
    site.wait_until("the director's end", |site| !site.director_runs());
    assert_eq!(site.in_cloud("disks").len(), 8);
}

/// What a reboot of the machine leaves: VMs that exist and do not run.
#[test]
fn a_dead_vm_is_not_taken_for_a_living_one_and_fix_replaces_it() {
    let site = Site::ready_to_deploy();
    site.deploy();
    let dead = site.in_cloud("vms")[0].clone();
    vm_root::write(&site.store(&dead).join("precious"), "data");
    site.kill_vms();
    let said = site.fails(&["-n", "-d", "example", "deploy", &site.manifest()]);
    assert!(said.contains("does not answer; use --fix"), "{said}");
    site.ok(&["-n", "-d", "example", "deploy", "--fix", &site.manifest()]);
    let living = site.in_cloud("vms")[0].clone();
    assert_ne!(dead, living);
    assert_eq!(fs::read_to_string(site.store(&living).join("precious")).unwrap(), "data");
    site.kill_vms();
    let said = site.fails(&["-n", "-d", "example", "delete-deployment"]);
    assert!(said.contains("--force"), "{said}");
    site.ok(&["-n", "-d", "example", "delete-deployment", "--force"]);
    assert!(site.in_cloud("vms").is_empty());
}

/// Bad input gets an answer that names the thing at fault, and changes nothing.
#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let site = Site::ready_to_deploy();
    let try_manifest = |text: &str| {
        let path = site.file("bad.yml");
        fs::write(&path, text).unwrap();
        site.fails(&["-n", "-d", "example", "deploy", path.to_str().unwrap()])
    };
    let good = fs::read_to_string(site.manifest()).unwrap();
    for (change, expected) in [
        (good.replace("vm_type: small", "vm_type: huge"), "the vm_type 'huge' is not in the cloud config"),
        (good.replace("os: windlass-minimal", "os: windows"), "Stemcell with Operating System 'windows' doesn't exist"),
        (good.replace("instances: 1", "instances: -1"), "instance_groups[0].instances"),
        (
            format!("{good}  jobs: [{{name: redis, release: redis}}]\n"),
            "the release 'redis' is not in the manifest's releases",
        ),
        (good.replace("name: default}]", "name: nowhere}]"), "the network 'nowhere' is not in the cloud config"),
        ("name: [".to_owned(), "(line 2, column 1)"),
    ] {
        let said = try_manifest(&change);
        assert!(said.contains(expected), "expected '{expected}' in: {said}");
    }
    // Several mistakes at once are told at once: one line each, with path and line.
    let several = good.replace("vm_type: small", "vm_type: huge").replace("instances: 1", "instances: 1000000000000");
    let said = try_manifest(&several);
    for expected in ["instance_groups[0].instances: ", "instance_groups[0].vm_type: "] {
        let lines: Vec<_> = said.lines().filter(|line| line.contains(expected)).collect();
        assert!(
            lines.len() == 1 && lines[0].contains("(line "),
            "expected '{expected}' on a line of its own in: {said}"
        );
    }
    assert!(!said.lines().any(|line| line.contains(".instances: ") && line.contains(".vm_type: ")), "{said}");
    let garbage = site.file("garbage.tgz");
    fs::write(&garbage, "not a tarball").unwrap();
    assert!(site.fails(&["upload-stemcell", garbage.to_str().unwrap()]).contains("garbage.tgz"));
    assert!(site.in_cloud("vms").is_empty() && site.in_cloud("disks").is_empty());
    assert_eq!(site.in_cloud("stemcells").len(), 1);
}

/// Nobody without the password gets more than `/info`, and nobody without the certificate drives an agent.
#[test]
fn strangers_are_kept_out() {
    let site = Site::ready_to_deploy();
    site.deploy();
    let environment = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
    let value = |name: &str| {
        let line = environment.lines().find(|line| line.contains(name)).unwrap();
        line.split('\'').nth(1).unwrap().to_owned()
    };
    let said = site.fails(&[
        "-e",
        &value("BOSH_ENVIRONMENT"),
        "--ca-cert",
        &value("BOSH_CA_CERT"),
        "--client",
        "admin",
        "--client-secret",
        "guessed",
        "deployments",
    ]);
    assert!(said.contains("refuses these credentials"), "{said}");
    assert!(!said.contains("guessed"), "a password is not printed: {said}");
    for private in ["env.sh", "director.db", "pki/ca.key", "cpi/local.json"] {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(site.state_dir().join(private)).unwrap());
        assert_eq!(mode & 0o077, 0, "{private} can be read by others");
    }
    let secret = value("BOSH_CLIENT_SECRET");
    assert!(!site.director_log().contains(&secret), "the log has the password");
}

#[test]
fn a_second_director_on_the_same_state_directory_is_refused() {
    let site = Site::start();
    let said = site.fails(&["director", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("another director uses"), "{said}");
}
