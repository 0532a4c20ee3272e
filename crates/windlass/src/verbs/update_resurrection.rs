//! `windlass update-resurrection`: whether the director brings lost VMs back by itself.

use serde_json::json;

use crate::failure::Failure;
use crate::session::{Session, While};

pub(super) async fn run(session: &mut Session<'_>, enabled: bool) -> Result<(), Failure> {
    let changed = session.director.put_json("/resurrection", &json!({"resurrection_paused": !enabled})).await;
    changed.while_("switching the resurrector")
}
