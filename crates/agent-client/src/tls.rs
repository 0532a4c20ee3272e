//! The caller's certificates.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use windlass_contract::Secret;
use windlass_pki::{Authority, Identity};

/// The CA that the caller trusts, and the certificate that it shows to agents.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// The CA that issued the agents' certificates, as PEM.
    pub ca_pem: String,
    /// The caller's certificate, as PEM; empty if it shows none.
    pub client_certificate_pem: String,
    pub client_key_pem: Secret,
}

impl ClientTls {
    /// Trusts the agents of `authority`, and shows them `client`.
    pub fn new(authority: &Authority, client: &Identity) -> Self {
        Self {
            ca_pem: authority.certificate().to_owned(),
            client_certificate_pem: client.certificate.clone(),
            client_key_pem: client.private_key.clone(),
        }
    }
}

/// why the caller's certificates cannot be used
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// the PEM text cannot be read
    #[error("{what} is not valid PEM")]
    Pem {
        what: &'static str,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// there is no certificate in the PEM text
    #[error("{what} holds no certificate")]
    Empty { what: &'static str },
    /// the certificate cannot be used
    #[error("{what} cannot be used")]
    Unusable {
        what: &'static str,
        #[source]
        source: rustls::Error,
    },
}

const CA: &str = "the CA certificate for agents";
const CERTIFICATE: &str = "the client certificate for agents";
const KEY: &str = "the client key for agents";

/// The TLS settings of all connections.
pub(crate) fn client_config(tls: &ClientTls) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca_pem, CA)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable { what: CA, source })?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|source| TlsError::Unusable { what: CA, source })?
        .with_root_certificates(roots);
    let mut config = if tls.client_certificate_pem.is_empty() {
        builder.with_no_client_auth()
    } else {
        let chain = certificates(&tls.client_certificate_pem, CERTIFICATE)?;
        let key = PrivateKeyDer::from_pem_slice(tls.client_key_pem.reveal().as_bytes())
            .map_err(|source| TlsError::Pem { what: KEY, source })?;
        builder.with_client_auth_cert(chain, key).map_err(|source| TlsError::Unusable { what: CERTIFICATE, source })?
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { what, source })?;
    if certificates.is_empty() { Err(TlsError::Empty { what }) } else { Ok(certificates) }
}
