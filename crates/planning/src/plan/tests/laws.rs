//! What holds for every deployment, whatever its groups are like.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_deployment_that_is_where_it_should_be_gives_an_empty_plan(
        rounds in prop::collection::vec(prop::collection::vec(shapes(), 0..3), 1..4),
    ) {
        let mut current = nothing();
        for (round, shapes) in rounds.iter().enumerate() {
            let wanted = desired(shapes);
            let plan = planned(&wanted, &current);
            prop_assert_eq!(&plan, &planned(&wanted, &current), "the same inputs give the same plan");
            for (group, shape) in plan.groups.iter().zip(shapes) {
                prop_assert_eq!(group.instances.len(), shape.instances);
                prop_assert_eq!(group.instances.iter().filter(|instance| instance.bootstrap).count(), shape.instances.min(1));
                let indices: BTreeSet<_> = group.instances.iter().map(|instance| instance.index).collect();
                prop_assert_eq!(indices.len(), shape.instances, "no index twice");
            }
            addresses(&plan);
            current = carry_out(&plan, &current, &round.to_string());
            let again = planned(&wanted, &current);
            prop_assert!(again.is_empty(), "{}", again.describe());
        }
    }

    #[test]
    fn an_address_is_kept_as_long_as_it_fits(shape in shapes(), more in 0_usize..4) {
        let shape = Shape { instances: shape.instances + 1, strategy: "delete-create", ..shape };
        let current = carry_out(&planned(&desired(std::slice::from_ref(&shape)), &nothing()), &nothing(), "0");
        let before: BTreeMap<_, _> = current.instances.iter().map(|instance| (&instance.record.id, &instance.record.spec)).collect();
        let grown = Shape { instances: shape.instances + more, vm_type: "vm_type: large", ..shape };
        for instance in planned(&desired(&[grown]), &current).instances() {
            if let Some(Some(before)) = before.get(&instance.id) {
                prop_assert_eq!(&instance.spec.as_ref().unwrap().networks, &before.networks);
            }
        }
    }

    #[test]
    fn what_is_removed_and_added_again_gets_the_same_places(shape in shapes(), fewer in 0_usize..4) {
        let shape = Shape { instances: shape.instances + 1, ..shape };
        let smaller = Shape { instances: shape.instances.saturating_sub(fewer), ..shape.clone() };
        let (whole, part) = (desired(std::slice::from_ref(&shape)), desired(&[smaller]));
        let first = planned(&whole, &nothing());
        let current = carry_out(&first, &nothing(), "0");
        let current = carry_out(&planned(&part, &current), &current, "1");
        let again = planned(&whole, &current);
        let places = |plan: &Plan| -> BTreeMap<i64, Vec<IpAddr>> {
            plan.instances()
                .map(|one| (one.index, one.spec.as_ref().unwrap().reserved_addresses().map(|(_, address)| address).collect()))
                .collect()
        };
        let indices = |plan: &Plan| places(plan).into_keys().collect::<Vec<_>>();
        prop_assert_eq!(indices(&again), indices(&first));
        let all = |plan: &Plan| places(plan).into_values().flatten().collect::<BTreeSet<_>>();
        prop_assert_eq!(all(&again), all(&first));
        for present in &current.instances {
            prop_assert!(again.instances().any(|one| one.id == present.record.id), "an instance that is there stays");
        }
    }

    #[test]
    fn static_addresses_stay_with_their_owners(counts in prop::collection::vec(0_usize..4, 3), then in prop::collection::vec(0_usize..4, 3)) {
        let manifest = |counts: &[usize]| {
            let ips: Vec<String> = counts
                .iter()
                .enumerate()
                .flat_map(|(zone, many)| (0..*many).map(move |last| format!("10.4.{}.{}", zone + 1, 10 + last)))
                .collect();
            format!(
                "- {{name: g, instances: {}, azs: [z1, z2, z3], vm_type: small, stemcell: one, networks: [{{name: fixed, static_ips: [{}]}}]}}\n",
                ips.len(), ips.join(", ")
            )
        };
        let (first, second) = (wanted(&manifest(&counts)), wanted(&manifest(&then)));
        let before = carry_out(&planned(&first, &nothing()), &nothing(), "0");
        prop_assert!(planned(&first, &before).is_empty());
        let plan = planned(&second, &before);
        let had: BTreeMap<IpAddr, &InstanceId> = before.instances.iter().map(|one| {
            (one.record.spec.as_ref().unwrap().networks["fixed"].ip.as_ref().unwrap().parse().unwrap(), &one.record.id)
        }).collect();
        for (holder, address) in addresses(&plan) {
            if let ("fixed", Some(owner)) = (holder.1.as_str(), had.get(&address)) {
                prop_assert_eq!(&holder.0, *owner, "{} stays", address);
            }
        }
        prop_assert!(planned(&second, &carry_out(&plan, &before, "1")).is_empty());
    }
}
