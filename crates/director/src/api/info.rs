//! `/info`: who this is. The only answer about the director without credentials. Beside it, until when it is that.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_connections::Peer;
use windlass_operations::clock;
use windlass_pki::Keychain;

use super::{ApiError, Shared, auth};

pub(super) async fn info(State(director): Shared, peer: Option<Extension<Peer>>, headers: HeaderMap) -> Json<Value> {
    let peer = peer.map(|Extension(peer)| peer);
    let user = auth::identify(&director, peer.as_ref(), &headers).await;
    let config_servers: Vec<&str> = director.settings.config_server.iter().map(|server| server.url.as_str()).collect();
    Json(json!({
        "name": director.name,
        "uuid": director.uuid,
        "version": concat!(env!("CARGO_PKG_VERSION"), " (windlass)"),
        "user": user.map(|(name, _)| name),
        "cpi": "windlass",
        "stemcell_os": "-",
        "stemcell_version": "-",
        "user_authentication": {"type": "basic", "options": {}},
        "features": {
            "local_dns": {"status": director.dns.is_enabled(), "extras": {"domain_name": "bosh"}},
            "snapshots": {"status": director.settings.takes_snapshots()},
            "config_server": {"status": true, "extras": {"urls": config_servers}},
        },
    }))
}

/// When the director's own certificates end.
pub(super) async fn certificate_expiry(State(director): Shared) -> Result<Json<Value>, ApiError> {
    let keychain = Keychain::new(&director.folders.pki(), Vec::new(), director.settings.certificates);
    let mut expiries = keychain.expiries().map_err(|error| ApiError::internal(&error))?;
    expiries.extend(crate::certificates::end_for_cluster(&director));
    let now = OffsetDateTime::now_utc();
    Ok(Json(
        expiries
            .into_iter()
            .map(|(path, end)| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                let expiry = clock::rfc3339(end.unix_timestamp());
                json!({"certificate_path": name, "expiry": expiry, "days_left": (end - now).whole_days()})
            })
            .collect(),
    ))
}
