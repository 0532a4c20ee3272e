//! Recordings of releases, deploys with jobs, errands and links, sent to a director on the simulated cloud: the release is the
//! recorded one, its scripts run, its processes only seem to.
//!
//! `data/software.jsonl` has what was recorded, trimmed as `data/recordings.jsonl` is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;

use serde_json::{Value, json};

use super::judge::Judge;
use super::recording::{Recording, Step};
use super::{RECORDED_INSTANCES, Report, serve};
use crate::api::client::{Answer, Client};
use crate::simulated::site::{Site, empty_stemcell};
use crate::site::Network;
use crate::software::release::{archive, digest};

/// Where ours differs, and why that is meant. Everything else has to be the same.
const MEANT: &[(&str, &str, &str)] = &[
    (
        "deploy-errand-exit-code",
        "stages",
        "recorded after a disk had been orphaned by hand, which brought a second one",
    ),
    (
        "deploy-fails-pre-start",
        "text",
        "what an agent says stands behind the instance and the step that failed, and the ends of the logs follow",
    ),
    ("run-errand-json", "stages", "the VM that --keep-alive left is as it should be, so nothing is updated"),
];

pub(super) const SHOP_1: &[u8] = include_bytes!("data/shop-1.tgz");
/// The instance of the recorded errand.
const RECORDED_ERRAND: &str = "0403ac42-ff80-463c-9a8e-b0ac95b5fa3c";

/// A director that stands for the recorded one.
pub(super) struct Player {
    pub(super) site: Site,
    pub(super) client: Client,
    networks: [Network; 3],
    files: String,
    names: RefCell<BTreeMap<String, String>>,
}

impl Player {
    fn new() -> Self {
        let player = Self::with_settings("");
        for version in ["1", "3"] {
            player.site.upload_empty_stemcell("ubuntu-stemcell", "toronto-os", version);
        }
        player
    }

    /// A director with these settings, and nothing uploaded.
    pub(super) fn with_settings(settings: &str) -> Self {
        let agents = json!({"sim": {"agents": {"runs_jobs": true}}});
        let site = Site::start(agents, &format!("resurrector: {{enabled: false}}\n{settings}"));
        let client = Client::at(&site.state_dir());
        let files = serve(BTreeMap::from([("/shop-2.tgz".to_owned(), shop_2())]));
        let networks = [Network::claim(), Network::claim(), Network::claim()];
        Self { site, client, networks, files, names: RefCell::default() }
    }

    /// A recorded text as it is to be here.
    fn here(&self, text: &str) -> String {
        let mut text = text.replace("http://127.0.0.1:61009", &self.files);
        for (recorded, network) in ["10.244.0.", "10.245.0.", "10.246.0."].into_iter().zip(&self.networks) {
            text = text.replace(recorded, &format!("{}.", network.prefix));
        }
        for (recorded, ours) in [("s1", "small"), ("l2", "large")] {
            text = text.replace(&format!("instance_type: {recorded}"), &format!("instance_type: {ours}"));
        }
        // Nothing is to be waited for.
        text = text.replace(": 1000-10000", ": 1-10000").replace("seconds: 1\n", "seconds: 0\n");
        for (recorded, ours) in self.names.borrow().iter() {
            text = text.replace(recorded.as_str(), ours);
        }
        text
    }

    /// What was recorded under one name has another one here.
    pub(super) fn call(&self, recorded: &str, ours: &str) {
        self.names.borrow_mut().insert(recorded.to_owned(), ours.to_owned());
    }

    /// Remembers what instances are called here.
    fn look_around(&self) {
        let instances = self.client.send("GET", "/deployments/shop/instances", "", "").json();
        let of = |group: &str| {
            let mut instances = instances.as_array().cloned().unwrap_or_default();
            instances.retain(|instance| instance["job"] == group);
            instances.sort_by_key(|instance| instance["index"].as_i64());
            instances.into_iter().map(|instance| instance["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let mut names = self.names.borrow_mut();
        names.extend(RECORDED_INSTANCES.iter().map(|name| (*name).to_owned()).zip(of("web")));
        names.extend(of("smoke").into_iter().map(|ours| (RECORDED_ERRAND.to_owned(), ours)));
    }

    /// Sends the manifest of a recording, but for a change.
    fn deploy_before(&self, recording: &Recording, text: &str, instead: &str) {
        let step = recording.steps.iter().rfind(|step| step.task.is_some()).unwrap();
        let manifest = self.here(step.body.as_deref().unwrap());
        assert!(manifest.contains(text), "{manifest}");
        let task = self.client.task("POST", "/deployments", "text/yaml", manifest.replace(text, instead));
        assert_eq!(task.state, "done", "{task:?}");
    }

    /// What has to be so before a scenario, because the recorded director had been through more.
    fn prepare(&self, recording: &Recording) {
        match recording.name.as_str() {
            "deploy-errand-exit-code" => self.deploy_before(recording, "exit_code: 3", "exit_code: 0"),
            "deploy-new-release-version" => {
                self.deploy_before(recording, "name: shop\n  version: \"2\"", "name: shop\n  version: \"1\"");
            }
            "deploy-skip-drain-fix" => self.deploy_before(recording, "greeting: x4", "greeting: tty2"),
            _ => {}
        }
    }

    fn send(&self, step: &Step) -> Answer {
        let kind = step.kind.as_deref().unwrap_or_default();
        // The numbers of configs are others here.
        let path = match step.path.split_once("context=") {
            Some((before, after)) => format!("{before}{}", after.split_once('&').map_or("", |(_, rest)| rest)),
            None => step.path.clone(),
        };
        let path = self.here(&path);
        if kind == "application/x-compressed" {
            let is_stemcell = path.starts_with("/stemcells");
            let stemcell = || empty_stemcell("ubuntu-stemcell", "toronto-os", "3");
            let tarball = if is_stemcell { stemcell() } else { SHOP_1.to_vec() };
            return self.client.send(&step.method, &path, kind, tarball);
        }
        let body = step.body.as_deref().map(|body| self.here(body)).unwrap_or_default();
        self.client.send_ranged(&step.method, &path, kind, body, step.range.as_deref())
    }

    fn replay(&self, recording: &Recording, report: &mut Report) {
        self.prepare(recording);
        self.replay_steps(recording, report, &["Deleting dns blobs"]);
    }

    /// Stages and tasks that are `ignored` count on neither side.
    pub(super) fn replay_steps(&self, recording: &Recording, report: &mut Report, ignored: &[&str]) {
        self.look_around();
        for step in &recording.steps {
            let answer = self.send(step);
            let mut note = |what: &str, difference: Option<String>| {
                let place = format!("{} {}", step.method, step.path);
                report.note(&recording.name, what, difference.map(|difference| format!("{place}: {difference}")));
            };
            let here = |text: &str| self.here(text);
            let judge = Judge { client: &self.client, here: &here, ignored };
            let learned = judge.compare(step, &answer, &mut note);
            self.names.borrow_mut().extend(learned);
            // What was made before it could be named.
            self.look_around();
        }
    }
}

/// The recorded second version: as the first, but for one package.
fn shop_2() -> Vec<u8> {
    let mut first = tar::Archive::new(flate2::read::GzDecoder::new(SHOP_1));
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for entry in first.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if entry.header().entry_type().is_file() {
            files.push((path.trim_start_matches("./").to_owned(), content));
        }
    }
    let packaging: &[u8] = b"set -e\ncp -r app/* ${BOSH_INSTALL_TARGET}/\n";
    let app = archive(&[("packaging", packaging), ("app/app.txt", b"the second\n")]);
    let file = |name: &str| files.iter().position(|(path, _)| path == name).unwrap();
    let (manifest, package) = (file("release.MF"), file("packages/app.tgz"));
    let text = String::from_utf8(files[manifest].1.clone()).unwrap();
    let (before, after) = text.split_once("packages:\n- name: app\n").unwrap();
    let base = after.find("- name: base").unwrap();
    let print = digest(&app);
    let listed = format!(
        "  version: {print}\n  fingerprint: {print}\n  sha1: sha256:{print}\n  dependencies:\n  - base\n{}",
        &after[base..]
    );
    let text = format!("{before}packages:\n- name: app\n{listed}").replacen("version: \"1\"", "version: \"2\"", 1);
    files[manifest].1 = text.into_bytes();
    files[package].1 = app;
    archive(&files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect::<Vec<_>>())
}

#[test]
fn a_recorded_client_gets_the_same_of_releases_jobs_errands_and_links() {
    let recordings = Recording::of_software();
    let player = Player::new();
    let mut report = Report::meaning(MEANT);
    for recording in &recordings {
        let begun = std::time::Instant::now();
        player.replay(recording, &mut report);
        println!("{:>5} ms  {}", begun.elapsed().as_millis(), recording.name);
    }
    println!("{} scenarios replayed; {} meant differences", recordings.len(), MEANT.len());
    assert!(report.differences.is_empty(), "{}\n{}", report.differences.join("\n"), errors(&player.site));
    let unused = report.unused();
    assert!(unused.is_empty(), "these differences are gone: {unused:?}");
    let leaks: Vec<Value> = player.site.rows(&["leaks"]);
    assert!(leaks.is_empty(), "{leaks:?}");
}

pub(super) fn errors(site: &Site) -> String {
    site.log().lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>().join("\n")
}
