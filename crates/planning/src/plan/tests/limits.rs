//! What the clouds cannot give.

use windlass_contract::MiB;
use windlass_contract::cpi::{CloudLimits, NetworkInUse};

use super::*;

const GROUPS: &str = "\
- {name: g, instances: 3, azs: [z1], vm_type: small, stemcell: one, networks: [{name: n}], persistent_disk_type: d}
- {name: h, instances: 1, azs: [z2], vm_type: small, stemcell: one, networks: [{name: m}]}
";

fn refused(plan: &Plan, desired: &Desired, limits: &CloudLimits) -> String {
    let mut findings = Findings::new();
    refuse_impossible(plan, desired, &BTreeMap::from([(CpiName::Default, limits.clone())]), &mut findings);
    findings.to_string()
}

#[test]
fn what_a_cloud_cannot_give_is_said_once_for_each_group_and_only_if_it_is_needed() {
    let desired = wanted(GROUPS);
    let first = planned(&desired, &nothing());
    assert_eq!(first.needs().keys().collect::<Vec<_>>(), [&&CpiName::Default]);
    assert_eq!(refused(&first, &desired, &CloudLimits::default()), "");
    let used = |range: &str| NetworkInUse { range: range.parse().unwrap(), by: "the machine on eth0".into() };
    let tight = CloudLimits {
        largest_disk_mib: Some(MiB(63)),
        networks_in_use: vec![used("192.168.0.0/16"), used("10.0.1.64/26")],
        addresses_in_use: BTreeMap::from([("10.0.3.1".parse().unwrap(), "vm-7".into())]),
        ..CloudLimits::default()
    };
    assert_eq!(
        refused(&first, &desired, &tight),
        "instance_groups[0]: a disk of 64 MiB cannot be had: the largest in this cloud has 63 MiB (line 4)\n\
         instance_groups[0]: its network 'n' cannot be had: 10.0.1.0/24 overlaps 10.0.1.64/26, which is used by the machine on \
         eth0; choose another range (line 4)\n\
         instance_groups[1]: its network 'm' cannot be had: the address 10.0.3.1 is taken in the cloud by vm-7, which this \
         director does not know; delete that ('windlass leaks' tells how), or choose another address (line 5)"
    );
    let elsewhere = CloudLimits { networks_within: vec!["127.0.0.0/8".parse().unwrap()], ..CloudLimits::default() };
    let said = refused(&first, &desired, &elsewhere);
    assert!(said.contains("10.0.3.0/24 is not in 127.0.0.0/8, where all VMs of this cloud must be (line 5)"), "{said}");

    // What is there already needs nothing.
    let current = carry_out(&first, &nothing(), "0");
    assert_eq!(refused(&planned(&desired, &current), &desired, &tight), "");
    let grown = wanted(&GROUPS.replace("persistent_disk_type: d", "persistent_disk_type: e"));
    let plan = planned(&grown, &current);
    let said = refused(&plan, &grown, &tight);
    assert_eq!(
        said,
        "instance_groups[0]: a disk of 128 MiB cannot be had: the largest in this cloud has 63 MiB (line 4)"
    );
    // From what is on record alone, as when a single VM is recreated.
    let limits = BTreeMap::from([(CpiName::Default, tight.clone())]);
    let of_group = |name: &str| current.instances.iter().find(|it| it.record.group == name).unwrap();
    let recreated = plan_state_change(of_group("g"), Wish::Recreate, true, false);
    let why = impossible_for(&recreated, &limits).unwrap();
    assert_eq!(
        why,
        "its network 'n' cannot be had: 10.0.1.0/24 overlaps 10.0.1.64/26, which is used by the machine on eth0; choose \
        another range"
    );
    let recreated = plan_state_change(of_group("h"), Wish::Recreate, true, false);
    assert!(impossible_for(&recreated, &limits).unwrap().contains("the address 10.0.3.1 is taken"));
    assert_eq!(impossible_for(&plan_state_change(of_group("h"), Wish::Restart, true, false), &limits), None);

    let recreated = PlanOptions { recreate: true, ..PlanOptions::default() };
    let plan = attempt(&desired, &current, &recreated).unwrap();
    assert!(refused(&plan, &desired, &tight).contains("10.0.1.0/24 overlaps"), "VMs are made anew");
}
