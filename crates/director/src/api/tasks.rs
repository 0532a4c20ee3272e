//! Tasks and their output.

use std::io::SeekFrom;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use windlass_contract::director::Task;

use super::input::{JsonBody, Parameters};
use super::permissions::{Access, Permission};
use super::{ApiError, Json, Shared, User};
use crate::store::{TaskFilter, TaskRecord, TaskState};
use crate::tasks::OutputKind;

/// How many tasks a list has, unless asked for fewer.
const MOST: i64 = 1000;
/// How long the result of a failed task may be in a list; all of it is in the task's outputs.
const LONGEST_RESULT: usize = 128;
/// The types that people want to see. Looking at VMs is a task as well, but not one of these.
const INTERESTING: [&str; 13] = [
    "attach_disk",
    "create_snapshot",
    "delete_deployment",
    "delete_release",
    "delete_snapshot",
    "delete_stemcell",
    "run_errand",
    "snapshot_deployment",
    "update_instance",
    "update_deployment",
    "update_release",
    "update_stemcell",
    "export_release",
];

fn no_such_task(id: &str) -> ApiError {
    ApiError::not_found(10000, format!("Task {id} not found"))
}

async fn find(director: &crate::Director, id: &str) -> Result<TaskRecord, ApiError> {
    let number = id.parse().map_err(|_| no_such_task(id))?;
    director.store.task(number).await?.ok_or_else(|| no_such_task(id))
}

fn shown(task: &TaskRecord) -> Task {
    let result = task.result.as_deref().map(|result| match task.state {
        TaskState::Error => shortened(result),
        _ => result.to_owned(),
    });
    Task {
        id: task.id.unsigned_abs(),
        state: task.state.as_str().to_owned(),
        description: task.description.clone(),
        timestamp: task.finished_at,
        started_at: task.started_at,
        result,
        user: task.user.clone(),
        deployment: task.deployment.clone().unwrap_or_default(),
        context_id: task.context_id.clone(),
    }
}

/// Cut between words.
fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST_RESULT {
        return text.to_owned();
    }
    let head: String = text.chars().take(LONGEST_RESULT).collect();
    let end = head.rfind(char::is_whitespace).unwrap_or(head.len());
    format!("{}...", head[..end].trim_end())
}

pub(super) async fn list(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<Json<Vec<Task>>, ApiError> {
    let listed = |key: &str| query.get(key).map(|words| words.split(',').map(str::to_owned).collect());
    let all = query.get("verbose") == Some("2");
    let filter = TaskFilter {
        states: listed("state").unwrap_or_default(),
        kinds: if all { Vec::new() } else { INTERESTING.map(str::to_owned).to_vec() },
        deployment: query.get("deployment").map(str::to_owned),
        context_id: query.get("context_id").map(str::to_owned),
        teams: (!user.may(&director, Permission::Read)).then(|| user.own_teams()),
        limit: query.number("limit", 40005)?.unwrap_or(MOST).min(MOST),
    };
    Ok(Json(director.store.tasks(&filter).await?.iter().map(shown).collect()))
}

/// Whether a user began a task that belongs to no deployment, such as an upload: users who may upload may see how it ends.
fn is_of(task: &TaskRecord, user: &User) -> bool {
    task.deployment.is_none() && task.user == user.name
}

pub(super) async fn show(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Json<Task>, ApiError> {
    let task = find(&director, &id).await?;
    if !is_of(&task, &user) {
        user.must(&director, Permission::ReadOfTeamAdmins)?;
        user.must_see_task(&director, &director.store.teams_of_task(task.id).await?)?;
    }
    Ok(Json(shown(&task)))
}

pub(super) async fn cancel(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let task = find(&director, &id).await?;
    user.must_with(&director, Access::Admin, &director.store.teams_of_task(task.id).await?)?;
    if !director.store.cancel_task(task.id).await? {
        let reason = format!("Cannot cancel task {id}: invalid state ({})", task.state.as_str());
        return Ok((StatusCode::BAD_REQUEST, reason).into_response());
    }
    director.workers.cancel(task.id);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Which tasks to cancel.
#[derive(Debug, Deserialize)]
pub(super) struct Cancellation {
    #[serde(default = "queued")]
    states: Vec<String>,
    #[serde(default)]
    types: Vec<String>,
    deployment: Option<String>,
}

fn queued() -> Vec<String> {
    vec!["queued".to_owned()]
}

pub(super) async fn cancel_many(
    State(director): Shared,
    JsonBody(Cancellation { states, types, deployment }): JsonBody<Cancellation>,
) -> Result<StatusCode, ApiError> {
    if let Some(state) = states.iter().find(|state| !matches!(state.as_str(), "queued" | "processing")) {
        let reason = format!("only queued and processing tasks can be cancelled, not those that are '{state}'");
        return Err(ApiError::bad_request(10001, reason));
    }
    let filter = TaskFilter { states, kinds: types, deployment, context_id: None, teams: None, limit: i64::MAX };
    for task in director.store.tasks(&filter).await? {
        if director.store.cancel_task(task.id).await? {
            director.workers.cancel(task.id);
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The output of a task, from a byte on: clients ask for what is new.
pub(super) async fn output(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    Query(query): Parameters,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let task = find(&director, &id).await?;
    let kind = match query.get("type") {
        None => Some(OutputKind::Debug),
        Some("none") => None,
        Some(word) => Some(
            OutputKind::parse(word)
                .ok_or_else(|| ApiError::bad_request(10000, format!("a task has no output '{word}'")))?,
        ),
    };
    let is_for_all = matches!(kind, None | Some(OutputKind::Event | OutputKind::Result));
    if !is_for_all || !is_of(&task, &user) {
        let access = if is_for_all { Access::Read } else { Access::Admin };
        user.must_with(&director, access, &director.store.teams_of_task(task.id).await?)?;
    }
    let Some(kind) = kind else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let path = kind.path(&director.folders.tasks(), task.id);
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let Ok(mut file) = tokio::fs::File::open(&path).await else {
        let status = if is_for_all { StatusCode::OK } else { StatusCode::NO_CONTENT };
        return Ok((status, plain).into_response());
    };
    let from = headers.get(header::RANGE).and_then(|range| range_start(range.to_str().ok()?));
    let size = file.metadata().await.map_err(|error| ApiError::internal(&error))?.len();
    if from.is_some_and(|from| from >= size && size > 0) {
        let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, plain, range, "Byte range unsatisfiable").into_response());
    }
    let start = from.unwrap_or(0).min(size);
    file.seek(SeekFrom::Start(start)).await.map_err(|error| ApiError::internal(&error))?;
    let text = Body::from_stream(ReaderStream::new(file.take(size - start)));
    let length = [(header::CONTENT_LENGTH, size - start)];
    match from {
        Some(from) if size > 0 => {
            let range = [(header::CONTENT_RANGE, format!("bytes {from}-{}/{size}", size - 1))];
            Ok((StatusCode::PARTIAL_CONTENT, plain, length, range, text).into_response())
        }
        _ => Ok((StatusCode::OK, plain, length, text).into_response()),
    }
}

/// `bytes=17-`.
fn range_start(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.split('-').next()?.parse().ok()
}
