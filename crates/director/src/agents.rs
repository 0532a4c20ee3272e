//! The only place that talks to agents.

use std::net::IpAddr;

use windlass_agent_client::{Agent, AgentClient, AgentEndpoint, ClientTls, TlsError};
use windlass_contract::settings::{BoshEnv, Mbus, MbusCert};
use windlass_contract::{AgentId, Networks, Object, Secret};

use crate::ledger::VmRecord;
use crate::pki::{Authority, Identity, PkiError};

/// The port on which agents listen, as everywhere in the ecosystem.
const AGENT_PORT: u16 = 6868;
/// The user of an agent's URL.
const AGENT_USER: &str = "director";
/// The path that agents map to the blobs which they serve over HTTPS.
const AGENT_BLOBS: &str = "/var/vcap/micro_bosh/data/cache";

/// Talks to agents.
#[derive(Debug)]
pub struct Agents {
    client: AgentClient,
    authority: Authority,
}

/// How one agent is reached and proves itself: a part of its VM's env, and the record of it.
#[derive(Debug, Clone)]
pub struct AgentAccess {
    /// `env.bosh` of the VM.
    pub env: BoshEnv,
    /// The user in its URL.
    pub user: String,
    /// The password in its URL.
    pub password: Secret,
}

impl Agents {
    /// Talks to agents whose certificates `authority` issued, as `client`.
    pub fn new(authority: Authority, client: &Identity) -> Result<Self, TlsError> {
        let tls = ClientTls {
            ca_pem: authority.certificate().to_owned(),
            client_certificate_pem: client.certificate.clone(),
            client_key_pem: client.private_key.clone(),
        };
        Ok(Self { client: AgentClient::new(tls)?, authority })
    }

    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    pub fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        let identity = self.authority.agent(agent_id, &addresses(networks))?;
        let password = Secret::new(uuid::Uuid::new_v4().simple().to_string());
        let url = format!("https://{AGENT_USER}:{}@0.0.0.0:{AGENT_PORT}", password.reveal());
        let env = BoshEnv {
            mbus: Some(Mbus {
                urls: Some(vec![Secret::new(url)]),
                cert: Some(MbusCert {
                    ca: self.authority.certificate().to_owned(),
                    certificate: identity.certificate,
                    private_key: identity.private_key,
                    other: Object::new(),
                }),
                require_client_cert: true,
                other: Object::new(),
            }),
            blobstores: Some(vec![
                serde_json::json!({"provider": "local", "options": {"blobstore_path": AGENT_BLOBS}}),
            ]),
            ntp: Some(Vec::new()),
            group: None,
            groups: None,
            other: Object::new(),
        };
        Ok(AgentAccess { env, user: AGENT_USER.to_owned(), password })
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
