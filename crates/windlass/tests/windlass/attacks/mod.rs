//! Attacks by those who should be harmless: a reader, one VM, a CPI, a stemcell. Each is refused with a reason; meanwhile
//! others are served, and neither the director nor a CPI takes more than 256 MiB.
//!
//! Times are compared with those of the same director before the attack, because machines are busy. With `bin/test --all`
//! each attack is repeated.

mod bystander;
mod evil_agent;
mod evil_stemcell;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::api::client::Client;
use crate::site::Site;
use bystander::beside_a_bystander;
use evil_agent::{ENDLESS_LOGS, EvilAgent};

const READER: (&str, &str) = ("eve", "secret");
const SETTINGS: &str = "users: [{name: eve, password: secret, role: read-only}]\nresurrector: {enabled: false}\n";

/// How often an attack is made.
fn rounds() -> usize {
    if std::env::var(windlass_durable::sweep::POINTS).is_ok_and(|points| points == "all") { 20 } else { 1 }
}

/// So many callers at once.
fn at_once<T: Send>(callers: usize, site: &Site, call: impl Fn(&Client) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(|| call(&Client::of(site)))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn a_reader_with_megabytes_of_yaml_stops_nobody() {
    let site = Site::start_with_settings(&format!("isolation: process\n{SETTINGS}"));
    let long = format!("name: x\na: [{}a]\n", "a,".repeat(8_000_000));
    let many = format!("name: x\na: [{}a]\n", "a,".repeat(1_000_000));
    beside_a_bystander("15 MiB of YAML", &site, || {
        for _ in 0..rounds() {
            for path in ["/deployments/example/diff", "/windlass/plan"] {
                let refused = at_once(4, &site, |eve| {
                    let send = |text: &str| eve.send_as(Some(READER), "POST", path, "text/yaml", text.to_owned());
                    (send(&long).status, send(&many).text())
                });
                for (status, said) in refused {
                    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
                    assert!(said.contains("more than 200000 values and keys"), "{path}: {said}");
                }
            }
        }
    });
}

/// Each of these took gigabytes or minutes: a path for each element of a list, a search for each bracket, a copy for each group.
#[test]
fn a_readers_document_that_grows_stops_nobody() {
    let site = Site::start_with_settings(&format!("isolation: process\n{SETTINGS}"));
    let key = "k".repeat(500_000);
    let documents = [
        format!("name: x\nproperties:\n  ? {key}\n  : [{}]\n", "a,".repeat(150_000)),
        format!("name: x\nproperties: {{a: '{}'}}\n", "(".repeat(1_500_000)),
        format!("name: x\ny:\n  ? {key}\n  : '{}'\n", "((a))".repeat(200_000)),
        format!("name: x\n? {}\n: 1\n", "k".repeat(1_900_000)),
        format!(
            "name: x\naddons:\n- name: a\n  properties: {{a: {key}}}\n  jobs: [{}]\n",
            "{name: j, release: r},".repeat(15_000)
        ),
        // Each group is wrong, and has a key that nobody knows.
        format!("name: x\ninstance_groups: [{}]\n", "{name: a, b: 1, c: 1},".repeat(9_000)),
    ];
    beside_a_bystander("documents that grow", &site, || {
        for _ in 0..rounds() {
            for document in &documents {
                let refused = at_once(4, &site, |eve| {
                    eve.send_as(Some(READER), "POST", "/windlass/plan", "text/yaml", document.clone()).status
                });
                assert_eq!(refused, [StatusCode::BAD_REQUEST; 4]);
            }
        }
    });
}

/// The memory that one of them took is there for the next, whichever thread has it.
#[test]
fn documents_that_are_sent_again_and_again_take_no_more_memory() {
    let site = Site::start_with_settings(&format!("isolation: process\n{SETTINGS}"));
    let key = "k".repeat(500_000);
    let long_key = format!("name: x\nproperties:\n  ? {key}\n  : [{}]\n", "a,".repeat(150_000));
    let group =
        "- {name: g, instances: 10000, azs: [z1], vm_type: default, stemcell: default, networks: [{name: default}]}\n";
    let plan = format!("name: x\nstemcells: []\nupdate: {{}}\ninstance_groups:\n{group}");
    beside_a_bystander("documents again and again", &site, || {
        for _ in 0..5 * rounds() {
            for document in [&long_key, &plan] {
                let refused = at_once(4, &site, |eve| {
                    eve.send_as(Some(READER), "POST", "/windlass/plan", "text/yaml", document.clone()).status
                });
                assert_eq!(refused, [StatusCode::BAD_REQUEST; 4]);
            }
        }
    });
}

#[test]
fn a_vm_with_endless_answers_costs_the_director_nothing() {
    let site = Site::ready_with_settings(SETTINGS);
    site.deploy();
    let vm = site.in_cloud("vms").remove(0);
    let settings = site.settings(&vm);
    site.kill_vms();
    let evil = EvilAgent::in_place_of(&settings, format!("{{\"value\":[{}0]}}", "0,".repeat(31 << 20)));
    beside_a_bystander("62 MB from a VM", &site, || {
        for _ in 0..rounds() {
            let looks = at_once(4, &site, |client| client.task("GET", "/deployments/example/vms?format=full", "", ""));
            assert!(looks.iter().all(|look| look.output.contains("unresponsive agent")), "{looks:?}");
        }
    });
    assert!(evil.answers() >= 1, "it was asked {} times", evil.answers());
}

/// Nobody else can work on its deployment meanwhile.
#[test]
fn what_a_vm_never_ends_sending_ends_with_the_task_that_is_cancelled() {
    let mut site = Site::ready_with_settings(SETTINGS);
    site.deploy();
    let vm = site.in_cloud("vms").remove(0);
    let settings = site.settings(&vm);
    site.kill_vms();
    let evil = EvilAgent::in_place_of(&settings, ENDLESS_LOGS.to_owned());
    let mut logs = site.verb(&["-d", "example", "logs"]);
    let logs = logs.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.wait_until("the director fetches them", |_| evil.blobs() == (1, 0));
    let task = site.rows(&["tasks"])[0]["id"].as_str().unwrap().to_owned();
    site.ok(&["cancel-task", &task]);
    // It hangs up long before it would give up by itself.
    let cancelled = Instant::now();
    site.wait_until("the director hangs up", |_| evil.blobs() == (1, 1));
    let output = logs.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(cancelled.elapsed() < Duration::from_secs(30), "{:?}", cancelled.elapsed());
    assert_eq!(site.rows(&["tasks", "--recent=1", "--all"])[0]["state"], "cancelled");
    assert!(site.rows(&["locks"]).is_empty());
}

/// It kept a place of the director's for hours, whatever was cancelled.
#[test]
fn a_vm_that_never_lets_anybody_in_ends_with_the_task_that_is_cancelled() {
    let mut site = Site::ready_with_settings(SETTINGS);
    site.deploy();
    let vm = site.in_cloud("vms").remove(0);
    let settings = site.settings(&vm);
    site.kill_vms();
    let evil = EvilAgent::in_place_of(&settings, r#"{"value":{"agent_task_id":"t","state":"running"}}"#.to_owned());
    let mut ssh = site.verb(&["-d", "example", "ssh", "--command", "true"]);
    let ssh = ssh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.wait_until("it is asked how far it is", |_| evil.answers() > 2);
    let task = site.rows(&["tasks"])[0]["id"].as_str().unwrap().to_owned();
    site.ok(&["cancel-task", &task]);
    let cancelled = Instant::now();
    let output = ssh.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(cancelled.elapsed() < Duration::from_secs(30), "{:?}", cancelled.elapsed());
    assert_eq!(Client::of(&site).get(&format!("/tasks/{task}"))["state"], "cancelled");
}

/// An agent does one thing after the other, and came to nothing else for as long as a job's logs took.
#[test]
fn an_agent_packs_logs_no_longer_once_their_task_is_cancelled() {
    let mut site = Site::ready_with_settings(SETTINGS);
    site.deploy();
    let data = site.store(&site.in_cloud("vms").remove(0)).with_file_name("data");
    fs::create_dir_all(data.join("sys/log/web")).unwrap();
    // Nothing on the disk, and a quarter of a minute to pack.
    fs::File::create(data.join("sys/log/web/web.log")).unwrap().set_len(4095 << 20).unwrap();
    let mut logs = site.verb(&["-d", "example", "logs", "--dir", site.file("").to_str().unwrap()]);
    let logs = logs.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let packed = || fs::read_dir(data.join("tmp")).unwrap().count();
    site.wait_until("the agent packs them", |_| packed() == 1);
    let task = site.rows(&["tasks"])[0]["id"].as_str().unwrap().to_owned();
    site.ok(&["cancel-task", &task]);
    let output = logs.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(site.rows(&["tasks", "--recent=1", "--all"])[0]["state"], "cancelled");
    assert_eq!(packed(), 0, "the agent goes on");
}

#[test]
fn a_stemcell_that_unpacks_without_end_is_refused() {
    let site = Site::start_with_settings(&format!("isolation: process\n{SETTINGS}"));
    let tarballs = [
        (evil_stemcell::of_image(&evil_stemcell::with_a_name_of(3 << 30)), "more than 4 MiB"),
        (evil_stemcell::of_image(&evil_stemcell::with_folders_in_folders(2000)), "2001 folders deep"),
    ];
    beside_a_bystander("stemcells without end", &site, || {
        for (tarball, reason) in std::iter::repeat_n(&tarballs, rounds()).flatten() {
            let path = site.file("evil.tgz");
            fs::write(&path, tarball).unwrap();
            let said = site.fails(&["upload-stemcell", path.to_str().unwrap()]);
            assert!(said.contains(reason), "{said}");
        }
    });
    assert!(site.in_cloud("stemcells").is_empty(), "{:?}", site.in_cloud("stemcells"));
}

/// It does what the file `mode` beside it says.
const EVIL_CPI: &str = r#"#!/bin/sh
request=$(cat)
case "$request" in *'"method":"info"'*)
    echo '{"result":{"api_version":2,"stemcell_formats":["evil"]},"error":null,"log":""}'; exit ;;
esac
case "$(cat "$(dirname "$0")/mode")" in
result) printf '{"result":['; yes '0,' | head -n 32000000 | tr -d '\n'; echo '0],"error":null,"log":""}' ;;
log) yes 'much to say about nothing' | head -c 300000000 >&2
    echo '{"result":null,"error":{"type":"Bosh::Clouds::CloudError","message":"that was all","ok_to_retry":false},"log":""}' ;;
echo) said=$(printf %s "$request" | sed 's/["\\]/\\&/g')
    echo '{"result":null,"error":{"type":"Bosh::Clouds::CloudError","message":"asked: '"$said"'","ok_to_retry":false},"log":""}' ;;
esac
"#;

#[test]
fn a_cpi_without_end_fills_neither_memory_nor_disk_and_short_secrets_stay_secret() {
    let site = Site::start_with_settings(&format!("isolation: process\n{SETTINGS}"));
    let cpi = site.file("evil-cpi");
    fs::write(&cpi, EVIL_CPI).unwrap();
    fs::set_permissions(&cpi, fs::Permissions::from_mode(0o755)).unwrap();
    let cpis =
        format!("cpis: [{{name: evil, type: evil, exec_path: {}, properties: {{short: abc12}}}}]", cpi.display());
    fs::write(site.file("cpis.yml"), cpis).unwrap();
    site.ok(&["-n", "update-cpi-config", site.file("cpis.yml").to_str().unwrap()]);
    let tarball = site.file("evil.tgz");
    fs::write(&tarball, evil_stemcell::of_format("evil", b"")).unwrap();
    beside_a_bystander("a CPI without end", &site, || {
        let modes = [("result", "bytes to stdout"), ("log", "that was all"), ("echo", "asked: ")];
        for (mode, reason) in std::iter::repeat_n(modes, rounds()).flatten() {
            fs::write(site.file("mode"), mode).unwrap();
            let said = site.fails(&["upload-stemcell", tarball.to_str().unwrap()]);
            assert!(said.contains(reason) && said.len() < 20_000, "{mode}: {} bytes: {said:.2000}", said.len());
        }
    });
    let logs = size_of(&site.state_dir().join("tasks"));
    assert!(logs < rounds() as u64 * (16 << 20), "{logs} bytes of logs");
    let client = Client::of(&site);
    for task in client.get("/tasks?verbose=2").as_array().unwrap() {
        let events =
            client.send_as(Some(READER), "GET", &format!("/tasks/{}/output?type=event", task["id"]), "", String::new());
        assert!(!events.text().contains("abc12"), "{}", events.text());
    }
}

fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size_of(&path) } else { path.metadata().unwrap().len() }).sum()
}

#[test]
fn a_reader_with_hundreds_of_questions_does_not_keep_others_from_working() {
    let site = Site::ready_with_settings(SETTINGS);
    site.deploy();
    // Every question about it takes its time.
    for pid in site.vm_processes() {
        assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    }
    beside_a_bystander("400 look-ups", &site, || {
        let mut asked = at_once(4, &site, |eve| {
            let ask = |_| eve.send_as(Some(READER), "GET", "/deployments/example/vms?format=full", "", String::new());
            (0..100 * rounds())
                .map(ask)
                .map(|answer| (answer.status, answer.headers["location"].clone()))
                .collect::<Vec<_>>()
        })
        .concat();
        assert!(asked.iter().all(|(status, _)| *status == StatusCode::FOUND));
        asked.sort_by_key(|(_, task)| task.to_str().unwrap().to_owned());
        asked.dedup();
        assert!(asked.len() < 100, "{} tasks", asked.len());
        site.ok(&["-n", "clean-up"]);
    });
}
