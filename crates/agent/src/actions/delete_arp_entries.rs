//! `delete_arp_entries [{"ips"}]`: forget which machine had these addresses. The platforms of this agent share the tables of
//! the machine that they run on, and those are its owner's.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Neighbours {
    ips: Option<Vec<String>>,
}

pub(super) fn run(_: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let Neighbours { ips } = arguments.take(0)?;
    tracing::debug!("{} addresses may have moved", ips.unwrap_or_default().len());
    Ok(json!({}))
}
