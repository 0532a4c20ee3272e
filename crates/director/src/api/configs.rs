//! Configs: of any type under `/configs`, and once more under the older paths for cloud, runtime and cpi configs.

use std::collections::{BTreeMap, BTreeSet};

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use windlass_contract::director::{CloudConfig, Config, ConfigConflict, Diff};
use windlass_manifest::{Content, Document};
use windlass_operations::clock;
use windlass_planning::desired::{Configs, Findings};
use windlass_planning::diff::diff;
use windlass_planning::records::ConfigRecord;

use super::deployments::diff_line;
use super::input::{JsonBody, Parameters, TextBody, Words};
use super::permissions::{Access, Permission, refusal};
use super::{ApiError, Json, Shared, User, written_json};
use crate::Director;
use crate::store::{self, AddConfig, ConfigLabel, Event};

/// Types of configs that concern deployments of every team.
const FOR_ALL: [&str; 2] = ["cpi", "resurrection"];

/// How many bytes of configs an answer has.
const MOST_LISTED: i64 = 8 << 20;

const BAD_REQUEST: u32 = 440010;
const BAD_CONTENT: u32 = 440011;
const NOT_FOUND: u32 = 440012;

/// The type of configs that a path is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigKind(&'static str);

impl ConfigKind {
    pub(super) const CLOUD: Self = Self("cloud");
    pub(super) const RUNTIME: Self = Self("runtime");
    pub(super) const CPI: Self = Self("cpi");

    /// CPI configs have no names under their own path.
    fn name(self, query: &Words) -> &str {
        query.get("name").filter(|_| self.0 != "cpi").unwrap_or("default")
    }
}

fn shown(config: &ConfigRecord, current: bool) -> Config {
    Config {
        content: config.content.clone(),
        id: config.id.to_string(),
        kind: config.kind.clone(),
        name: config.name.clone(),
        team: config.team.clone().unwrap_or_default(),
        created_at: clock::utc(config.created_at),
        current,
    }
}

fn limit(query: &Words) -> Result<usize, ApiError> {
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    limit.ok_or_else(|| ApiError::bad_request(BAD_REQUEST, "'limit' is required and must be a number larger than 0"))
}

pub(super) async fn list(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let limit = match query.get("latest") {
        Some("true") => 1,
        None | Some("false") => limit(&query)?,
        Some(_) => return Err(ApiError::bad_request(BAD_REQUEST, "'latest' must be 'true' or 'false'")),
    };
    let mut seen = BTreeSet::new();
    let mut labels = director.store.configs(query.get("type"), query.get("name"), limit).await?;
    let mut is_first = |label: &ConfigLabel| seen.insert((label.kind.clone(), label.name.clone()));
    let current: BTreeSet<i64> = labels.iter().filter_map(|label| is_first(label).then_some(label.id)).collect();
    labels.retain(|label| user.may_with(&director, Access::Read, label.team.as_slice()));
    written(&director, &labels, |config| shown(config, current.contains(&config.id))).await
}

/// Configs as a list, unless they are too much for one answer. One after the other is read and written, so that only the answer is
/// in memory.
async fn written<C: Serialize>(
    director: &Director,
    labels: &[ConfigLabel],
    shown: impl Fn(&ConfigRecord) -> C,
) -> Result<Response, ApiError> {
    let length: i64 = labels.iter().map(|label| label.length).sum();
    if length > MOST_LISTED {
        let reason = format!(
            "these configs have {length} bytes, and an answer may have {MOST_LISTED}; ask for one 'type' and 'name', or for a \
             smaller 'limit'"
        );
        return Err(ApiError::bad_request(BAD_REQUEST, reason));
    }
    let mut body = vec![b'['];
    for label in labels {
        // What was forgotten meanwhile is left out.
        let Some(config) = director.store.config(label.id).await? else { continue };
        if body.len() > 1 {
            body.push(b',');
        }
        serde_json::to_writer(&mut body, &shown(&config)).map_err(|error| ApiError::internal(&error))?;
    }
    body.push(b']');
    written_json(Ok(body))
}

async fn by_id(director: &Director, id: &str) -> Result<ConfigRecord, ApiError> {
    let missing = || ApiError::not_found(NOT_FOUND, format!("Config {id} not found"));
    director.store.config(id.parse().map_err(|_| missing())?).await?.ok_or_else(missing)
}

pub(super) async fn show(State(director): Shared, Path(id): Path<String>) -> Result<Json<Config>, ApiError> {
    let config = by_id(&director, &id).await?;
    let current = director.store.is_current(&config).await?;
    Ok(Json(shown(&config, current)))
}

#[derive(Debug, Deserialize)]
pub(super) struct PostedConfig {
    r#type: String,
    name: String,
    content: String,
    expected_latest_id: Option<String>,
}

impl PostedConfig {
    fn check_names(&self) -> Result<(), ApiError> {
        for (what, word) in [("type", &self.r#type), ("name", &self.name)] {
            if word.is_empty() || word.len() > 255 || word.contains(['\n', '\0']) {
                return Err(ApiError::bad_request(BAD_REQUEST, format!("'{what}' must be a word of 1 to 255 letters")));
            }
        }
        Ok(())
    }
}

pub(super) async fn create(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    JsonBody(new): JsonBody<PostedConfig>,
) -> Result<Response, ApiError> {
    new.check_names()?;
    let expected = new.expected_latest_id.as_deref().map(str::parse::<i64>).transpose();
    let expected = expected.map_err(|_| ApiError::bad_request(BAD_REQUEST, "'expected_latest_id' must be a number"))?;
    if FOR_ALL.contains(&new.r#type.as_str()) {
        user.must(&director, Permission::Admin)?;
    }
    let teams = user.own_teams();
    let team = teams.first().map(String::as_str);
    check(&director, (&new.r#type, &new.name, team), &query, &new.content).await?;
    let may_replace = |current: &ConfigRecord| user.may_with(&director, Access::Admin, current.team.as_slice());
    let config = store::NewConfig { kind: &new.r#type, name: &new.name, content: &new.content, expected, team };
    match director.store.add_config(config, may_replace).await? {
        AddConfig::TooMuch(reason) => Err(ApiError::bad_request(BAD_REQUEST, reason)),
        AddConfig::OfOthers(current) => Err(refusal(&director, Access::Admin, current.team.as_slice())),
        AddConfig::Current(config) => {
            note(&director, &user, "create", &format!("config/{}", config.kind), Some(&config.name)).await?;
            Ok((StatusCode::CREATED, Json(shown(&config, true))).into_response())
        }
        AddConfig::Unexpected { latest } => {
            let expected = new.expected_latest_id.unwrap_or_default();
            let body = ConfigConflict {
                latest_id: latest.to_string(),
                expected_latest_id: expected,
                description: format!("Latest Id: '{latest}' does not match expected latest id"),
            };
            Ok((StatusCode::PRECONDITION_FAILED, Json(body)).into_response())
        }
    }
}

async fn note(
    director: &Director,
    user: &User,
    action: &str,
    object_type: &str,
    name: Option<&str>,
) -> Result<(), ApiError> {
    director.store.add_event(&Event::new(&user.name, action, object_type, name)).await?;
    Ok(())
}

/// Either a config against the current version of its name, or any two.
#[derive(Debug, Deserialize)]
pub(super) struct ConfigComparison {
    r#type: Option<String>,
    name: Option<String>,
    content: Option<String>,
    from: Option<Side>,
    to: Option<Side>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Side {
    #[serde(default)]
    id: String,
    #[serde(default)]
    content: String,
}

impl Side {
    async fn text(self, director: &Director, user: &User) -> Result<String, ApiError> {
        match (self.id.as_str(), self.content.as_str()) {
            ("", _) => Ok(self.content),
            (id, "") => {
                let config = by_id(director, id).await?;
                user.must_with(director, Access::Read, config.team.as_slice())?;
                Ok(config.content)
            }
            _ => Err(ApiError::bad_request(BAD_REQUEST, "give either an 'id' or a 'content' to compare, not both")),
        }
    }
}

pub(super) async fn compare(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    JsonBody(comparison): JsonBody<ConfigComparison>,
) -> Result<Response, ApiError> {
    match comparison {
        ConfigComparison { r#type: Some(kind), name: Some(name), content: Some(content), .. } => {
            let current = director.store.current_config(&kind, &name).await?;
            if let Some(current) = &current {
                user.must_with(&director, Access::Read, current.team.as_slice())?;
            }
            let id = current.as_ref().map_or(0, |config| config.id).to_string();
            let from = BTreeMap::from([("id".to_owned(), id)]);
            let before = current.map(|config| config.content);
            lines(&director, from, before.as_deref(), &content, &query, BAD_CONTENT).await
        }
        ConfigComparison { from: Some(from), to: Some(to), .. } => {
            let (from, to) = (from.text(&director, &user).await?, to.text(&director, &user).await?);
            lines(&director, BTreeMap::new(), Some(&from), &to, &query, BAD_CONTENT).await
        }
        _ => Err(ApiError::bad_request(BAD_REQUEST, "give 'type', 'name' and 'content', or 'from' and 'to'")),
    }
}

async fn lines(
    director: &Director,
    from: BTreeMap<String, String>,
    before: Option<&str>,
    after: &str,
    query: &Words,
    code: u32,
) -> Result<Response, ApiError> {
    let redact = query.get("redact") != Some("false");
    let compare = || {
        let diff = diff(before, after, redact).map_err(|error| ApiError::bad_request(code, error))?;
        let diff = diff.into_iter().map(diff_line).collect();
        Ok::<_, ApiError>(serde_json::to_vec(&Diff { from, diff, ..Diff::default() }))
    };
    written_json(director.limits.heavily(compare).await?)
}

pub(super) async fn remove_by_name(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    uri: Uri,
) -> Result<Response, ApiError> {
    let needed =
        |key: &str| query.get(key).ok_or_else(|| ApiError::bad_request(BAD_REQUEST, format!("'{key}' is required")));
    let (kind, name) = (needed("type")?, needed("name")?);
    let Some(current) = director.store.current_config(kind, name).await? else { return Ok(nothing_there(&uri)) };
    user.must_with(&director, Access::Admin, current.team.as_slice())?;
    if !director.store.delete_configs(&current).await? {
        return Ok(nothing_there(&uri));
    }
    note(&director, &user, "delete", &format!("config/{kind}"), Some(name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let Ok(config) = by_id(&director, &id).await else { return Ok(nothing_there(&uri)) };
    user.must_with(&director, Access::Admin, config.team.as_slice())?;
    if !director.store.delete_config(config.id).await? {
        return Ok(nothing_there(&uri));
    }
    note(&director, &user, "delete", &format!("config/{}", config.kind), Some(&config.name)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// In the original's words, which clients take for "there is none".
fn nothing_there(uri: &Uri) -> Response {
    (StatusCode::NOT_FOUND, format!("Endpoint '{}' not found.", uri.path())).into_response()
}

/// Whether a new config can be used together with the current ones of its type. Lines are named to a client that says that it
/// sent the text as its author wrote it.
async fn check(
    director: &Director,
    (kind, name, team): (&str, &str, Option<&str>),
    query: &Words,
    content: &str,
) -> Result<(), ApiError> {
    let team = team.map(str::to_owned);
    let current = director.store.current_configs_for(kind, team.as_slice()).await?;
    let check = || {
        let document = Document::parse(content).map_err(|error| ApiError::bad_request(440001, error.to_string()))?;
        if !matches!(document.node().content, Content::Object(_)) {
            let reason = format!("the {kind} config '{name}' must be a map of keys to values");
            return Err(ApiError::bad_request(BAD_CONTENT, reason));
        }
        drop(document);
        let (kind, name, content) = (kind.to_owned(), name.to_owned(), content.to_owned());
        let new = ConfigRecord { id: 0, kind, name, content, created_at: clock::now(), team };
        let mut findings = Configs::check(&new, &current);
        if let Some(drivers) = &director.drivers {
            let cpis = Configs::read([&new], &mut Findings::new()).cpis;
            drivers.refusal(&cpis).into_iter().for_each(|reason| findings.say(reason));
        }
        Ok(findings)
    };
    let findings = director.limits.heavily(check).await?;
    if findings.is_clean() {
        return Ok(());
    }
    let verbatim = query.is_set("verbatim");
    let problems = findings.problems().iter().chain(findings.warnings_beside_problems());
    let problems: Vec<_> = problems.map(|problem| problem.describe(verbatim)).collect();
    Err(ApiError::bad_request(BAD_CONTENT, problems.join("\n")))
}

pub(super) async fn list_kind(
    State(director): Shared,
    Extension(kind): Extension<ConfigKind>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let limit = limit(&query)?;
    let labels = director.store.configs(Some(kind.0), Some(kind.name(&query)), limit).await?;
    let shown = |config: &ConfigRecord| CloudConfig {
        properties: config.content.clone(),
        created_at: clock::utc(config.created_at),
    };
    written(&director, &labels, shown).await
}

pub(super) async fn create_kind(
    State(director): Shared,
    Extension(user): Extension<User>,
    Extension(kind): Extension<ConfigKind>,
    Query(query): Parameters,
    TextBody(content): TextBody,
) -> Result<StatusCode, ApiError> {
    let name = kind.name(&query);
    check(&director, (kind.0, name, None), &query, &content).await?;
    director.store.add_config(store::NewConfig::new(kind.0, name, &content), |_| true).await?;
    let named = Some(name).filter(|_| kind.0 != "cpi");
    note(&director, &user, "update", &format!("{}-config", kind.0), named).await?;
    Ok(StatusCode::CREATED)
}

pub(super) async fn compare_kind(
    State(director): Shared,
    Extension(kind): Extension<ConfigKind>,
    Query(query): Parameters,
    TextBody(content): TextBody,
) -> Result<Response, ApiError> {
    let before = director.store.current_config(kind.0, kind.name(&query)).await?.map(|config| config.content);
    lines(&director, BTreeMap::new(), before.as_deref(), &content, &query, 440001).await
}
