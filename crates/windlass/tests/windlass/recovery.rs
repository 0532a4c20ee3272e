//! `create-recovery-plan` and `recover`, and what is deleted although it is not there.

use std::fs;

use crate::command_line::{answer, cell, lose_vm, words};
use crate::site::Site;

/// Somebody who repairs many VMs after a disaster would have to choose again for each of them.
#[test]
fn what_is_to_be_repaired_is_decided_once_and_done_later() {
    let site = Site::ready_to_deploy();
    site.ok(&["update-resurrection", "off"]);
    site.deploy();
    let plan = site.file("plan.yml");
    let plan_path = plan.to_str().unwrap();
    let create = format!("-d example create-recovery-plan {plan_path}");
    let recover = format!("-d example recover {plan_path}");
    assert!(answer(&site, &create, "").1.contains("No problems found"));
    assert!(!plan.exists());

    lose_vm(&site, &cell(&site, "-d example vms", "vm_cid"));
    let (went, nobody) = answer(&site, &create, "");
    assert!(!went && nobody.contains("nobody to ask") && !plan.exists(), "{nobody}");
    let (went, asked) = answer(&site, &create, "3\ny\n50%\n");
    assert!(went && asked.contains("Instance Group 'db'") && asked.contains("Problem type: missing_vm"), "{asked}");
    assert!(asked.contains("Override current max_in_flight value of '2'?"), "{asked}");
    let written = fs::read_to_string(&plan).unwrap();
    for line in ["name: db", "missing_vm: recreate_vm", "max_in_flight_override: 50%"] {
        assert!(written.contains(line), "no '{line}' in {written}");
    }

    let (went, declined) = answer(&site, &recover, "n\n");
    assert!(!went && declined.contains("Instance Group 'db' plan summary (max_in_flight override: 50%)"), "{declined}");
    assert!(site.in_cloud("vms").is_empty(), "nothing was agreed to");
    fs::write(&plan, written.replace("recreate_vm", "pray")).unwrap();
    let unfit = site.fails(&words(&format!("-n {recover}")));
    assert!(unfit.contains("'pray', which is not offered"), "{unfit}");
    fs::write(&plan, &written).unwrap();
    site.ok(&words(&format!("-n {recover}")));
    assert_eq!(site.in_cloud("vms").len(), 1);
}

/// Scripts of BOSH's users delete what may be gone.
#[test]
fn what_is_not_there_counts_as_deleted() {
    let site = Site::ready_to_deploy();
    site.deploy();
    site.ok(&words("-n delete-network nope"));
    site.ok(&words("-n -d example delete-snapshot nope"));
    site.ok(&words("-d example take-snapshot"));
    let rows = site.rows(&words("-d example snapshots"));
    assert_eq!(rows[0]["instance"], "db/0", "as BOSH's client shows it");
}
