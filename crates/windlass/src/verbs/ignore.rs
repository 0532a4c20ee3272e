//! `windlass ignore` and `unignore`: whether the director leaves an instance alone.

use serde_json::json;
use windlass_director_client::escape;

use crate::cli::Instance;
use crate::failure::Failure;
use crate::session::{Session, While};

pub(super) async fn run(session: &mut Session<'_>, instance: &Instance, ignore: bool) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let path = format!("/deployments/{}/instance_groups/{}/ignore", escape(&deployment), instance.path());
    let changed = session.director.put_json(&path, &json!({"ignore": ignore})).await;
    changed.while_(format!("changing whether '{instance}' of deployment '{deployment}' is ignored"))
}
