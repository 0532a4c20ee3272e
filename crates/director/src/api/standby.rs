//! What a director says that stands by: who leads, whatever it is asked.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use windlass_connections::{AcceptLoop, Limits};

use super::{ApiError, connections, most_connections, open_files};

/// When to ask again, in seconds.
const AGAIN: &str = "5";

/// Serves until `stop` resolves; `why` is what everybody is told.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    why: watch::Receiver<String>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let limits = Limits::default();
    let limits = Limits { connections: most_connections(limits.connections, open_files()), ..limits };
    let router = Router::new().fallback(refuse).with_state(why);
    connections::serve(AcceptLoop::new(listener, limits, Default::default()), tls, router, stop).await;
}

async fn refuse(State(why): State<watch::Receiver<String>>, uri: Uri) -> Response {
    let why = why.borrow().clone();
    let mut answer = match uri.path() {
        "/health" => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
        _ => ApiError::with_status(StatusCode::SERVICE_UNAVAILABLE, 100, why).into_response(),
    };
    answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(AGAIN));
    answer
}
