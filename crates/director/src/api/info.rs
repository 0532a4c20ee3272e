//! `/info`: who this is. The only answer about the director without credentials. Beside it, until when it is that.

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_connections::Peer;
use windlass_contract::director::{Certificate, Feature, Features, Info};
use windlass_operations::clock;
use windlass_pki::Keychain;

use super::{ApiError, Json, Shared, auth};

pub(super) async fn info(State(director): Shared, peer: Option<Extension<Peer>>, headers: HeaderMap) -> Json<Info> {
    let peer = peer.map(|Extension(peer)| peer);
    let user = auth::identify(&director, peer.as_ref(), &headers).await;
    let config_servers: Vec<&str> = director.settings.config_server.iter().map(|server| server.url.as_str()).collect();
    let feature = |name: &str, status: bool, extras: Option<Value>| (name.to_owned(), Feature { status, extras });
    Json(Info {
        name: director.name.clone(),
        uuid: director.uuid.clone(),
        version: concat!(env!("CARGO_PKG_VERSION"), " (windlass)").to_owned(),
        user: user.map(|(name, _)| name).unwrap_or_default(),
        cpi: "windlass".to_owned(),
        stemcell_os: "-".to_owned(),
        stemcell_version: "-".to_owned(),
        user_authentication: json!({"type": "basic", "options": {}}),
        features: Features(vec![
            feature("local_dns", director.dns.is_enabled(), Some(json!({"domain_name": "bosh"}))),
            feature("snapshots", director.settings.takes_snapshots(), None),
            feature("config_server", true, Some(json!({"urls": config_servers}))),
        ]),
    })
}

/// When the director's own certificates end.
pub(super) async fn certificate_expiry(State(director): Shared) -> Result<Json<Vec<Certificate>>, ApiError> {
    let keychain = Keychain::new(&director.folders.pki(), Vec::new(), director.settings.certificates);
    let mut expiries = keychain.expiries().map_err(|error| ApiError::internal(&error))?;
    expiries.extend(crate::certificates::end_for_cluster(&director));
    let now = OffsetDateTime::now_utc();
    Ok(Json(
        expiries
            .into_iter()
            .map(|(path, end)| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                Certificate {
                    certificate_path: name.unwrap_or_default(),
                    expiry: clock::rfc3339(end.unix_timestamp()),
                    days_left: (end - now).whole_days(),
                }
            })
            .collect(),
    ))
}
