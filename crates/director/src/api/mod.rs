//! The HTTP API, as the original's clients expect it. One file per kind of thing.
//!
//! Everything needs credentials but `/info` and `/health`. [`routes`] has a list of routes for each permission that a user
//! may need; `permissions.rs` says which scopes give it. What takes time becomes a task: the answer is `302` to `/tasks/N`.
//! Paths below `/windlass` are ours and unknown to the original.

mod auth;
mod clean_up;
mod config_server;
mod configs;
mod connections;
mod deployments;
mod disks;
mod errands;
mod error;
mod events;
mod explain;
#[cfg(test)]
mod guard_tests;
mod info;
mod input;
mod instances;
mod json;
#[cfg(test)]
mod link_tests;
mod links;
mod openapi;
mod permissions;
mod problems;
mod releases;
mod resources;
mod snapshots;
mod standby;
mod stemcells;
mod tasks;
#[cfg(test)]
mod team_tests;
#[cfg(test)]
mod tests;
mod timeline;
mod turns;
mod uploads;
mod watching;
mod way_in;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use windlass_connections::{AcceptLoop, Limits};

use crate::Director;
use crate::limits::TASKS_OF_A_USER;
use crate::store::{LOOK_UP, NewTask, StoredJob};
use crate::tasks::Job;
pub(crate) use auth::User;
use configs::ConfigKind;
pub(crate) use error::ApiError;
use json::{Json, written_json};
use permissions::{Access, Permission};
pub(crate) use standby::serve as serve_standby;

/// Where people come into an instance through its agent.
const WAY_IN: &str = "/windlass/deployments/{deployment}/instances/{group}/{instance}/way-in";

/// Why an instance is as it is, which many and large plans tell.
const EXPLAIN: &str = "/windlass/deployments/{deployment}/instances/{group}/{instance}";

/// What several may ask for at once who get the same answer.
const DEPLOYMENTS: &str = "/deployments";
const VMS: &str = "/deployments/{deployment}/vms";
const INSTANCES: &str = "/deployments/{deployment}/instances";

/// The same, for which another config server may be asked.
const CERTIFICATES: &str = "/deployments/{deployment}/certificate_expiry";

/// For which a blobstore may be asked.
const BLOB: &str = "/resources/{id}";
const RELEASE: &str = "/releases/{name}";
const RUBBISH: &str = "/cleanup/dryrun";

/// What clients ask for again and again while they follow a task.
const TASK: &str = "/tasks/{id}";
const OUTPUT: &str = "/tasks/{id}/output";

type Shared = axum::extract::State<Arc<Director>>;

/// Manifests and configs are small; a larger body is a mistake or an attack.
const LARGEST_DOCUMENT: usize = 2 << 20;

pub(crate) fn router(director: Arc<Director>) -> Router {
    let state = |permission: Permission| auth::Gate { director: director.clone(), permission };
    let gate = |permission| axum::middleware::from_fn_with_state(state(permission), auth::admit);
    let gate_after_turn = |permission| axum::middleware::from_fn_with_state(state(permission), auth::admit_again);
    let turn = axum::middleware::from_fn_with_state(director.clone(), turns::in_turn);
    let mut router = Router::new();
    for (permission, routes) in routes() {
        let routes = routes.route_layer(gate_after_turn(permission)).route_layer(turn.clone());
        let routes = routes.route_layer(gate(permission));
        router = router.merge(routes.layer(DefaultBodyLimit::max(LARGEST_DOCUMENT)));
    }
    for (permission, routes) in streams() {
        router = router.merge(routes.layer(DefaultBodyLimit::disable()).route_layer(gate(permission)));
    }
    router
        .route("/info", get(info::info))
        .route("/health", get(watching::health))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        .layer(axum::middleware::from_fn(input::refuse_zero_bytes))
        .layer(axum::middleware::from_fn(auth::refuse_other_sites))
        .layer(axum::middleware::from_fn_with_state(director.clone(), watching::count))
        .with_state(director)
}

type Routes = Router<Arc<Director>>;

/// Every route with documents, under what it needs.
fn routes() -> [(Permission, Routes); 11] {
    [
        (Permission::Read, for_readers()),
        (Permission::ReadOfTeams, for_teams()),
        (Permission::ReadOfTeamAdmins, for_admins_of_teams()),
        (Permission::MatchPackages, for_uploaders()),
        (Permission::Deployment(Access::Read), for_readers_of_deployments()),
        (Permission::Deployment(Access::Compare), for_comparers_of_deployments()),
        (Permission::Deployment(Access::Admin), for_admins_of_deployments()),
        (Permission::Known, for_users()),
        (Permission::Create, for_makers()),
        (Permission::Admin, for_admins()),
        (Permission::Values, for_keepers_of_values()),
    ]
}

/// What readers may do: look, and compare.
fn for_readers() -> Routes {
    Router::new()
        .route("/networks", get(releases::nothing))
        .route("/configs/{id}", get(configs::show))
        .merge(kind_to_read("/cloud_configs", "/cloud_configs/diff", ConfigKind::CLOUD))
        .merge(kind_to_read("/runtime_configs", "/runtime_configs/diff", ConfigKind::RUNTIME))
        .merge(kind_to_read("/cpi_configs", "/cpi_configs/diff", ConfigKind::CPI))
        .route("/resurrection", get(problems::resurrection))
        .route("/metrics", get(watching::metrics))
        .route("/events/{id}", get(events::show))
        .route("/locks", get(resources::locks))
        .route("/disks", get(disks::orphans))
        .route("/orphaned_vms", get(resources::orphaned_vms))
        .route(RUBBISH, get(clean_up::dry_run))
        .route("/director/certificate_expiry", get(info::certificate_expiry))
        .route("/windlass/leaks", get(resources::leaks))
        .route("/windlass/known", get(resources::known))
}

/// What readers and everybody in a team may see; of what belongs to teams, only that of theirs.
fn for_teams() -> Routes {
    Router::new()
        .route("/configs", get(configs::list))
        .route("/configs/diff", post(configs::compare))
        .route("/events", get(events::list))
        .route("/link_address", get(links::address))
}

/// What readers and admins of teams may see; of what belongs to teams, only that of theirs.
fn for_admins_of_teams() -> Routes {
    Router::new()
        .route("/stemcells", get(stemcells::list))
        .route("/stemcell_uploads", post(stemcells::is_needed))
        .route("/releases", get(releases::list))
        .route(RELEASE, get(releases::show))
        .route(DEPLOYMENTS, get(deployments::list))
        .route("/deployed_variables/{name}", get(config_server::users_of))
        .route("/deployment_configs", get(deployments::configs))
        .route("/tasks", get(tasks::list))
        .route("/windlass/plan", post(deployments::plan))
        .route("/windlass/disks", get(resources::disks))
}

/// What helps to upload less.
fn for_uploaders() -> Routes {
    Router::new()
        .route("/packages/matches", post(releases::matches))
        .route("/packages/matches_compiled", post(releases::compiled_matches))
}

/// What those may see of a deployment who may read it.
fn for_readers_of_deployments() -> Routes {
    Router::new()
        .route("/deployments/{deployment}", get(deployments::show))
        .route(VMS, get(deployments::vms))
        .route(INSTANCES, get(deployments::instances))
        .route("/deployments/{deployment}/problems", get(problems::list))
        .route("/deployments/{deployment}/snapshots", get(snapshots::list))
        .route("/deployments/{deployment}/errands", get(errands::list))
        .route("/deployments/{deployment}/variables", get(config_server::of_deployment))
        .route(CERTIFICATES, get(config_server::certificate_expiry))
        .route("/link_providers", get(links::providers))
        .route("/link_consumers", get(links::consumers))
        .route("/links", get(links::list))
        .route(EXPLAIN, get(explain::show))
}

fn for_comparers_of_deployments() -> Routes {
    Router::new().route("/deployments/{deployment}/diff", post(deployments::diff))
}

/// What changes a deployment, or may show secrets of it.
fn for_admins_of_deployments() -> Routes {
    Router::new()
        .route("/deployments/{deployment}", delete(deployments::remove))
        .route("/deployments/{deployment}/jobs/{group}", put(deployments::change_group))
        .route("/deployments/{deployment}/jobs/{group}/{instance}", put(deployments::change_instance))
        .route("/deployments/{deployment}/scans", post(problems::scan))
        .route("/deployments/{deployment}/problems", put(problems::apply))
        .route("/deployments/{deployment}/scan_and_fix", put(problems::scan_and_fix))
        .route("/deployments/{deployment}/jobs/{group}/{instance}/logs", get(instances::logs))
        .route("/deployments/{deployment}/jobs/{group}/{instance}/snapshots", post(snapshots::take_of_instance))
        .route("/deployments/{deployment}/jobs/{group}/{instance}/resurrection", put(problems::resurrection_of_one))
        .route("/deployments/{deployment}/instance_groups/{group}/{instance}/actions/{action}", post(instances::act))
        .route("/deployments/{deployment}/instance_groups/{group}/{instance}/ignore", put(instances::ignore))
        .route("/deployments/{deployment}/snapshots", post(snapshots::take).delete(snapshots::remove_all))
        .route("/deployments/{deployment}/snapshots/{cid}", delete(snapshots::remove))
        .route("/deployments/{deployment}/ssh", post(instances::ssh))
        .route("/deployments/{deployment}/errands/{errand}/runs", post(errands::run))
}

/// What needs credentials, and for the rest looks itself whose something is.
fn for_users() -> Routes {
    Router::new()
        .route("/openapi.json", get(openapi::document))
        .route(TASK, get(tasks::show))
        .route(OUTPUT, get(tasks::output))
}

/// What admins of teams may make; the routes look whether something of others is in the way.
fn for_makers() -> Routes {
    Router::new()
        .route("/configs", post(configs::create).delete(configs::remove_by_name))
        .route("/configs/{id}", delete(configs::remove))
        .route(DEPLOYMENTS, post(deployments::deploy))
        .route("/links", post(links::create))
        .route("/links/{id}", delete(links::remove))
        .route(BLOB, get(resources::blob))
        .route("/task/{id}", delete(tasks::cancel))
}

/// What changes something for all, or may show secrets of all.
fn for_admins() -> Routes {
    Router::new()
        .route("/stemcells/{name}/{version}", delete(stemcells::remove))
        .merge(kind_to_write("/cloud_configs", ConfigKind::CLOUD))
        .merge(kind_to_write("/runtime_configs", ConfigKind::RUNTIME))
        .merge(kind_to_write("/cpi_configs", ConfigKind::CPI))
        .route("/resurrection", put(problems::pause_resurrection))
        .route(RELEASE, delete(releases::remove))
        .route("/releases/export", post(releases::export))
        .route("/networks/{name}", delete(releases::no_network))
        .route("/disks/{cid}", delete(disks::remove))
        .route("/disks/{cid}/attachments", put(disks::attach))
        .route("/vms/{cid}", delete(resources::remove_vm))
        .route("/cleanup", post(clean_up::run))
        .route("/windlass/changed_files", post(deployments::changed_files))
        .route("/windlass/locks/{name}", delete(resources::unlock))
        .route("/windlass/leaks/deletions", post(resources::delete_leak))
        .route("/windlass/webhook/test", post(watching::test_webhook))
        .route("/events", post(events::create))
        .route("/tasks/cancel", post(tasks::cancel_many))
}

/// What shows values of variables, and changes them.
fn for_keepers_of_values() -> Routes {
    let data = get(config_server::by_name).put(config_server::set).post(config_server::generate);
    Router::new()
        .route("/v1/data", data.delete(config_server::remove))
        .route("/v1/data/{id}", get(config_server::by_id))
        .route("/windlass/variables", get(config_server::names))
}

/// What is streamed, so that there is no limit of its size, and no turn to wait for: what is large goes to the disk, and what people do
/// in VMs goes to their agents.
fn streams() -> [(Permission, Routes); 3] {
    [
        (Permission::UploadStemcells, Router::new().route("/stemcells", post(stemcells::upload))),
        (Permission::UploadReleases, Router::new().route("/releases", post(releases::upload))),
        (Permission::Deployment(Access::Admin), Router::new().route(WAY_IN, post(way_in::enter))),
    ]
}

fn kind_to_read(path: &str, diff: &str, kind: ConfigKind) -> Routes {
    Router::new().route(path, get(configs::list_kind)).route(diff, post(configs::compare_kind)).layer(Extension(kind))
}

fn kind_to_write(path: &str, kind: ConfigKind) -> Routes {
    Router::new().route(path, post(configs::create_kind)).layer(Extension(kind))
}

async fn not_found(uri: Uri) -> Response {
    (StatusCode::NOT_FOUND, format!("Not Found: {}", uri.path())).into_response()
}

/// Serves until `stop` resolves, then finishes requests that are being answered.
pub(crate) async fn serve(
    director: Arc<Director>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let tally = director.metrics.connections.clone();
    let limits = Limits::default();
    let limits = Limits { connections: most_connections(limits.connections, open_files()), ..limits };
    connections::serve(AcceptLoop::new(listener, limits, tally), tls, router(director), stop).await;
}

/// How many files this process may open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Connections take no more than half of the files that may be open; the rest is for the database, logs and CPIs.
fn most_connections(wanted: usize, open_files: u64) -> usize {
    usize::try_from(open_files / 2).unwrap_or(usize::MAX).clamp(1, wanted)
}

/// Queues a task and says where to follow it. Who asks for the same look again gets the task that has not begun yet, and who has
/// very many tasks waits for some of them to end.
async fn queue(director: &Director, user: User, job: Job) -> Result<Response, ApiError> {
    // The body may have come long after the rest of the request, and the deployment may be somebody else's by now.
    if let Some(deployment) = job.deployment()
        && let Some(teams) = director.store.teams_of(deployment).await?
    {
        let access = if job.kind() == LOOK_UP { Access::Read } else { Access::Admin };
        user.must_with(director, access, &teams)?;
    }
    let task = NewTask { job, user: user.name, context_id: user.context_id };
    let twin = match task.job.kind() {
        LOOK_UP => director.store.queued_twin(&task).await?,
        _ => None,
    };
    let task = match twin {
        Some(twin) => twin,
        None => {
            let unfinished = director.store.unfinished_tasks_of(&task.user).await?;
            if unfinished >= TASKS_OF_A_USER {
                let reason = format!(
                    "the user '{}' has {unfinished} tasks that have not ended; wait for them, or cancel some with cancel-tasks",
                    task.user
                );
                return Err(ApiError::with_status(StatusCode::TOO_MANY_REQUESTS, 100, reason));
            }
            director.store.add_task(&task).await?
        }
    };
    director.workers.wake();
    Ok((StatusCode::FOUND, [(header::LOCATION, format!("/tasks/{task}"))]).into_response())
}
