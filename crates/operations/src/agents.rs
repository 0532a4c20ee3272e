//! The only place that talks to agents.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use windlass_agent_client::Permission;
use windlass_agent_client::{AGENT_PORT, Agent, AgentAccess, AgentClient, AgentEndpoint, ClientTls, TlsError};
use windlass_contract::settings::{BoshEnv, MbusCert};
use windlass_contract::{AgentId, Networks, Object, Secret};
use windlass_pki::{Authority, Identity, PkiError};
use windlass_planning::records::{AgentCertificate, VmRecord};

/// Talks to agents.
#[derive(Debug)]
pub struct Agents {
    credentials: AgentCredentials,
    /// Asked before every message.
    permission: Permission,
    env: Object,
    wait: Duration,
    /// Those that answered `unknown message` to a hint.
    older_than_hints: Mutex<BTreeSet<AgentId>>,
    /// The handles used last, so that the steps of an operation share a connection.
    recent: Mutex<VecDeque<(Contact, Agent)>>,
}

/// How an agent is reached: by whose name, where, and as whom. The rest of what is on record of its VM may have megabytes.
type Contact = (AgentId, Vec<IpAddr>, String, Secret);

/// How long an agent may take until it answers, unless the operator says otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(600);

/// How many agents are talked to at the same time, at most; beyond that, connections are closed and made again.
const RECENT: usize = 128;
/// How many agents are remembered for not understanding hints.
const MOST_OLDER: usize = 10_000;

/// How agents get their certificates and passwords.
#[derive(Debug)]
enum AgentCredentials {
    /// Each has its own, from us.
    Issued(RwLock<Arc<IssuedCredentials>>),
    /// The operator decided it, for the one agent that there is.
    Given(AgentClient, GivenAgent),
}

/// What agents are given, and how we show ourselves to them. Put in the place of another when certificates are renewed.
#[derive(Debug)]
struct IssuedCredentials {
    client: AgentClient,
    authority: Authority,
}

/// Where an agent is that its operator gave a certificate and a password.
#[derive(Debug, Clone)]
pub struct GivenAgent {
    /// What its certificate names: a name or an address.
    pub name: String,
    /// Tried in turn.
    pub addresses: Vec<IpAddr>,
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
        Self::with_permission(authority, client, env, Permission::default())
    }

    /// The same, for somebody who asks before every message whether they may still speak.
    pub fn with_permission(
        authority: Authority,
        client: &Identity,
        env: Object,
        permission: Permission,
    ) -> Result<Self, TlsError> {
        let client = AgentClient::new(ClientTls::new(&authority, client))?.asking_first(permission.clone());
        Ok(Self {
            credentials: AgentCredentials::Issued(RwLock::new(Arc::new(IssuedCredentials { client, authority }))),
            permission,
            env,
            wait: DEFAULT_WAIT,
            older_than_hints: Mutex::default(),
            recent: Mutex::default(),
        })
    }

    /// Uses other certificates from now on. Calls that run keep theirs.
    pub fn renew(&self, authority: Authority, client: &Identity) -> Result<(), TlsError> {
        let client = AgentClient::new(ClientTls::new(&authority, client))?.asking_first(self.permission.clone());
        let issued = IssuedCredentials { client, authority };
        if let AgentCredentials::Issued(current) = &self.credentials {
            *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(issued);
        }
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// Talks to the one agent that its operator gave a certificate, issued by the CA in this PEM, and a password.
    pub fn given(ca_pem: &str, agent: GivenAgent) -> Result<Self, TlsError> {
        let tls = ClientTls {
            ca_pem: ca_pem.to_owned(),
            client_certificate_pem: String::new(),
            client_key_pem: Secret::new(""),
        };
        let credentials = AgentCredentials::Given(AgentClient::new(tls)?, agent);
        let (permission, env, wait) = (Permission::default(), Object::new(), DEFAULT_WAIT);
        let (older_than_hints, recent) = (Mutex::default(), Mutex::default());
        Ok(Self { credentials, permission, env, wait, older_than_hints, recent })
    }

    /// Waits so long for agents until they answer.
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long an agent may take until it answers.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// What the operator wants in `env.bosh` of every VM.
    pub fn env(&self) -> &Object {
        &self.env
    }

    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    pub fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        match &self.credentials {
            AgentCredentials::Issued(issued) => {
                AgentAccess::new(&current(issued).authority, agent_id, &addresses(networks))
            }
            // What it needs is in its VM's env already.
            AgentCredentials::Given(_, GivenAgent { user, password, .. }) => {
                Ok(AgentAccess { env: BoshEnv::default(), user: user.clone(), password: password.clone() })
            }
        }
    }

    /// What an agent shows and trusts that gets its certificate now.
    pub fn certificate_from_now(&self) -> Result<Option<AgentCertificate>, PkiError> {
        let AgentCredentials::Issued(issued) = &self.credentials else { return Ok(None) };
        let (issued, now) = (current(issued), time::OffsetDateTime::now_utc());
        let expires_at = issued.authority.next_expiry(now)?.unix_timestamp();
        Ok(Some(AgentCertificate { issued_at: now.unix_timestamp(), expires_at, trusts: issued.authority.trust() }))
    }

    /// Whether an agent needs another certificate: a third of the life of its own is left, or it does not trust whom it
    /// should.
    pub fn is_renewal_due(&self, vm: &VmRecord) -> bool {
        let AgentCredentials::Issued(_) = &self.credentials else { return false };
        let Some(certificate) = &vm.certificate else { return true };
        let left = certificate.expires_at - crate::clock::now();
        left <= (certificate.expires_at - certificate.issued_at) / 3 || !self.trusts_everybody(vm)
    }

    /// Whether the agent of a VM was told of every CA that signs, did or will.
    pub fn trusts_everybody(&self, vm: &VmRecord) -> bool {
        let AgentCredentials::Issued(issued) = &self.credentials else { return true };
        vm.certificate.as_ref().is_some_and(|certificate| certificate.trusts == current(issued).authority.trust())
    }

    /// Another certificate for the agent of a VM, with all the CAs that it is to trust.
    pub fn certificate_for(&self, vm: &VmRecord) -> Result<Option<MbusCert>, PkiError> {
        let AgentCredentials::Issued(issued) = &self.credentials else { return Ok(None) };
        let authority = &current(issued).authority;
        let Identity { certificate, private_key } = authority.agent(&vm.agent_id, &addresses(&vm.networks))?;
        Ok(Some(MbusCert { ca: authority.certificate().to_owned(), certificate, private_key, other: Object::new() }))
    }

    /// Whether an agent is known not to understand hints.
    pub fn is_older_than_hints(&self, agent_id: &AgentId) -> bool {
        self.older_than_hints.lock().unwrap_or_else(PoisonError::into_inner).contains(agent_id)
    }

    /// Notes that an agent does not understand hints, so that it is not asked again.
    pub fn note_older_than_hints(&self, agent_id: &AgentId) {
        let mut known = self.older_than_hints.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_OLDER {
            // Most of them are gone by now; those that are not are asked once more.
            known.clear();
        }
        known.insert(agent_id.clone());
    }

    /// The agent of a VM.
    pub fn of(&self, vm: &VmRecord) -> Agent {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let contact = (vm.agent_id.clone(), addresses(&vm.networks), vm.mbus_user.clone(), vm.mbus_password.clone());
        let agent = match recent.iter().position(|(known, _)| *known == contact).and_then(|place| recent.remove(place))
        {
            Some((_, agent)) => agent,
            None => self.afresh(vm),
        };
        recent.truncate(RECENT - 1);
        recent.push_front((contact, agent.clone()));
        agent
    }

    /// The agent of a VM, over connections of its own.
    pub fn afresh(&self, vm: &VmRecord) -> Agent {
        let agent_id = vm.agent_id.clone();
        match &self.credentials {
            AgentCredentials::Issued(issued) => current(issued).client.agent(AgentEndpoint {
                agent_id,
                addresses: addresses(&vm.networks),
                port: AGENT_PORT,
                user: vm.mbus_user.clone(),
                password: vm.mbus_password.clone(),
            }),
            AgentCredentials::Given(client, given) => {
                let GivenAgent { name, addresses, port, user, password } = given.clone();
                client.agent_named(AgentEndpoint { agent_id, addresses, port, user, password }, name)
            }
        }
    }
}

fn current(issued: &RwLock<Arc<IssuedCredentials>>) -> Arc<IssuedCredentials> {
    issued.read().unwrap_or_else(PoisonError::into_inner).clone()
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
