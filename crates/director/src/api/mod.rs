//! The HTTP API, as the original's clients expect it. One file per kind of thing.
//!
//! Everything needs credentials but `/info`. What takes time becomes a task: the answer is `302` to `/tasks/N`. Paths
//! below `/windlass` are ours and unknown to the original.

mod auth;
mod configs;
mod deployments;
mod error;
mod info;
mod resources;
mod stemcells;
mod tasks;
pub(crate) mod tls;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::Director;
use crate::store::NewTask;
use crate::tasks::Job;
pub(crate) use auth::User;
pub(crate) use error::ApiError;

type Shared = axum::extract::State<Arc<Director>>;

/// Manifests and configs are small; a larger body is a mistake or an attack.
const LARGEST_DOCUMENT: usize = 16 << 20;

/// All routes.
pub fn router(director: Arc<Director>) -> Router {
    let protected = Router::new()
        .route("/stemcell_uploads", post(stemcells::is_needed))
        .route("/stemcells", get(stemcells::list))
        .route("/stemcells/{name}/{version}", delete(stemcells::remove))
        .route("/releases", get(async || axum::Json(serde_json::json!([]))))
        .route("/configs", get(configs::list))
        .route("/cloud_configs", get(configs::cloud_configs).post(configs::update_cloud_config))
        .route("/cloud_configs/diff", post(configs::diff_cloud_config))
        .route("/deployments", get(deployments::list).post(deployments::deploy))
        .route("/deployments/{deployment}", get(deployments::show).delete(deployments::remove))
        .route("/deployments/{deployment}/diff", post(deployments::diff))
        .route("/deployments/{deployment}/vms", get(deployments::vms))
        .route("/deployments/{deployment}/instances", get(deployments::instances))
        .route("/deployments/{deployment}/jobs/{group}", put(deployments::change_group))
        .route("/deployments/{deployment}/jobs/{group}/{instance}", put(deployments::change_instance))
        .route("/deployment_configs", get(deployments::configs))
        .route("/tasks", get(tasks::list))
        .route("/tasks/{id}", get(tasks::show))
        .route("/tasks/{id}/output", get(tasks::output))
        .route("/task/{id}", delete(tasks::cancel))
        .route("/locks", get(resources::locks))
        .route("/disks", get(resources::orphan_disks))
        .route("/windlass/plan", post(deployments::plan))
        .route("/windlass/disks", get(resources::disks))
        .route("/windlass/leaks", get(resources::leaks))
        .layer(DefaultBodyLimit::max(LARGEST_DOCUMENT));
    // Streamed to disk, so there is no limit but that of the disk.
    let uploads = Router::new().route("/stemcells", post(stemcells::upload)).layer(DefaultBodyLimit::disable());
    Router::new()
        .merge(protected)
        .merge(uploads)
        .fallback(any(not_found))
        .route_layer(axum::middleware::from_fn_with_state(director.clone(), auth::require))
        .route("/info", get(info::info))
        .with_state(director)
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
    let served = axum::serve(tls::TlsListener::new(listener, tls), router(director)).with_graceful_shutdown(stop);
    if let Err(error) = served.await {
        tracing::error!(%error, "the API ended");
    }
}

/// Queues a task and says where to follow it.
async fn queue(director: &Director, user: User, job: Job) -> Result<Response, ApiError> {
    let task = director.store.add_task(&NewTask { job, user: user.name, context_id: user.context_id }).await?;
    director.workers.wake();
    Ok((StatusCode::FOUND, [(header::LOCATION, format!("/tasks/{task}"))]).into_response())
}
