//! Software, end to end: a release is uploaded, its packages are compiled on a worker, its templates rendered, its process
//! supervised. Real parts only.

mod compiled;
mod errands;
mod failures;
mod kills;
mod life_cycle;
mod links;
mod names;
mod object_store;
pub(crate) mod release;
mod ruby;
mod upload_kills;

use std::fs;
use std::path::PathBuf;

use windlass_rigs::own_machine::is_own_machine;

use crate::keeping::api::Api;
use crate::site::Site;
use release::Sources;
use windlass_rigs::vm_root;

/// A deployment of two groups with the job, of which the first has a disk.
struct Shop {
    site: Site,
    /// The operating system of its stemcell.
    os: &'static str,
}

impl Shop {
    fn in_containers() -> Self {
        Self { site: Site::ready_with_containers(""), os: "windlass-minimal" }.stocked()
    }

    fn in_processes() -> Self {
        Self { site: Site::ready_with_own_programs(""), os: "windlass-host" }.stocked()
    }

    fn in_processes_with(settings: &str) -> Self {
        Self { site: Site::ready_with_own_programs(settings), os: "windlass-host" }.stocked()
    }

    fn stocked(self) -> Self {
        self.configure_cloud(true);
        self.upload(&Sources::default());
        self
    }

    fn configure_cloud(&self, reuse: bool) {
        let path = self.site.file("cloud-config.yml");
        let config = fs::read_to_string(&path).unwrap();
        let compilation = format!(
            "compilation: {{workers: 2, network: default, az: z1, vm_type: small, reuse_compilation_vms: {reuse}}}\n"
        );
        fs::write(&path, format!("{config}{compilation}")).unwrap();
        self.site.ok(&["-n", "update-cloud-config", path.to_str().unwrap()]);
    }

    fn upload(&self, sources: &Sources) -> String {
        let tarball = self.site.file(&format!("release-{}.tgz", sources.version));
        sources.write(&tarball);
        self.site.ok(&["upload-release", tarball.to_str().unwrap()])
    }

    /// Writes the manifest; `properties` are those of the first group.
    fn manifest(&self, release: &str, properties: &str) -> String {
        let group = |name: &str, properties: &str, disk: &str| {
            format!(
                "- name: {name}\n  instances: 1\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n{disk}  \
                 networks: [{{name: default}}]\n  jobs: [{{name: greeter, release: greeter, properties: {properties}}}]\n"
            )
        };
        let manifest = format!(
            "name: example\nreleases: [{{name: greeter, version: {release}}}]\n\
             stemcells: [{{alias: default, os: {}, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
             instance_groups:\n{}{}",
            self.os,
            group("front", properties, "  persistent_disk_type: disk\n"),
            group("back", "{greeting: bye}", ""),
        );
        fs::write(self.site.manifest(), manifest).unwrap();
        self.site.manifest()
    }

    fn deploy(&self, release: &str, properties: &str) -> String {
        self.manifest(release, properties);
        self.site.deploy()
    }

    /// Where a group's VM has `/var/vcap`.
    fn vcap(&self, group: &str) -> PathBuf {
        let vms = self.site.rows(&["-d", "example", "vms"]);
        let vm = vms.iter().find(|vm| vm["instance"].as_str().unwrap().starts_with(&format!("{group}/"))).unwrap();
        self.site.store(vm["vm_cid"].as_str().unwrap()).parent().unwrap().to_owned()
    }

    fn read(&self, group: &str, path: &str) -> String {
        fs::read_to_string(self.vcap(group).join(path)).unwrap_or_default()
    }

    fn greeting(&self, group: &str) -> String {
        self.read(group, "data/sys/run/greeter/greeting").trim().to_owned()
    }

    /// The pids that the process had, as its own VM counts them.
    fn starts(&self, group: &str) -> Vec<String> {
        self.read(group, "data/greeter/starts").lines().map(str::to_owned).collect()
    }

    /// What the scripts of the first group were told before its last stop: what becomes of VM, instance and deployment, and what
    /// a drain is told.
    fn last_stop(&self) -> String {
        let stops = self.read("front", "store/stops");
        let last: Vec<_> = stops.lines().rev().take(2).collect();
        last.into_iter().rev().collect::<Vec<_>>().join(", ")
    }

    /// Names and states of all processes, and how many there are of each instance.
    fn processes(&self) -> Vec<(String, String)> {
        let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = self.site.rows(&["-d", "example", "instances", "--ps"]);
        rows.iter()
            .map(|row| (text(row, "process"), text(row, "process_state")))
            .filter(|(name, _)| name != "-" && !name.is_empty())
            .collect()
    }

    /// How many copies of the process run in a group's VM.
    fn copies(&self, group: &str) -> usize {
        let store = self.site.store(&vm_of(self, group));
        let root = store.ancestors().find(|path| path.ends_with("root")).unwrap();
        let processes = fs::read_dir(root.join("proc")).unwrap().filter_map(Result::ok);
        let sleeps = |entry: &fs::DirEntry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|words| words.ends_with(b"sleep\x00100000\0"))
        };
        processes.filter(sleeps).count()
    }

    /// Takes the deployment, its disks and what was compiled away.
    fn forget_everything(&self) {
        self.site.ok(&["-n", "-d", "example", "delete-deployment"]);
        assert!(self.site.in_cloud("vms").is_empty() && self.site.vm_processes().is_empty(), "a VM is left");
        for orphan in self.site.rows(&["disks", "--orphaned"]) {
            self.site.ok(&["-n", "delete-disk", orphan["disk_cid"].as_str().unwrap()]);
        }
        self.site.ok(&["-n", "delete-release", "greeter"]);
        self.upload(&Sources::default());
    }

    fn runs(&self) -> bool {
        let processes = self.processes();
        processes.len() == 2 && processes.iter().all(|process| *process == ("greeter".into(), "running".into()))
    }
}

/// What an operator does with a release, from its upload to the last trace of it.
fn whole_path(shop: &Shop) {
    let releases = shop.site.rows(&["releases"]);
    assert_eq!((releases[0]["name"].as_str(), releases[0]["version"].as_str()), (Some("greeter"), Some("1")));

    shop.manifest("latest", "{name: you}");
    let plan = shop.site.ok(&["plan", &shop.site.manifest()]);
    assert!(plan.contains("compile words/") && plan.contains("compile greeter/"), "{plan}");
    assert!(shop.site.in_cloud("vms").is_empty(), "a plan changes nothing");
    let said = shop.site.deploy();
    assert!(said.contains("Compiling packages"), "{said}");
    nothing_goes_on_after_its_end(shop);
    let stemcell = format!("{}/{}", shop.os, shop.site.rows(&["stemcells"])[0]["version"].as_str().unwrap());
    let stemcell = stemcell.trim_end_matches('*');
    for package in Api::of(&shop.site).get("/releases/greeter?version=1")["packages"].as_array().unwrap() {
        assert_eq!(package["compiled_packages"][0]["stemcell"], stemcell, "{package}");
    }
    assert_eq!(shop.site.in_cloud("vms").len(), 2, "no worker is left");
    assert!(shop.runs(), "{:?}", shop.processes());
    let front = shop.site.rows(&["-d", "example", "vms"])[0]["ips"].clone();
    assert!(
        shop.greeting("front").starts_with("hello to you at ") && shop.greeting("front").ends_with(" world"),
        "{front}: {}",
        shop.greeting("front")
    );
    assert_eq!(shop.greeting("back"), "bye to nobody world");
    assert!(shop.read("front", "data/greeter/prepared").starts_with("front/0 of example"));
    assert_eq!(shop.read("front", "data/greeter/deployed"), "done\n");

    let again = shop.site.ok(&["plan", &shop.site.manifest()]);
    assert!(again.contains("nothing to do"), "{again}");

    a_property_restarts_one_job_and_nothing_else(shop);
    what_dies_comes_back(shop);
    it_is_stopped_started_and_recreated(shop);
    another_version_compiles_only_what_changed(shop);

    let refused = shop.site.fails(&["-n", "delete-release", "greeter"]);
    assert!(refused.contains("still in use by: example"), "{refused}");
    shop.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    shop.site.ok(&["-n", "delete-release", "greeter"]);
    assert!(shop.site.rows(&["releases"]).is_empty());
    assert_eq!(fs::read_dir(shop.site.state_dir().join("releases")).unwrap().count(), 0, "an archive is left");
    assert!(shop.site.in_cloud("vms").is_empty() && shop.site.vm_processes().is_empty());
    assert!(shop.site.rows(&["leaks"]).is_empty());
}

/// Clients show what is said of a part after its end as begun again.
fn nothing_goes_on_after_its_end(shop: &Shop) {
    let api = Api::of(&shop.site);
    let task = api.newest_task()["id"].clone();
    let mut ended = std::collections::BTreeSet::new();
    for line in api.text(&format!("/tasks/{task}/output?type=event")).lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = (event["stage"].to_string(), event["tags"].to_string(), event["index"].to_string());
        assert!(!ended.contains(&part), "{line}");
        if event["state"] != "started" && event["state"] != "in_progress" {
            ended.insert(part);
        }
    }
    assert!(ended.len() > 3, "{ended:?}");
}

fn a_property_restarts_one_job_and_nothing_else(shop: &Shop) {
    vm_root::write(&shop.vcap("front").join("store/precious"), "data");
    let (front, back) = (shop.starts("front"), shop.starts("back"));
    shop.manifest("1", "{name: them, shout: true}");
    let plan = shop.site.ok(&["plan", &shop.site.manifest()]);
    assert!(plan.contains("property 'name' of job 'greeter' changes"), "{plan}");
    assert!(!plan.contains("compile") && !plan.contains("back/"), "{plan}");
    shop.site.deploy();
    assert!(shop.greeting("front").contains("to them at") && shop.greeting("front").contains("! world"));
    assert_eq!(shop.starts("front").len(), front.len() + 1);
    assert_eq!(shop.starts("back"), back, "the other job was not touched");
    assert_eq!(shop.last_stop(), "keep keep keep, job_changed hash_changed");
}

fn what_dies_comes_back(shop: &Shop) {
    let before = shop.starts("front").len();
    let init = shop.site.store(&vm_of(shop, "front"));
    let pid = shop.read("front", "data/sys/run/greeter/pid");
    kill_inside(&init, pid.trim());
    until(|| shop.starts("front").len() == before + 1 && shop.runs());
    shop.site.kill_vms();
    shop.site.ok(&["-n", "-d", "example", "deploy", "--fix", &shop.site.manifest()]);
    assert!(shop.runs(), "{:?}", shop.processes());
    assert_eq!(shop.read("front", "store/precious"), "data", "the VM came back with its disk");
    assert_eq!(shop.starts("front").len(), 1, "and with one copy of its process");
}

fn vm_of(shop: &Shop, group: &str) -> String {
    let vms = shop.site.rows(&["-d", "example", "vms"]);
    let vm = vms.iter().find(|vm| vm["instance"].as_str().unwrap().starts_with(&format!("{group}/"))).unwrap();
    vm["vm_cid"].as_str().unwrap().to_owned()
}

/// Kills a process by the pid that it has in its own VM.
fn kill_inside(store: &std::path::Path, pid: &str) {
    let root = store.ancestors().find(|path| path.ends_with("root")).unwrap();
    let init = root.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let status = std::process::Command::new("nsenter")
        .args(["--target", init, "--pid", "--mount", "kill", "-KILL", pid])
        .status()
        .unwrap();
    assert!(status.success());
}

fn until(mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn it_is_stopped_started_and_recreated(shop: &Shop) {
    shop.site.ok(&["-n", "-d", "example", "stop", "front"]);
    assert_eq!(shop.read("front", "data/sys/run/greeter/pid"), "");
    assert_eq!(shop.last_stop(), "keep keep keep, job_shutdown hash_unchanged");
    shop.site.ok(&["-n", "-d", "example", "start", "front"]);
    assert!(shop.runs(), "{:?}", shop.processes());
    shop.site.ok(&["-n", "-d", "example", "recreate", "front/0"]);
    assert!(shop.runs(), "{:?}", shop.processes());
    assert_eq!(shop.starts("front").len(), 1);
    assert_eq!(shop.read("front", "store/precious"), "data");
    assert_eq!(shop.last_stop(), "delete keep keep, job_shutdown hash_unchanged");
    shop.site.ok(&["-n", "-d", "example", "restart", "front"]);
    assert_eq!(shop.last_stop(), "keep keep keep, job_changed hash_unchanged");
}

fn another_version_compiles_only_what_changed(shop: &Shop) {
    let mut sources = Sources { version: "2", ..Sources::default() };
    sources.packaging = "set -e\necho planet > $BOSH_INSTALL_TARGET/word\ncp greet $BOSH_INSTALL_TARGET/greet\n\
        chmod 755 $BOSH_INSTALL_TARGET/greet\n";
    shop.upload(&sources);
    shop.manifest("latest", "{name: them}");
    let plan = shop.site.ok(&["plan", &shop.site.manifest()]);
    assert!(plan.contains("compile greeter/") && !plan.contains("compile words/"), "{plan}");
    shop.site.deploy();
    assert!(shop.greeting("back").ends_with("planet") && shop.greeting("front").ends_with("planet"));
    assert_eq!(shop.last_stop(), "keep keep keep, job_changed hash_changed greeter");
}

#[test]
fn a_release_becomes_running_processes_and_leaves_nothing_in_containers() {
    if !is_own_machine("software::a_release_becomes_running_processes_and_leaves_nothing_in_containers") {
        return;
    }
    whole_path(&Shop::in_containers());
}

#[test]
fn a_release_becomes_running_processes_and_leaves_nothing_in_processes() {
    if !is_own_machine("software::a_release_becomes_running_processes_and_leaves_nothing_in_processes") {
        return;
    }
    whole_path(&Shop::in_processes());
}

/// A site whose VMs have the original's agent. With `WINDLASS_ORIGINAL_AGENT`, that agent, and `WINDLASS_SYSTEM`, a root file system for
/// it that has monit 5.2.5 at `/var/vcap/bosh/bin/monit`, and beside it `sv`, which starts and kills it; none without them.
fn site_of_originals(test: &str) -> Option<Site> {
    let [Ok(agent), Ok(system)] = ["WINDLASS_ORIGINAL_AGENT", "WINDLASS_SYSTEM"].map(std::env::var) else {
        eprintln!("this needs the original's agent and a system with monit for it, and did not run");
        return None;
    };
    is_own_machine(test).then(|| Site::ready_with_containers_of(&system, &agent, ""))
}

#[test]
fn a_release_becomes_running_processes_and_leaves_nothing_with_the_originals_agents() {
    let test = "software::a_release_becomes_running_processes_and_leaves_nothing_with_the_originals_agents";
    if let Some(site) = site_of_originals(test) {
        whole_path(&Shop { site, os: "windlass-minimal" }.stocked());
    }
}

#[test]
fn jobs_are_refused_before_anything_changes_where_vms_cannot_run_them() {
    let shop = Shop { site: Site::ready_with_settings(""), os: "windlass-minimal" }.stocked();
    shop.manifest("1", "{}");
    let said = shop.site.fails(&["-n", "-d", "example", "deploy", &shop.site.manifest()]);
    let expected = "instance_groups[0]: its jobs cannot run on VMs of this cloud: they need a stemcell of the operating system \
        'windlass-host', not 'windlass-minimal'";
    assert!(said.contains(expected), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty());
}

#[test]
fn a_package_that_does_not_compile_fails_the_deploy_with_its_own_words_and_leaves_no_worker() {
    if !is_own_machine(
        "software::a_package_that_does_not_compile_fails_the_deploy_with_its_own_words_and_leaves_no_worker",
    ) {
        return;
    }
    let shop = Shop { site: Site::ready_with_containers(""), os: "windlass-minimal" };
    shop.configure_cloud(false);
    shop.upload(&Sources { packaging: "echo no compiler today >&2\nexit 3\n", ..Sources::default() });
    shop.manifest("1", "{}");
    let said = shop.site.fails(&["-n", "-d", "example", "deploy", &shop.site.manifest()]);
    assert!(said.contains("no compiler today") && said.contains("exited with 3"), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty(), "a worker is left");
    assert!(shop.site.rows(&["leaks"]).is_empty());
    shop.upload(&Sources { version: "2", ..Sources::default() });
    shop.deploy("2", "{}");
    assert!(shop.runs(), "{:?}", shop.processes());
    // Control groups do not go with the processes of a VM.
    shop.site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

#[test]
fn templates_that_cannot_be_rendered_stop_a_deploy_before_anything_changes() {
    if !is_own_machine("software::templates_that_cannot_be_rendered_stop_a_deploy_before_anything_changes") {
        return;
    }
    let shop = Shop { site: Site::ready_with_containers(""), os: "windlass-minimal" };
    shop.configure_cloud(true);
    shop.upload(&Sources { template: "hello\n<%= p('nobody.set.it') %>\n", ..Sources::default() });
    shop.manifest("1", "{}");
    let said = shop.site.fails(&["-n", "-d", "example", "deploy", &shop.site.manifest()]);
    let expected = "Unable to render instance groups for deployment. Errors are:\n\
        \x20   - Unable to render jobs for instance group 'front'. Errors are:\n\
        \x20     - Unable to render templates for job 'greeter'. Errors are:\n\
        \x20       - Error filling in template 'greeting.erb' (line 2: Can't find property '[\"nobody.set.it\"]')";
    assert!(said.contains(expected), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty());
}
