//! The only place that talks to agents.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

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
    /// Those that answered `unknown message` to a hint.
    older_than_hints: Mutex<BTreeSet<AgentId>>,
}

impl Agents {
    /// Talks to agents whose certificates `authority` issued, as `client`. `env` is what the operator wants in `env.bosh`
    /// of every VM.
    pub fn new(authority: Authority, client: &Identity, env: Object) -> Result<Self, TlsError> {
        let client = AgentClient::new(ClientTls::new(&authority, client))?;
        Ok(Self { client, authority, env, older_than_hints: Mutex::default() })
    }

    /// What the operator wants in `env.bosh` of every VM.
    pub fn env(&self) -> &Object {
        &self.env
    }

    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    pub fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        AgentAccess::new(&self.authority, agent_id, &addresses(networks))
    }

    /// Whether an agent is known not to understand hints.
    pub fn is_older_than_hints(&self, agent_id: &AgentId) -> bool {
        self.older_than_hints.lock().unwrap_or_else(PoisonError::into_inner).contains(agent_id)
    }

    /// Notes that an agent does not understand hints, so that it is not asked again.
    pub fn note_older_than_hints(&self, agent_id: &AgentId) {
        self.older_than_hints.lock().unwrap_or_else(PoisonError::into_inner).insert(agent_id.clone());
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
