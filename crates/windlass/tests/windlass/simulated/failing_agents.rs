//! Agents that fail at any message of a life with jobs: a deploy with compilation, another version with a larger disk, an errand, a
//! recreate, the end. They refuse a message, drop it, or lose its answer. A try fails only if an agent did; the next ones converge; no
//! data is lost, nothing is left behind, and no script runs twice in one try.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_durable::sweep::Points;

use super::site::Site;
use crate::api::client::{Client, Task};
use crate::scenarios::release::{Job, Package, Release};

const KINDS: [&str; 3] = ["fails_message", "drops_message", "loses_answer"];
/// Two instances and a worker, each in a VM of the first try or of the next.
const MOST_TRIES: usize = 7;

/// What an agent does wrong, once after each of its starts.
#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: &'static str,
    message: u64,
}

impl Fault {
    /// Each message is refused, dropped, and left without an answer.
    fn at(point: u64) -> Self {
        Self { kind: KINDS[(point % 3) as usize], message: point.div_ceil(3) }
    }
}

/// The script that ran twice in one try. After a failed try the first script of an instance may be a late one of that try: what an
/// agent began goes on when its director gets no answer.
fn ran_twice(lines: &str, follows_failed_try: bool) -> Option<&str> {
    let (mut ran, mut instances) = (BTreeSet::new(), BTreeSet::new());
    lines.lines().find(|line| {
        let is_first = instances.insert(line.split(' ').next());
        let is_late = is_first && follows_failed_try;
        !is_late && !ran.insert(*line)
    })
}

/// A director whose simulated agents have jobs, and what their scripts did.
struct Stand {
    site: Site,
    client: Client,
    script_log: PathBuf,
}

impl Stand {
    fn new() -> Self {
        let site = Site::start(cloud_with(None), "resurrector: {enabled: false}\n");
        site.upload_empty_stemcell("empty", "windlass-minimal", "1");
        let client = Client::at(&site.state_dir());
        let stand = Self { client, script_log: site.file("scripts.log"), site };
        let prefix = &stand.site.prefix;
        let config = json!({
            "azs": [{"name": "z1"}], "vm_types": [{"name": "small"}],
            "disk_types": [{"name": "disk", "disk_size": 64}, {"name": "larger", "disk_size": 128}],
            "networks": [{"name": "default", "subnets": [
                {"range": format!("{prefix}.0/24"), "gateway": format!("{prefix}.1"), "azs": ["z1"]},
            ]}],
            "compilation": {"workers": 1, "network": "default", "az": "z1", "vm_type": "small", "reuse_compilation_vms": true},
        });
        let config = json!({"type": "cloud", "name": "default", "content": config.to_string()});
        let answer = stand.client.send("POST", "/configs", "application/json", config.to_string());
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
        stand
    }

    /// VMs that are made from now on have agents with this fault.
    fn have_agents(&self, fault: Option<Fault>) {
        self.site.change_cloud(cloud_with(fault));
    }

    fn upload_releases(&self) {
        let log = self.script_log.display().to_string();
        for version in ["1", "2"] {
            let packaging = format!("echo packaging {version} >> {log}\ncp content $BOSH_INSTALL_TARGET/\n");
            let content = if version == "1" { "one" } else { "two" };
            let properties = "packages: [words]\nproperties: {value: {default: usual}, log: {}}";
            let web = Job::new("web", properties)
                .process()
                .template("config", "<%= p('value') %>")
                .script("pre-start", "")
                .script("post-start", "")
                .script("post-deploy", "")
                .script("pre-stop", "")
                .script("drain", "echo 0")
                .script("post-stop", "");
            let check = Job::new("check", "properties: {log: {}}").script("run", "");
            let release = Release::new("kit", version).job(web).job(check);
            let release = release.package(Package::new("words", &[], content).packaging(&packaging));
            let task = self.client.task("POST", "/releases", "application/x-compressed", release.tarball());
            assert_eq!(task.state, "done", "{task:?}");
        }
    }

    fn manifest(&self, version: &str) -> String {
        let (value, disk) = if version == "1" { ("one", "disk") } else { ("two", "larger") };
        let log = self.script_log.display().to_string();
        let job = |name: &str, more: Value| json!({"name": name, "release": "kit", "properties": more});
        json!({
            "name": "example", "releases": [{"name": "kit", "version": version}],
            "stemcells": [{"alias": "default", "os": "windlass-minimal", "version": "latest"}],
            "update": {"canaries": 1, "max_in_flight": 2, "canary_watch_time": "1-20000", "update_watch_time": "1-20000"},
            "instance_groups": [{
                "name": "web", "instances": 2, "azs": ["z1"], "vm_type": "small", "stemcell": "default",
                "networks": [{"name": "default"}], "persistent_disk_type": disk,
                "jobs": [job("web", json!({"value": value, "log": log})), job("check", json!({"log": log}))],
            }],
        })
        .to_string()
    }

    fn deploy(&self, version: &str) -> Task {
        self.client.task("POST", "/deployments", "text/yaml", self.manifest(version))
    }

    /// How often an agent did what it was configured to do wrong.
    fn faults(&self) -> usize {
        let log = fs::read_to_string(self.site.cloud().join("host.log")).unwrap_or_default();
        log.matches("as configured").count()
    }

    /// Tries until it is done; a try without a fault has to be.
    fn insist(&self, what: &str, mut attempt: impl FnMut() -> Task) -> usize {
        for tries in 1..=MOST_TRIES {
            let before = self.faults();
            let _ = fs::remove_file(&self.script_log);
            let task = attempt();
            let lines = fs::read_to_string(&self.script_log).unwrap_or_default();
            if let Some(line) = ran_twice(&lines, tries > 1) {
                panic!("{what} ran '{line}' twice in one try:\n{lines}{:?}", task.events);
            }
            if task.state == "done" {
                return tries;
            }
            let said = task.events.iter().rev().find(|event| !event["error"].is_null());
            assert!(self.faults() > before, "{what} fails by itself at try {tries}: {said:?}\n{}", self.site.log());
            self.have_agents(None);
        }
        panic!("{what} does not get through {MOST_TRIES} tries\n{}", self.site.log());
    }

    fn instances(&self) -> Vec<Value> {
        let mut instances = self.client.get("/deployments/example/instances").as_array().cloned().unwrap_or_default();
        instances.sort_by_key(|instance| instance["index"].as_i64());
        instances
    }

    /// `/var/vcap` of the instances, in their order.
    fn folders(&self) -> Vec<PathBuf> {
        let folder =
            |instance: &Value| self.site.cloud().join("vms").join(instance["cid"].as_str().unwrap()).join("base");
        self.instances().iter().map(folder).collect()
    }

    /// Whether everything is as the version says, and nothing is there besides.
    fn is_whole(&self, version: &str) {
        let value = if version == "1" { "one" } else { "two" };
        let folders = self.folders();
        assert_eq!(folders.len(), 2);
        for folder in &folders {
            assert_eq!(fs::read_to_string(folder.join("jobs/web/config")).unwrap(), value, "{}", folder.display());
            let package = folder.join("packages/words/content");
            assert_eq!(fs::read_to_string(&package).unwrap(), value, "{}", package.display());
            let precious = folder.join("store/precious");
            assert_eq!(version == "2", precious.exists(), "{}", precious.display());
        }
        assert_eq!(self.site.in_cloud("vms").len(), 2, "a worker is left");
        assert!(self.site.rows(&["leaks"]).is_empty(), "a possible leak");
        let manifest = self.site.write("whole.json", &self.manifest(version));
        for _ in 0..MOST_TRIES {
            // A plan asks agents, too.
            let before = self.faults();
            let plan = self.site.windlass(&["-d", "example", "plan", &manifest]);
            if String::from_utf8_lossy(&plan.stdout).contains("nothing to do") {
                return;
            }
            assert!(self.faults() > before, "{plan:?}");
        }
        panic!("there is always something to do");
    }

    fn delete_deployment(&self) -> Task {
        self.client.task("DELETE", "/deployments/example", "", "")
    }

    /// Takes everything away but the director's settings.
    fn forget_everything(&self) {
        for orphan in self.site.rows(&["disks", "--orphaned"]) {
            self.site.ok(&["-n", "delete-disk", orphan["disk_cid"].as_str().unwrap()]);
        }
        self.site.ok(&["-n", "delete-release", "kit"]);
        for kind in ["vms", "disks"] {
            assert!(self.site.in_cloud(kind).is_empty(), "{kind} are left: {:?}", self.site.in_cloud(kind));
        }
        assert!(self.site.rows(&["leaks"]).is_empty(), "a possible leak");
    }
}

fn cloud_with(fault: Option<Fault>) -> Value {
    let mut agents = json!({"runs_jobs": true});
    if let Some(Fault { kind, message }) = fault {
        agents[kind] = json!(message);
    }
    json!({"sim": {"agents": agents}})
}

/// A whole life with agents that have this fault; gives how often they did wrong.
fn life(stand: &Stand, fault: Fault) -> usize {
    let before = stand.faults();
    stand.upload_releases();
    stand.have_agents(Some(fault));
    stand.insist("the deploy", || stand.deploy("1"));
    stand.is_whole("1");
    for folder in stand.folders() {
        fs::write(folder.join("store/precious"), "data").unwrap();
    }
    stand.insist("the update", || stand.deploy("2"));
    stand.is_whole("2");
    let errand = "/deployments/example/errands/check/runs";
    stand.insist("the errand", || stand.client.task("POST", errand, "application/json", "{}"));
    let recreate = "/deployments/example/jobs/web/0?state=recreate";
    stand.insist("the recreate", || stand.client.task("PUT", recreate, "text/yaml", ""));
    stand.is_whole("2");
    stand.insist("the end", || stand.delete_deployment());
    stand.forget_everything();
    stand.faults() - before
}

#[test]
fn a_life_with_jobs_whose_agents_fail_at_any_message_converges_and_loses_nothing() {
    let stand = Stand::new();
    let (mut lives, mut faults, mut last) = (0, 0, None);
    for point in Points::sampled(83) {
        let fault = Fault::at(point);
        println!("agents with {fault:?}");
        let wrong = life(&stand, fault);
        (lives, faults) = (lives + 1, faults + wrong);
        if wrong > 0 {
            last = Some(fault.message);
        }
        // How many messages there are depends on how often somebody asks, so one in vain is not the end yet.
        if fault.message > *last.get_or_insert(fault.message) + 1 {
            break;
        }
    }
    println!("{lives} lives with {faults} failures of agents");
    assert!(faults > 0, "no agent failed");
}

/// The director dies while agents fail: its task goes on or ends, and the next deploy converges.
#[test]
fn a_deploy_with_jobs_that_is_killed_while_agents_fail_converges_and_leaves_nothing() {
    let mut stand = Stand::new();
    for (kills, point) in Points::sampled(97).enumerate() {
        // Of a different kind, at a different message for each point; all of them come in a deploy.
        let fault = Fault::at(1 + point * 7 % 75);
        stand.upload_releases();
        stand.have_agents(Some(fault));
        let path = stand.site.write("manifest.json", &stand.manifest("1"));
        stand.site.restart_director_to_be_killed(point);
        stand.site.while_director_runs(&["-n", "-d", "example", "deploy", &path]);
        let was_killed = !stand.site.director_runs();
        stand.site.restart_director();
        stand.client = Client::at(&stand.site.state_dir());
        stand.have_agents(None);
        let begun = std::time::Instant::now();
        while !stand.site.rows(&["tasks"]).is_empty() {
            assert!(begun.elapsed().as_secs() < 300, "what was killed at point {point} does not end: {fault:?}");
        }
        stand.insist(&format!("the deploy after a kill at point {point} with {fault:?}"), || stand.deploy("1"));
        stand.is_whole("1");
        stand.insist("the end", || stand.delete_deployment());
        stand.forget_everything();
        if !was_killed {
            println!("{kills} kills, and none at point {point}");
            assert!(kills > 0, "no director was killed");
            return;
        }
    }
}
