//! The settings of a new VM's agent, when no registry is needed.

use serde_json::Value;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::settings::{AgentSettings, Disks, Env, Vm};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{ApiVersion, Object};

use crate::config::AgentProperties;
use crate::decode;

/// The settings that `create_vm` asks for, but for what only the cloud knows: the VM's name and devices.
pub fn of_new_vm(vm: &CreateVm, agent: AgentProperties) -> Result<AgentSettings, CpiError> {
    let env: Env = serde_json::from_value(Value::Object(vm.env.clone().unwrap_or_default())).map_err(|error| {
        CpiError::cpi(format!("argument 6 (env) of 'create_vm' is wrong: {}", decode::reason(&error)))
    })?;
    Ok(AgentSettings {
        agent_id: vm.agent_id.clone(),
        vm: Vm::default(),
        networks: vm.networks.clone(),
        disks: Disks::default(),
        env,
        mbus: agent.mbus,
        ntp: agent.ntp,
        blobstore: agent.blobstore,
        other: Object::new(),
    })
}

/// Refuses what only a registry could serve.
pub fn refuse_registry(request: ApiVersion, stemcell: ApiVersion) -> Result<(), CpiError> {
    match SettingsFrom::decide(request, stemcell) {
        SettingsFrom::UserData => Ok(()),
        SettingsFrom::Registry => Err(CpiError::cloud(format!(
            "a VM with contract version {request} and stemcell version {stemcell} needs a registry, and this CPI has none \
             configured; use a stemcell with api_version 2 or higher and a director that speaks version 2 or higher"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::cpi::Method;

    use super::*;

    #[test]
    fn env_reaches_the_agent_verbatim() {
        let env = json!({"bosh": {"mbus": {"urls": ["https://u:p@0.0.0.0:6868"], "cert": {"ca": "c", "certificate": "d",
            "private_key": "k", "later": 1}, "later": 2}, "password": "x", "tags": {"a": "b"}}, "other": [1]});
        let networks = json!({"default": {"type": "manual", "ip": "10.0.0.5", "cloud_properties": {}, "later": "3"}});
        let arguments = vec![json!("agent-1"), json!("sc-1"), json!({}), networks.clone(), json!(null), env.clone()];
        let settings = of_new_vm(&CreateVm::from_arguments(arguments).unwrap(), AgentProperties::default()).unwrap();
        let sent = serde_json::to_value(&settings).unwrap();
        assert_eq!(sent["env"], env);
        assert_eq!(sent["networks"], networks);
        assert_eq!(sent["disks"], json!({"system": "", "persistent": {}}));
    }

    #[test]
    fn a_version_1_stemcell_is_refused_with_both_versions_and_the_remedy() {
        let error = refuse_registry(ApiVersion(2), ApiVersion(1)).unwrap_err();
        assert!(error.message.contains("version 2") && error.message.contains("stemcell version 1"), "{error}");
        refuse_registry(ApiVersion(2), ApiVersion(3)).unwrap();
    }
}
