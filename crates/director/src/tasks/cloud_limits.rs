//! What the clouds of a plan cannot give. Asked again for each plan, because what a cloud has changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use windlass_contract::cpi::CloudLimits;
use windlass_contract::explain;
use windlass_operations::agents;
use windlass_operations::ledger::{Change, Ledger, OpenIntent};
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
        let made_since = addresses_made_since(director, instances).await?;
        limits.addresses_in_use.retain(|address, _| is_as_planned(address) && !made_since.contains(address));
    }
    Ok(())
}

/// Addresses of VMs that another task makes, or has made, for these instances while this one plans.
async fn addresses_made_since(
    director: &Director,
    instances: &[CurrentInstance],
) -> Result<BTreeSet<IpAddr>, TaskError> {
    // In this order: a VM that is not being made any more is on record by then.
    let ledger: &dyn Ledger = &director.store;
    let being_made_by = |intent: &OpenIntent<'_>| match &intent.change {
        Change::CreateVm { vm } => agents::addresses(&vm.networks),
        _ => Vec::new(),
    };
    let mut addresses: BTreeSet<IpAddr> = ledger.open_intents().await?.iter().flat_map(being_made_by).collect();
    if let Some(instance) = instances.first() {
        let vms = director.store.vms_to_talk_to(&instance.record.deployment).await?;
        addresses.extend(vms.iter().flat_map(|vm| agents::addresses(&vm.networks)));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::{AgentId, RequestId, VmCid};
    use windlass_operations::ledger::{Fact, Intent};
    use windlass_operations::testing::{new_instance_record, new_vm_record};
    use windlass_planning::records::{InstanceRecord, VmRecord};

    use super::*;
    use crate::testing::TestDirector;

    fn instance() -> CurrentInstance {
        let record = InstanceRecord { converged: false, ..new_instance_record("d", "db", "uuid") };
        CurrentInstance { record, vm: None, spare: None, disks: Vec::new(), unresponsive: false }
    }

    /// A plan beside a task that goes on after a kill was refused, because of a VM that the task had made since.
    #[tokio::test]
    async fn a_vm_that_another_task_makes_meanwhile_is_no_stranger() {
        let test = TestDirector::new().await;
        let (director, address) = (&test.director, IpAddr::from([10, 0, 0, 5]));
        let before = [instance()];
        director.store.add_deployment(&"d".into(), &[]).await.unwrap();
        director.store.begin_instances(&[instance().record], &[]).await.unwrap();
        let is_a_stranger = async || {
            let mut limits = CloudLimits::default();
            limits.addresses_in_use.insert(address, "vm-1".into());
            let planned = AddressHolders::new();
            only_strangers(director, (&before, &planned), &[address].into(), &mut limits).await.unwrap();
            !limits.addresses_in_use.is_empty()
        };
        assert!(is_a_stranger().await);

        let networks = json!({"default": {"type": "manual", "ip": address}});
        let vm = json!({
            "agent_id": AgentId::random(), "instance": "uuid", "cpi": "", "stemcell_cid": "sc",
            "stemcell": {"name": "s", "version": "1", "api_version": 2}, "cloud_properties": {}, "networks": networks,
            "disk_cids": [], "env": {}, "wanted_env": {}, "mbus_user": "", "mbus_password": "", "spare": false
        });
        let change = Change::CreateVm { vm: serde_json::from_value(vm).unwrap() };
        let (id, cpi) = (RequestId::random(), CpiName::Default);
        let intent =
            Intent { id, task: None, cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None };
        let ledger: &dyn Ledger = &director.store;
        let being_made = ledger.open_intent(intent).await.unwrap();
        assert!(!is_a_stranger().await);

        being_made.settle(&Fact::VmCreated { vm: Box::new(made(networks)) }).await.unwrap();
        assert!(!is_a_stranger().await);
    }

    fn made(networks: serde_json::Value) -> VmRecord {
        let cid = VmCid::new("vm-1").unwrap();
        let vm = new_vm_record(cid, &"uuid".into(), false);
        VmRecord { networks: serde_json::from_value(networks).unwrap(), ..vm }
    }
}
