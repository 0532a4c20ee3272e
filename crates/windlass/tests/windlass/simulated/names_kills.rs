//! The director dies at any point of a deploy that changes names. Afterwards every agent has the newest of them, and none had older
//! ones in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_durable::sweep::Points;

use super::site::{GROUP, Site};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the agents of all VMs know, by VM.
fn known(cloud: &Path) -> BTreeMap<PathBuf, Value> {
    let vms = fs::read_dir(cloud.join("vms")).into_iter().flatten().flatten();
    let records = vms.map(|vm| vm.path().join("base/instance/dns/records.json"));
    records.filter_map(|path| Some((path.clone(), serde_json::from_slice(&fs::read(&path).ok()?).unwrap()))).collect()
}

/// Looks at all of them until the end; no agent may ever go back.
struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn begin(cloud: PathBuf) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            let mut seen: BTreeMap<PathBuf, i64> = BTreeMap::new();
            while !ended.load(Ordering::Relaxed) {
                for (path, document) in known(&cloud) {
                    let version = document["version"].as_i64().unwrap();
                    let before = seen.insert(path.clone(), version).unwrap_or_default();
                    assert!(version >= before, "{} went from version {before} back to {version}", path.display());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { over, thread: Some(thread) }
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("an agent went back");
    }
}

/// The version that all agents have, once all have the same and it names exactly the VMs that there are.
fn settled(site: &Site, instances: usize) -> Option<i64> {
    let known = known(&site.cloud());
    let mut versions: Vec<i64> = known.values().map(|document| document["version"].as_i64().unwrap()).collect();
    versions.dedup();
    let vms = site.rows(&["-d", "example", "vms"]);
    let addresses = |document: &Value| {
        let mut found: Vec<String> =
            document["records"].as_array().unwrap().iter().map(|record| record[0].as_str().unwrap().into()).collect();
        found.sort();
        found
    };
    let mut expected: Vec<String> = vms.iter().map(|vm| vm["ips"].as_str().unwrap().to_owned()).collect();
    expected.sort();
    let is_right = known.values().all(|document| addresses(document) == expected);
    (known.len() == instances && versions.len() == 1 && is_right).then(|| versions[0])
}

#[test]
fn names_of_a_deploy_that_is_killed_anywhere_reach_everybody_and_never_go_back() {
    let settings = "resurrector: {enabled: false}\nlocal_dns: {enabled: true}\n";
    let mut site = Site::start(json!({"sim": {}}), settings);
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    let group = |instances: usize| GROUP.replace("instances: 1", &format!("instances: {instances}"));
    site.deploy(&[&group(2)]);
    let (mut newest, mut kills) = (0, 0);
    for (round, point) in (1..).zip(Points::sampled(29)) {
        let instances = 2 + round % 2;
        let manifest = site.manifest(&[&group(instances)]);
        let watch = Watch::begin(site.cloud());
        site.restart_director_to_be_killed(point);
        if site.director_runs() {
            site.while_director_runs(&["-n", "-d", "example", "deploy", &manifest]);
        }
        let survived = site.director_runs();
        site.restart_director();
        kills += u64::from(!survived);
        site.ok(&["-n", "-d", "example", "deploy", &manifest]);
        let deadline = Instant::now() + PATIENCE;
        let version = loop {
            if let Some(version) = settled(&site, instances) {
                break version;
            }
            let known = known(&site.cloud());
            assert!(Instant::now() < deadline, "killed at point {point}: {known:?}\n{}", site.log());
            std::thread::sleep(Duration::from_millis(20));
        };
        watch.end();
        assert!(version > newest, "killed at point {point}: version {version} after {newest}");
        newest = version;
        if survived {
            println!("a deploy that changes names: {kills} kills, and none at point {point}");
            return;
        }
    }
}
