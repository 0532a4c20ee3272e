//! Tasks and their output.

use std::collections::BTreeMap;
use std::io::SeekFrom;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::{ApiError, Shared};
use crate::store::TaskRecord;
use crate::tasks::OutputKind;

/// How many tasks a list has, unless asked for fewer.
const MOST: i64 = 1000;

fn no_such_task(id: i64) -> ApiError {
    ApiError::not_found(10000, format!("Task {id} not found"))
}

fn shown(task: &TaskRecord) -> Value {
    json!({
        "id": task.id, "state": task.state, "description": task.description, "timestamp": task.finished_at,
        "started_at": task.started_at, "result": task.result, "user": task.user, "deployment": task.deployment,
        "context_id": task.context_id,
    })
}

pub(super) async fn list(
    State(director): Shared,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let states: Option<Vec<&str>> = query.get("state").map(|states| states.split(',').collect());
    let all = query.get("verbose").is_some_and(|verbose| verbose == "2");
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(MOST).min(MOST);
    let tasks = director.store.tasks(MOST).await?;
    let wanted = tasks
        .iter()
        .filter(|task| states.as_ref().is_none_or(|states| states.contains(&task.state.as_str())))
        // Looking at VMs is a task as well, but not one that people want to see.
        .filter(|task| all || task.kind != "vms")
        .filter(|task| query.get("deployment").is_none_or(|wanted| task.deployment.as_ref() == Some(wanted)))
        .filter(|task| query.get("context_id").is_none_or(|wanted| &task.context_id == wanted));
    Ok(Json(wanted.take(usize::try_from(limit).unwrap_or(0)).map(shown).collect()))
}

pub(super) async fn show(State(director): Shared, Path(id): Path<i64>) -> Result<Json<Value>, ApiError> {
    Ok(Json(shown(&director.store.task(id).await?.ok_or_else(|| no_such_task(id))?)))
}

pub(super) async fn cancel(State(director): Shared, Path(id): Path<i64>) -> Result<Response, ApiError> {
    let task = director.store.task(id).await?.ok_or_else(|| no_such_task(id))?;
    if !director.store.cancel_task(id).await? {
        let reason = format!("Cannot cancel task {id}: invalid state ({})", task.state.as_str());
        return Ok((StatusCode::BAD_REQUEST, reason).into_response());
    }
    director.workers.cancel(id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The output of a task, from a byte on: clients ask for what is new.
pub(super) async fn output(
    State(director): Shared,
    Path(id): Path<i64>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    director.store.task(id).await?.ok_or_else(|| no_such_task(id))?;
    let kind = match query.get("type").map(String::as_str) {
        None => OutputKind::Debug,
        Some("none") => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(word) => OutputKind::parse(word)
            .ok_or_else(|| ApiError::bad_request(10000, format!("a task has no output '{word}'")))?,
    };
    let path = kind.path(&director.folders.tasks(), id);
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let Ok(mut file) = tokio::fs::File::open(&path).await else {
        let empty = matches!(kind, OutputKind::Event | OutputKind::Result);
        let status = if empty { StatusCode::OK } else { StatusCode::NO_CONTENT };
        return Ok((status, plain).into_response());
    };
    let from = headers.get(header::RANGE).and_then(|range| range_start(range.to_str().ok()?));
    let size = file.metadata().await.map_err(|error| ApiError::internal(&error))?.len();
    if let Some(from) = from.filter(|from| *from >= size && size > 0) {
        tracing::trace!(id, from, size, "nothing new");
        let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, plain, range, "Byte range unsatisfiable").into_response());
    }
    let mut text = Vec::new();
    let start = from.unwrap_or(0).min(size);
    file.seek(SeekFrom::Start(start)).await.map_err(|error| ApiError::internal(&error))?;
    file.take(size - start).read_to_end(&mut text).await.map_err(|error| ApiError::internal(&error))?;
    match from {
        Some(from) if size > 0 => {
            let range = [(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", size - 1))];
            Ok((StatusCode::PARTIAL_CONTENT, plain, range, text).into_response())
        }
        _ => Ok((StatusCode::OK, plain, text).into_response()),
    }
}

/// `bytes=17-`.
fn range_start(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}
