//! A director on the simulated cloud, and a deployment of it for each scenario.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Scenario;
use super::release::Release;
use crate::api::client::{Answer, Client, Task};
use crate::simulated::site::Site;

/// A director whose simulated VMs take jobs.
pub(super) struct Stand {
    pub(super) site: Site,
    pub(super) client: Client,
}

/// The deployment of one scenario.
pub(super) struct Scene<'a> {
    pub(super) stand: &'a Stand,
    /// What its deployment is called. Others of the same scenario begin with it.
    pub(super) name: String,
}

impl Stand {
    pub(super) fn new() -> Self {
        Self::with_settings("resurrector: {enabled: false}\n")
    }

    /// The same with what its `director.yml` says.
    pub(super) fn with_settings(settings: &str) -> Self {
        let site = Site::start(json!({"sim": {"agents": {"runs_jobs": true}}}), settings);
        site.upload_empty_stemcell("empty", "windlass-minimal", "1");
        let client = Client::at(&site.state_dir());
        let stand = Self { site, client };
        stand.configure_cloud(&stand.cloud_config());
        stand
    }

    /// Two zones and two networks, of which the second is for those who want one more.
    pub(super) fn cloud_config(&self) -> Value {
        let prefix = &self.site.prefix;
        let subnet = |first: u8| {
            let network = |last: u8| format!("{prefix}.{}", first + last);
            json!({
                "range": format!("{prefix}.{first}/25"), "gateway": network(1), "azs": ["z1", "z2"],
                "static": [format!("{} - {}", network(100), network(120))],
            })
        };
        json!({
            "azs": [{"name": "z1"}, {"name": "z2"}],
            "vm_types": [{"name": "small"}, {"name": "large", "cloud_properties": {"ram": 2}}],
            "disk_types": [{"name": "disk", "disk_size": 64}, {"name": "larger", "disk_size": 128}],
            "networks": [{"name": "default", "subnets": [subnet(0)]}, {"name": "other", "subnets": [subnet(128)]}],
            "compilation": {"workers": 2, "network": "default", "az": "z1", "vm_type": "small", "reuse_compilation_vms": true},
        })
    }

    pub(super) fn configure(&self, kind: &str, name: &str, content: &Value) -> Answer {
        let config = json!({"type": kind, "name": name, "content": content.to_string()});
        self.client.send("POST", "/configs", "application/json", config.to_string())
    }

    pub(super) fn configure_cloud(&self, content: &Value) {
        let answer = self.configure("cloud", "default", content);
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
    }

    /// The same for addons; it goes with [`Self::forget_runtime_config`].
    pub(super) fn configure_runtime(&self, name: &str, content: &Value) {
        let answer = self.configure("runtime", name, content);
        assert_eq!(answer.status.as_u16(), 201, "{}", answer.text());
    }

    pub(super) fn forget_runtime_config(&self, name: &str) {
        let answer = self.client.send("DELETE", &format!("/configs?type=runtime&name={name}"), "", "");
        assert!(answer.status.is_success(), "{}", answer.text());
    }

    pub(super) fn try_upload(&self, tarball: Vec<u8>, query: &str) -> Task {
        self.client.task("POST", &format!("/releases{query}"), "application/x-compressed", tarball)
    }

    pub(super) fn upload(&self, release: &Release) {
        let task = self.try_upload(release.tarball(), "");
        assert_eq!(task.state, "done", "{task:?}");
    }

    /// Plays scenarios; those that fail are told together.
    pub(super) fn play(&self, scenarios: &[Scenario]) {
        let (mut failed, mut together) = (Vec::new(), Vec::new());
        for (number, scenario) in scenarios.iter().enumerate() {
            together.push(format!("{} '{}': {}", scenario.spec, scenario.example, scenario.effect));
            let Some(run) = scenario.run else { continue };
            let begun = std::time::Instant::now();
            let scene = Scene { stand: self, name: format!("d{number}") };
            let played = catch_unwind(AssertUnwindSafe(|| run(&scene)));
            println!("{:>5} ms  {} {}", begun.elapsed().as_millis(), scenario.spec, scenario.example);
            let names = std::mem::take(&mut together);
            if played.is_err() {
                failed.extend(names);
            }
        }
        assert!(together.is_empty(), "nobody plays {together:?}");
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}

/// A group of jobs on instances in the first zone.
pub(super) fn group(name: &str, instances: usize, jobs: Value) -> Value {
    json!({
        "name": name, "instances": instances, "azs": ["z1"], "vm_type": "small", "stemcell": "default",
        "networks": [{"name": "default"}], "jobs": jobs,
    })
}

/// The same with something else in it.
pub(super) fn with(mut value: Value, changes: Value) -> Value {
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    value
}

pub(super) fn message(task: &Task) -> String {
    let last = task.events.last().map(|event| event["error"]["message"].clone()).unwrap_or_default();
    last.as_str().unwrap_or_default().to_owned()
}

impl Scene<'_> {
    pub(super) fn client(&self) -> &Client {
        &self.stand.client
    }

    /// The name of another deployment of this scenario.
    pub(super) fn other(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// A manifest of a deployment with releases in their latest versions.
    pub(super) fn manifest_of(&self, deployment: &str, releases: &[&str], groups: Value) -> Value {
        let releases: Vec<Value> = releases.iter().map(|name| json!({"name": name, "version": "latest"})).collect();
        json!({
            "name": deployment, "releases": releases,
            "stemcells": [{"alias": "default", "os": "windlass-minimal", "version": "latest"}],
            "update": {"canaries": 1, "max_in_flight": 2, "canary_watch_time": "1-20000", "update_watch_time": "1-20000"},
            "instance_groups": groups,
        })
    }

    /// A manifest with the release `kit`.
    pub(super) fn manifest(&self, groups: Value) -> Value {
        self.manifest_of(&self.name, &["kit"], groups)
    }

    pub(super) fn try_deploy(&self, manifest: &Value, query: &str) -> Task {
        self.client().task("POST", &format!("/deployments{query}"), "text/yaml", manifest.to_string())
    }

    pub(super) fn deploy_manifest(&self, manifest: &Value) -> Task {
        let task = self.try_deploy(manifest, "");
        assert_eq!(task.state, "done", "{}", message(&task));
        task
    }

    pub(super) fn deploy(&self, groups: Value) -> Task {
        self.deploy_manifest(&self.manifest(groups))
    }

    /// A deploy that must fail; gives the words.
    pub(super) fn refused_manifest(&self, manifest: &Value) -> String {
        let task = self.try_deploy(manifest, "");
        assert_eq!(task.state, "error", "{task:?}");
        message(&task)
    }

    pub(super) fn refused(&self, groups: Value) -> String {
        self.refused_manifest(&self.manifest(groups))
    }

    /// Changes the state of instances, as `stop`, `start`, `restart` and `recreate` do.
    pub(super) fn change(&self, jobs: &str, query: &str) -> Task {
        let path = format!("/deployments/{}/jobs/{jobs}?{query}", self.name);
        self.client().task("PUT", &path, "text/yaml", "")
    }

    pub(super) fn changed(&self, jobs: &str, query: &str) -> Task {
        let task = self.change(jobs, query);
        assert_eq!(task.state, "done", "{query}: {}", message(&task));
        task
    }

    pub(super) fn instances_of(&self, deployment: &str) -> Vec<Value> {
        let answer = self.client().send("GET", &format!("/deployments/{deployment}/instances"), "", "");
        let mut instances = answer.json().as_array().cloned().unwrap_or_default();
        instances.sort_by_key(|instance| (instance["job"].to_string(), instance["index"].as_i64()));
        instances
    }

    pub(super) fn instances(&self) -> Vec<Value> {
        self.instances_of(&self.name)
    }

    /// The record of an instance, called `group/index`.
    pub(super) fn instance_of(&self, deployment: &str, name: &str) -> Value {
        let (group, index) = name.split_once('/').unwrap();
        let index: u64 = index.parse().unwrap();
        let found = self
            .instances_of(deployment)
            .into_iter()
            .find(|instance| instance["job"] == group && instance["index"] == index);
        found.unwrap_or_else(|| panic!("{deployment} has no {name}: {:?}", self.instances_of(deployment)))
    }

    pub(super) fn instance(&self, name: &str) -> Value {
        self.instance_of(&self.name, name)
    }

    /// How many VMs the groups of the deployment have, those without any left out.
    pub(super) fn vms(&self) -> usize {
        self.instances().iter().filter(|instance| instance["cid"].is_string()).count()
    }

    /// `/var/vcap` of an instance.
    pub(super) fn vcap_of(&self, deployment: &str, name: &str) -> PathBuf {
        let instance = self.instance_of(deployment, name);
        let cid = instance["cid"].as_str().unwrap_or_else(|| panic!("{name} has no VM: {instance}")).to_owned();
        self.stand.site.cloud().join("vms").join(cid).join("base")
    }

    pub(super) fn vcap(&self, name: &str) -> PathBuf {
        self.vcap_of(&self.name, name)
    }

    /// A file of an instance; empty if there is none.
    pub(super) fn read_of(&self, deployment: &str, name: &str, path: &str) -> String {
        fs::read_to_string(self.vcap_of(deployment, name).join(path)).unwrap_or_default()
    }

    pub(super) fn read(&self, name: &str, path: &str) -> String {
        self.read_of(&self.name, name, path)
    }

    /// Whether an instance has a job.
    pub(super) fn has_job(&self, name: &str, job: &str) -> bool {
        self.vcap(name).join("jobs").join(job).exists()
    }

    /// Names of an instance's files below a folder.
    pub(super) fn names(&self, name: &str, folder: &str) -> Vec<String> {
        names(&self.vcap(name).join(folder))
    }

    pub(super) fn address_of(&self, deployment: &str, name: &str) -> String {
        self.instance_of(deployment, name)["ips"][0].as_str().unwrap().to_owned()
    }

    pub(super) fn address(&self, name: &str) -> String {
        self.address_of(&self.name, name)
    }

    /// Where scripts of this scenario leave their lines.
    pub(super) fn log(&self) -> String {
        self.stand.site.file(&format!("{}.log", self.name)).display().to_string()
    }

    /// What scripts left since the last look, sorted where they may run at once.
    pub(super) fn logged(&self) -> Vec<String> {
        let lines = fs::read_to_string(self.log()).unwrap_or_default();
        let _ = fs::remove_file(self.log());
        lines.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Asks for an errand; gives the task and what each instance answered.
    pub(super) fn errand(&self, name: &str, options: Value) -> (Task, Vec<Value>) {
        let path = format!("/deployments/{}/errands/{name}/runs", self.name);
        let task = self.client().task("POST", &path, "application/json", options.to_string());
        let results = task.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (task, results)
    }
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
