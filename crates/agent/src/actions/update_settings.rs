//! `update_settings [settings]`: trusted certificates and disk names, always replaced; how the agent is reached and where blobs
//! are, replaced when given.
//!
//! Connections and tasks stay: the next handshake has the new certificates. Only a new address needs a restart, after which the
//! task is resumed. (The original restarts for each of them. A caller polls the same task either way.)

use serde_json::Value;
use windlass_contract::agent::UpdateSettings;
use windlass_contract::settings::{Mbus as MbusSettings, MbusCert};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::boot::Ending;
use crate::disks;
use crate::mbus::Mbus;
use crate::server::entrance::Entrance;
use crate::server::tls;
use crate::settings::Settings;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let requested: UpdateSettings = arguments.take(0)?;
    let settings = agent.settings.reload()?;
    let updated = merge(&settings.update, requested);

    for association in &updated.disk_associations {
        let disk = disks::find(&agent.base.disk_hints(), &settings.agent, &association.cid)
            .map_err(|source| ActionError::FindingDisk { doing: "Fetching disk settings", source })?;
        agent
            .platform
            .associate_disk(&association.name, &disk)
            .map_err(|source| ActionError::Platform { doing: "Associating disk", source })?;
    }
    let next = Settings { agent: settings.agent.clone(), update: updated.clone() };
    // An agent that nobody can reach is lost, so what it would be reached by is tried first.
    let entrance = Entrance { mbus: Mbus::parse(next.mbus_url())?, tls: tls::server_config(&next, &agent.base)? };
    agent
        .platform
        .trust_certificates(&updated.trusted_certs)
        .map_err(|source| ActionError::Platform { doing: "Updating trusted certs", source })?;
    agent.settings.update(updated)?;
    if !agent.gate.replace(entrance) {
        // The task stays listed as running; the next agent finds nothing changed and ends it.
        let _ = agent.ending.send(Ending::Restart);
        loop {
            std::thread::park();
        }
    }
    Ok("ok".into())
}

/// Certificates and names are replaced, absent ones cleared; the rest only where the request says something.
fn merge(current: &UpdateSettings, requested: UpdateSettings) -> UpdateSettings {
    UpdateSettings {
        mbus: requested.mbus.filter(says_something).or_else(|| current.mbus.clone()),
        blobstores: requested.blobstores.or_else(|| current.blobstores.clone()),
        ..requested
    }
}

fn says_something(mbus: &MbusSettings) -> bool {
    mbus.urls.as_ref().is_some_and(|urls| !urls.is_empty())
        || mbus.cert.as_ref().is_some_and(|cert| *cert != MbusCert::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn update(value: Value) -> UpdateSettings {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_a_request_does_not_say_is_kept_or_cleared_as_the_original_does() {
        let current = update(json!({"trusted_certs": "a", "disk_associations": [{"name": "n", "cid": "c"}],
            "mbus": {"urls": ["https://x"]}, "blobstores": [{"provider": "local"}]}));
        let empty = json!({"mbus": {"urls": null, "cert": {"ca": "", "certificate": "", "private_key": ""}}, "blobstores": null});
        let merged = merge(&current, update(empty));
        assert_eq!((merged.trusted_certs.as_str(), merged.disk_associations.len()), ("", 0));
        assert_eq!((&merged.mbus, &merged.blobstores), (&current.mbus, &current.blobstores));
        let merged = merge(&current, update(json!({"mbus": {"urls": ["https://y"]}})));
        assert_ne!(merged.mbus, current.mbus);
    }
}
