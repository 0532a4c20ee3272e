//! The settings of a new VM's agent.

use serde_json::Value;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::settings::{AgentSettings, Disks, Env, Vm};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{ApiVersion, Object};
use windlass_registry::Client;

use crate::config::{AgentProperties, Config};
use crate::decode;

/// The settings that `create_vm` asks for, but for what only the cloud knows: the VM's name, addresses and devices.
pub(crate) fn of_new_vm(vm: &CreateVm) -> Result<AgentSettings, CpiError> {
    let wrong = |argument: &str, error: &serde_json::Error| {
        CpiError::cpi(format!("{argument} of 'create_vm' is wrong: {}", decode::reason(error)))
    };
    let env: Env = serde_json::from_value(Value::Object(vm.env.clone().unwrap_or_default()))
        .map_err(|error| wrong("argument 6 (env)", &error))?;
    let initial = vm.bootstrap_settings.clone().unwrap_or_default();
    let AgentProperties { mbus, ntp, blobstore } = serde_json::from_value(Value::Object(initial.clone()))
        .map_err(|error| wrong("argument 3 (agent settings)", &error))?;
    let typed = ["agent_id", "vm", "networks", "disks", "env", "mbus", "ntp", "blobstore"];
    let other = initial.into_iter().filter(|(key, _)| !typed.contains(&key.as_str())).collect::<Object>();
    Ok(AgentSettings {
        agent_id: vm.agent_id.clone(),
        vm: Vm::default(),
        networks: vm.networks.clone(),
        disks: Disks::default(),
        env,
        mbus,
        ntp,
        blobstore,
        other,
    })
}

/// Adds what the configuration says, where the caller says nothing. Directors send everything in `env.bosh`, which agents prefer;
/// the original's `create-env` leaves to the CPI where the agent listens.
pub(crate) fn complete(settings: &mut AgentSettings, agent: AgentProperties) {
    settings.mbus = settings.mbus.take().or(agent.mbus);
    settings.ntp = settings.ntp.take().or(agent.ntp);
    settings.blobstore = settings.blobstore.take().or(agent.blobstore);
}

/// The registry for a VM that gets its settings from `mode`; refuses what only a registry could serve when there is none.
pub(crate) fn registry_for(
    mode: SettingsFrom,
    config: &Config,
    has_memory: bool,
    request: ApiVersion,
    stemcell: ApiVersion,
) -> Result<Option<Client>, CpiError> {
    if mode == SettingsFrom::UserData {
        return Ok(None);
    }
    let remedy = match config.registry()? {
        Some(registry) if has_memory => return Ok(Some(registry)),
        Some(_) => "this CPI keeps no memory of its VMs to use one",
        None => "none is configured ('cloud.properties.registry')",
    };
    Err(CpiError::cloud(format!(
        "a VM with contract version {request} and stemcell version {stemcell} needs a registry, and {remedy}; use a stemcell \
         with api_version 2 or higher and a director that speaks version 2 or higher, or configure a registry"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::cpi::Method;

    use super::*;

    fn new_vm(arguments: Vec<Value>) -> AgentSettings {
        of_new_vm(&CreateVm::from_arguments(arguments).unwrap()).unwrap()
    }

    #[test]
    fn env_reaches_the_agent_verbatim() {
        let env = json!({"bosh": {"mbus": {"urls": ["https://u:p@0.0.0.0:6868"], "cert": {"ca": "c", "certificate": "d",
            "private_key": "k", "later": 1}, "later": 2}, "password": "x", "tags": {"a": "b"}}, "other": [1]});
        for odd in [json!({}), json!({"bosh": {}}), json!({"bosh": null}), json!({"bosh": {"ntp": null}, "a": null})] {
            let arguments = vec![json!("agent-1"), json!("sc-1"), json!({}), json!({}), json!(null), odd.clone()];
            assert_eq!(serde_json::to_value(new_vm(arguments)).unwrap()["env"], odd);
        }
        let sent = |env: &str| {
            let arguments = format!(r#"["agent-1", "sc-1", {{}}, {{}}, null, {env}]"#);
            let settings = new_vm(serde_json::from_str(&arguments).unwrap());
            serde_json::to_value(settings).unwrap()["env"].to_string()
        };
        let exact = r#"{"a":9007199254740993,"b":18446744073709551615,"c":-9223372036854775808,"d":0.1,"e":2.5e-9}"#;
        assert_eq!(sent(exact), exact);
        // As BOSH's agent, in Go, reads all numbers.
        assert_eq!(sent(r#"{"a":12345678901234567890123}"#), r#"{"a":1.2345678901234568e+22}"#);
        assert_eq!(sent(r#"{"a":1e-400}"#), r#"{"a":0.0}"#);
        let networks = json!({"default": {"type": "manual", "ip": "10.0.0.5", "cloud_properties": {}, "later": "3"}});
        let arguments = vec![json!("agent-1"), json!("sc-1"), json!({}), networks.clone(), json!(null), env.clone()];
        let sent = serde_json::to_value(new_vm(arguments)).unwrap();
        assert_eq!(sent["env"], env);
        assert_eq!(sent["networks"], networks);
        assert_eq!(sent["disks"], json!({"system": "", "persistent": {}}));
    }

    #[test]
    fn initial_settings_of_the_first_draft_come_before_the_configurations() {
        let initial = json!({"agent_id": "a-1", "ntp": ["theirs"], "later": 1});
        let mut settings = new_vm(vec![json!("sc-1"), json!({}), initial, json!({}), json!([]), json!({})]);
        let agent = json!({"ntp": ["ours"], "mbus": "https://u:p@0.0.0.0:6868"});
        complete(&mut settings, serde_json::from_value(agent).unwrap());
        assert_eq!(settings.ntp, Some(vec!["theirs".to_owned()]));
        assert_eq!(settings.mbus.unwrap().reveal(), "https://u:p@0.0.0.0:6868");
        assert_eq!((settings.agent_id.as_str(), &settings.other["later"]), ("a-1", &json!(1)));
    }
}
