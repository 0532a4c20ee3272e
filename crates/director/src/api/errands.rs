//! Errands: groups that run once, and jobs that do.

use std::collections::HashSet;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use windlass_contract::director::Named;
use windlass_manifest::names;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::Selection;

use super::deployments::must_exist;
use super::input::JsonBody;
use super::{ApiError, Json, Shared, User, queue};
use crate::Director;
use crate::tasks::{ErrandRequest, InstanceFilter, Job, errands_of};

/// Errand groups by name, then jobs with a script `bin/run`.
pub(super) async fn list(
    State(director): Shared,
    Path(deployment): Path<DeploymentName>,
) -> Result<Json<Vec<Named>>, ApiError> {
    must_exist(&director, &deployment).await?;
    let mut names: Vec<String> = errands_of(&director, &deployment).await?.unwrap_or_default().into_iter().collect();
    let mut known: HashSet<String> = names.iter().cloned().collect();
    for (release, name, version) in director.store.jobs_of(&deployment).await? {
        if known.contains(&name) {
            continue;
        }
        let record = director.store.job_of_release(&release, &name, &version).await?;
        if record.is_some_and(|record| is_errand(&record.spec)) {
            known.insert(name.clone());
            names.push(name);
        }
    }
    Ok(Json(names.into_iter().map(|name| Named { name }).collect()))
}

fn is_errand(spec: &Value) -> bool {
    let templates = spec.get("templates").and_then(Value::as_object);
    templates.is_some_and(|templates| templates.values().any(|place| place == "bin/run" || place == "bin/run.ps1"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Run {
    keep_alive: Option<bool>,
    when_changed: Option<bool>,
    instances: Option<Vec<InstanceFilter>>,
}

/// Tasks and events have the name before anybody looks for the errand. What is deployed already keeps its name, whatever it is.
async fn must_be_a_name(director: &Director, deployment: &DeploymentName, errand: &str) -> Result<(), ApiError> {
    let Err(error) = names::check(errand) else { return Ok(()) };
    let group = Selection { group: Some(errand.to_owned()), instance: None };
    match director.store.selected_instances(deployment, &group).await?.is_empty() {
        false => Ok(()),
        true => Err(ApiError::bad_request(70009, format!("no errand can be called that: {error}"))),
    }
}

pub(super) async fn run(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, errand)): Path<(DeploymentName, String)>,
    JsonBody(run): JsonBody<Run>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    must_be_a_name(&director, &deployment, &errand).await?;
    let request = ErrandRequest {
        errand,
        keep_alive: run.keep_alive.unwrap_or_default(),
        when_changed: run.when_changed.unwrap_or_default(),
        instances: run.instances.unwrap_or_default(),
    };
    queue(&director, user, Job::RunErrand { deployment, request }).await
}
