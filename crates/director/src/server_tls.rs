//! TLS in front of the API.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use windlass_pki::Identity;

/// why the server's certificate cannot be used
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerTlsError {
    /// the PEM text cannot be read
    #[error("the server's certificate is not valid PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// certificate and key do not fit
    #[error("the server's certificate does not fit its key")]
    Certificate(#[from] rustls::Error),
}

/// The director's certificate. It is put in the place of another while the server runs: the next handshake shows it.
#[derive(Debug)]
pub(crate) struct LiveCertificate(RwLock<Arc<CertifiedKey>>);

impl LiveCertificate {
    pub(crate) fn new(identity: &Identity) -> Result<Self, ServerTlsError> {
        Ok(Self(RwLock::new(certified(identity)?)))
    }

    /// Shows another one from now on.
    pub(crate) fn replace(&self, identity: &Identity) -> Result<(), ServerTlsError> {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certified(identity)?;
        Ok(())
    }
}

impl ResolvesServerCert for LiveCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, ServerTlsError> {
    let certificates =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes())?;
    Ok(Arc::new(CertifiedKey::from_der(certificates, key, &aws_lc_rs::default_provider())?))
}

/// TLS 1.2 and 1.3 with the director's certificate.
pub(crate) fn server_config(certificate: Arc<LiveCertificate>) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(Arc::new(config))
}
