//! Configs.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_manifest::Document;

use super::{ApiError, Shared};
use crate::Director;
use crate::clock;
use crate::desired::Configs;
use crate::diff::diff;
use crate::store::ConfigRecord;

/// An empty name means `default`.
fn name(query: &BTreeMap<String, String>) -> &str {
    query.get("name").map(String::as_str).filter(|name| !name.is_empty()).unwrap_or("default")
}

fn limit(query: &BTreeMap<String, String>) -> Result<usize, ApiError> {
    let limit = query.get("limit").and_then(|limit| limit.parse().ok());
    limit.ok_or_else(|| ApiError::bad_request(440010, "'limit' is required and must be a number"))
}

pub(super) async fn list(
    State(director): Shared,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let given = |key: &str| query.get(key).map(String::as_str).filter(|value| !value.is_empty());
    let latest = query.get("latest").is_some_and(|latest| latest == "true");
    let limit = if latest { 1 } else { limit(&query)? };
    let configs = director.store.configs(given("type"), given("name")).await?;
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut listed = Vec::new();
    for config in configs {
        let versions = seen.entry((config.kind.clone(), config.name.clone())).or_default();
        *versions += 1;
        if *versions <= limit {
            listed.push(json!({
                "content": config.content, "id": config.id.to_string(), "type": config.kind, "name": config.name,
                "team": null, "created_at": clock::utc(config.created_at), "current": *versions == 1,
            }));
        }
    }
    Ok(Json(listed.into()))
}

pub(super) async fn cloud_configs(
    State(director): Shared,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let limit = limit(&query)?;
    let configs = director.store.configs(Some("cloud"), Some(name(&query))).await?;
    let shown =
        |config: ConfigRecord| json!({"properties": config.content, "created_at": clock::utc(config.created_at)});
    Ok(Json(configs.into_iter().take(limit).map(shown).collect()))
}

/// Whether a new config can be used together with the current ones of its type. Lines are named to a client that says that it
/// sent the text as its author wrote it.
async fn check(
    director: &Director,
    kind: &str,
    query: &BTreeMap<String, String>,
    content: &str,
) -> Result<(), ApiError> {
    Document::parse(content).map_err(|error| ApiError::bad_request(440001, error.to_string()))?;
    let (kind, name, content) = (kind.to_owned(), name(query).to_owned(), content.to_owned());
    let current = director.store.current_configs(&kind).await?;
    let new = ConfigRecord { id: 0, kind, name, content, created_at: clock::now() };
    let findings = Configs::check(&new, &current);
    if findings.is_clean() {
        return Ok(());
    }
    let verbatim = query.get("verbatim").is_some_and(|verbatim| verbatim == "true");
    let problems: Vec<_> = findings.problems().iter().map(|problem| problem.describe(verbatim)).collect();
    Err(ApiError::bad_request(440011, problems.join("\n")))
}

pub(super) async fn update_cloud_config(
    State(director): Shared,
    Query(query): Query<BTreeMap<String, String>>,
    content: String,
) -> Result<StatusCode, ApiError> {
    check(&director, "cloud", &query, &content).await?;
    director.store.add_config("cloud", name(&query), &content).await?;
    Ok(StatusCode::CREATED)
}

pub(super) async fn diff_cloud_config(
    State(director): Shared,
    Query(query): Query<BTreeMap<String, String>>,
    content: String,
) -> Result<Json<Value>, ApiError> {
    let configs = director.store.configs(Some("cloud"), Some(name(&query))).await?;
    let before = configs.first().map(|config| config.content.as_str());
    let lines = diff(before, &content, false).map_err(|error| ApiError::bad_request(440001, error))?;
    Ok(Json(json!({"diff": lines})))
}
