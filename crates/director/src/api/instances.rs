//! What is done to single instances: actions without converging, being ignored, logs, ssh.

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use windlass_planning::names::{DeploymentName, IndexOrId};
use windlass_planning::plan::{Selection, Wish};

use super::deployments::{must_exist, must_include};
use super::input::{JsonBody, Parameters};
use super::permissions::Access;
use super::{ApiError, Shared, User, queue};
use crate::tasks::{InstanceChange, Job, SshRequest};

/// Starts, stops, restarts or recreates one instance from what is on record.
pub(super) async fn act(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, id, action)): Path<(DeploymentName, String, IndexOrId, String)>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let wish = match action.as_str() {
        "start" => Wish::Start,
        "stop" if query.is_set("hard") => Wish::Detach,
        "stop" => Wish::Stop,
        "restart" => Wish::Restart,
        "recreate" => Wish::Recreate,
        _ => {
            let reason = format!("'{action}' is no action; use start, stop, restart or recreate");
            return Err(ApiError::not_found(40005, reason));
        }
    };
    let instance = Selection { group: Some(group), instance: Some(id) };
    must_include(&director, &deployment, &instance).await?;
    let change = InstanceChange {
        instance,
        wish,
        skip_drain: query.is_set("skip_drain"),
        ignore_unresponsive_agent: query.is_set("ignore_unresponsive_agent"),
        only: None,
    };
    queue(&director, user, Job::UpdateInstance { deployment, change }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Ignore {
    ignore: bool,
}

pub(super) async fn ignore(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, id)): Path<(DeploymentName, String, IndexOrId)>,
    JsonBody(Ignore { ignore }): JsonBody<Ignore>,
) -> Result<(), ApiError> {
    let selection = Selection { group: Some(group), instance: Some(id) };
    let instances = must_include(&director, &deployment, &selection).await?;
    // They are the user's if the deployment still is.
    user.must_with_deployment(&director, Access::Admin, &deployment).await?;
    for instance in instances {
        director.store.set_ignored(&instance, ignore).await?;
    }
    Ok(())
}

pub(super) async fn logs(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, id)): Path<(DeploymentName, String, IndexOrId)>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let instances = Selection { group: (group != "*").then_some(group), instance: (id != "*").then_some(id) };
    must_include(&director, &deployment, &instances).await?;
    let kind = query.get("type").unwrap_or("job").to_owned();
    if let Some(odd) = kind.split(',').find(|kind| !matches!(*kind, "job" | "agent" | "system")) {
        return Err(ApiError::bad_request(40005, format!("'type' can be job, agent and system, not '{odd}'")));
    }
    let filters = query.get("filters").map(|filters| filters.split(',').map(str::to_owned).collect());
    queue(&director, user, Job::FetchLogs { deployment, instances, kind, filters: filters.unwrap_or_default() }).await
}

pub(super) async fn ssh(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    JsonBody(request): JsonBody<SshRequest>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    if !matches!(request.command.as_str(), "setup" | "cleanup") {
        let reason = format!("'command' can be setup or cleanup, not '{}'", request.command);
        return Err(ApiError::bad_request(40005, reason));
    }
    queue(&director, user, Job::Ssh { deployment, request }).await
}
