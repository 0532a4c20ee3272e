//! cloud-check and the switch of the resurrector.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use windlass_contract::director::{self, CloudProblem};
use windlass_planning::desired::Count;
use windlass_planning::names::DeploymentName;

use super::deployments::must_exist;
use super::input::JsonBody;
use super::{ApiError, Json, Shared, User, queue};
use crate::tasks::{Choices, Job, Suspects, read_outline};

pub(super) async fn scan(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    queue(&director, user, Job::Scan { deployment }).await
}

pub(super) async fn list(
    State(director): Shared,
    Path(deployment): Path<DeploymentName>,
) -> Result<Json<Vec<CloudProblem>>, ApiError> {
    must_exist(&director, &deployment).await?;
    let current = read_outline(&director, &deployment).await.map_err(|error| ApiError::internal(&error))?;
    let problems = director.store.open_problems(&deployment).await?;
    Ok(Json(problems.iter().map(|problem| problem.shown(&current)).collect()))
}

/// The keys are numbers, but they come as text.
#[derive(Debug, Deserialize)]
pub(super) struct Resolutions {
    resolutions: BTreeMap<String, Option<String>>,
    #[serde(default)]
    max_in_flight_overrides: BTreeMap<String, Value>,
}

pub(super) async fn apply(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    JsonBody(wanted): JsonBody<Resolutions>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    let mut choices = Choices::new();
    for (id, choice) in wanted.resolutions {
        let number =
            id.parse().map_err(|_| ApiError::bad_request(40005, format!("'{id}' is no number of a problem")))?;
        choices.push((number, choice));
    }
    let mut max_in_flight = BTreeMap::new();
    for (group, count) in wanted.max_in_flight_overrides {
        let text = count.as_str().map_or_else(|| count.to_string(), str::to_owned);
        let count: Count = text.parse().map_err(|error: String| {
            ApiError::bad_request(40005, format!("'max_in_flight_overrides.{group}': {error}"))
        })?;
        max_in_flight.insert(group, count);
    }
    queue(&director, user, Job::ApplyResolutions { deployment, choices, max_in_flight }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct ScanAndFix {
    jobs: Suspects,
}

pub(super) async fn scan_and_fix(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    JsonBody(wanted): JsonBody<ScanAndFix>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    if director.store.resurrection_is_paused().await? {
        return Err(ApiError::bad_request(410004, "Resurrection is paused; turn it on with update-resurrection on"));
    }
    queue(&director, user, Job::ScanAndFix { deployment, suspects: wanted.jobs }).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Resurrection {
    resurrection_paused: bool,
}

pub(super) async fn pause_resurrection(
    State(director): Shared,
    JsonBody(wanted): JsonBody<Resurrection>,
) -> Result<StatusCode, ApiError> {
    director.store.pause_resurrection(wanted.resurrection_paused).await?;
    Ok(StatusCode::OK)
}

pub(super) async fn resurrection(State(director): Shared) -> Result<Json<director::Resurrection>, ApiError> {
    Ok(Json(director::Resurrection { resurrection: !director.store.resurrection_is_paused().await? }))
}

/// The original gave this up for configs as well.
pub(super) async fn resurrection_of_one() -> (StatusCode, &'static str) {
    (
        StatusCode::GONE,
        "This endpoint has been removed. Please use the resurrection config, with update-config --type resurrection",
    )
}
