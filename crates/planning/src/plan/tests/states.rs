//! Instances that are started, stopped and detached.

use super::*;

fn ask(wish: Wish) -> PlanOptions {
    let change = Some(StateChange { selection: Selection::default(), wish });
    PlanOptions { change, ..PlanOptions::default() }
}

/// Plans, and gives what is done and what is then.
fn after(shape: &Shape, current: &Current, options: &PlanOptions) -> (Vec<&'static str>, Current) {
    let desired = desired(std::slice::from_ref(shape));
    let plan = attempt(&desired, current, options).unwrap();
    let then = carry_out(&plan, current, "then");
    assert!(planned(&desired, &then).is_empty(), "asked for once, it is there");
    (whats(&plan), then)
}

#[test]
fn a_stopped_instance_keeps_its_vm_and_stays_stopped_until_it_is_started() {
    let (done, stopped) = after(&shape(), &deployed(), &ask(Wish::Stop));
    assert_eq!(done, ["stop"]);
    assert_eq!(stopped.instances[0].record.state, InstanceState::Stopped);
    let larger = Shape { vm_type: "vm_type: large", ..shape() };
    let (done, stopped) = after(&larger, &stopped, &PlanOptions::default());
    assert!(done.is_empty(), "a deploy does not start it: {done:?}");
    let (done, _) = after(&larger, &stopped, &ask(Wish::Start));
    assert_eq!(done, ["detach", "delete", "create", "attach", "start"], "what it missed is done before it starts");
    let (done, _) = after(&shape(), &stopped, &ask(Wish::Start));
    assert_eq!(done, ["start"]);
}

#[test]
fn a_detached_instance_has_no_vm_and_keeps_its_disk_and_its_address() {
    let (done, detached) = after(&shape(), &deployed(), &ask(Wish::Detach));
    assert_eq!(done, ["stop", "detach", "delete"]);
    assert!(detached.instances[0].vm.is_none() && detached.instances[0].disks.len() == 1);
    let before = deployed().instances[0].record.spec.as_ref().unwrap().networks.clone();
    let two = Shape { instances: 2, ..shape() };
    let (_, detached) = after(&two, &detached, &PlanOptions::default());
    let own = detached.instances.iter().find(|instance| instance.vm.is_none()).unwrap();
    assert_eq!(own.record.spec.as_ref().unwrap().networks, before, "nobody else gets its address");
    let (done, _) = after(&two, &detached, &ask(Wish::Start));
    assert_eq!(done, ["create", "attach", "start"]);
    let (done, _) = after(&two, &detached, &ask(Wish::Stop));
    assert_eq!(done, ["create", "attach", "stop"], "it gets a VM that does not run; the other one is stopped");
}

#[test]
fn what_is_stopped_already_is_not_drained_again() {
    let (_, stopped) = after(&shape(), &deployed(), &ask(Wish::Stop));
    let (done, _) = after(&shape(), &stopped, &ask(Wish::Detach));
    assert_eq!(done, ["detach", "delete"]);
    let mut half_stopped = stopped;
    half_stopped.instances[0].record.converged = false;
    let (done, _) = after(&shape(), &half_stopped, &PlanOptions::default());
    assert_eq!(done, ["stop"], "a stop that did not finish is finished");
}

#[test]
fn a_restart_and_a_recreate_end_with_a_running_instance() {
    let (done, _) = after(&shape(), &deployed(), &ask(Wish::Restart));
    assert_eq!(done, ["stop", "start"]);
    let (_, stopped) = after(&shape(), &deployed(), &ask(Wish::Stop));
    for (wish, expected) in
        [(Wish::Restart, vec!["start"]), (Wish::Recreate, vec!["detach", "delete", "create", "attach", "start"])]
    {
        let (done, then) = after(&shape(), &stopped, &ask(wish));
        assert_eq!(done, expected);
        assert_eq!(then.instances[0].record.state, InstanceState::Started);
    }
}

#[test]
fn only_the_selected_instances_are_touched() {
    let three = Shape { instances: 3, ..shape() };
    let current = deployed_as(three.clone());
    let select = |group: &str, instance: Option<&str>| Selection {
        group: Some(group.to_owned()),
        instance: instance.map(Into::into),
    };
    let uuid = current.instances.iter().find(|instance| instance.record.index == 2).unwrap().record.id.clone();
    for (selection, expected) in [
        (select("g0", None), vec![0, 1, 2]),
        (select("g0", Some("1")), vec![1]),
        (select("g0", Some(&uuid)), vec![2]),
        (select("g1", None), vec![]),
    ] {
        let options =
            PlanOptions { change: Some(StateChange { selection, wish: Wish::Stop }), ..PlanOptions::default() };
        let (_, then) = after(&three, &current, &options);
        let stopped = then.instances.iter().filter(|instance| instance.record.state == InstanceState::Stopped);
        let mut stopped: Vec<_> = stopped.map(|instance| instance.record.index).collect();
        stopped.sort_unstable();
        assert_eq!(stopped, expected);
    }
}

#[test]
fn draining_is_skipped_for_the_groups_that_are_named() {
    for (text, drains) in [("", true), ("false", true), ("true", false), ("*", false), ("x, g0", false), ("x", true)] {
        let options = PlanOptions { recreate: true, skip_drain: SkipDrain::parse(text), ..PlanOptions::default() };
        let plan = attempt(&desired(&[shape()]), &deployed(), &options).unwrap();
        let first = plan.instances().next().unwrap().actions.iter().next().unwrap().what.clone();
        assert_eq!(first, ActionKind::Stop { drain: drains }, "{text}");
    }
}

#[test]
fn disks_are_copied_and_old_vms_replaced_when_that_is_asked_for() {
    let options = PlanOptions { recreate_disks: true, ..PlanOptions::default() };
    assert_eq!(after(&shape(), &deployed(), &options).0, ["stop", "migrate", "start"]);
    let since = |time| PlanOptions { recreate: true, created_before: Some(time), ..PlanOptions::default() };
    assert!(after(&shape(), &deployed(), &since(0)).0.is_empty(), "it was made at 0");
    assert!(after(&shape(), &deployed(), &since(1)).0.contains(&"create"));
}

/// A recreate that was interrupted goes on with what it has not recreated yet.
#[test]
fn what_was_made_since_it_was_asked_for_is_not_made_anew_once_more() {
    let current = deployed();
    let options =
        |only| PlanOptions { recreate: true, recreate_disks: true, only: Some(only), ..PlanOptions::default() };
    let all = WhatWasThere::of(&current.instances);
    let done = after(&shape(), &current, &options(all.clone())).0;
    assert!(done.contains(&"create") && done.contains(&"migrate"), "{done:?}");
    let new_vm = WhatWasThere { vms: Default::default(), ..all.clone() };
    assert_eq!(after(&shape(), &current, &options(new_vm)).0, ["stop", "migrate", "start"]);
    let new_disk = WhatWasThere { disks: Default::default(), ..all };
    assert!(!after(&shape(), &current, &options(new_disk)).0.contains(&"migrate"));
    assert!(after(&shape(), &current, &options(WhatWasThere::default())).0.is_empty());
}

#[test]
fn one_instance_is_changed_from_what_is_on_record() {
    let of = |current: &Current, wish, silent| {
        let plan = plan_state_change(&current.instances[0], wish, true, silent);
        let group = GroupPlan { instances: vec![plan], ..planned(&desired(&[shape()]), current).groups.remove(0) };
        Plan { deployment: "law".into(), groups: vec![group], ..Plan::default() }
    };
    let running = deployed();
    let detach = of(&running, Wish::Detach, false);
    assert_eq!(whats(&detach), ["stop", "detach", "delete"]);
    assert_eq!(whats(&of(&running, Wish::Stop, false)), ["stop"]);
    assert_eq!(whats(&of(&running, Wish::Restart, false)), ["stop", "start"]);
    assert_eq!(whats(&of(&running, Wish::Recreate, false)), ["stop", "detach", "delete", "create", "attach", "start"]);
    assert_eq!(whats(&of(&running, Wish::Recreate, true)), ["delete", "create", "attach", "start"]);
    let detached = carry_out(&detach, &running, "then");
    assert_eq!(whats(&of(&detached, Wish::Start, false)), ["create", "attach", "start"]);
    assert!(whats(&of(&detached, Wish::Stop, false)).is_empty());
}

/// What a first deploy leaves whose mounting failed, and the undo of it as well.
#[test]
fn what_was_never_mounted_is_mounted_before_a_start() {
    let plan = |instance: &CurrentInstance, wish| {
        let plan = plan_state_change(instance, wish, true, false);
        let told: Vec<String> =
            plan.actions.iter().map(|action| format!("{}: {}", action.what.describe(), action.reason)).collect();
        told
    };
    let mut left = deployed().instances.remove(0);
    left.record.converged = false;
    let disk = left.disks[0].cid.clone();
    let attach = format!("attach disk {disk}: it is attached, but not mounted");
    for active in [true, false] {
        (left.disks[0].active, left.disks[0].mounted) = (active, false);
        let expected = ["stop: it was asked for", &attach, "start: it was asked for"];
        assert_eq!(plan(&left, Wish::Start), expected);
        assert_eq!(plan(&left, Wish::Restart), expected);
    }
    assert!(plan(&left, Wish::Recreate).contains(&format!("attach disk {disk}: it moves to the new VM")));

    left.disks[0].vm = None;
    assert!(plan(&left, Wish::Start).contains(&format!("attach disk {disk}: it is not attached")));
    left.record.converged = true;
    left.record.state = InstanceState::Stopped;
    assert_eq!(plan(&left, Wish::Start).len(), 2, "nothing runs that would have to be stopped");
    left.disks.clear();
    let made = plan(&left, Wish::Start);
    assert_eq!(made[1..], ["attach the new disk: it has no such disk", "start: it was asked for"]);
    assert!(made[0].starts_with("create disk of "), "{made:?}");
}

fn wishes() -> impl Strategy<Value = Option<Wish>> {
    prop::sample::select(vec![
        None,
        Some(Wish::Start),
        Some(Wish::Stop),
        Some(Wish::Detach),
        Some(Wish::Restart),
        Some(Wish::Recreate),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was deployed and asked for before, carrying out a plan leaves nothing to do, and no two instances share
    /// an address.
    #[test]
    fn whatever_is_asked_for_the_next_plan_is_empty(history in prop::collection::vec((shapes(), wishes()), 1..5)) {
        let mut current = nothing();
        for (number, (shape, wish)) in history.iter().enumerate() {
            let desired = desired(std::slice::from_ref(shape));
            let options = wish.map(ask).unwrap_or_default();
            let Ok(plan) = attempt(&desired, &current, &options) else { return Ok(()) };
            current = carry_out(&plan, &current, &number.to_string());
            let next = planned(&desired, &current);
            prop_assert!(next.is_empty(), "{}", next.describe());
            let specs = current.instances.iter().filter_map(|instance| instance.record.spec.as_ref());
            let addresses: Vec<_> = specs.flat_map(InstanceSpec::reserved_addresses).map(|(_, address)| address).collect();
            let different: BTreeSet<_> = addresses.iter().collect();
            prop_assert_eq!(different.len(), addresses.len());
        }
    }
}
