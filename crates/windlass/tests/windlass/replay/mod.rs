//! What the original's client sent to the original's director, sent to ours: the same status, headers and shapes come back,
//! tasks have the same protocol and stages, and the clouds and agents are asked in the same order.
//!
//! `data/recordings.jsonl` has what was recorded, trimmed: one scenario per line, in the order in which they are replayed.
//! Jobs and releases are taken out of the manifests, and what only they bring about out of the stages.

mod compare;
mod judge;
mod networks;
mod not_replayed;
mod recording;
mod software;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::api::client::{Answer, Client};
use crate::site::{Network, Site};
use compare::difference;
use judge::Judge;
use recording::{Recording, Step};

/// Where ours differs, and why that is meant. Everything else has to be the same.
const MEANT: &[(&str, &str, &str)] = &[
    ("deploy-scale-up", "stages", JOBS),
    ("deploy-scale-down", "stages", JOBS),
    ("deploy-with-ignored-instance", "stages", JOBS),
    (
        "deploy-disk-migrate",
        "calls",
        "agents unmount the old disk when they migrate it; the recorded ones only said so",
    ),
    ("attach-disk", "stages", "people see what is done to the disks"),
    ("logs-agent-all", "stages", "the end of the packing is told as well"),
    ("ssh-setup", "description", RUBY),
    ("error-ssh-instance-without-vm", "description", RUBY),
    ("error-ssh-instance-without-vm", "text", RUBY),
    ("delete-stemcell", "stages", "people see what is removed from which cloud"),
    ("clean-up", "result", "there are no exported releases to count"),
    ("clean-up-all-dry", "shape", "blobs that nothing refers to are counted under a key of their own"),
    ("clean-up-all", "result", "fewer disks were orphaned"),
    ("clean-up-all", "stages", "fewer disks were orphaned"),
];
const JOBS: &str = "the jobs of other instances changed as well";
/// Stages and tasks that only jobs and releases, or what is made of them, bring about.
const OF_JOBS: [&str; 3] = ["Compiling packages", "Deleting dns blobs", "Deleting exported releases"];
const RUBY: &str = "the recorded one shows a data structure of Ruby";

/// The instances of the recorded deployment `shop`, in the order of their indices.
const RECORDED_INSTANCES: [&str; 3] = [
    "32987235-bee8-4918-9aa9-cdb086194899",
    "92000452-c52b-4ea9-911c-cf8da793e400",
    "af33bcaf-bc5a-4fd8-a157-132dc940a1c7",
];

/// What differs from the recordings.
struct Report {
    /// Scenario, kind, and why it is meant.
    allowed: &'static [(&'static str, &'static str, &'static str)],
    differences: Vec<String>,
    meant: Vec<(&'static str, &'static str)>,
}

impl Report {
    fn meaning(allowed: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        Self { allowed, differences: Vec::new(), meant: Vec::new() }
    }

    /// Meant differences that are none.
    fn unused(&self) -> Vec<&(&'static str, &'static str, &'static str)> {
        self.allowed.iter().filter(|(name, aspect, _)| !self.meant.contains(&(*name, *aspect))).collect()
    }

    fn note(&mut self, scenario: &str, what: &str, difference: Option<String>) {
        let Some(difference) = difference else { return };
        match self.allowed.iter().find(|(name, aspect, _)| *name == scenario && *aspect == what) {
            Some((name, aspect, _)) => self.meant.push((name, aspect)),
            None => self.differences.push(format!("{scenario}: {what}: {difference}")),
        }
    }
}

/// A director that stands for the recorded one.
struct Stage {
    site: Site,
    client: Client,
    networks: [Network; 2],
    files: String,
    /// What recorded names are here.
    names: BTreeMap<String, String>,
    /// Which instance a VM or agent belongs to.
    owners: BTreeMap<String, String>,
    /// How much of the director's log was read.
    read: usize,
}

impl Stage {
    /// A director whose disks grow natively, or by copying as in most of the recordings.
    fn new(resizes: bool) -> Self {
        let settings = format!("enable_cpi_resize_disk: {resizes}\nresurrector: {{enabled: false}}\n");
        let site = Site::start_with_settings(&settings);
        let client = Client::of(&site);
        let mut content = BTreeMap::new();
        for (name, version) in [("valid_stemcell", "1"), ("valid_stemcell_v2", "2"), ("valid_stemcell_2", "2")] {
            let path = site.file(&format!("{name}.tgz"));
            let path = path.to_str().unwrap();
            let named = ["--name", "ubuntu-stemcell", "--os", "toronto-os", "--version", version];
            site.ok(&[&["stemcell", "build", "--output", path], &named[..]].concat());
            content.insert(format!("/{name}.tgz"), fs::read(path).unwrap());
        }
        let (networks, files) = ([Network::claim(), Network::claim()], serve(content));
        Self { site, client, networks, files, names: BTreeMap::new(), owners: BTreeMap::new(), read: 0 }
    }

    /// A recorded text as it is to be here.
    fn here(&self, text: &str) -> String {
        let mut text = text.replace("http://127.0.0.1:61009", &self.files);
        for (recorded, network) in ["10.244.0.", "10.245.0."].into_iter().zip(&self.networks) {
            text = text.replace(recorded, &format!("{}.", network.prefix));
        }
        // The longest first, and none in what was replaced already: some names are parts of others.
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
        let (mut rest, mut replaced) = (text.as_str(), String::new());
        while let Some(next) = rest.chars().next() {
            let found = names.iter().find(|(recorded, _)| rest.starts_with(recorded.as_str()));
            let (taken, ours) = found.map_or((next.len_utf8(), None), |(recorded, ours)| (recorded.len(), Some(ours)));
            replaced.push_str(ours.map_or(&rest[..taken], |ours| ours.as_str()));
            rest = &rest[taken..];
        }
        replaced
    }

    fn call(&mut self, recorded: &str, ours: impl Into<String>) {
        self.names.insert(recorded.to_owned(), ours.into());
    }

    fn instances(&self) -> Vec<Value> {
        let answer = self.client.send("GET", "/deployments/shop/instances", "", "");
        let mut instances = answer.json().as_array().cloned().unwrap_or_default();
        instances.retain(|instance| instance["job"] == "web");
        instances.sort_by_key(|instance| instance["index"].as_i64());
        instances
    }

    /// Remembers what instances, VMs and agents are called here.
    fn look_around(&mut self) {
        for (recorded, instance) in RECORDED_INSTANCES.into_iter().zip(self.instances()) {
            let id = instance["id"].as_str().unwrap();
            self.call(recorded, id);
            for name in ["cid", "agent_id"] {
                if let Some(name) = instance[name].as_str() {
                    self.owners.insert(name.to_owned(), id.to_owned());
                }
            }
        }
    }

    fn orphan(&self) -> String {
        self.client.get("/disks")[0]["disk_cid"].as_str().unwrap().to_owned()
    }

    /// What has to be so before a scenario, because the recorded director had been through more.
    fn prepare(&mut self, scenario: &str) {
        // A cid of four digits, which other names may contain.
        self.names.remove("8753");
        let web = "/deployments/shop/jobs/web";
        match scenario {
            "delete-config" => {
                let extra = json!({"type": "cloud", "name": "extra", "content": "vm_extensions: [{name: x}]"});
                self.client.send("POST", "/configs", "application/json", extra.to_string());
            }
            "delete-snapshot" => {
                let cid =
                    self.client.get("/deployments/shop/snapshots")[0]["snapshot_cid"].as_str().unwrap().to_owned();
                self.call("9a77b84d34df4f7597a9ddc5c1506d6e", cid);
            }
            "cancel-task-finished" => {
                for around in ["/task/", "/tasks/", "task "] {
                    self.call(&format!("{around}168"), format!("{around}1"));
                }
                self.call("(cancelled)", "(done)");
            }
            // Those that were recorded with another deployment.
            "stop-no-converge" | "start-no-converge" | "recreate-no-converge" | "ssh-setup" => {
                let first = self.here(RECORDED_INSTANCES[0]);
                self.call("/misc/", "/shop/");
                self.call("\"misc\"", "\"shop\"");
                self.call("hot/a539314c-b4e3-4421-a340-64b72ff34d12", format!("web/{first}"));
                self.call("a539314c-b4e3-4421-a340-64b72ff34d12", first);
                self.call("\"hot\"", "\"web\"");
            }
            "attach-disk-running" => {
                let orphan = self.orphan();
                self.call("ee3e18ec9f2f7eec227286ec2c07d534", orphan);
            }
            "attach-disk" => {
                let first = self.here(RECORDED_INSTANCES[0]);
                self.client.done("PUT", &format!("{web}/{first}?state=detached"), "");
            }
            "delete-disk" => {
                let orphan = self.orphan();
                self.call("6b603ea918369203a3a3ad1ebdb6707c", orphan);
            }
            "delete-vm" => {
                let cid = self.instances()[1]["cid"].as_str().unwrap().to_owned();
                self.call("8753", cid);
                self.call("/misc/", "/shop/");
            }
            "logs-instance" => {
                let manifest = self.client.get("/deployments/shop")["manifest"].as_str().unwrap().to_owned();
                assert_eq!(self.client.task("POST", "/deployments", "text/yaml", manifest).state, "done");
            }
            "error-ssh-instance-without-vm" => {
                let first = self.here(RECORDED_INSTANCES[0]);
                self.client.done("PUT", &format!("{web}/{first}?state=detached"), "");
            }
            "cck-report-clean" => {
                let first = self.here(RECORDED_INSTANCES[0]);
                self.client.done("PUT", &format!("{web}/{first}?state=started"), "");
            }
            "tasks-recent" => {
                // The task of a deploy stands for the recorded one.
                let tasks = self.client.get("/tasks?verbose=1&deployment=shop&state=done");
                let is_deploy = |task: &&Value| task["description"] == "create deployment";
                let first = tasks.as_array().unwrap().iter().rev().find(is_deploy).unwrap();
                self.call("/tasks/14", format!("/tasks/{}", first["id"]));
            }
            _ => {}
        }
    }

    fn send(&self, step: &Step) -> Answer {
        let body = step.body.as_deref().map(|body| self.here(&without_jobs(body))).unwrap_or_default();
        let kind = step.kind.as_deref().unwrap_or_default();
        let path = self.here(&step.path);
        if kind == "application/x-compressed" {
            let tarball = fs::read(self.site.file("valid_stemcell_v2.tgz")).unwrap();
            return self.client.send(&step.method, &path, kind, tarball);
        }
        match (step.anonymous, step.wrong) {
            (false, false) => self.client.send_ranged(&step.method, &path, kind, body, step.range.as_deref()),
            (_, wrong) => self.client.send_as(wrong.then_some(("admin", "wrong")), &step.method, &path, kind, body),
        }
    }

    fn replay(&mut self, recording: &Recording, report: &mut Report) {
        self.prepare(&recording.name);
        self.look_around();
        let _ = self.calls(None);
        for step in &recording.steps {
            let answer = self.send(step);
            let mut note = |what: &str, difference: Option<String>| {
                let place = format!("{} {}", step.method, step.path);
                report.note(&recording.name, what, difference.map(|difference| format!("{place}: {difference}")));
            };
            let here = |text: &str| self.here(text);
            let judge = Judge { client: &self.client, here: &here, ignored: &OF_JOBS };
            let learned = judge.compare(step, &answer, &mut note);
            self.names.extend(learned);
        }
        self.look_around();
        if let Some(recorded) = &recording.calls {
            let first = self.here(RECORDED_INSTANCES[0]);
            let ours = self.calls(Some(&first));
            report.note(&recording.name, "calls", difference(recorded, &ours));
        }
    }

    /// What clouds and agents were asked to change since the last look, for one instance.
    fn calls(&mut self, instance: Option<&str>) -> Vec<String> {
        const CPI: [&str; 8] = [
            "create_vm",
            "set_vm_metadata",
            "delete_vm",
            "create_disk",
            "attach_disk",
            "detach_disk",
            "resize_disk",
            "set_disk_metadata",
        ];
        const AGENT: [&str; 6] =
            ["add_persistent_disk", "remove_persistent_disk", "mount_disk", "unmount_disk", "migrate_disk", "shutdown"];
        let log = self.site.director_log();
        let new = log[self.read..].to_owned();
        self.read = log.len();
        let mut calls = Vec::new();
        for line in new.lines() {
            if let Some((_, request)) = line.split_once("calling the CPI request=") {
                let request: Value = serde_json::Deserializer::from_str(request).into_iter().next().unwrap().unwrap();
                let method = request["method"].as_str().unwrap();
                let argument = |index: usize| request["arguments"][index].as_str().unwrap_or_default().to_owned();
                let owner = match method {
                    "create_disk" => self.owners.get(&argument(2)),
                    "set_disk_metadata" => None,
                    _ => self.owners.get(&argument(0)),
                };
                let owner = owner.cloned().or_else(|| {
                    let named = |key: &str| request["arguments"][1][key].as_str().map(str::to_owned);
                    named("instance_id").or_else(|| named("id"))
                });
                if let ("attach_disk", Some(owner)) = (method, &owner) {
                    self.owners.insert(argument(1), owner.clone());
                }
                if CPI.contains(&method) && owner.as_deref() == instance {
                    calls.push(format!("cpi {method}"));
                }
            } else if let Some((_, asked)) = line.split_once("asking the agent agent=") {
                let (agent, method) = asked.split_once(" method=").unwrap();
                let method = method.trim_matches('"');
                if AGENT.contains(&method) && self.owners.get(agent).map(String::as_str) == instance {
                    calls.push(format!("agent {method}"));
                }
            }
        }
        calls
    }
}

/// A manifest without jobs and releases; any other text as it is.
fn without_jobs(body: &str) -> String {
    if !body.contains("\ninstance_groups:") && !body.starts_with("instance_groups:") {
        return body.to_owned();
    }
    let mut manifest = windlass_manifest::Document::parse(body).unwrap().node().to_json();
    manifest["releases"] = json!([]);
    for group in manifest["instance_groups"].as_array_mut().unwrap() {
        group["jobs"] = json!([]);
    }
    manifest.to_string()
}

/// Serves files over plain HTTP until the test ends.
pub(crate) fn serve(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]);
            let file = files.get(head.split(' ').nth(1).unwrap_or_default());
            let (status, body) = file.map_or(("404 Not Found", &[][..]), |file| ("200 OK", file));
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(body);
        }
    });
    format!("http://{address}")
}

#[test]
fn a_recorded_client_gets_what_the_original_director_answered() {
    let recordings = Recording::all();
    let mut stage = Stage::new(false);
    let mut report = Report::meaning(MEANT);
    for recording in &recordings {
        stage.replay(recording, &mut report);
    }
    println!(
        "{} scenarios replayed, {} not; {} meant differences",
        recordings.len(),
        not_replayed::ALL.len(),
        report.meant.len()
    );
    assert!(
        report.differences.is_empty(),
        "{}\n{}",
        report.differences.join("\n"),
        stage.site.director_log().lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>().join("\n")
    );
    let unused = report.unused();
    assert!(unused.is_empty(), "these differences are gone: {unused:?}");
}

/// Two deploys whose requests are replayed elsewhere: what they asked clouds and agents for is compared here.
#[test]
fn disks_grow_natively_and_vms_are_swapped_in_the_recorded_order() {
    let recorded: BTreeMap<String, Vec<String>> = serde_json::from_str(include_str!("data/calls.json")).unwrap();
    let mut stage = Stage::new(true);
    for recording in Recording::all() {
        if ["upload-stemcell-url", "update-cloud-config"].contains(&recording.name.as_str()) {
            stage.replay(&recording, &mut Report::meaning(MEANT));
        }
    }
    let first = Recording::all().into_iter().find(|recording| recording.name == "deploy-first").unwrap();
    let body = first.steps.iter().filter_map(|step| step.body.as_deref()).next_back().unwrap();
    let mut manifest: Value = serde_json::from_str(&stage.here(&without_jobs(body))).unwrap();
    manifest["instance_groups"][0]["instances"] = json!(1);
    let mut deploy = |manifest: &Value, query: &str| {
        stage.look_around();
        let _ = stage.calls(None);
        let task = stage.client.task("POST", &format!("/deployments{query}"), "text/yaml", manifest.to_string());
        assert_eq!(task.state, "done", "{task:?}");
        stage.look_around();
        let instance = stage.here(RECORDED_INSTANCES[0]);
        stage.calls(Some(&instance))
    };
    deploy(&manifest, "");
    manifest["instance_groups"][0]["persistent_disk_type"] = json!("d2");
    assert_eq!(deploy(&manifest, ""), recorded["deploy-disk-native-resize"]);
    manifest["update"]["vm_strategy"] = json!("create-swap-delete");
    assert_eq!(deploy(&manifest, "?recreate=true"), recorded["deploy-hotswap"]);
    let orphans = stage.client.get("/orphaned_vms");
    assert_eq!(orphans.as_array().unwrap().len(), 1, "the old VM waits for its deletion: {orphans}");
}

/// Each recording is replayed, or it is said why not.
#[test]
fn every_recording_is_replayed_or_listed_with_the_reason() {
    let all = Recording::all().into_iter().chain(Recording::of_software()).chain(Recording::of_networks());
    let replayed: BTreeSet<String> = all.map(|recording| recording.name).collect();
    for (name, reason) in not_replayed::ALL {
        assert!(!replayed.contains(name), "{name} is replayed");
        assert!(!reason.is_empty());
    }
    assert_eq!(replayed.len() + not_replayed::ALL.len(), 247, "there are 247 recordings");
}
