//! Where instances are: their zones, addresses and order.

use super::*;

#[test]
fn the_first_address_after_the_reserved_ones_is_taken_and_kept() {
    let current = deployed();
    let spec = current.instances[0].record.spec.as_ref().unwrap();
    assert_eq!(spec.networks["n"].ip.as_deref(), Some("10.0.1.10"));
    assert_eq!(spec.networks["n"].netmask.as_deref(), Some("255.255.255.0"));
    assert_eq!(spec.networks["n"].default.as_deref(), Some(&["dns".to_owned(), "gateway".to_owned()][..]));
    assert_eq!(spec.cloud_properties["zone"], "a");
    assert_eq!(spec.cloud_properties["cpu"], 1);
}

fn azs(plan: &Plan) -> Vec<(i64, &str)> {
    let mut azs: Vec<_> = plan.instances().map(|one| (one.index, one.az.as_deref().unwrap_or_default())).collect();
    azs.sort_unstable();
    azs
}

#[test]
fn instances_are_spread_evenly_and_the_highest_go_first() {
    let many = |instances, azs, disk| desired(&[Shape { instances, azs, disk, ..shape() }]);
    let current = carry_out(&planned(&many(5, "[z1, z2]", ""), &nothing()), &nothing(), "0");
    assert_eq!(
        azs(&planned(&many(5, "[z1, z2]", ""), &current)),
        [(0, "z1"), (1, "z2"), (2, "z1"), (3, "z2"), (4, "z1")]
    );
    let smaller = planned(&many(2, "[z1, z2]", ""), &current);
    assert_eq!(azs(&smaller), [(0, "z1"), (1, "z2")]);
    let mut gone: Vec<_> = smaller.removed.iter().map(|one| one.index).collect();
    gone.sort_unstable();
    assert_eq!(gone, [2, 3, 4]);
    assert!(smaller.instances().find(|one| one.index == 0).unwrap().bootstrap, "who was first stays first");
    let moved = planned(&many(4, "[z3]", ""), &current);
    assert_eq!(azs(&moved), [(5, "z3"), (6, "z3"), (7, "z3"), (8, "z3")], "indices of those that go are not used yet");
    assert_eq!(moved.removed.len(), 5);
    let disks = carry_out(&planned(&many(4, "[z1]", "d"), &nothing()), &nothing(), "0");
    assert_eq!(
        azs(&planned(&many(4, "[z1, z2]", "d"), &disks)),
        [(0, "z1"), (1, "z1"), (2, "z1"), (3, "z1")],
        "disks stay"
    );
    assert_eq!(planned(&many(4, "[z1, z2]", ""), &disks).removed.len(), 2, "without them, nothing holds an instance");
}

#[test]
fn bootstrap_moves_only_when_its_instance_goes() {
    let mut current =
        carry_out(&planned(&desired(&[Shape { instances: 3, disk: "", ..shape() }]), &nothing()), &nothing(), "0");
    for instance in &mut current.instances {
        instance.record.bootstrap = instance.record.index == 2;
    }
    let order = |plan: &Plan| plan.instances().map(|one| (one.index, one.bootstrap)).next();
    assert_eq!(order(&planned(&desired(&[Shape { instances: 3, disk: "", ..shape() }]), &current)), Some((2, true)));
    assert_eq!(order(&planned(&desired(&[Shape { instances: 2, disk: "", ..shape() }]), &current)), Some((0, true)));
}

#[test]
fn a_group_that_takes_over_another_keeps_its_instances_disks_and_addresses() {
    let current = deployed_as(Shape { instances: 2, ..shape() });
    let new =
        group(1, &Shape { instances: 3, ..shape() }).replace("{name: g1", "{name: g1, migrated_from: [{name: g0}]");
    let desired = wanted(&new);
    let plan = planned(&desired, &current);
    assert!(plan.removed.is_empty());
    assert_eq!(whats(&plan)[..4], ["metadata", "start", "metadata", "start"], "VMs and disks stay as they are");
    assert!(plan.describe().contains("it comes from the instance group 'g0'"));
    let indices: Vec<_> = azs(&plan).into_iter().map(|(index, _)| index).collect();
    assert_eq!(indices, [0, 1, 2]);
    for present in &current.instances {
        let kept = plan.instances().find(|one| one.id == present.record.id).unwrap();
        assert_eq!(kept.spec.as_ref().unwrap().networks, present.record.spec.as_ref().unwrap().networks);
    }
    assert!(planned(&desired, &carry_out(&plan, &current, "1")).is_empty());
    let mut nowhere = current.clone();
    nowhere.instances.iter_mut().for_each(|instance| instance.record.az = None);
    let problems = attempt(&desired, &nowhere, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("migrated_from must say in which az 'g0' is"), "{problems}");
    let elsewhere = wanted(&new.replace("{name: g0}", "{name: g0, az: z2}"));
    let problems = attempt(&elsewhere, &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("says that 'g0' is in az 'z2', but g0/id-1 is in az 'z1'"), "{problems}");
}

#[test]
fn a_renamed_network_keeps_its_addresses() {
    let renamed = CLOUD.replace("- name: n\n", "- name: renamed\n");
    let desired = wanted_from(&renamed, &group(0, &shape()).replace("{name: n}", "{name: renamed}"));
    let plan = planned(&desired, &deployed());
    let spec = plan.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["renamed"].ip.as_deref(), Some("10.0.1.10"));
}

#[test]
fn a_static_address_of_somebody_else_is_named_with_its_holder() {
    let groups = "- {name: g, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{name: fixed, static_ips: [10.4.1.10]}]}\n";
    let mut current = nothing();
    current.addresses.insert("10.4.1.10".parse().unwrap(), "other/db/uuid".into());
    let problems = attempt(&wanted(groups), &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("the static ip 10.4.1.10 of network 'fixed' is in use by other/db/uuid"), "{problems}");
}

#[test]
fn all_silent_agents_are_named_at_once() {
    let mut current = deployed_as(Shape { instances: 3, ..shape() });
    current.instances.iter_mut().for_each(|instance| instance.unresponsive = true);
    let problems =
        attempt(&desired(&[Shape { instances: 2, ..shape() }]), &current, &PlanOptions::default()).unwrap_err();
    assert_eq!(problems.lines().count(), 3, "{problems}");
}

#[test]
fn groups_are_updated_one_after_the_other_unless_they_say_otherwise() {
    let one = |number: usize, serial: bool| {
        group(number, &shape())
            .replace("vm_strategy", &format!("serial: {serial}, max_in_flight: 50%, canaries: 7, vm_strategy"))
    };
    let desired = wanted(&[one(0, true), one(1, true), one(2, false), one(3, false), one(4, true)].concat());
    let plan = planned(&desired, &nothing());
    let batches: Vec<Vec<&str>> =
        plan.batches().iter().map(|batch| batch.iter().map(|group| group.name.as_str()).collect()).collect();
    assert_eq!(batches, [vec!["g0"], vec!["g1"], vec!["g2", "g3"], vec!["g4"]]);
    assert_eq!((plan.groups[0].canaries, plan.groups[0].max_in_flight), (7, 1), "at least one at a time");
    let options = PlanOptions { max_in_flight: Some(crate::desired::Count::Number(9)), ..PlanOptions::default() };
    assert_eq!(attempt(&desired, &nothing(), &options).unwrap().groups[0].max_in_flight, 9);
}

#[test]
fn zones_are_updated_one_after_the_other_beginning_with_the_first_instances() {
    let plan = planned(&desired(&[Shape { instances: 4, azs: "[z2, z1]", ..shape() }]), &nothing());
    let zones: Vec<Vec<&str>> = plan.groups[0]
        .changed_by_zone()
        .iter()
        .map(|zone| zone.iter().map(|one| one.az.as_deref().unwrap()).collect())
        .collect();
    assert_eq!(zones, [["z1", "z1"], ["z2", "z2"]]);
}

#[test]
fn vips_stay_with_their_owners_and_come_in_the_order_of_the_list() {
    let groups = |vips: &[&str]| {
        format!(
            "- {{name: g, instances: {}, azs: [z1], vm_type: small, stemcell: one, networks: [{{name: n, default: [dns, gateway]}}, {{name: pub, static_ips: [{}]}}]}}\n",
            vips.len(),
            vips.join(", ")
        )
    };
    let vips = |plan: &Plan| -> BTreeMap<i64, String> {
        plan.instances()
            .map(|one| (one.index, one.spec.as_ref().unwrap().networks["pub"].ip.clone().unwrap()))
            .collect()
    };
    let first = planned(&wanted(&groups(&["198.51.100.9", "198.51.100.1"])), &nothing());
    let expected = |vips: &[&str]| (0..).zip(vips.iter().map(ToString::to_string)).collect::<BTreeMap<_, _>>();
    assert_eq!(vips(&first), expected(&["198.51.100.9", "198.51.100.1"]));
    let current = carry_out(&first, &nothing(), "0");
    let more = planned(&wanted(&groups(&["198.51.100.1", "198.51.100.5", "198.51.100.9"])), &current);
    assert_eq!(vips(&more), expected(&["198.51.100.9", "198.51.100.1", "198.51.100.5"]));
    let spec = more.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["pub"].kind, NetworkKind::Vip);
}
