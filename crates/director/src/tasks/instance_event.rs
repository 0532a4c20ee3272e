//! What happens to an instance as a whole, for the list of events.

use windlass_contract::explain;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{ActionKind, InstancePlan};
use windlass_planning::records::InstanceState;

use super::{TaskError, TaskLog};
use crate::Director;

/// Does something to an instance, and leaves an event of its beginning and one of its end.
pub(super) async fn with_event<T>(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    plan: &InstancePlan,
    work: impl Future<Output = Result<T, TaskError>>,
) -> Result<T, TaskError> {
    let begun = director.store.begin_instance_event(log.task(), verb(plan), deployment, &plan.name()).await?;
    let result = work.await;
    let reason = result.as_ref().err().map(|error| explain(error));
    director.store.end_event(begun, reason.as_deref()).await?;
    result
}

fn verb(plan: &InstancePlan) -> &'static str {
    let does = |is_it: fn(&ActionKind) -> bool| plan.actions.iter().any(|action| is_it(&action.what));
    let creates = does(|what| matches!(what, ActionKind::CreateVm | ActionKind::CreateSpareVm));
    let parts = does(|what| matches!(what, ActionKind::DeleteVm { .. } | ActionKind::SwapVm { .. }));
    let (stops, starts) =
        (does(|what| matches!(what, ActionKind::Stop { .. })), does(|what| *what == ActionKind::Start));
    let changes_disks = does(|what| matches!(what, ActionKind::ResizeDisk { .. } | ActionKind::MigrateDisk { .. }));
    if does(|what| *what == ActionKind::RemoveInstance) {
        "delete"
    } else if creates && parts {
        "recreate"
    } else if creates {
        "create"
    } else if plan.state != InstanceState::Started {
        "stop"
    } else if stops && starts && !changes_disks {
        "restart"
    } else if starts && !stops {
        "start"
    } else {
        "update"
    }
}
