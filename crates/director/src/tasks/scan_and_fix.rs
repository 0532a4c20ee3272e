//! What the resurrector asks for: looks at some instances, and gives new VMs to those that lost theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_planning::plan::CurrentInstance;
use windlass_planning::problems::Resolution;

use super::apply_resolutions::apply;
use super::scan::Scan;
use super::{TaskError, TaskLog, lock_deployment_at_once};
use crate::Director;

/// Instances by group, as clients send them.
pub(crate) type Suspects = BTreeMap<String, Vec<String>>;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &str,
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
    let looked_at: BTreeSet<String> =
        scan.current.instances.iter().filter(|it| is_suspect(it)).map(|it| it.record.id.clone()).collect();
    let (problems, _) = scan.vms(is_suspect).await;
    let open = director.store.replace_problems(deployment, Some(&looked_at), &problems).await?;
    // An agent that answers again is well, and a new VM would not mend its jobs.
    let lost = open.into_iter().filter(|problem| problem.problem.is_lost_vm());
    let chosen = lost.map(|problem| (problem, Resolution::RecreateVm)).collect();
    apply(director, log, deployment, chosen, &BTreeMap::new()).await?;
    Ok("scan and fix complete".to_owned())
}
