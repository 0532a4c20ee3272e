//! Deployments, their instances and VMs.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use windlass_contract::director::{
    Deployment, DeploymentConfig, Diff, DiffLine, InstanceSummary, Manifest, ShownPlan, UsedConfig, Versioned,
};
use windlass_contract::explain;
use windlass_manifest::{Document, names};
use windlass_operations::clock;
use windlass_planning::desired::Count;
use windlass_planning::diff;
use windlass_planning::names::{DeploymentName, IndexOrId, InstanceId};
use windlass_planning::plan::{Selection, SkipDrain, StateChange, Wish};
use windlass_planning::records::InstanceState;

use super::input::{Parameters, TextBody, Words};
use super::permissions::Access;
use super::{ApiError, Json, Shared, User, queue, written_json};
use crate::Director;
use crate::limits::Turns;
use crate::software;
use crate::store::{BriefInstance, ConfigLabel, ListedDeployment};
use crate::tasks::{Asker, DeployOptions, Job, PreparedDeploy, Purpose, prepare};
use crate::team_limits;
use crate::variables::border;

/// How long the templates of a plan may take that no task is made for: readers may ask for one.
const LONGEST_PLAN: Duration = Duration::from_secs(60);

pub(super) fn no_such_deployment(name: &str) -> ApiError {
    ApiError::not_found(70000, format!("Deployment '{name}' doesn't exist"))
}

pub(super) async fn must_exist(director: &Director, deployment: &DeploymentName) -> Result<(), ApiError> {
    // Without its manifest, which may have megabytes.
    director.store.teams_of(deployment).await?.map(drop).ok_or_else(|| no_such_deployment(deployment))
}

/// The ids of the instances that are selected; at least one, unless all of a deployment are.
pub(super) async fn must_include(
    director: &Director,
    deployment: &DeploymentName,
    selection: &Selection,
) -> Result<Vec<InstanceId>, ApiError> {
    must_exist(director, deployment).await?;
    let instances = director.store.selected_instances(deployment, selection).await?;
    if instances.is_empty() && *selection != Selection::default() {
        let group = selection.group.as_deref().unwrap_or("*");
        let what =
            selection.instance.as_ref().map_or_else(|| group.to_owned(), |instance| format!("{group}/{instance}"));
        let reason = format!("Instance '{what}' doesn't exist in deployment '{deployment}'");
        return Err(ApiError::not_found(70001, reason));
    }
    Ok(instances)
}

/// What a list of all deployments leaves out.
#[derive(Debug, Clone, Copy)]
struct LeftOut {
    configs: bool,
    stemcells: bool,
    releases: bool,
    lock: bool,
}

pub(super) async fn list(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let left_out = LeftOut {
        configs: query.is_set("exclude_configs"),
        stemcells: query.is_set("exclude_stemcells"),
        releases: query.is_set("exclude_releases"),
        lock: query.is_set("exclude_lock"),
    };
    let make = async || listed(&director, &user, left_out).await;
    // Each user sees those of their teams.
    known_or(
        &director,
        &director.limits.lists,
        format!("deployments {left_out:?} {} {:?}", user.name, user.scopes),
        make,
    )
    .await
}

/// An answer that is JSON, made only if something was written since it was made last, by one of those who ask for it, in their turn.
pub(super) async fn known_or(
    director: &Director,
    turns: &Turns,
    question: String,
    make: impl AsyncFnOnce() -> Result<Vec<u8>, ApiError>,
) -> Result<Response, ApiError> {
    let make = async || {
        let _turn = turns.turn().await;
        make().await
    };
    let body = director.known_answers.get(question, || director.store.changes(), make).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn listed(director: &Director, user: &User, left_out: LeftOut) -> Result<Vec<u8>, ApiError> {
    let releases = director.store.releases_in_use().await?;
    let (deployments, current_cloud) = director.store.deployment_list().await?;
    let mut listed = Vec::new();
    let seen = |deployment: &ListedDeployment| user.may_with(director, Access::Read, &deployment.teams);
    for (name, deployment) in deployments.into_iter().filter(|(_, deployment)| seen(deployment)) {
        let cloud_config = match (deployment.configs.is_empty(), deployment.is_up_to_date(&current_cloud)) {
            (true, _) => "none",
            (false, true) => "latest",
            (false, false) => "outdated",
        };
        let versioned = |(name, version): &(String, String)| Versioned { name: name.clone(), version: version.clone() };
        listed.push(Deployment {
            teams: deployment.teams.clone(),
            cloud_config: (!left_out.configs).then(|| cloud_config.to_owned()),
            stemcells: (!left_out.stemcells).then(|| deployment.stemcells.iter().map(versioned).collect()),
            releases: (!left_out.releases).then(|| releases.get(&name).into_iter().flatten().map(versioned).collect()),
            locked: (!left_out.lock).then_some(deployment.locked),
            name,
        });
    }
    serde_json::to_vec(&listed).map_err(|error| ApiError::internal(&error))
}

pub(super) async fn show(
    State(director): Shared,
    Path(name): Path<DeploymentName>,
) -> Result<Json<Manifest>, ApiError> {
    let deployment = director.store.deployment(&name).await?.ok_or_else(|| no_such_deployment(&name))?;
    Ok(Json(Manifest { manifest: deployment.manifest }))
}

pub(super) async fn configs(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
) -> Result<Json<Vec<DeploymentConfig>>, ApiError> {
    let name = query.get("deployment[]").unwrap_or_default().into();
    let mut listed = Vec::new();
    let teams = director.store.teams_of(&name).await?.unwrap_or_default();
    if !user.may_with(&director, Access::Read, &teams) {
        return Ok(Json(listed));
    }
    for id in director.store.configs_of(&name).await? {
        if let Some(config) = director.store.config_label(id).await? {
            listed.push(DeploymentConfig {
                id: listed.len() + 1,
                deployment: name.to_string(),
                config: UsedConfig { id: config.id.unsigned_abs(), kind: config.kind, name: config.name },
            });
        }
    }
    Ok(Json(listed))
}

/// The configs that a diff was made with, so that the deploy after it uses the same.
fn pinned(query: &Words) -> Result<Option<Vec<i64>>, ApiError> {
    let Some(context) = query.get("context") else { return Ok(None) };
    let wrong = |_| ApiError::bad_request(190025, "'context' is not what the diff gave");
    let context: Value = serde_json::from_str(context).map_err(wrong)?;
    let mut pinned = None;
    for key in ["cloud_config_ids", "runtime_config_ids"] {
        if let Some(ids) = context.get(key).filter(|ids| !ids.is_null()) {
            let ids: Vec<i64> = serde_json::from_value(ids.clone()).map_err(wrong)?;
            pinned.get_or_insert_with(Vec::new).extend(ids);
        }
    }
    Ok(pinned)
}

fn deploy_options(query: &Words) -> Result<DeployOptions, ApiError> {
    Ok(DeployOptions {
        recreate: query.is_set("recreate"),
        recreate_created_before: query.time("recreate_vms_created_before")?,
        recreate_persistent_disks: query.is_set("recreate_persistent_disks"),
        skip_drain: query.get("skip_drain").map(SkipDrain::parse).unwrap_or_default(),
        fix: query.is_set("fix"),
        dry_run: query.is_set("dry_run"),
        configs: pinned(query)?,
        canaries: count(query, "canaries")?,
        max_in_flight: count(query, "max_in_flight")?,
        force_latest_variables: query.is_set("force_latest_variables"),
        verbatim: query.is_set("verbatim"),
        ..DeployOptions::default()
    })
}

fn count(query: &Words, key: &str) -> Result<Option<Count>, ApiError> {
    let given = query.get(key);
    given
        .map(|count| count.parse())
        .transpose()
        .map_err(|error: String| ApiError::bad_request(40005, format!("'{key}': {error}")))
}

/// The name in a manifest; everything else is checked by the task.
async fn name_in(director: &Director, manifest: &str) -> Result<DeploymentName, ApiError> {
    director.limits.heavily(|| read_name(manifest)).await
}

fn read_name(manifest: &str) -> Result<DeploymentName, ApiError> {
    let bad = |error: String| ApiError::bad_request(440001, format!("the manifest cannot be used: {error}"));
    let document = Document::parse(manifest).map_err(|error| bad(error.to_string()))?;
    let name = document.root().field("name").and_then(|name| name.string()).map_err(|error| bad(error.to_string()))?;
    if name.is_empty() || name.contains('/') {
        return Err(bad(format!("'{name}' cannot name a deployment")));
    }
    Ok(name.into())
}

/// Whether a deployment of the teams in the options would use the configs that 'context' names: cloud and runtime configs of
/// nobody or of these teams, each in one version.
async fn must_be_usable(director: &Director, options: &DeployOptions) -> Result<(), ApiError> {
    let mut seen = BTreeSet::new();
    for id in options.configs.iter().flatten() {
        let label = director.store.config_label(*id).await?;
        let is_usable =
            |label: &ConfigLabel| ["cloud", "runtime"].contains(&label.kind.as_str()) && label.is_for(&options.teams);
        let Some(label) = label.filter(is_usable) else {
            let reason =
                format!("'context' names the config {id}, which does not exist; deploy again to see a new diff");
            return Err(ApiError::bad_request(190025, reason));
        };
        let ConfigLabel { kind, name, .. } = label;
        let again =
            format!("'context' names the {kind} config '{name}' more than once; deploy again to see a new diff");
        if !seen.insert((kind, name)) {
            return Err(ApiError::bad_request(190025, again));
        }
    }
    Ok(())
}

/// What is deployed already keeps its name, whatever it is.
async fn must_have_a_name(director: &Director, deployment: &DeploymentName) -> Result<(), ApiError> {
    match names::check(deployment) {
        Err(error) if director.store.deployment(deployment).await?.is_none() => {
            let reason = format!("the manifest cannot be used: name: {error}");
            Err(ApiError::bad_request(440001, reason))
        }
        _ => Ok(()),
    }
}

pub(super) async fn deploy(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    TextBody(manifest): TextBody,
) -> Result<Response, ApiError> {
    let deployment = name_in(&director, &manifest).await?;
    let mut turn = None;
    let teams = match director.store.teams_of(&deployment).await? {
        Some(teams) => user.must_with(&director, Access::Admin, &teams).map(|()| teams)?,
        None => {
            let teams = user.own_teams();
            // Requests that come at once are counted one after the other.
            turn = Some(director.limits.new_deployment().await);
            let refusal = match team_limits::refusal_of_deployment(&director, &teams).await? {
                None => border::refusal_of_name(&director, &deployment, &teams).await?,
                refusal => refusal,
            };
            match refusal {
                Some(reason) => return Err(ApiError::bad_request(440001, reason)),
                None => teams,
            }
        }
    };
    must_have_a_name(&director, &deployment).await?;
    let options = DeployOptions { teams, ..deploy_options(&query)? };
    must_be_usable(&director, &options).await?;
    if !options.dry_run {
        director.store.add_deployment(&deployment, &options.teams).await?;
        // Somebody else may have made it meanwhile.
        user.must_with_deployment(&director, Access::Admin, &deployment).await?;
    }
    drop(turn);
    queue(&director, user, Job::UpdateDeployment { deployment, manifest, options }).await
}

/// What a deploy would do, without doing it and without a task.
pub(super) async fn plan(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    TextBody(manifest): TextBody,
) -> Result<Response, ApiError> {
    let deployment = name_in(&director, &manifest).await?;
    user.must_with_deployment(&director, Access::Compare, &deployment).await?;
    must_have_a_name(&director, &deployment).await?;
    let teams = director.store.teams_of(&deployment).await?.unwrap_or_else(|| user.own_teams());
    let options = DeployOptions { verbatim: true, teams, ..deploy_options(&query)? };
    must_be_usable(&director, &options).await?;
    let template_time = director.settings.template_time.min(LONGEST_PLAN);
    let sees_values = user.may_with(&director, Access::Admin, &options.teams);
    let asker = Asker { user: &user.name, task: None, template_time, sees_values };
    let prepared = prepare(&director, &deployment, &manifest, &options, Purpose::Look, asker).await;
    let prepared = prepared.map_err(|error| ApiError::bad_request(40000, explain(&error)))?;
    // It may have waited, and the deployment may be somebody else's by now.
    user.must_with_deployment(&director, Access::Compare, &deployment).await?;
    let PreparedDeploy { mut plan, needs_ruby, .. } = prepared;
    plan.hide_hashes();
    let mut text = plan.describe_briefly();
    needs_ruby.iter().for_each(|why| text.push_str(&format!("rendered by Ruby: {why}\n")));
    let written = || serde_json::to_vec(&ShownPlan { text, plan: Some(&plan) });
    written_json(director.limits.heavily(written).await)
}

/// Which files of jobs a deploy would change, with values hidden.
pub(super) async fn changed_files(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    TextBody(manifest): TextBody,
) -> Result<Response, ApiError> {
    let deployment = name_in(&director, &manifest).await?;
    let teams = director.store.teams_of(&deployment).await?.unwrap_or_default();
    let options = DeployOptions { verbatim: true, teams, ..deploy_options(&query)? };
    must_be_usable(&director, &options).await?;
    let template_time = director.settings.template_time.min(LONGEST_PLAN);
    let asker = Asker { user: &user.name, task: None, template_time, sees_values: true };
    let prepared = prepare(&director, &deployment, &manifest, &options, Purpose::Look, asker).await;
    let mut prepared = prepared.map_err(|error| ApiError::bad_request(40000, explain(&error)))?;
    // Files are rendered in a turn of their own.
    prepared.turn = None;
    let changed = software::changed_files::changed_files(&director, &prepared, &user.name).await;
    let changed = changed.map_err(|error| ApiError::bad_request(40000, explain(&error)))?;
    written_json(director.limits.heavily(|| serde_json::to_vec(&changed)).await)
}

/// Answers 200 whatever the manifest looks like, as the original does.
pub(super) async fn diff(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(name): Path<DeploymentName>,
    Query(query): Parameters,
    TextBody(manifest): TextBody,
) -> Result<Response, ApiError> {
    let redact = query.get("redact") != Some("false");
    let mut used = Vec::new();
    for id in director.store.configs_of(&name).await? {
        used.extend(director.store.config(id).await?);
    }
    let before = director.store.deployment(&name).await?.and_then(|deployment| deployment.manifest);
    let teams = director.store.teams_of(&name).await?.unwrap_or_else(|| user.own_teams());
    let mut configs = director.store.current_configs_for("cloud", &teams).await?;
    configs.extend(director.store.current_configs_for("runtime", &teams).await?);
    let ids = |kind: &str| -> Vec<i64> {
        configs.iter().filter(|config| config.kind == kind).map(|config| config.id).collect()
    };
    let context = json!({"cloud_config_ids": ids("cloud"), "runtime_config_ids": ids("runtime")});
    let before = before.as_deref().map(|manifest| (manifest, used.as_slice()));
    let compare = || {
        let (diff, error) = match diff::diff_deployments(before, (&manifest, &configs), redact) {
            Ok(lines) => (lines.into_iter().map(diff_line).collect(), None),
            Err(error) => (Vec::new(), Some(format!("Unable to diff manifest: {error}"))),
        };
        serde_json::to_vec(&Diff { context: Some(context), diff, error, ..Diff::default() })
    };
    written_json(director.limits.heavily(compare).await)
}

/// A line of a difference, as clients read it.
pub(super) fn diff_line((line, change): diff::Line) -> DiffLine {
    DiffLine(line, change.map(str::to_owned))
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    let force = query.is_set("force");
    queue(&director, user, Job::DeleteDeployment { deployment, force }).await
}

pub(super) async fn vms(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    stats(&director, user, deployment, &query, false).await
}

pub(super) async fn instances(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    stats(&director, user, deployment, &query, true).await
}

/// With `format=full` the agents are asked, which takes a task; otherwise the records answer at once.
async fn stats(
    director: &Director,
    user: User,
    deployment: DeploymentName,
    query: &Words,
    instances: bool,
) -> Result<Response, ApiError> {
    if query.get("format") == Some("full") {
        must_exist(director, &deployment).await?;
        return queue(director, user, Job::VmStats { deployment, instances }).await;
    }
    let make = async || {
        must_exist(director, &deployment).await?;
        let all = director.store.brief_instances(&deployment).await?;
        let asked = all.iter().filter(|instance| instances || instance.vm.is_some());
        let listed: Vec<_> = asked.map(|instance| summary(instance, instances)).collect();
        serde_json::to_vec(&listed).map_err(|error| ApiError::internal(&error))
    };
    let kind = if instances { "instances" } else { "vms" };
    known_or(director, &director.limits.lists, format!("{kind} of {deployment}"), make).await
}

fn summary(record: &BriefInstance, is_instance: bool) -> InstanceSummary {
    let vm = record.vm.as_ref();
    InstanceSummary {
        agent_id: vm.map(|vm| vm.agent_id.to_string()).unwrap_or_default(),
        cid: vm.map(|vm| vm.cid.to_string()).unwrap_or_default(),
        job: record.group.clone(),
        index: Some(record.index),
        id: record.id.clone().into(),
        az: record.az.clone().unwrap_or_default(),
        ips: vm.map(|vm| vm.addresses.iter().map(ToString::to_string).collect()).unwrap_or_default(),
        vm_created_at: vm.map(|vm| clock::rfc3339(vm.created_at)).unwrap_or_default(),
        expects_vm: is_instance.then_some(record.state != InstanceState::Detached),
        active: (!is_instance).then_some(true),
        permanent_nats_credentials: (!is_instance).then_some(false),
    }
}

pub(super) async fn change_group(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group)): Path<(DeploymentName, String)>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    change(&director, user, deployment, group, None, &query).await
}

pub(super) async fn change_instance(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, instance)): Path<(DeploymentName, String, IndexOrId)>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    change(&director, user, deployment, group, Some(instance), &query).await
}

/// A change of state is a deploy of the last manifest with something asked for on top.
async fn change(
    director: &Director,
    user: User,
    deployment: DeploymentName,
    group: String,
    instance: Option<IndexOrId>,
    query: &Words,
) -> Result<Response, ApiError> {
    let state = query.get("state").unwrap_or_default();
    let wish = Wish::parse(state).ok_or_else(|| {
        let reason = format!("'{state}' is no state; use started, stopped, detached, restart or recreate");
        ApiError::bad_request(140008, reason)
    })?;
    let selection = Selection { group: (group != "*").then_some(group), instance };
    let record = director.store.deployment(&deployment).await?.ok_or_else(|| no_such_deployment(&deployment))?;
    let manifest = record.manifest.ok_or_else(|| {
        ApiError::bad_request(
            440001,
            format!("deployment '{deployment}' was never deployed successfully; deploy it first"),
        )
    })?;
    must_include(director, &deployment, &selection).await?;
    let options = DeployOptions {
        change_state: Some(StateChange { selection, wish }),
        // The configs of the last deploy, so that nothing else changes by the way.
        configs: Some(director.store.configs_of(&deployment).await?),
        ..deploy_options(query)?
    };
    queue(director, user, Job::UpdateDeployment { deployment, manifest, options }).await
}
