//! The SDK's example, which authors begin with, is certified; otherwise everybody would begin with a broken CPI.

use std::sync::atomic::AtomicBool;

use serde_json::json;
use windlass_certify::{Observers, Outcome, Plan, Profile, certify};

#[test]
fn the_example_of_the_sdk_is_certified() {
    let folder = tempfile::tempdir().unwrap();
    let (config, agent) = (folder.path().join("cpi.json"), folder.path().join("agent"));
    let state = folder.path().join("state");
    let properties = json!({"cloud": {"plugin": "directory", "properties": {"directory": {"folder": state}}}});
    std::fs::write(&config, properties.to_string()).unwrap();
    std::fs::write(&agent, "#!/bin/sh\n").unwrap();
    let example = env!("CARGO_BIN_EXE_directory-cloud");
    let list = format!("sh -c 'cd {} 2>/dev/null && ls stemcells vms disks | grep -- - || true'", state.display());
    let plan = Plan {
        cpi: format!("{example} {}", config.display()).parse().unwrap(),
        profile: Profile::default(),
        stemcell: None,
        agent,
        observers: Observers { list: Some(list.parse().unwrap()), ..Observers::default() },
        only: Vec::new(),
        registry: None,
        until: None,
    };
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert!(report.is_certified(), "{}", report.to_table());
    assert_eq!(report.count(Outcome::Failed), 0);
    assert!(report.leftovers.is_empty(), "{:?}", report.leftovers);
}
