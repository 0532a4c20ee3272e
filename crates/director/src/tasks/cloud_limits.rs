//! What the clouds of a plan cannot give. Asked again for each plan, because what a cloud has changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use windlass_contract::cpi::CloudLimits;
use windlass_contract::explain;
use windlass_operations::agents;
use windlass_planning::names::CpiName;
use windlass_planning::plan::{Current, CurrentInstance, InstancePlan, Plan, impossible_for, needs};

use super::TaskError;
use crate::Director;

/// Addresses, each with its holder.
type AddressHolders = BTreeMap<IpAddr, String>;

/// The limits of the clouds that a plan needs something of, by the names of their CPIs. A CPI that says nothing has none, and one
/// that fails says so itself, and better, when it is asked for something.
pub(super) async fn of_plan(
    director: &Director,
    plan: &Plan,
    current: &Current,
) -> Result<BTreeMap<CpiName, CloudLimits>, TaskError> {
    of_needs(director, plan.needs(), (&current.instances, &current.addresses)).await
}

/// The same for instances that are planned from what is on record.
pub(super) async fn of_instances(
    director: &Director,
    instances: &[InstancePlan],
    current: &Current,
) -> Result<BTreeMap<CpiName, CloudLimits>, TaskError> {
    let needs = needs(instances.iter());
    if needs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let addresses = director.store.addresses().await?;
    of_needs(director, needs, (&current.instances, &addresses)).await
}

/// Refuses what cannot be had again before anything of it is stopped or deleted.
pub(super) fn must_be_possible(
    instance: &InstancePlan,
    limits: &BTreeMap<CpiName, CloudLimits>,
) -> Result<(), TaskError> {
    match impossible_for(instance, limits) {
        Some(why) => Err(TaskError::Input(format!("{}: {why}; nothing was done to it", instance.label()))),
        None => Ok(()),
    }
}

async fn of_needs(
    director: &Director,
    needs: BTreeMap<&CpiName, BTreeSet<IpAddr>>,
    (instances, reserved): (&[CurrentInstance], &AddressHolders),
) -> Result<BTreeMap<CpiName, CloudLimits>, TaskError> {
    let mut limits = BTreeMap::new();
    for (name, addresses) in needs {
        let Ok(cpi) = director.clouds.cpi(name) else { continue };
        if !cpi.info().await.is_ok_and(|info| info.windlass.is_some()) {
            continue;
        }
        match cpi.info_now().await {
            Ok(info) => {
                let mut of_cloud = info.limits();
                only_strangers(director, (instances, reserved), &addresses, &mut of_cloud).await?;
                limits.insert(name.clone(), of_cloud);
            }
            Err(error) => {
                tracing::warn!(cpi = name.as_str(), error = %explain(&error), "the CPI did not tell its limits")
            }
        }
    }
    Ok(limits)
}

/// Leaves only those of the wanted addresses that a stranger has: the deployment's own VMs give theirs up as the plan says, and who
/// took one since the plan was made is met when it is reserved.
async fn only_strangers(
    director: &Director,
    (instances, planned): (&[CurrentInstance], &AddressHolders),
    wanted: &BTreeSet<IpAddr>,
    limits: &mut CloudLimits,
) -> Result<(), TaskError> {
    let vms = || instances.iter().flat_map(|instance| instance.vm.iter().chain(&instance.spare));
    let is_own = |address: &IpAddr| vms().any(|vm| agents::addresses(&vm.networks).contains(address));
    limits.addresses_in_use.retain(|address, _| wanted.contains(address) && !is_own(address));
    if !limits.addresses_in_use.is_empty() {
        let reserved = director.store.addresses().await?;
        let is_as_planned = |address: &IpAddr| reserved.get(address) == planned.get(address);
        limits.addresses_in_use.retain(|address, _| is_as_planned(address));
    }
    Ok(())
}
