//! `windlass test-webhook`: whether what somebody should wake up for arrives where `director.yml` says.

use serde_json::json;

use crate::failure::Failure;
use crate::session::{Session, While};

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    session.director.send_json("/windlass/webhook/test", &json!({})).await.while_("testing the webhook")
}
