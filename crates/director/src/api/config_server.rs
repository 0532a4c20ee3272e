//! The config server's API, version 1, as BOSH's directors ask for it, and which variables a deployment uses.
//!
//! Errors are its own, too: `{"error": "…"}`. A value is in an answer only where it was asked for by its name or id.

use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_contract::director::{Variable, VariableExpiry, VariableUsers, Versioned};
use windlass_contract::explain;
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_variables::{ConfigServer, Generation, Mode, ServerError, Version};

use super::deployments::{known_or, must_exist};
use super::input::{JsonBody, Parameters};
use super::permissions::Access;
use super::{ApiError, Json, Shared, User};
use crate::Director;
use crate::store::Event;
use crate::variables::embedded::{Embedded, Outcome};

/// How long another config server may take for all certificates of a deployment, and for how many it is asked at once.
const PATIENCE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 4;

/// The versions of variables that are in use, without their values.
pub(super) async fn of_deployment(
    State(director): Shared,
    Path(deployment): Path<DeploymentName>,
) -> Result<Json<Vec<Variable>>, ApiError> {
    must_exist(&director, &deployment).await?;
    let variables = director.store.variables_of(&deployment).await?;
    Ok(Json(variables.into_iter().map(|(id, name)| Variable { id, name }).collect()))
}

/// Which deployments were deployed with which version of a variable, as far as the user may see them.
pub(super) async fn users_of(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
) -> Result<Json<VariableUsers>, ApiError> {
    let mut deployments = Vec::new();
    for (deployment, version) in director.store.deployments_with(&name).await? {
        let teams = director.store.teams_of(&deployment).await?.unwrap_or_default();
        if user.may_with(&director, Access::Read, &teams) {
            deployments.push(Versioned { name: deployment.into(), version });
        }
    }
    Ok(Json(VariableUsers { deployments }))
}

/// When the certificates end that a deployment was deployed with. Those who ask at the same time share one answer: another config
/// server is asked for each variable.
pub(super) async fn certificate_expiry(
    State(director): Shared,
    Path(deployment): Path<DeploymentName>,
) -> Result<Response, ApiError> {
    expiries_within(PATIENCE, &director, &deployment).await
}

/// All of them, or why not: of a certificate that is left out, nobody would know that it ends.
async fn expiries_within(
    patience: Duration,
    director: &Director,
    deployment: &DeploymentName,
) -> Result<Response, ApiError> {
    let make = async || {
        let expiries = expiries(director, deployment).await?;
        serde_json::to_vec(&expiries).map_err(|error| ApiError::internal(&error))
    };
    let answer = known_or(director, &director.limits.asking, format!("certificates of {deployment}"), make);
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
        let reason = format!(
            "when the certificates of '{deployment}' end is not known: the config server has not told all of them within {} seconds; \
             look what delays it, or ask again",
            patience.as_secs()
        );
        Err(ApiError::with_status(StatusCode::GATEWAY_TIMEOUT, 100, reason))
    })
}

async fn expiries(director: &Director, deployment: &DeploymentName) -> Result<Vec<VariableExpiry>, ApiError> {
    must_exist(director, deployment).await?;
    let Some(set) = director.store.deployed_variable_set(deployment).await? else { return Ok(Vec::new()) };
    let versions = director.store.versions_of(set).await?;
    let asking = versions.into_iter().map(|(name, id)| expiry(director, name, id));
    let told: Vec<_> = stream::iter(asking).buffered(AT_ONCE).try_collect().await?;
    Ok(told.into_iter().flatten().collect())
}

/// When a version of a variable ends; none if it is no certificate, or gone.
async fn expiry(director: &Director, name: String, id: String) -> Result<Option<VariableExpiry>, ApiError> {
    let version = director.variables.server.version(&name, &id).await;
    let version = version.map_err(|error| ApiError::internal(&error))?;
    let certificate = version.as_ref().and_then(|version| version.value.get("certificate")?.as_str());
    let Some(end) = certificate.and_then(|pem| windlass_pki::expiry(pem).ok()) else { return Ok(None) };
    let days_left = (end - OffsetDateTime::now_utc()).whole_days();
    Ok(Some(VariableExpiry { name, id, expiry_date: clock::rfc3339(end.unix_timestamp()), days_left }))
}

/// An answer that says no, in the words of a config server.
#[derive(Debug)]
pub(super) struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

impl From<ServerError> for Refusal {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Generate { .. } | ServerError::Refused { .. } => {
                Self(StatusCode::BAD_REQUEST, explain(&error))
            }
            error => {
                tracing::error!(error = explain(&error), "the config server failed");
                Self(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the config server failed; the director's log says why".to_owned(),
                )
            }
        }
    }
}

/// JSON that says so: a config server takes nothing else.
#[derive(Debug)]
pub(super) struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let refusal = Refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Unsupported Content-Type - only accepts application/json".into(),
            );
            return Err(refusal.into_response());
        }
        match JsonBody::<Value>::from_request(request, state).await {
            Err(error) => Err(error.into_response()),
            // What serde says of a body may quote a value.
            Ok(JsonBody(body)) => serde_json::from_value(body)
                .map(Self)
                .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "Request can't be parsed".to_owned()).into_response()),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NewValue {
    name: String,
    value: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewGeneration {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    mode: Option<String>,
}

fn embedded(director: &Director) -> Result<&Embedded, Refusal> {
    let elsewhere =
        || Refusal(StatusCode::NOT_FOUND, "another config server holds the values; ask that one".to_owned());
    director.variables.embedded.as_deref().ok_or_else(elsewhere)
}

/// A disk is never filled: what else the director writes needs some of it.
fn must_have_space(director: &Director) -> Result<(), Refusal> {
    if director.has_space() {
        return Ok(());
    }
    let reason = "there is no space left on the director's disk for values of variables; make room there";
    Err(Refusal(StatusCode::INSUFFICIENT_STORAGE, reason.to_owned()))
}

/// As CredHub's.
const LONGEST_NAME: usize = 1024;

fn checked(name: &str) -> Result<&str, Refusal> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/');
    if name.is_empty() || !name.chars().all(allowed) {
        let reason = "Name must consist of alphanumeric, underscores, dashes, and forward slashes";
        return Err(Refusal(StatusCode::BAD_REQUEST, reason.to_owned()));
    }
    if name.len() > LONGEST_NAME {
        return Err(Refusal(StatusCode::BAD_REQUEST, format!("Name cannot exceed {LONGEST_NAME} characters")));
    }
    Ok(name)
}

fn shown(version: &Version) -> Value {
    json!({"id": version.id, "name": version.name, "value": version.value})
}

fn not_found(what: String) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, what)
}

pub(super) async fn by_name(State(director): Shared, Query(query): Parameters) -> Result<Json<Value>, Refusal> {
    let name = query.get("name").ok_or_else(|| Refusal(StatusCode::BAD_REQUEST, "name is missing".to_owned()))?;
    let name = checked(name)?;
    let embedded = embedded(&director)?;
    let versions: Vec<Version> = match query.is_set("current") {
        true => embedded.current(name).await?.into_iter().collect(),
        false => embedded.versions(name).await?,
    };
    if versions.is_empty() {
        return Err(not_found(format!("Name '{name}' not found")));
    }
    Ok(Json(json!({"data": versions.iter().map(shown).collect::<Vec<_>>()})))
}

pub(super) async fn by_id(State(director): Shared, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    let found = embedded(&director)?.by_id(&id).await?;
    Ok(Json(shown(&found.ok_or_else(|| not_found(format!("ID '{id}' not found")))?)))
}

/// Notes which user changed which variable, without the value.
async fn note(director: &Director, user: &User, action: &str, name: &str, id: Option<&str>) -> Result<(), Refusal> {
    let mut event = Event::new(&user.name, action, "variable", Some(name));
    event.context.extend(id.map(|id| ("id".to_owned(), Value::from(id))));
    let noted = director.store.add_event(&event).await;
    noted.map(drop).map_err(|source| ServerError::Unreachable { name: name.to_owned(), source: source.into() }.into())
}

pub(super) async fn set(
    State(director): Shared,
    Extension(user): Extension<User>,
    Body(new): Body<NewValue>,
) -> Result<Json<Value>, Refusal> {
    must_have_space(&director)?;
    let version = embedded(&director)?.set(checked(&new.name)?, new.value).await?;
    note(&director, &user, "create", &version.name, Some(&version.id)).await?;
    Ok(Json(shown(&version)))
}

pub(super) async fn generate(
    State(director): Shared,
    Extension(user): Extension<User>,
    Body(new): Body<NewGeneration>,
) -> Result<Response, Refusal> {
    let wrong =
        |word: &str| Refusal(StatusCode::BAD_REQUEST, format!("'{word}' is no mode; use no-overwrite or converge"));
    let mode = match new.mode.as_deref() {
        None => Mode::default(),
        Some(word) => Mode::parse(word).ok_or_else(|| wrong(word))?,
    };
    checked(&new.name)?;
    let request = Generation { name: new.name, kind: new.kind, parameters: new.parameters, mode };
    must_have_space(&director)?;
    let (version, outcome) = embedded(&director)?.obtain(&request).await?;
    if outcome == Outcome::Made {
        note(&director, &user, "create", &version.name, Some(&version.id)).await?;
    }
    let status = if outcome == Outcome::Made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(shown(&version))).into_response())
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<StatusCode, Refusal> {
    let name = query.get("name").ok_or_else(|| Refusal(StatusCode::BAD_REQUEST, "name is missing".to_owned()))?;
    match embedded(&director)?.remove(checked(name)?).await? {
        true => {
            note(&director, &user, "delete", name, None).await?;
            Ok(StatusCode::NO_CONTENT)
        }
        false => Err(not_found(format!("Name '{name}' not found"))),
    }
}

/// The names of all variables, for exports.
pub(super) async fn names(State(director): Shared) -> Result<Json<Value>, Refusal> {
    Ok(Json(json!(embedded(&director)?.names().await?)))
}

#[cfg(test)]
mod tests {
    use axum::body::Body as HttpBody;
    use axum::http::Method;

    use super::*;
    use crate::testing::TestDirector;

    async fn ask(test: &TestDirector, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("Authorization", test.basic("admin"));
        let request = request.header(header::CONTENT_TYPE, "application/json").body(HttpBody::from(body.to_string()));
        let (status, text) = test.answer(request.unwrap()).await;
        (status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    #[tokio::test]
    async fn values_are_set_made_read_and_deleted_as_with_a_config_server() {
        let test = TestDirector::new().await;
        let data = "/v1/data";
        let (status, first) = ask(&test, Method::PUT, data, &json!({"name": "/a/b", "value": {"x": 1}})).await;
        assert_eq!((status, &first["name"], &first["value"]), (200, &json!("/a/b"), &json!({"x": 1})));
        assert!(first["id"].is_string(), "{first}");
        let (_, second) = ask(&test, Method::PUT, data, &json!({"name": "/a/b", "value": "two"})).await;
        let (status, all) = ask(&test, Method::GET, "/v1/data?name=/a/b", &Value::Null).await;
        assert_eq!((status, all), (200, json!({"data": [second, first]})));
        let (_, current) = ask(&test, Method::GET, "/v1/data?name=/a/b&current=true", &Value::Null).await;
        assert_eq!(current, json!({"data": [second]}));
        let id = first["id"].as_str().unwrap();
        assert_eq!(ask(&test, Method::GET, &format!("/v1/data/{id}"), &Value::Null).await, (200, first.clone()));
        let password = json!({"name": "/p", "type": "password", "parameters": {"length": 7}});
        let (status, made) = ask(&test, Method::POST, data, &password).await;
        assert_eq!((status, made["value"].as_str().unwrap().len()), (201, 7));
        assert_eq!(ask(&test, Method::POST, data, &password).await, (200, made.clone()));
        let longer = json!({"name": "/p", "type": "password", "parameters": {"length": 9}, "mode": "converge"});
        assert_eq!(ask(&test, Method::POST, data, &longer).await.0, 201);
        assert_eq!(ask(&test, Method::DELETE, "/v1/data?name=/a/b", &Value::Null).await.0, 204);
        let gone = (404, json!({"error": "Name '/a/b' not found"}));
        assert_eq!(ask(&test, Method::DELETE, "/v1/data?name=/a/b", &Value::Null).await, gone);
        assert_eq!(ask(&test, Method::GET, "/v1/data?name=/a/b", &Value::Null).await, gone);
        let (_, events) = ask(&test, Method::GET, "/events?object_type=variable", &Value::Null).await;
        let told = |event: &Value| format!("{} {} {}", event["user"], event["action"], event["object_name"]);
        let told: Vec<_> = events.as_array().unwrap().iter().map(told).collect();
        let (set, made) = (r#""admin" "create" "/a/b""#, r#""admin" "create" "/p""#);
        assert_eq!(told, [r#""admin" "delete" "/a/b""#, made, made, set, set]);
        assert!(!events.to_string().contains("two"), "{events}");
    }

    /// Who may only set values filled the disk, beyond what everybody needs of it.
    #[tokio::test]
    async fn values_leave_the_disk_its_reserve() {
        let test = TestDirector::new().await;
        let set = json!({"name": "/x", "value": "x"});
        assert_eq!(ask(&test, Method::PUT, "/v1/data", &set).await.0, 200);
        test.fill_the_disk();
        let made = json!({"name": "/y", "type": "password"});
        for (method, body) in [(Method::PUT, &set), (Method::POST, &made)] {
            let (status, said) = ask(&test, method, "/v1/data", body).await;
            assert!(status == 507 && said["error"].as_str().unwrap().contains("no space left"), "{status} {said}");
        }
        assert_eq!(ask(&test, Method::GET, "/v1/data?name=/x", &Value::Null).await.0, 200);
        assert_eq!(ask(&test, Method::DELETE, "/v1/data?name=/x", &Value::Null).await.0, 204);
    }

    #[tokio::test]
    async fn what_a_config_server_refuses_is_refused_and_values_are_not_quoted() {
        let test = TestDirector::new().await;
        for (body, status) in [
            (json!({"name": "a b", "value": "hunter2"}), 400),
            (json!({"name": ["x"], "value": "hunter2"}), 400),
            (json!({"value": "hunter2"}), 400),
            // Each name is kept with every deployment that uses it.
            (json!({"name": "x".repeat(LONGEST_NAME + 1), "value": "hunter2"}), 400),
        ] {
            let (answered, said) = ask(&test, Method::PUT, "/v1/data", &body).await;
            assert_eq!(answered, status, "{said}");
            assert!(said["error"].is_string() && !said.to_string().contains("hunter2"), "{said}");
        }
        let unknown = json!({"name": "/x", "type": "dsa"});
        let (status, said) = ask(&test, Method::POST, "/v1/data", &unknown).await;
        assert!(status == 400 && said["error"].as_str().unwrap().contains("'dsa'"), "{said}");
        let plain = test.send(Some("admin"), Method::PUT, "/v1/data", "{}").await;
        assert_eq!(plain.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        for user in ["reader", "shop-admin", "uploader"] {
            let (status, _) = test.send(Some(user), Method::GET, "/v1/data?name=/x", "").await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{user}");
        }
        let (status, _) = test.send(Some("secret-keeper"), Method::GET, "/v1/data?name=/x", "").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let (status, _) = test.send(Some("secret-keeper"), Method::GET, "/deployments", "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "the scope is for nothing else");
    }

    /// An answer without some of the certificates looks as if those never ended.
    #[tokio::test]
    async fn a_config_server_that_does_not_tell_all_certificates_in_time_is_told() {
        let (test, _) = TestDirector::with_silent_config_server(&[("shop", "shop")]).await;
        let patience = Duration::from_millis(10);
        let refused = expiries_within(patience, &test.director, &"shop".into()).await.unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::GATEWAY_TIMEOUT);
        let none = expiries_within(Duration::from_secs(30), &test.director, &"none".into()).await;
        assert_eq!(none.unwrap_err().into_response().status(), StatusCode::NOT_FOUND);
    }
}
