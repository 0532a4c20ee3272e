//! Asks the agents of a deployment how they are.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use windlass_agent_client::{AgentState, Deadlines};
use windlass_contract::director::{InstanceInfo, StemcellOfInstance};
use windlass_operations::agents::addresses;
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Current, CurrentInstance};
use windlass_planning::records::VmRecord;

use super::TaskError;
use super::prepare::reload_one;
use crate::Director;
use crate::store::Contact;

/// How long an agent may take before it counts as unresponsive.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many agents are asked at once.
const AT_ONCE: usize = 32;
/// How many bytes a VM may say of its processes, and of how it is: they stay with the task, and readers ask as often as they like.
const LONGEST: usize = 64 << 10;
/// How many letters its state has: one of a few words.
const LONGEST_STATE: usize = 255;

/// Tells one JSON line per VM, or per instance. Each is told when its turn comes, because a VM may have a lot to say.
pub(super) async fn run(
    director: &Director,
    deployment: &DeploymentName,
    instances: bool,
    tell: impl Fn(&str),
) -> Result<(), TaskError> {
    let mut asking: Vec<BoxFuture<'_, Result<String, TaskError>>> = Vec::new();
    for Contact { record, vm } in director.store.contacts(deployment).await? {
        if !instances && vm.is_none() {
            continue;
        }
        asking.push(Box::pin(async move {
            // All that is on record may be large, so it is read when the agent has answered.
            let vm = director.store.contact(&record.id).await?.and_then(|contact| contact.vm);
            let state = ask(director, vm.as_ref(), true).await;
            let Some(instance) = reload_one(director, &record.id).await? else { return Ok(String::new()) };
            // What another VM said is not of this one.
            let same = |vm: &VmRecord| instance.vm.as_ref().is_some_and(|now| now.cid == vm.cid);
            let state = state.filter(|_| vm.as_ref().is_some_and(same));
            let line = serde_json::to_string(&line(&instance, state.as_ref()));
            // Text, numbers and maps with text for keys can always be written.
            Ok(format!("{}\n", line.unwrap_or_default()))
        }));
    }
    let mut lines = stream::iter(asking).buffered(AT_ONCE);
    while let Some(line) = lines.next().await {
        tell(&line?);
    }
    Ok(())
}

/// Asks all agents that should answer, and notes those that do not.
pub(super) async fn find_unresponsive(director: &Director, current: &mut Current) {
    let mut asking: Vec<BoxFuture<'_, bool>> = Vec::new();
    for instance in &current.instances {
        let expected = !instance.record.ignored && instance.vm.as_ref().is_some_and(|vm| vm.ready);
        asking.push(Box::pin(async move { expected && ask(director, instance.vm.as_ref(), false).await.is_none() }));
    }
    let silent: Vec<bool> = stream::iter(asking).buffered(AT_ONCE).collect().await;
    for (instance, silent) in current.instances.iter_mut().zip(silent) {
        instance.unresponsive = silent;
    }
}

async fn ask(director: &Director, vm: Option<&VmRecord>, full: bool) -> Option<AgentState> {
    let agent = director.agents.of(vm?);
    let deadlines = Deadlines { message: PATIENCE, silence: PATIENCE, task: PATIENCE };
    agent.with_deadlines(deadlines).get_state(full).await.ok()
}

/// The types matter: clients refuse a number where they expect a string.
fn line(instance: &CurrentInstance, state: Option<&AgentState>) -> InstanceInfo<Option<Value>, Value> {
    let (record, vm) = (&instance.record, instance.vm.as_ref());
    let disks: Vec<String> =
        instance.disks.iter().filter(|disk| disk.active).map(|disk| disk.cid.to_string()).collect();
    let job_state = match (vm, state) {
        (None, _) => String::new(),
        (Some(_), Some(state)) => shortened(&state.job_state, LONGEST_STATE),
        (Some(_), None) => "unresponsive agent".to_owned(),
    };
    InstanceInfo {
        vm_cid: vm.map(|vm| vm.cid.to_string()).unwrap_or_default(),
        active: vm.map(|_| true),
        vm_created_at: vm.map(|vm| clock::rfc3339(vm.created_at)).unwrap_or_default(),
        cloud_properties: vm.map(|vm| vm.cloud_properties.clone()).unwrap_or_default().into(),
        disk_cid: disks.first().cloned().unwrap_or_default(),
        disk_cids: disks,
        ips: vm.map(|vm| addresses(&vm.networks).iter().map(ToString::to_string).collect()).unwrap_or_default(),
        agent_id: vm.map(|vm| vm.agent_id.to_string()).unwrap_or_default(),
        job_name: record.group.clone(),
        index: Some(record.index),
        job_state,
        state: record.state.as_str().to_owned(),
        vm_type: record.spec.as_ref().and_then(|spec| spec.vm_type.clone()).unwrap_or_default(),
        vitals: state.and_then(|state| state.vitals.clone()).filter(|vitals| vitals.to_string().len() <= LONGEST),
        processes: state.map(|state| first(&state.processes)).unwrap_or_default(),
        az: record.az.clone().unwrap_or_default(),
        id: record.id.clone().into(),
        bootstrap: record.bootstrap,
        ignore: instance.record.ignored,
        stemcell: vm.map(|vm| StemcellOfInstance {
            name: vm.stemcell.name.clone(),
            version: vm.stemcell.version.clone(),
            api_version: vm.stemcell.api_version.map(|version| version.0),
        }),
        is_errand: false,
    }
}

fn shortened(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// As many as there is room for.
fn first(processes: &[Value]) -> Vec<Value> {
    let mut left = LONGEST;
    let has_room = |process: &&Value| {
        let room = left.checked_sub(process.to_string().len());
        left = room.unwrap_or_default();
        room.is_some()
    };
    processes.iter().take_while(has_room).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::VmCid;
    use windlass_operations::testing::{new_instance_record, new_vm_record};

    use super::*;

    /// Two thousand looks at a VM that says a megabyte each time took gigabytes of the disk.
    #[test]
    fn what_a_vm_says_of_itself_stays_short_in_a_list() {
        let process = |length: usize| json!({"name": "x".repeat(length), "state": "running"});
        let said = |processes: Vec<Value>, vitals: usize| {
            let said =
                json!({"job_state": "s".repeat(1000), "vitals": {"load": "1".repeat(vitals)}, "processes": processes});
            serde_json::from_value::<AgentState>(said).unwrap()
        };
        let instance = CurrentInstance {
            record: new_instance_record("d", "web", "1f"),
            vm: Some(new_vm_record(VmCid::new("vm-1").unwrap(), &"1f".into(), false)),
            spare: None,
            disks: Vec::new(),
            unresponsive: false,
        };
        let told = line(&instance, Some(&said(vec![process(10_000); 100], LONGEST)));
        assert_eq!((told.processes.len(), told.vitals, told.job_state.len()), (6, None, LONGEST_STATE));
        let told = line(&instance, Some(&said(vec![process(10); 100], 10)));
        assert_eq!((told.processes.len(), told.vitals), (100, Some(json!({"load": "1".repeat(10)}))));
    }
}
