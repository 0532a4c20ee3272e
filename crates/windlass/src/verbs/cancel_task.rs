//! `windlass cancel-task` and `cancel-tasks`: asks tasks to end at their next checkpoint.

use serde_json::json;

use crate::failure::Failure;
use crate::session::{Session, While};

/// Those that wait, unless other states are named.
pub(crate) async fn run_many(session: &mut Session<'_>, types: &[String], states: &[String]) -> Result<(), Failure> {
    let mut filter = serde_json::Map::new();
    let deployment = session.named_deployment().map(str::to_owned);
    filter.extend(deployment.map(|deployment| ("deployment".to_owned(), json!(deployment))));
    filter.extend((!types.is_empty()).then(|| ("types".to_owned(), json!(types))));
    filter.extend((!states.is_empty()).then(|| ("states".to_owned(), json!(states))));
    session.director.send_json("/tasks/cancel", &filter.into()).await.while_("cancelling tasks")
}

pub(crate) async fn run(session: &mut Session<'_>, id: u64) -> Result<(), Failure> {
    session.director.delete(&format!("/task/{id}")).await.while_(format!("cancelling task {id}"))
}
