//! TLS in front of the API.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
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

/// TLS 1.2 and 1.3 with the director's certificate.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let certificates =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    Ok(Arc::new(config))
}
