//! The only place that talks to agents.

use std::net::IpAddr;

use windlass_agent_client::{AGENT_PORT, Agent, AgentAccess, AgentClient, AgentEndpoint, ClientTls, TlsError};
use windlass_contract::{AgentId, Networks, Object};
use windlass_pki::{Authority, Identity, PkiError};

use crate::ledger::VmRecord;

/// Talks to agents.
#[derive(Debug)]
pub struct Agents {
    client: AgentClient,
    authority: Authority,
    env: Object,
}

impl Agents {
    /// Talks to agents whose certificates `authority` issued, as `client`. `env` is what the operator wants in `env.bosh`
    /// of every VM.
    pub fn new(authority: Authority, client: &Identity, env: Object) -> Result<Self, TlsError> {
        Ok(Self { client: AgentClient::new(ClientTls::new(&authority, client))?, authority, env })
    }

    /// What the operator wants in `env.bosh` of every VM.
    pub fn env(&self) -> &Object {
        &self.env
    }

    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    pub fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        AgentAccess::new(&self.authority, agent_id, &addresses(networks))
    }

    /// The agent of a VM.
    pub fn of(&self, vm: &VmRecord) -> Agent {
        self.client.agent(AgentEndpoint {
            agent_id: vm.agent_id.clone(),
            addresses: addresses(&vm.networks),
            port: AGENT_PORT,
            user: vm.mbus_user.clone(),
            password: vm.mbus_password.clone(),
        })
    }
}

/// Addresses of a VM, that of the default network first.
pub fn addresses(networks: &Networks) -> Vec<IpAddr> {
    let mut found: Vec<(bool, IpAddr)> = networks
        .values()
        .filter_map(|network| Some((!network.is_default_for("gateway"), network.ip.as_ref()?.parse().ok()?)))
        .collect();
    found.sort_by_key(|(is_other, _)| *is_other);
    found.into_iter().map(|(_, address)| address).collect()
}
