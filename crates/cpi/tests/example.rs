//! The example is what CPI authors start from, so it must pass what their CPI will have to pass.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::fs;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use windlass_certify::{Observers, Plan, Profile, certify};

#[test]
fn the_example_is_certified_and_small() {
    let source = include_str!("../examples/directory_cloud.rs");
    assert!(source.lines().count() <= 150, "an afternoon's work must look like one");

    let this = std::env::current_exe().unwrap();
    let example = this.parent().unwrap().with_file_name("examples").join("directory_cloud");
    assert!(example.is_file(), "{} is missing: run all targets of this package", example.display());
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    for kind in ["stemcells", "vms", "disks"] {
        fs::create_dir_all(state.join(kind)).unwrap();
    }
    let config = folder.path().join("cpi.json");
    let properties = json!({"directory": {"folder": state}});
    fs::write(&config, json!({"cloud": {"plugin": "directory", "properties": properties}}).to_string()).unwrap();

    let state = state.display();
    let list = format!(
        "find {state}/stemcells {state}/vms {state}/disks -mindepth 1 -maxdepth 1 -not -name .* -printf '%f\n'"
    );
    let plan = Plan {
        cpi: format!("{} {}", example.display(), config.display()).parse().unwrap(),
        profile: Profile::default(),
        stemcell: None,
        agent: this.clone(),
        observers: Observers {
            show_settings: Some(format!("cat {state}/vms/{{vm_cid}}/user-data.json").parse().unwrap()),
            list: Some(list.parse().unwrap()),
            disk_size: None,
        },
        only: Vec::new(),
    };
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert!(report.is_certified(), "{}", report.to_table());
    assert!(report.leftovers.is_empty(), "{:?}", report.leftovers);
}
