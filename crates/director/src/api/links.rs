//! Links: who provides and consumes what; and links for those outside of deployments, such as service brokers.

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_manifest::names;
use windlass_operations::clock;
use windlass_planning::desired::canonical;
use windlass_planning::links::{DNS_NUMBERS, ProviderKind};
use windlass_planning::names::DeploymentName;

use super::deployments::must_exist;
use super::input::{JsonBody, Parameters, Words};
use super::permissions::Access;
use super::{ApiError, Json, Shared, User};
use crate::Director;
use crate::limits::{EXTERNAL_BYTES, EXTERNAL_LINKS};
use crate::store::{LinkOfConsumer, LinkRecord};

pub(super) async fn providers(State(director): Shared, Query(query): Parameters) -> Result<Json<Value>, ApiError> {
    let deployment = deployment_of(&director, &query).await?;
    let providers = director.store.listed_link_providers(&deployment).await?;
    let shown = providers.iter().map(|provider| {
        json!({
            "id": provider.id.to_string(),
            "name": provider.name,
            "shared": provider.shared,
            "deployment": provider.deployment,
            "link_provider_definition": {"type": provider.link_type, "name": provider.original_name},
            "owner_object": {
                "type": provider.kind.as_str(), "name": provider.owner, "info": {"instance_group": provider.group},
            },
        })
    });
    Ok(Json(shown.collect()))
}

pub(super) async fn consumers(State(director): Shared, Query(query): Parameters) -> Result<Json<Value>, ApiError> {
    let deployment = deployment_of(&director, &query).await?;
    let consumers = director.store.link_consumers(&deployment).await?;
    let shown = consumers.iter().map(|consumer| {
        let mut owner = json!({"type": consumer.kind, "name": consumer.owner});
        if !consumer.group.is_empty() {
            owner["info"] = json!({"instance_group": consumer.group});
        }
        json!({
            "id": consumer.id.to_string(),
            "name": consumer.name,
            "optional": consumer.optional,
            "deployment": consumer.deployment,
            "owner_object": owner,
            "link_consumer_definition": {"name": consumer.original_name, "type": consumer.link_type},
        })
    });
    Ok(Json(shown.collect()))
}

pub(super) async fn list(State(director): Shared, Query(query): Parameters) -> Result<Json<Value>, ApiError> {
    let deployment = deployment_of(&director, &query).await?;
    let links = director.store.links(&deployment).await?;
    Ok(Json(links.iter().map(shown).collect()))
}

/// Without the content, which may have secrets.
fn shown(link: &LinkRecord) -> Value {
    json!({
        "id": link.id.to_string(),
        "name": link.name,
        "link_consumer_id": link.consumer.to_string(),
        "link_provider_id": link.provider.map(|provider| provider.to_string()),
        "created_at": clock::utc(link.created_at),
    })
}

/// A shared link is for deployments of all teams, as it is in a deploy.
pub(super) async fn create(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(request): JsonBody<Value>,
) -> Result<Json<Value>, ApiError> {
    let (id, owner) =
        wanted(&request).map_err(|reason| ApiError::bad_request(810001, format!("Invalid request: {reason}")))?;
    names::check(owner).map_err(|error| {
        let reason = format!("Invalid request: `link_consumer.owner_object.name`: {error}");
        ApiError::bad_request(810001, reason)
    })?;
    let found = match id.parse() {
        Ok(number) => director.store.link_provider(number).await?,
        Err(_) => None,
    };
    let provider = found.ok_or_else(|| ApiError::bad_request(810002, format!("Invalid link_provider_id: {id}")))?;
    if !provider.shared {
        user.must_with_deployment(&director, Access::Admin, &provider.deployment.as_str().into()).await?;
        return Err(ApiError::with_status(StatusCode::FORBIDDEN, 810009, "Provider not `shared`"));
    }
    let network = request.get("network").and_then(Value::as_str);
    if let Some(network) = network.filter(|network| !provider.networks().any(|known| known == *network)) {
        let network: String = network.chars().take(100).collect();
        let reason = format!("Can't resolve network: `{network}` in provider id: {id} for `{owner}`");
        return Err(ApiError::bad_request(810003, reason));
    }
    let content = provider.content_for(network, None).map_err(|reason| ApiError::bad_request(810001, reason))?;
    match director.store.add_external_link(&provider, owner, &content).await? {
        Some(link) => Ok(Json(shown(&link))),
        None => {
            let reason = format!(
                "Invalid request: the deployment '{}' has {EXTERNAL_LINKS} links for those outside of deployments, or {} MiB of them, \
                 which are the most; an admin of it can delete some",
                provider.deployment,
                EXTERNAL_BYTES >> 20
            );
            Err(ApiError::bad_request(810001, reason))
        }
    }
}

/// Whose link is wanted, and by whom.
fn wanted(request: &Value) -> Result<(&str, &str), &'static str> {
    let id = match request.get("link_provider_id") {
        None | Some(Value::Null) => return Err("`link_provider_id` must be provided"),
        Some(Value::String(id)) if id.is_empty() => return Err("`link_provider_id` must be provided"),
        Some(Value::String(id)) => id,
        Some(_) => return Err("`link_provider_id` must be a String"),
    };
    let consumer = request.get("link_consumer").filter(|consumer| !consumer.is_null());
    let consumer = consumer.ok_or("`link_consumer` section must be defined")?;
    let owner = consumer.get("owner_object").filter(|owner| !owner.is_null());
    let owner = owner.ok_or("`link_consumer.owner_object` section must be defined")?;
    if owner.get("type").and_then(Value::as_str) != Some("external") {
        return Err("`link_consumer.owner_object.type` should be 'external'");
    }
    let name = owner.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    Ok((id, name.ok_or("`link_consumer.owner_object.name` must not be empty")?))
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let LinkOfConsumer { link, is_external, deployment } =
        found(&director, &id).await?.ok_or_else(|| ApiError::not_found(810000, format!("Invalid link id: {id}")))?;
    user.must_with_deployment(&director, Access::Admin, &deployment).await?;
    if !is_external {
        return Err(ApiError::bad_request(810005, "Error deleting link: not a external link"));
    }
    director.store.remove_external_link(&link).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn found(director: &Director, id: &str) -> Result<Option<LinkOfConsumer>, ApiError> {
    let Ok(number) = id.parse() else { return Ok(None) };
    Ok(director.store.link(number).await?)
}

/// The name under which a DNS server with BOSH's records knows all instances of a link.
pub(super) async fn address(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiError> {
    let id = query.get("link_id").ok_or_else(|| ApiError::bad_request(810006, "Link id is required"))?;
    let status = match query.get("status") {
        None | Some("default") => 0,
        Some("unhealthy") => 1,
        Some("healthy") => 3,
        Some("all") => 4,
        Some(_) => {
            let reason = r#"status must be a one of: ["healthy", "unhealthy", "all", "default"]"#;
            return Err(ApiError::bad_request(810007, reason));
        }
    };
    let missing = || ApiError::not_found(810000, format!("Could not find a link with id {id}"));
    let LinkOfConsumer { link, is_external, deployment } = found(&director, id).await?.ok_or_else(missing)?;
    let provider = match link.provider {
        Some(provider) => director.store.link_provider(provider).await?,
        None => None,
    };
    // A user who may make a link of a shared provider may use it.
    if !(is_external && provider.as_ref().is_some_and(|provider| provider.shared)) {
        user.must_with_deployment(&director, Access::Read, &deployment).await?;
    }
    if provider.is_some_and(|provider| provider.kind == ProviderKind::Manual) {
        return Ok(Json(json!({"address": link.content.get("address")})));
    }
    let mut filters = vec![format!("s{status}")];
    let numbers = director.store.numbers_of_places().await?;
    for (_, az) in pairs.iter().filter(|(key, _)| key == "azs[]" || key == "azs") {
        match numbers.azs.get(az) {
            Some(number) => filters.push(format!("a{number}")),
            None => return Err(ApiError::bad_request(810008, format!("az {az} is not valid"))),
        }
    }
    let part = |key: &str| link.content.get(key).and_then(Value::as_str).unwrap_or_default();
    let is_set = |key: &str| link.content.get(key) == Some(&Value::Bool(true));
    let number = |of: &Value| of.as_i64().unwrap_or_default();
    let group = if is_set("use_short_dns_addresses") || is_set("use_link_dns_names") {
        let of = &link.content[DNS_NUMBERS];
        filters.push(format!("n{}", number(&of["networks"][part("default_network")])));
        format!("q-g{}", number(&of["group"]))
    } else {
        ["instance_group", "default_network", "deployment_name"].map(|key| canonical(part(key))).join(".")
    };
    filters.sort();
    Ok(Json(json!({"address": format!("q-{}.{group}.{}", filters.concat(), part("domain"))})))
}

async fn deployment_of(director: &Director, query: &Words) -> Result<DeploymentName, ApiError> {
    let required = || ApiError::bad_request(190024, "Deployment name is required");
    let deployment = query.get("deployment").ok_or_else(required)?.into();
    must_exist(director, &deployment).await?;
    Ok(deployment)
}
