//! What is done to an instance, in which order, and why.

use super::*;

#[test]
fn groups_whose_new_vms_nest_are_named_until_they_are_there() {
    let cloud = CLOUD.replace("{cpu: 4}", "{cpu: 4, nesting: true}");
    let group = |name: &str, vm_type: &str| {
        format!(
            "- {{name: {name}, instances: 2, azs: [z1], vm_type: {vm_type}, stemcell: one, networks: [{{name: n}}]}}\n"
        )
    };
    let desired = wanted_from(&cloud, &(group("plain", "small") + &group("nested", "large")));
    let first = planned(&desired, &nothing());
    assert_eq!(first.groups_that_nest(), BTreeSet::from([("nested", &CpiName::Default)]));
    let after = carry_out(&first, &nothing(), "one");
    assert_eq!(planned(&desired, &after).groups_that_nest(), BTreeSet::new());
}

#[test]
fn a_recreate_carries_the_disk_over_in_the_right_order() {
    let options = PlanOptions { recreate: true, ..PlanOptions::default() };
    let plan = attempt(&desired(&[shape()]), &deployed(), &options).unwrap();
    assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "start"]);
}

#[test]
fn instances_that_change_alike_are_told_together() {
    let many = Shape { instances: 6, azs: "[z1]", ..shape() };
    let first = planned(&desired(std::slice::from_ref(&many)), &nothing());
    let told = first.describe_briefly();
    assert!(told.contains("  g0 (0-5): each of 6 instances\n    create VM: "), "{told}");
    assert_eq!(told.matches("create VM").count(), 1, "{told}");
    assert_eq!(first.describe().matches("create VM").count(), 6, "logs name every instance");
    // Ids differ, and the change is the same; one that has lost its VM changes otherwise.
    let mut current = carry_out(&first, &nothing(), "one");
    let lost = current.instances.iter_mut().find(|instance| instance.record.index == 2).unwrap();
    (lost.vm, lost.disks[0].vm) = (None, None);
    let label = format!("  g0/{} (2)\n", lost.record.id);
    let options = PlanOptions { recreate: true, ..PlanOptions::default() };
    let told = attempt(&desired(&[many]), &current, &options).unwrap().describe_briefly();
    assert!(told.contains("  g0 (0-1, 3-5): each of 5 instances\n    stop: "), "{told}");
    assert!(told.contains("    delete the VM: ") && told.contains(&label), "{told}");
    let few = planned(&desired(&[Shape { instances: 3, ..shape() }]), &nothing());
    assert_eq!(few.describe_briefly(), few.describe(), "a few are told one by one");
}

#[test]
fn a_vm_that_is_gone_is_made_again_with_its_disk() {
    let mut current = deployed();
    current.instances[0].vm = None;
    current.instances[0].disks[0].vm = None;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "attach", "start"]);
}

#[test]
fn work_that_was_interrupted_is_finished() {
    let mut current = deployed();
    current.instances[0].disks[0].mounted = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["attach", "start"]);
    let mut current = deployed();
    current.instances[0].record.converged = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["start"]);
    let mut current = deployed();
    current.instances[0].vm.as_mut().unwrap().ready = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "start"]);
}

#[test]
fn a_change_that_failed_is_planned_again_whatever_the_spec_says_by_then() {
    let mut current = deployed();
    let wanted = desired(&[Shape { vm_type: "vm_type: large", networks: "dyn", stemcell: "latest", ..shape() }]);
    let first = planned(&wanted, &current);
    // The deploy stored what it was about to do, and then failed before it touched the VM.
    current.instances[0].record.spec = first.instances().next().unwrap().spec.clone();
    current.instances[0].record.converged = false;
    assert_eq!(whats(&planned(&wanted, &current)), whats(&first));
    let mut current = deployed();
    current.instances[0].vm.as_mut().unwrap().wanted_env.insert("old".into(), true.into());
    assert!(planned(&desired(&[shape()]), &current).describe().contains("its env changes (old)"));
}

#[test]
fn a_vm_whose_env_has_another_value_of_a_variable_is_replaced_and_no_value_is_told() {
    let mut wanted = desired(&[shape()]);
    wanted.groups[0].env.insert("password".into(), "((p))".into());
    let mut current = deployed();
    current.variables = Some(crate::software::VariableSet(7));
    let vm = current.instances[0].vm.as_mut().unwrap();
    vm.wanted_env = wanted.groups[0].env.clone();
    vm.env_values = Some("digest of p".into());
    let plan = planned(&wanted, &current);
    assert_eq!(plan.instances().next().unwrap().spec.as_ref().unwrap().variables, current.variables);
    assert!(!plan.describe().contains("env"), "{}", plan.describe());
    current.instances[0].vm.as_mut().unwrap().env_values = Some("digest of another".into());
    assert!(
        planned(&wanted, &current).describe().contains("values of variables in its env or cloud_properties change")
    );
}

#[test]
fn a_silent_agent_is_an_obstacle_that_names_its_remedy_and_fix_replaces_the_vm() {
    let mut current = deployed();
    current.instances[0].unresponsive = true;
    let wanted = desired(&[shape()]);
    let problems = attempt(&wanted, &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("does not answer; use --fix"), "{problems}");
    let options = PlanOptions { fix: true, ..PlanOptions::default() };
    let plan = attempt(&wanted, &current, &options).unwrap();
    assert_eq!(whats(&plan), ["delete", "create", "attach", "start"], "a dead agent is asked for nothing");
}

#[test]
fn a_changed_stemcell_says_so_in_the_plan() {
    let plan = planned(&desired(&[Shape { stemcell: "latest", ..shape() }]), &deployed());
    assert!(plan.describe().contains("the stemcell changes from s/1 to s/1.10"), "{}", plan.describe());
}

#[test]
fn a_removed_instance_keeps_its_data() {
    let plan = planned(&desired(&[Shape { instances: 0, ..shape() }]), &deployed());
    let whats: Vec<_> = plan.removed[0].actions.iter().map(|action| action.what.describe()).collect();
    assert_eq!(whats, ["stop", "delete VM vm-0-id-1", "orphan disk disk-0-id-1 (data is kept)", "remove instance"]);
}

#[test]
fn a_full_network_is_named() {
    let mut current = Current::default();
    for last in 10..=254 {
        current.addresses.insert(format!("10.0.1.{last}").parse().unwrap(), "other/g/i".into());
    }
    let problems = attempt(&desired(&[shape()]), &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("instance_groups[0]: network 'n' has no free address for az 'z1'"), "{problems}");
}

#[test]
fn every_change_of_a_vm_names_old_and_new() {
    for (changed, reason) in [
        (Shape { vm_type: "vm_type: large", ..shape() }, "the vm_type changes from small to large (cpu: 1 → 4)"),
        (Shape { vm_type: RESOURCES, ..shape() }, "its cloud_properties change (cpu: 1 → 9)"),
        (Shape { stemcell: "latest", ..shape() }, "the stemcell changes from s/1 to s/1.10"),
        (Shape { networks: "dyn", ..shape() }, "it joins network 'dyn'"),
        (Shape { networks: "several", ..shape() }, "it joins network 'dyn'"),
    ] {
        let plan = planned(&desired(&[changed]), &deployed());
        assert!(plan.describe().contains(reason), "{reason} in {}", plan.describe());
        assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "start"]);
    }
    let elsewhere = CLOUD.replace("gateway: 10.0.1.1, ", "gateway: 10.0.1.9, ");
    let plan = planned(&wanted_from(&elsewhere, &group(0, &shape())), &deployed());
    assert!(plan.describe().contains("its network 'n' changes (gateway: 10.0.1.1 → 10.0.1.9)"), "{}", plan.describe());
}

#[test]
fn a_disk_that_changes_is_resized_or_migrated_on_a_stopped_instance() {
    let changed = |disk, reason: &str| {
        let plan = planned(&desired(&[Shape { disk, ..shape() }]), &deployed());
        assert!(plan.describe().contains(reason), "{reason} in {}", plan.describe());
        whats(&plan)
    };
    assert_eq!(changed("e", "the disk grows from 64 MiB to 128 MiB"), ["stop", "resize", "start"]);
    assert_eq!(changed("f", "the disk's properties change (type: none → ssd)"), ["stop", "migrate", "start"]);
    assert_eq!(changed("", "the instance has no such disk any more"), ["stop", "detach", "orphan", "start"]);
    let large = Shape { vm_type: "vm_type: large", disk: "e", ..shape() };
    let plan = planned(&desired(&[large]), &deployed());
    assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "resize", "start"]);
    let shrunk = planned(&desired(&[shape()]), &deployed_as(Shape { disk: "e", ..shape() }));
    assert_eq!(whats(&shrunk), ["stop", "migrate", "start"]);
    let named = planned(&desired(&[Shape { disk: "named", ..shape() }]), &nothing());
    assert_eq!(whats(&named), ["create", "create disk", "attach", "create disk", "attach", "start"]);
}

#[test]
fn a_swap_makes_the_new_vm_before_the_old_one_stops_with_another_address() {
    let swap = Shape { strategy: "create-swap-delete", ..shape() };
    let current = deployed_as(swap.clone());
    let plan = planned(&desired(&[Shape { vm_type: "vm_type: large", ..swap }]), &current);
    assert_eq!(whats(&plan), ["create spare", "stop", "detach", "swap", "attach", "start"]);
    let spec = plan.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["n"].ip.as_deref(), Some("10.0.1.11"));
}

#[test]
fn an_errand_has_no_vm_until_it_is_run() {
    let errand = Shape { lifecycle: "errand", ..shape() };
    let plan = planned(&desired(std::slice::from_ref(&errand)), &nothing());
    assert!(plan.is_empty() && plan.instances().count() == 1);
    let current = carry_out(&plan, &nothing(), "0");
    assert!(current.instances[0].vm.is_none());
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "create disk", "attach", "start"]);
    assert!(planned(&desired(&[errand]), &deployed()).is_empty(), "a VM that is there stays");
}

#[test]
fn other_tags_alone_stop_nothing() {
    let plan = planned(&desired(&[Shape { tags: "{a: b}", ..shape() }]), &deployed());
    assert_eq!(whats(&plan), ["metadata"]);
    assert!(plan.describe().contains("its tags change (a: none → b)"), "{}", plan.describe());
    let mut current = deployed_as(Shape { tags: "{a: b}", ..shape() });
    current.instances[0].record.converged = false;
    let wanted = desired(&[Shape { tags: "{a: b}", ..shape() }]);
    assert_eq!(whats(&planned(&wanted, &current)), ["metadata", "start"], "nobody knows whether the cloud was told");
}
