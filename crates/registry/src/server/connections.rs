//! What connections need of a registry: answers, which are counted, and certificates.
//!
//! Every VM can connect, and so can everybody else on the network. A connection keeps its place only while work for
//! somebody with credentials is under way, so that no crowd of silent ones keeps a VM out.

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use hyper::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio_rustls::TlsAcceptor;
use windlass_connections::{Peer, Received, Responder};

use super::Server;

/// The registry, to its connections.
#[derive(Clone)]
pub(super) struct RegistryResponder {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) server: Arc<Server>,
    pub(super) router: Router,
}

impl Responder for RegistryResponder {
    type Body = axum::body::Body;

    fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.clone()
    }

    async fn answer(&self, peer: &Peer, mut request: Request<Received>) -> Response {
        let method = request.method().clone();
        request.extensions_mut().insert(peer.clone());
        let Ok(answer) = TowerToHyperService::new(self.router.clone()).call(request).await;
        self.server.metrics.count_request(method.as_str(), answer.status().as_str());
        answer
    }
}
