//! The four combinations of old and new CPIs and stemcells: in each the instance runs with its disk, and a registry is asked
//! in all but one.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde_json::json;
use windlass_contract::Secret;
use windlass_registry::Credentials;
use windlass_registry::server::{Config, Registry};

use super::recreating::behind_the_directors_back;
use super::site::{GROUP, Site};

fn free_address() -> SocketAddr {
    let [a, b, c, ..] = uuid::Uuid::new_v4().into_bytes();
    let place = Ipv4Addr::new(127, 200 + a % 50, b, c.max(1));
    TcpListener::bind((place, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn old_and_new_cpis_and_stemcells_work_together_in_every_combination() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (cpi, stemcell) in [(1, "1"), (1, "2"), (2, "1"), (2, "2")] {
        let address = free_address();
        let folder = tempfile::tempdir().unwrap();
        let database = Secret::new(format!("sqlite:{}", folder.path().join("registry.db").display()));
        let writer = Credentials { user: "writer".into(), password: Secret::new("s3cret") };
        let mut config = Config::new(address, database, vec![writer]);
        config.count_instances = true;
        let registry = runtime.block_on(Registry::start(config)).unwrap();
        let site = Site::start(
            json!({
                "sim": {},
                "registry": {"endpoint": format!("http://{address}"), "user": "writer", "password": "s3cret"},
                "debug": {"cpi": {"api_version": cpi}},
            }),
            "{}\n",
        );
        site.upload_stemcell(stemcell);
        site.update_cloud_config("{}", "{}");
        site.deploy(&[GROUP]);
        let vm = site.in_cloud("vms")[0].clone();
        fs::write(site.store(&vm).join("precious"), "data").unwrap();
        site.ok(&["-n", "-d", "example", "recreate"]);
        let vm = site.in_cloud("vms")[0].clone();
        assert_eq!(
            fs::read_to_string(site.store(&vm).join("precious")).unwrap(),
            "data",
            "CPI {cpi}, stemcell {stemcell}"
        );
        // A CPI of version 1 answers no hint; the agent finds the disk in its settings.
        let hint = site.rows(&["disks"])[0]["hint"].as_str().unwrap_or_default().to_owned();
        assert_eq!(hint.contains("path"), cpi == 2, "CPI {cpi}, stemcell {stemcell}: {hint}");
        let is_asked = !registry.instances().is_empty();
        assert_eq!(is_asked, (cpi, stemcell) != (2, "2"), "CPI {cpi}, stemcell {stemcell}");
        site.deploy(&[&GROUP.replace("persistent_disk_type: disk", "persistent_disk_type: larger")]);
        site.ok(&["update-resurrection", "off"]);
        for (method, repair) in [("detach_disk", "reattach_disk_and_reboot"), ("delete_vm", "recreate_vm")] {
            let (vm, disk) = (site.in_cloud("vms")[0].clone(), site.attached_disk().0);
            let arguments = if method == "detach_disk" { json!([vm, disk]) } else { json!([vm]) };
            behind_the_directors_back(&site, method, arguments);
            site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", repair]);
        }
        for verb in ["take-snapshot", "delete-snapshots", "take-snapshot", "cloud-check", "delete-deployment"] {
            site.ok(&["-n", "-d", "example", verb]);
        }
        site.ok(&["-n", "clean-up", "--all"]);
        told_everywhere(&site, &format!("CPI {cpi}"), stemcell);
        runtime.block_on(registry.stop());
    }
}

/// Whatever is done later to a VM or a disk, also when it is nobody's any more, the CPI is told the version of the stemcell that it
/// was used with.
fn told_everywhere(site: &Site, cpi: &str, stemcell: &str) {
    let mut asked = BTreeSet::new();
    for request in site.requests() {
        let method = request["method"].as_str().unwrap();
        if !ABOUT_NEITHER.contains(&method) {
            let told = &request["context"]["vm"]["stemcell"]["api_version"];
            assert_eq!(told.to_string(), stemcell, "{cpi}: {request}");
            asked.insert(method.to_owned());
        }
    }
    for method in ASKED {
        assert!(asked.contains(method), "{cpi}: {method} is not among {asked:?}");
    }
}

const ABOUT_NEITHER: [&str; 3] = ["info", "create_stemcell", "delete_stemcell"];
const ASKED: [&str; 15] = [
    "attach_disk",
    "create_disk",
    "create_vm",
    "delete_disk",
    "delete_snapshot",
    "delete_vm",
    "detach_disk",
    "get_disks",
    "has_disk",
    "has_vm",
    "reboot_vm",
    "resize_disk",
    "set_disk_metadata",
    "set_vm_metadata",
    "snapshot_disk",
];
