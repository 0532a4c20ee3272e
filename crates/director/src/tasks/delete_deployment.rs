//! Removes a deployment. Its disks are orphaned, not deleted.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use windlass_contract::explain;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{InstancePlan, plan_deletion};

use super::execute::{Execution, Failures};
use super::instance_event::with_event;
use super::large::reload;
use super::update_deployment::{all, one_or_several};
use super::{NO_DEPLOYMENT, OutputKind, TaskError, TaskLog, lock_deployment};
use crate::Director;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    force: bool,
) -> Result<String, TaskError> {
    match lock_deployment(director, log, deployment).await {
        // An earlier task, or an earlier try of this one, has deleted it.
        Err(error) if error.code() == NO_DEPLOYMENT => return Ok(format!("/deployments/{deployment}")),
        locked => locked?,
    }
    let current = reload(director, log, deployment).await?;
    if current.instances.iter().any(|instance| instance.record.ignored) {
        let reason = format!(
            "You are trying to delete deployment '{deployment}', which contains ignored instance(s). Operation not allowed."
        );
        return Err(TaskError::refused(190021, reason));
    }
    let plan = plan_deletion(deployment, &current);
    log.count(director.store.save_plan(log.task(), &plan).await?);
    log.write(OutputKind::Debug, &plan.describe());
    let stage = log.stage("Deleting instances", &[], plan.removed.len());
    let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
    for instance in &plan.removed {
        let part = stage.part(&instance.label());
        let found = current.instances.iter().find(|found| found.record.id == instance.id);
        let execution = Execution::new(director, log, part.clone(), deployment, instance, found);
        let mut execution = execution.with_its_deployment();
        each.push(Box::pin(async move {
            let work = remove(&mut execution, log, instance, force);
            part.run(with_event(director, log, deployment, instance, work)).await
        }));
    }
    all(Box::new(each.into_iter()), director.settings.max_threads).await?;
    let left = director.store.contacts(deployment).await?;
    if let Some(instance) = left.first() {
        let name = instance.record.name();
        return Err(TaskError::Input(format!("instance {name} could not be removed; see the warnings")));
    }
    let stage = log.stage("Removing deployment artifacts", &[], 3);
    stage.part("Detaching stemcells").run(director.store.use_stemcells(deployment, &[])).await?;
    stage.part("Detaching releases").run(director.store.use_releases(deployment, &[])).await?;
    let stage = log.stage("Deleting properties", &[], 0);
    // There are none; BOSH names them here.
    stage.part("Deleting dynamic disks").watch(async {}).await;
    stage.part("Destroying deployment").run(director.store.remove_deployment(deployment)).await?;
    // Where nothing is left, nobody need know whose it was: a team may make and delete deployments without end.
    let beginning = format!("/{}/{deployment}/", director.name);
    if director.variables.embedded.is_some() && !director.store.has_values_under(&beginning).await? {
        director.store.forget_former(deployment).await?;
    }
    Ok(format!("/deployments/{deployment}"))
}

async fn remove(
    execution: &mut Execution,
    log: &TaskLog,
    instance: &InstancePlan,
    force: bool,
) -> Result<(), TaskError> {
    let failures = if force { Failures::Note } else { Failures::Stop };
    match execution.run(&instance.actions.to_vec(), failures).await {
        Err(errors) if force => {
            for error in errors {
                log.warning(&format!("{}: {}", instance.label(), explain(&error)));
            }
            Ok(())
        }
        other => other.map_err(|errors| TaskError::NotRemoved(Box::new(one_or_several(errors)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDirector;

    /// A team that makes and deletes deployments under other names left a record of each for good.
    #[tokio::test]
    async fn whose_a_deployment_was_is_kept_only_where_it_leaves_values() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let embedded = director.variables.embedded.as_ref().unwrap();
        embedded.set("/test/with/x", "secret".into()).await.unwrap();
        for (task, name) in [(1, "with"), (2, "without")] {
            let (name, log) = (DeploymentName::from(name), TaskLog::open(director, task).unwrap());
            director.store.add_deployment(&name, &["shop".to_owned()]).await.unwrap();
            run(director, &log, &name, false).await.unwrap();
        }
        let former = async |name: &str| director.store.former_teams(&name.into(), false).await.unwrap();
        assert_eq!((former("with").await, former("without").await), (Some(vec!["shop".to_owned()]), None));
    }
}
