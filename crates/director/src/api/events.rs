//! Events: who did what, when, and how it ended.

use axum::Extension;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use windlass_contract::Object;
use windlass_contract::director::RecordedEvent;
use windlass_planning::names::InstanceName;

use super::input::{JsonBody, Parameters};
use super::permissions::Permission;
use super::{ApiError, Json, Shared, User};
use crate::store::{Event, EventFilter, EventRecord};

/// Ids are strings here, and what is not known is left out: clients insist.
fn shown(record: EventRecord) -> RecordedEvent {
    let EventRecord { id, parent, happened_at, event } = record;
    RecordedEvent {
        id: id.to_string(),
        parent_id: parent.map(|parent| parent.to_string()).unwrap_or_default(),
        timestamp: happened_at,
        user: event.user,
        action: event.action,
        object_type: event.object_type,
        object_name: event.object_name.unwrap_or_default(),
        error: event.error.unwrap_or_default(),
        task: event.task.map(|task| task.to_string()).unwrap_or_default(),
        deployment: event.deployment.unwrap_or_default(),
        instance: event.instance.unwrap_or_default().into(),
        context: event.context,
    }
}

pub(super) async fn list(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<Json<Vec<RecordedEvent>>, ApiError> {
    let word = |key: &str| query.get(key).map(str::to_owned);
    let filter = EventFilter {
        before_id: query.number("before_id", 40005)?,
        before: query.time("before_time")?,
        after: query.time("after_time")?,
        task: query.number("task", 40005)?,
        deployment: word("deployment"),
        instance: word("instance").map(Into::into),
        user: word("user"),
        action: word("action"),
        object_type: word("object_type"),
        object_name: word("object_name"),
        seen_by: (!user.may(&director, Permission::Read)).then(|| (user.name.clone(), user.all_teams())),
    };
    Ok(Json(director.store.events(&filter).await?.into_iter().map(shown).collect()))
}

pub(super) async fn show(State(director): Shared, Path(id): Path<String>) -> Result<Json<RecordedEvent>, ApiError> {
    let missing = || ApiError::not_found(460001, format!("Event {id} not found"));
    let event = director.store.event(id.parse().map_err(|_| missing())?).await?;
    Ok(Json(shown(event.ok_or_else(missing)?)))
}

/// What others, such as a health monitor, want to be remembered.
#[derive(Debug, Deserialize)]
pub(super) struct NewEvent {
    action: String,
    object_type: String,
    object_name: String,
    deployment: Option<String>,
    instance: Option<InstanceName>,
    error: Option<String>,
    #[serde(default)]
    context: Object,
}

pub(super) async fn create(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(new): JsonBody<NewEvent>,
) -> Result<(), ApiError> {
    let event = Event {
        deployment: new.deployment,
        instance: new.instance,
        error: new.error,
        context: new.context,
        ..Event::new(&user.name, &new.action, &new.object_type, Some(&new.object_name))
    };
    director.store.add_event(&event).await?;
    Ok(())
}
