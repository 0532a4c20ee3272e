//! Errands: groups that run once, and jobs that do.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_manifest::names;

use super::deployments::must_exist;
use super::input::JsonBody;
use super::{ApiError, Shared, User, queue};
use crate::Director;
use crate::tasks::{ErrandRequest, InstanceFilter, Job, errands_of};

/// Errand groups by name, then jobs with a script `bin/run`.
pub(super) async fn list(State(director): Shared, Path(deployment): Path<String>) -> Result<Json<Value>, ApiError> {
    must_exist(&director, &deployment).await?;
    let manifest = director.store.deployment(&deployment).await?.and_then(|found| found.manifest).unwrap_or_default();
    let mut names: Vec<String> = errands_of(&manifest).into_iter().collect();
    let software = director.store.software_of(&deployment).await?;
    for job in software.values().flat_map(|software| &software.jobs) {
        if names.contains(&job.name) {
            continue;
        }
        let record = director.store.job_of_release(&job.release, &job.name, &job.version).await?;
        if record.is_some_and(|record| is_errand(&record.spec)) {
            names.push(job.name.clone());
        }
    }
    Ok(Json(names.into_iter().map(|name| json!({"name": name})).collect()))
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
async fn must_be_a_name(director: &Director, deployment: &str, errand: &str) -> Result<(), ApiError> {
    let Err(error) = names::check(errand) else { return Ok(()) };
    let instances = director.store.instances(deployment).await?;
    match instances.iter().any(|instance| instance.group == errand) {
        true => Ok(()),
        false => Err(ApiError::bad_request(70009, format!("no errand can be called that: {error}"))),
    }
}

pub(super) async fn run(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, errand)): Path<(String, String)>,
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
