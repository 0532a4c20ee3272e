//! A deployment's whole life on the embedded cloud, with data that must be there after everything that happens to it.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::api::Api;
use crate::site::Site;
use windlass_rigs::own_machine::is_own_machine;

const SETTINGS: &str = "resurrector: {interval: 1s, agent_timeout: 2s}\n";

/// A deployment of three, and what each instance must have on its disk.
struct Life {
    site: Site,
    precious: BTreeMap<String, String>,
}

/// What the manifest and the cloud config say.
struct Wanted {
    disk: u64,
    network: &'static str,
}

impl Life {
    fn deploy(&self, wanted: &Wanted) {
        let (prefix, Wanted { disk, network }) = (self.site.prefix(), wanted);
        let cloud_config = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: {disk}}}]\nnetworks:\n\
             - name: one\n  subnets: [{{range: {prefix}.0/25, gateway: {prefix}.1, azs: [z1]}}]\n\
             - name: two\n  subnets: [{{range: {prefix}.128/25, gateway: {prefix}.129, azs: [z1]}}]\n"
        );
        let manifest = format!(
            "name: example\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 3, canary_watch_time: 1-30000, update_watch_time: 1-30000}}\n\
             instance_groups:\n- name: db\n  instances: 3\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
             persistent_disk_type: disk\n  networks: [{{name: {network}}}]\n"
        );
        fs::write(self.site.file("cloud-config.yml"), cloud_config).unwrap();
        fs::write(self.site.file("manifest.yml"), manifest).unwrap();
        self.site.ok(&["-n", "update-cloud-config", self.site.file("cloud-config.yml").to_str().unwrap()]);
        self.site.deploy();
    }

    /// VMs by the names of their instances.
    fn vms(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let rows = self.site.rows(&["-d", "example", "vms"]);
        rows.iter().map(|row| (text(&row["instance"]), text(&row["vm_cid"]))).collect()
    }

    fn write(&mut self) {
        for (instance, vm) in self.vms() {
            let content = format!("of {instance}");
            self.site.write_to_store(&vm, "precious", &content);
            self.precious.insert(instance, content);
        }
    }

    fn has_its_data(&self, after: &str) {
        let vms = self.vms();
        assert_eq!(vms.len(), self.precious.len(), "after {after}");
        for (instance, content) in &self.precious {
            let found = fs::read_to_string(self.site.store(&vms[instance]).join("precious"));
            assert_eq!(found.ok().as_ref(), Some(content), "{instance} after {after}\n{}", self.site.director_log());
        }
    }
}

fn whole_life(site: Site) {
    let mut life = Life { site, precious: BTreeMap::new() };
    life.deploy(&Wanted { disk: 64, network: "one" });
    life.write();
    let first = life.vms();
    for vm in first.values() {
        assert_eq!(life.site.settings(vm).get("registry"), None, "no registry is named, and none runs");
    }

    life.deploy(&Wanted { disk: 96, network: "one" });
    life.has_its_data("a disk grew");
    let api = Api::of(&life.site);
    let disks = api.get("/windlass/disks");
    assert!(disks.as_array().unwrap().iter().all(|disk| disk["size"] == 96), "{disks}");

    life.deploy(&Wanted { disk: 96, network: "two" });
    life.has_its_data("the network changed");
    let moved = life.vms();
    assert!(first.values().all(|vm| !moved.values().any(|other| other == vm)), "another network takes another VM");

    life.site.ok(&["-n", "-d", "example", "recreate", "db/0"]);
    life.has_its_data("a recreate");

    let (instance, victim) = life.vms().pop_first().unwrap();
    life.site.ok(&["local", "kill", &victim]);
    life.site.wait_until("the resurrection", |site| !site.in_cloud("vms").contains(&victim));
    life.site.wait_until("the end of the repair", |_| api.newest_task()["state"] == "done");
    life.has_its_data("a resurrection");

    assert_eq!(api.status("PUT", "/resurrection", json!({"resurrection_paused": true})), 200);
    let victim = life.vms()[&instance].clone();
    life.site.ok(&["local", "kill", &victim]);
    let found = api.scan("example");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(api.resolve("example", &found, Some("recreate_vm")), "done");
    assert_eq!(api.scan("example"), json!([]));
    life.has_its_data("cloud-check");

    life.site.ok(&["-d", "example", "take-snapshot"]);
    assert_eq!(api.get("/deployments/example/snapshots").as_array().unwrap().len(), 3);
    assert_eq!(life.site.in_cloud("snapshots").len(), 3);

    let disk = disks_of(&api, &instance);
    life.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(life.site.in_cloud("vms").is_empty());
    let orphans = api.get("/disks");
    assert_eq!(orphans.as_array().unwrap().len(), 3, "{orphans}");

    // Another deployment of the same name gets the orphan back, with what was on it.
    life.deploy(&Wanted { disk: 96, network: "two" });
    let (heir, vm) = life.vms().pop_first().unwrap();
    assert!(!life.site.store(&vm).join("precious").exists(), "its own disk is new");
    life.site.ok(&["-n", "-d", "example", "stop", &heir]);
    life.site.ok(&["-n", "-d", "example", "attach-disk", &heir, &disk]);
    life.site.ok(&["-n", "-d", "example", "start", &heir]);
    let vm = life.vms()[&heir].clone();
    let found = fs::read_to_string(life.site.store(&vm).join("precious")).unwrap();
    assert_eq!(found, life.precious[&instance]);

    life.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(life.site.in_cloud("vms").is_empty() && life.site.vm_processes().is_empty());
    assert!(life.site.rows(&["leaks"]).is_empty());
}

/// The disk of an instance.
fn disks_of(api: &Api, instance: &str) -> String {
    let disks = api.get("/windlass/disks");
    let disk = disks.as_array().unwrap().iter().find(|disk| disk["instance"] == instance).unwrap();
    disk["disk_cid"].as_str().unwrap().to_owned()
}

#[test]
fn data_survives_a_deployments_whole_life_in_processes() {
    whole_life(Site::ready_with_settings(SETTINGS));
}

#[test]
fn data_survives_a_deployments_whole_life_in_containers() {
    if is_own_machine("keeping::whole_life::data_survives_a_deployments_whole_life_in_containers") {
        whole_life(Site::ready_with_containers(SETTINGS));
    }
}

/// With `WINDLASS_ORIGINAL_AGENT`, the original's agent, and `WINDLASS_SYSTEM`, a root file system for it, such as one that
/// `mmdebstrap --variant=minbase --include=ca-certificates,iproute2,procps bookworm system.tar` makes.
#[test]
fn data_survives_a_deployments_whole_life_with_the_originals_agents() {
    let [Ok(agent), Ok(system)] = ["WINDLASS_ORIGINAL_AGENT", "WINDLASS_SYSTEM"].map(std::env::var) else {
        eprintln!("this needs the original's agent and a system for it, and did not run");
        return;
    };
    if is_own_machine("keeping::whole_life::data_survives_a_deployments_whole_life_with_the_originals_agents") {
        whole_life(Site::ready_with_containers_of(&system, &agent, SETTINGS));
        // What cannot grow in place is copied by the agent.
        let site = Site::ready_with_containers_of(&system, &agent, "enable_cpi_resize_disk: false\n");
        let mut life = Life { site, precious: BTreeMap::new() };
        life.deploy(&Wanted { disk: 64, network: "one" });
        life.write();
        life.deploy(&Wanted { disk: 96, network: "one" });
        life.has_its_data("a disk was copied to a larger one");
        life.deploy(&Wanted { disk: 80, network: "one" });
        life.has_its_data("a disk was copied to a smaller one");
        let api = Api::of(&life.site);
        for vm in life.vms().into_values() {
            life.site.ok(&["local", "kill", &vm]);
        }
        assert_eq!(api.resolve("example", &api.scan("example"), Some("reboot_vm")), "done");
        life.has_its_data("a reboot");
        assert_eq!(api.scan("example"), json!([]));
        life.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    }
}
