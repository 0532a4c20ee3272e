//! The only place that talks to agents.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use windlass_agent_client::{AGENT_PORT, Agent, AgentAccess, AgentClient, AgentEndpoint, ClientTls, TlsError};
use windlass_contract::settings::BoshEnv;
use windlass_contract::{AgentId, Networks, Object, Secret};
use windlass_pki::{Authority, Identity, PkiError};

use crate::ledger::VmRecord;

/// Talks to agents.
#[derive(Debug)]
pub struct Agents {
    client: AgentClient,
    way: Way,
    env: Object,
    /// Those that answered `unknown message` to a hint.
    older_than_hints: Mutex<BTreeSet<AgentId>>,
    /// The handles used last, so that the steps of an operation share a connection.
    recent: Mutex<VecDeque<(VmRecord, Agent)>>,
}

/// How many agents are talked to at the same time, at most; with more, connections are made anew.
const RECENT: usize = 128;

/// How agents get their certificates and passwords.
#[derive(Debug)]
enum Way {
    /// Each has its own, from us.
    Ours(Authority),
    /// The operator decided it, for the one agent that there is.
    Given(GivenAgent),
}

/// Where an agent is that its operator gave a certificate and a password.
#[derive(Debug, Clone)]
pub struct GivenAgent {
    /// What its certificate names: a name or an address.
    pub name: String,
    /// Tried in turn.
    pub addresses: Vec<IpAddr>,
    /// Its port.
    pub port: u16,
    /// The user in its URL.
    pub user: String,
    /// The password in its URL.
    pub password: Secret,
}

impl Agents {
    /// Talks to agents whose certificates `authority` issued, as `client`. `env` is what the operator wants in `env.bosh`
    /// of every VM.
    pub fn new(authority: Authority, client: &Identity, env: Object) -> Result<Self, TlsError> {
        let client = AgentClient::new(ClientTls::new(&authority, client))?;
        Ok(Self {
            client,
            way: Way::Ours(authority),
            env,
            older_than_hints: Mutex::default(),
            recent: Mutex::default(),
        })
    }

    /// Talks to the one agent that its operator gave a certificate, issued by the CA in this PEM, and a password.
    pub fn given(ca_pem: &str, agent: GivenAgent) -> Result<Self, TlsError> {
        let tls = ClientTls {
            ca_pem: ca_pem.to_owned(),
            client_certificate_pem: String::new(),
            client_key_pem: Secret::new(""),
        };
        let (client, way) = (AgentClient::new(tls)?, Way::Given(agent));
        Ok(Self { client, way, env: Object::new(), older_than_hints: Mutex::default(), recent: Mutex::default() })
    }

    /// What the operator wants in `env.bosh` of every VM.
    pub fn env(&self) -> &Object {
        &self.env
    }

    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    pub fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        match &self.way {
            Way::Ours(authority) => AgentAccess::new(authority, agent_id, &addresses(networks)),
            // What it needs is in its VM's env already.
            Way::Given(GivenAgent { user, password, .. }) => {
                Ok(AgentAccess { env: BoshEnv::default(), user: user.clone(), password: password.clone() })
            }
        }
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
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |known: &VmRecord| {
            (&known.agent_id, &known.mbus_user, &known.mbus_password, &known.networks)
                == (&vm.agent_id, &vm.mbus_user, &vm.mbus_password, &vm.networks)
        };
        let agent = match recent.iter().position(|(known, _)| is_it(known)).and_then(|place| recent.remove(place)) {
            Some((_, agent)) => agent,
            None => self.handle(vm),
        };
        recent.truncate(RECENT - 1);
        recent.push_front((vm.clone(), agent.clone()));
        agent
    }

    fn handle(&self, vm: &VmRecord) -> Agent {
        let agent_id = vm.agent_id.clone();
        match &self.way {
            Way::Ours(_) => self.client.agent(AgentEndpoint {
                agent_id,
                addresses: addresses(&vm.networks),
                port: AGENT_PORT,
                user: vm.mbus_user.clone(),
                password: vm.mbus_password.clone(),
            }),
            Way::Given(given) => {
                let GivenAgent { name, addresses, port, user, password } = given.clone();
                self.client.agent_named(AgentEndpoint { agent_id, addresses, port, user, password }, name)
            }
        }
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
