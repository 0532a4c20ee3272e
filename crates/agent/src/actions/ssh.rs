//! `ssh ["setup", {"user", "public_key"}]` and `ssh ["cleanup", {"user_regex"}]`: users for people who look at the VM.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass_contract::Networks;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::layout::is_name;

/// How the names of the users begin whom `cleanup` may remove.
const EPHEMERAL: &str = "bosh_";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    user: String,
    public_key: String,
    user_regex: String,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    let command: String = arguments.take(0)?;
    let parameters: Parameters = arguments.take(1)?;
    match command.as_str() {
        "setup" => setup(agent, &parameters),
        "cleanup" => cleanup(agent, &parameters),
        _ => Err(ActionError::SshCommand),
    }
}

fn setup(agent: &Agent, Parameters { user, public_key, .. }: &Parameters) -> Result<Value, ActionError> {
    if !is_name(user) || user.starts_with(['.', '-']) || user.contains([':', '\n']) {
        return Err(ActionError::SshUser(user.clone()));
    }
    agent
        .platform
        .create_user(user, public_key)
        .map_err(|source| ActionError::Platform { doing: "Creating user", source })?;
    let settings = agent.settings.current();
    let found = agent.platform.default_network().and_then(|network| network.ip);
    let ip = found.as_deref().or_else(|| default_ip(&settings.agent.networks)).ok_or(ActionError::NoDefaultIp)?;
    let host_public_key = agent.platform.host_public_key();
    Ok(json!({"command": "setup", "status": "success", "ip": ip, "host_public_key": host_public_key}))
}

fn cleanup(agent: &Agent, Parameters { user_regex, .. }: &Parameters) -> Result<Value, ActionError> {
    let regex = regex_lite::Regex::new(user_regex).map_err(ActionError::UserRegex)?;
    let chosen = |user: &str| user.starts_with(EPHEMERAL) && regex.is_match(user);
    agent
        .platform
        .delete_users(&chosen)
        .map_err(|source| ActionError::Platform { doing: "SSH Cleanup: Deleting Ephemeral Users", source })?;
    Ok(json!({"command": "cleanup", "status": "success"}))
}

/// The address of a network that is the default for something, else of any.
fn default_ip(networks: &Networks) -> Option<&str> {
    let is_default = |network: &&windlass_contract::Network| network.default.iter().flatten().next().is_some();
    let chosen = networks.values().find(is_default).or_else(|| networks.values().next())?;
    chosen.ip.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_sent_to_the_address_of_the_default_network() {
        let networks = |value: Value| serde_json::from_value::<Networks>(value).unwrap();
        let two = networks(json!({"a": {"ip": "10.0.0.1"}, "b": {"ip": "10.0.0.2", "default": ["dns"]}}));
        assert_eq!(default_ip(&two), Some("10.0.0.2"));
        assert_eq!(default_ip(&networks(json!({"a": {"ip": "10.0.0.1", "default": []}}))), Some("10.0.0.1"));
        assert_eq!(default_ip(&networks(json!({}))), None);
    }
}
