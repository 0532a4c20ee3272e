//! What there is nothing of: releases, errands, variables, managed networks. Lists are empty, and whoever wants to add
//! something is told why that cannot be.

use axum::Json;
use axum::extract::{Path, Request, State};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::deployments::must_exist;
use super::{ApiError, Shared};

const NO_RELEASES: &str = "this director cannot take releases yet; deploy instance groups without jobs";

pub(super) async fn nothing() -> Json<Value> {
    Json(json!([]))
}

pub(super) async fn nothing_in(
    State(director): Shared,
    Path(deployment): Path<String>,
) -> Result<Json<Value>, ApiError> {
    must_exist(&director, &deployment).await?;
    Ok(nothing().await)
}

/// Takes the whole body before it answers: a client whose upload breaks off sends it again.
pub(super) async fn refuse(request: Request) -> ApiError {
    let mut body = request.into_body().into_data_stream();
    while let Some(Ok(_)) = body.next().await {}
    ApiError::bad_request(30001, NO_RELEASES)
}

pub(super) async fn missing(Path(name): Path<String>) -> ApiError {
    ApiError::not_found(30005, format!("Release '{name}' doesn't exist: {NO_RELEASES}"))
}

pub(super) async fn refuse_errand(Path((_, errand)): Path<(String, String)>) -> ApiError {
    ApiError::not_found(510000, format!("Errand '{errand}' doesn't exist: this director cannot run jobs yet"))
}

pub(super) async fn no_network(Path(name): Path<String>) -> ApiError {
    ApiError::not_found(580000, format!("Network '{name}' doesn't exist: this director makes no networks"))
}
