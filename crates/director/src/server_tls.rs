//! TLS in front of the API.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use windlass_contract::Secret;
use windlass_pki::{Authority, Identity};

/// why the server's certificate cannot be used
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerTlsError {
    /// the PEM text cannot be read
    #[error("the server's certificate is not valid PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// a file that the operator names
    #[error("cannot read '{}', which 'tls' in director.yml names", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// certificate and key do not fit
    #[error("the server's certificate does not fit its key")]
    Certificate(#[from] rustls::Error),
}

/// A certificate that the operator brings, as files of PEM. They are read again from time to time, so that a new certificate needs no
/// restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenCertificate {
    /// With the chain behind it.
    pub certificate: PathBuf,
    pub private_key: PathBuf,
    /// What clients on this machine trust beside the director's own CA.
    pub ca: Option<PathBuf>,
}

fn read(path: &Path) -> Result<String, ServerTlsError> {
    std::fs::read_to_string(path).map_err(|source| ServerTlsError::File { path: path.to_owned(), source })
}

/// What clients are shown: what the operator brings, or ours.
pub(crate) fn shown(given: Option<&GivenCertificate>, ours: Identity) -> Result<Identity, ServerTlsError> {
    let Some(given) = given else { return Ok(ours) };
    Ok(Identity { certificate: read(&given.certificate)?, private_key: Secret::new(read(&given.private_key)?) })
}

/// What clients on this machine trust.
pub(crate) fn trusted(given: Option<&GivenCertificate>, ours: &Authority) -> Result<String, ServerTlsError> {
    let ca = given.and_then(|given| given.ca.as_deref()).map(read).transpose()?;
    let ours = ours.certificate().trim_end();
    Ok(ca.map_or_else(|| format!("{ours}\n"), |ca| format!("{ours}\n{}\n", ca.trim_end())))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_the_operator_is_shown_instead_and_what_is_wrong_with_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let (own, given) = (ours.new_client().unwrap(), theirs.new_client().unwrap());
        let path = |name: &str| folder.path().join(name);
        let files = GivenCertificate { certificate: path("crt"), private_key: path("key"), ca: Some(path("ca")) };
        let missing = shown(Some(&files), own.clone()).unwrap_err().to_string();
        assert!(missing.contains("crt', which 'tls' in director.yml names"), "{missing}");
        std::fs::write(&files.certificate, &given.certificate).unwrap();
        std::fs::write(&files.private_key, own.private_key.reveal()).unwrap();
        std::fs::write(path("ca"), theirs.certificate()).unwrap();
        let other_key = shown(Some(&files), own.clone()).unwrap();
        let refused = LiveCertificate::new(&other_key).unwrap_err().to_string();
        assert_eq!(refused, "the server's certificate does not fit its key");
        std::fs::write(&files.private_key, given.private_key.reveal()).unwrap();
        let live = shown(Some(&files), own.clone()).unwrap();
        assert_eq!(live.certificate, given.certificate);
        LiveCertificate::new(&live).unwrap();
        assert_eq!(shown(None, own.clone()).unwrap().certificate, own.certificate);
        let trusted = trusted(Some(&files), &ours).unwrap();
        assert!(trusted.starts_with(ours.certificate().trim_end()), "{trusted}");
        assert!(trusted.trim_end().ends_with(theirs.certificate().trim_end()), "{trusted}");
    }
}
