//! What the resurrector asks for: looks at some instances, and gives new VMs to those that lost theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::{Current, CurrentInstance};
use windlass_planning::problems::{Problem, Resolution};

use super::apply_resolutions::apply;
use super::scan::Scan;
use super::{TaskError, TaskLog, lock_deployment_at_once};
use crate::Director;
use crate::fencing::{self, Stranded};

/// Instances by group, as clients send them.
pub(crate) type Suspects = BTreeMap<String, Vec<InstanceId>>;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    suspects: &Suspects,
) -> Result<String, TaskError> {
    lock_deployment_at_once(director, log, deployment).await?;
    let scan = Scan::new(director, log, deployment).await?;
    let stateful_as_well = director.settings.resurrector.stateful;
    let is_suspect = |instance: &CurrentInstance| {
        let record = &instance.record;
        let named = suspects.get(&record.group).is_some_and(|ids| ids.contains(&record.id));
        named && (stateful_as_well || !instance.disks.iter().any(|disk| disk.active))
    };
    let looked_at: BTreeSet<InstanceId> =
        scan.current.instances.iter().filter(|it| is_suspect(it)).map(|it| it.record.id.clone()).collect();
    let (problems, _) = scan.vms(is_suspect).await;
    let open = director.store.replace_problems(deployment, Some(&looked_at), &problems).await?;
    let mut chosen = Vec::new();
    // An agent that answers again is well, and a new VM would not mend its jobs.
    for problem in open.into_iter().filter(|problem| problem.problem.is_lost_vm()) {
        let resolution = resolution(director, log, deployment, &problem.problem, &scan.current).await;
        chosen.push((problem, resolution));
    }
    drop(scan);
    apply(director, log, deployment, chosen, &BTreeMap::new()).await?;
    Ok("scan and fix complete".to_owned())
}

/// A VM that its cloud cannot reach may run on, and is replaced only if the operator's fencing command says that it is dead. Without
/// such a command the cloud is asked to delete it, which it refuses while it cannot.
async fn resolution(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    problem: &Problem,
    current: &Current,
) -> Resolution {
    let Problem::UnresponsiveAgent { unreachable: Some(why), .. } = problem else { return Resolution::RecreateVm };
    let Some(settings) = &director.settings.fencing else { return Resolution::RecreateVm };
    let Some((instance, vm)) = problem.instance(current).and_then(|it| Some((it, it.vm.as_ref()?))) else {
        return Resolution::Ignore;
    };
    let name = instance.record.name();
    let stranded = Stranded { deployment, instance: &name, cpi: vm.cpi.as_str(), vm: &vm.cid, why };
    match fencing::fence(settings, &stranded).await {
        Ok(()) => {
            log.debug(&format!("{name}: the fencing command says that VM {} is dead", vm.cid));
            Resolution::DeclareVmDead
        }
        Err(error) => {
            let error = windlass_contract::explain(&error);
            log.warning(&format!("VM {} of {name} cannot be reached, and is not replaced: {error}", vm.cid));
            Resolution::Ignore
        }
    }
}
