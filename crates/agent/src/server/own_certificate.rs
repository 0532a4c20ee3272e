//! The certificate that an agent makes for itself when its settings bring none. Nobody vouches for it: callers must take it
//! as it is, and the agent still asks for the password, and for a client certificate where the settings demand one.

use std::io;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use windlass_contract::settings::MbusCert;
use windlass_contract::{AgentId, Secret};
use windlass_durable::file;

use crate::layout::Base;

/// why the agent has no certificate
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnCertificateError {
    /// it cannot be made
    #[error("cannot make a certificate for {agent_id}")]
    Make {
        agent_id: AgentId,
        #[source]
        source: rcgen::Error,
    },
    /// it cannot be kept
    #[error("cannot keep the agent's own certificate in {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What is kept, so that the certificate is the same after a restart.
#[derive(Debug, Serialize, Deserialize)]
struct KeptCertificate {
    agent_id: AgentId,
    certificate: String,
    private_key: Secret,
}

/// `cert` with the agent's own certificate in place of the one that it lacks.
pub(super) fn add(cert: MbusCert, base: &Base, agent_id: &AgentId) -> Result<MbusCert, OwnCertificateError> {
    let path = base.own_certificate();
    let kept = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<KeptCertificate>(&bytes).ok());
    let kept = match kept.filter(|kept| kept.agent_id == *agent_id) {
        Some(kept) => kept,
        None => {
            tracing::warn!(
                "the settings have no server certificate, so the agent makes its own, which nobody vouches for"
            );
            let made =
                make(agent_id).map_err(|source| OwnCertificateError::Make { agent_id: agent_id.clone(), source })?;
            file::write_json(&path, &made, file::PRIVATE).map_err(|source| OwnCertificateError::Io { path, source })?;
            made
        }
    };
    Ok(MbusCert { certificate: kept.certificate, private_key: kept.private_key, ..cert })
}

fn make(agent_id: &AgentId) -> Result<KeptCertificate, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![agent_id.dns_name()])?.self_signed(&key)?;
    let private_key = Secret::new(key.serialize_pem());
    Ok(KeptCertificate { agent_id: agent_id.clone(), certificate: certificate.pem(), private_key })
}
