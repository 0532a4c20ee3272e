//! Verbs that ask before they change anything: what nobody agreed to does not happen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::command_line::{answer, ask_cpi, lose_vm, words};
use crate::site::Site;

/// Where a verb asks, how often its source does, and the lines that come there. Words in capitals are of the test.
const ASKING: &[(&str, usize, &[&str])] = &[
    (
        "change_instances.rs",
        1,
        &["-d example start", "-d example stop --hard", "-d example restart", "-d example recreate db/LIVING"],
    ),
    ("clean_up.rs", 1, &["clean-up --all"]),
    ("cloud_check.rs", 1, &["-d example cloud-check --auto"]),
    ("config.rs", 2, &["update-config --type=notes --name=mine CONFIG", "delete-config --type=cloud --name=default"]),
    ("config_kinds.rs", 1, &["update-cloud-config CLOUD", "update-cpi-config CPIS", "update-runtime-config CONFIG"]),
    ("cpi.rs", 1, &["cpi remove sky"]),
    ("delete_deployment.rs", 1, &["-d example delete-deployment"]),
    ("delete_disk.rs", 2, &["orphan-disk DISK", "delete-disk DISK"]),
    ("delete_release.rs", 1, &["delete-release nope/1"]),
    ("delete_stemcell.rs", 1, &["delete-stemcell windlass-minimal/1"]),
    ("delete_vm.rs", 1, &["-d example delete-vm VM"]),
    ("deploy.rs", 1, &["deploy --fix MANIFEST"]),
    ("down.rs", 1, &["down --all"]),
    ("leaks.rs", 1, &["leaks --delete LEAK"]),
    ("local.rs", 1, &["local gc"]),
    ("locks.rs", 1, &["unlock example"]),
    ("networks.rs", 1, &["delete-network nope"]),
    ("pcap.rs", 1, &["-d example pcap db/LIVING -o CAPTURE"]),
    ("recovery.rs", 1, &["-d example recover PLAN"]),
    ("snapshots.rs", 2, &["-d example delete-snapshot nope", "-d example delete-snapshots"]),
];

/// Tasks of verbs that have to look, or to go to an instance, before they can say what they ask about.
const LOOKING: [&str; 3] = ["-d example cloud-check", "-d example recover", "-d example pcap"];

/// How often each source below `folder` asks.
fn asking_sources(folder: &Path) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(asking_sources(&path));
        } else {
            let asks = fs::read_to_string(&path).unwrap().matches(".confirm()?").count();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(asks == 0 || found.insert(name, asks).is_none(), "{} has a namesake", path.display());
        }
    }
    found
}

#[test]
fn every_verb_that_asks_is_tried_without_an_answer() {
    let sources = asking_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let listed = ASKING.iter().map(|(source, asks, _)| ((*source).to_owned(), *asks)).collect();
    assert_eq!(sources, listed, "list what is new with a line that comes to the question");
}

/// Disks and deployments would go because a script has no answers, or its input ended too early.
#[test]
fn a_verb_that_gets_no_answer_changes_nothing_and_says_how_to_go_on() {
    let site = Site::ready_to_deploy();
    site.ok(&["update-resurrection", "off"]);
    site.write_documents(2);
    site.deploy();
    let vms = site.rows(&words("-d example vms"));
    let of = |row: usize, column: &str| vms[row][column].as_str().unwrap().to_owned();
    let (living, lost) = (of(0, "instance"), of(1, "vm_cid"));
    lose_vm(&site, &lost);
    let plan = site.file("plan.yml").display().to_string();
    let (went, said) = answer(&site, &format!("-d example create-recovery-plan {plan}"), "3\nn\n");
    assert!(went, "{said}");
    let leak = ask_cpi(&site, "create_disk", json!([64, {}, null]));
    fs::create_dir_all(site.state_dir().join("cpis/sky")).unwrap();
    let garbage = site.state_dir().join("cloud/disks/.new-disk-d9b2d63d-a233-4123-847a-7090a0dd0f3d-4000000000-0");
    fs::create_dir(&garbage).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(site.file(name), text).unwrap();
        site.file(name).display().to_string()
    };
    let cloud_config = fs::read_to_string(site.file("cloud-config.yml")).unwrap();
    let named: BTreeMap<&str, String> = [
        ("CAPTURE", site.file("all.pcap").display().to_string()),
        ("CLOUD", write("more.yml", &format!("{cloud_config}vm_extensions: [{{name: more}}]\n"))),
        ("CONFIG", write("config.yml", "releases: []\n")),
        ("CPIS", write("cpis.yml", "cpis: []\n")),
        ("DISK", site.rows(&words("-d example disks"))[0]["disk_cid"].as_str().unwrap().to_owned()),
        ("LEAK", leak.as_str().unwrap().to_owned()),
        ("MANIFEST", site.manifest()),
        ("PLAN", plan),
        ("VM", of(0, "vm_cid")),
        ("db/LIVING", living),
    ]
    .into();
    let events = || {
        let told = |event: &Value| ["id", "action", "object_type"].map(|key| event[key].as_str().unwrap().to_owned());
        let mut all: BTreeSet<_> = site.rows(&["events"]).iter().map(told).collect();
        all.retain(|[_, action, kind]| kind != "lock" && !action.ends_with(" ssh"));
        all
    };
    let there = || {
        let kinds = ["vms", "disks", "snapshots", "stemcells"].map(|kind| site.in_cloud(kind));
        let files = [garbage.exists(), site.state_dir().join("cpis/sky").exists()];
        (kinds, files, site.rows(&["configs"]).len())
    };
    let tasks = || site.rows(&words("tasks --recent=1000 --all")).len();
    let before = (events(), there());
    for line in ASKING.iter().flat_map(|(_, _, lines)| *lines) {
        let tasks_before = tasks();
        let arguments: Vec<&str> =
            words(line).into_iter().map(|word| named.get(word).map_or(word, String::as_str)).collect();
        let ended = site.verb(&arguments).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("Continue? [yN]: ") && said.contains("-n goes on"), "{line}: {said}");
        assert_eq!((events(), there()), before, "{line}");
        assert!(
            LOOKING.iter().any(|looking| line.starts_with(looking)) || tasks() == tasks_before,
            "{line} made a task"
        );
    }
}
