//! How a new agent will be reached, decided before its VM exists.

use std::net::IpAddr;

use windlass_contract::settings::{BoshEnv, Mbus, MbusCert};
use windlass_contract::{AgentId, Object, Secret};
use windlass_pki::{Authority, PkiError};

use crate::agent::AgentEndpoint;

/// The port on which agents listen, as everywhere in the ecosystem.
pub const AGENT_PORT: u16 = 6868;
/// The user of an agent's URL.
const AGENT_USER: &str = "director";
/// The path that agents map to the blobs which they serve over HTTPS.
const AGENT_BLOBS: &str = "/var/vcap/micro_bosh/data/cache";

/// A certificate and a password of an agent's own: a part of its VM's env, and what its caller remembers.
#[derive(Debug, Clone)]
pub struct AgentAccess {
    /// `env.bosh` of the VM.
    pub env: BoshEnv,
    /// The user in its URL.
    pub user: String,
    /// The password in its URL.
    pub password: Secret,
}

impl AgentAccess {
    /// Access to an agent that will have these addresses and shows a certificate of `authority`.
    pub fn new(authority: &Authority, agent_id: &AgentId, addresses: &[IpAddr]) -> Result<Self, PkiError> {
        let identity = authority.agent(agent_id, addresses)?;
        let password = Secret::new(uuid::Uuid::new_v4().simple().to_string());
        let url = format!("https://{AGENT_USER}:{}@0.0.0.0:{AGENT_PORT}", password.reveal());
        let env = BoshEnv {
            mbus: Some(Mbus {
                urls: Some(vec![Secret::new(url)]),
                cert: Some(MbusCert {
                    ca: authority.certificate().to_owned(),
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
        Ok(Self { env, user: AGENT_USER.to_owned(), password })
    }

    /// Where the agent is once its VM has these addresses.
    pub fn endpoint(&self, agent_id: AgentId, addresses: Vec<IpAddr>) -> AgentEndpoint {
        AgentEndpoint {
            agent_id,
            addresses,
            port: AGENT_PORT,
            user: self.user.clone(),
            password: self.password.clone(),
        }
    }
}
