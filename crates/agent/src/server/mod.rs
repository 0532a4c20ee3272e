//! The HTTPS server: who gets in in [`entrance`], what they may ask for in [`routes`], blobs in [`blobs`], certificates in
//! [`tls`] and [`own_certificate`]. How many may connect, and how slow they may be, is the business of `windlass-connections`.

pub(crate) mod blobs;
pub(crate) mod entrance;
mod own_certificate;
mod routes;
pub(crate) mod tls;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use windlass_connections::{AcceptLoop, Limits};

use crate::agent::Agent;
use crate::boot::Ending;
use crate::dns;

/// How many connections are served at once.
const CONNECTIONS: usize = 128;
/// How long answers under way may take when the agent ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until `end`; then finishes the answers under way.
pub(crate) async fn serve(listener: TcpListener, agent: Arc<Agent>, end: impl Future<Output = Ending>) -> Ending {
    let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
    let mut accept_loop = AcceptLoop::new(listener, limits, Arc::default());
    let dns = tokio::spawn({
        let agent = agent.clone();
        async move { dns::start::serve(&agent).await }
    });
    let ending = accept_loop.serve(routes::Routes { agent }, end).await;
    dns.abort();
    if ending != Ending::Signal {
        accept_loop.close(LAST_ANSWERS).await;
    }
    ending
}
