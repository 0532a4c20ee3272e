//! `prepare [spec]`: nothing to fetch for an instance without jobs.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::spec::Spec;

pub(super) fn run(_: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    arguments.take::<Spec>(0)?.refuse_jobs()?;
    Ok("prepared".into())
}
