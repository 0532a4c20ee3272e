//! `delete_arp_entries [{"ips"}]`: forget which machine had these addresses, where the tables are the VM's own.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Neighbours {
    ips: Option<Vec<String>>,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let Neighbours { ips } = arguments.take(0)?;
    agent.platform.forget_neighbours(&ips.unwrap_or_default());
    Ok(json!({}))
}
