//! The agent's certificate, and whose certificate it demands.

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, ServerSessionMemoryCache, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

use super::own_certificate::{self, OwnCertificateError};
use crate::layout::Base;
use crate::settings::Settings;

/// The name in a director's certificate.
const DIRECTOR: &str = "director.bosh-internal";

/// How many sessions are kept for callers that come back. An agent has one director.
const SESSIONS: usize = 4;

/// why the certificates in the settings cannot be used
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// there is half of a certificate
    #[error("env.bosh.mbus.cert has a private_key and no certificate; it must have both or none")]
    Missing,
    /// the agent's own certificate cannot be made
    #[error(transparent)]
    Own(#[from] OwnCertificateError),
    /// the PEM text cannot be read
    #[error("env.bosh.mbus.cert.{field} is not valid PEM")]
    Pem {
        field: &'static str,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// the certificate or the CA cannot be used
    #[error("env.bosh.mbus.cert.{field} cannot be used")]
    Unusable {
        field: &'static str,
        #[source]
        source: rustls::Error,
    },
    /// client certificates are demanded, and no CA is there to check them
    #[error("env.bosh.mbus.require_client_cert is set, and env.bosh.mbus.cert.ca cannot check client certificates")]
    NoClientCa(#[source] VerifierBuilderError),
}

/// The TLS side of the server. Settings without a certificate are served with one of the agent's own, in `base`.
pub(crate) fn server_config(settings: &Settings, base: &Base) -> Result<Arc<ServerConfig>, TlsError> {
    let given = settings.mbus_cert().cloned().unwrap_or_default();
    let cert = match (given.certificate.is_empty(), given.private_key.reveal().is_empty()) {
        (false, _) => given,
        (true, true) => own_certificate::add(given, base, &settings.agent.agent_id)?,
        (true, false) => return Err(TlsError::Missing),
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates(&cert.certificate, "certificate")?;
    let key = PrivateKeyDer::from_pem_slice(cert.private_key.reveal().as_bytes())
        .map_err(|source| TlsError::Pem { field: "private_key", source })?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|source| TlsError::Unusable { field: "certificate", source })?;
    let builder = if settings.require_client_cert() {
        let mut roots = RootCertStore::empty();
        for ca in certificates(&cert.ca, "ca")? {
            roots.add(ca).map_err(|source| TlsError::Unusable { field: "ca", source })?;
        }
        let issued = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(TlsError::NoClientCa)?;
        builder.with_client_cert_verifier(Arc::new(DirectorsOnly { issued }))
    } else {
        builder.with_no_client_auth()
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|source| TlsError::Unusable { field: "certificate", source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Each session keeps its caller's certificates, some kilobytes, and rustls would keep 256 of them: with thousands of agents
    // on a machine that is more than all else together.
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

fn certificates(pem: &str, field: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|source| TlsError::Pem { field, source })
}

/// Takes certificates that the CA issued to a director. The CA issues those of agents too, and no agent may drive another.
#[derive(Debug)]
struct DirectorsOnly {
    issued: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for DirectorsOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.issued.verify_client_cert(end_entity, intermediates, now)?;
        let director = ServerName::try_from(DIRECTOR).map_err(|error| rustls::Error::General(error.to_string()))?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &director)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.issued.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
