//! `/info`: who this is. The only answer without credentials.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::{Shared, auth};

pub(super) async fn info(State(director): Shared, headers: HeaderMap) -> Json<Value> {
    Json(json!({
        "name": director.name,
        "uuid": director.uuid,
        "version": concat!(env!("CARGO_PKG_VERSION"), " (windlass)"),
        "user": auth::user(&director.users, &headers).map(|(name, _)| name),
        "cpi": "windlass",
        "stemcell_os": "-",
        "stemcell_version": "-",
        "user_authentication": {"type": "basic", "options": {}},
        "features": {
            "local_dns": {"status": false, "extras": {"domain_name": "bosh"}},
            "snapshots": {"status": director.settings.takes_snapshots()},
            "config_server": {"status": false, "extras": {"urls": []}},
        },
    }))
}
