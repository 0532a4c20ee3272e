//! TLS with a client certificate, to a server that is known by its own certificate alone.
//!
//! The certificates of these servers are self-signed, with names that fit none of their addresses, so the server's certificate
//! itself is pinned by its SHA-256. All members of a cluster show the same one.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use windlass_contract::Secret;

use super::ClientError;

/// A certificate's SHA-256 in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Reads digits, with colons or without.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let digits: String = text.chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
        if digits.len() != 64 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(ClientError::Configuration(format!(
                "'server_fingerprint' is '{text}', which is no SHA-256 of a certificate; it has 64 hexadecimal digits"
            )));
        }
        Ok(Self(digits))
    }

    /// That of the first certificate in `pem`.
    pub fn of_pem(pem: &str) -> Result<Self, ClientError> {
        CertificateDer::from_pem_slice(pem.as_bytes()).map(|certificate| Self::of(&certificate)).map_err(|_| {
            ClientError::Configuration("'server_certificate' is no certificate; it must be PEM".to_owned())
        })
    }

    fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(hex(&Sha256::digest(certificate.as_ref())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The client's certificate and key, as PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: String,
    pub private_key: Secret,
}

impl Identity {
    /// How many seconds from now the certificate ends; negative if it has ended.
    pub fn seconds_left(&self) -> Result<i64, ClientError> {
        let der = self.der()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(der.as_ref()).map_err(|_| not_pem("certificate"))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        Ok(certificate.validity().not_after.timestamp() - i64::try_from(now).unwrap_or(i64::MAX))
    }

    /// How the server calls it.
    pub fn fingerprint(&self) -> Result<Fingerprint, ClientError> {
        Ok(Fingerprint::of(&self.der()?))
    }

    fn der(&self) -> Result<CertificateDer<'static>, ClientError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|_| not_pem("certificate"))
    }
}

fn not_pem(key: &str) -> ClientError {
    ClientError::Configuration(format!("'{key}' cannot be used; it must be PEM"))
}

/// What is needed to connect by TLS.
pub(crate) fn config(identity: &Identity, pinned: &Fingerprint) -> Result<Arc<rustls::ClientConfig>, ClientError> {
    let key =
        PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes()).map_err(|_| not_pem("private_key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(Pinned { pinned: pinned.clone(), provider: Arc::clone(&provider) });
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Configuration(format!("TLS cannot be used: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![identity.der()?], key)
        .map_err(|error| {
            ClientError::Configuration(match error {
                Error::InvalidCertificate(_) => format!("'certificate' is not understood: {error}"),
                _ => format!("'certificate' and 'private_key' do not fit together: {error}"),
            })
        })?;
    Ok(Arc::new(config))
}

/// Takes one certificate and no other. Who shows it must have its key: the signatures are checked as always.
#[derive(Debug)]
struct Pinned {
    pinned: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// the server shows another certificate
#[derive(Debug, thiserror::Error)]
#[error("its certificate has the fingerprint {0}")]
pub(crate) struct AnotherCertificate(pub(crate) String);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.pinned {
            return Ok(ServerCertVerified::assertion());
        }
        let other = OtherError(Arc::new(AnotherCertificate(found.0)));
        Err(Error::InvalidCertificate(CertificateError::Other(other)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate that a failed handshake was about, if that was another one than the pinned one.
pub(crate) fn another_certificate(error: &std::io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            other.downcast_ref::<AnotherCertificate>().map(|found| found.0.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons_and_others_are_named() {
        let digits = "22e2732bd2501a285de5a6549f46649702090b050e4bcd5ff46353c8ec5676cd";
        let pairs: Vec<String> =
            digits.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
        assert_eq!(Fingerprint::parse(&pairs.join(":")).unwrap(), Fingerprint::parse(digits).unwrap());
        for wrong in ["", "22e2", &digits.replace('2', "g")] {
            assert!(Fingerprint::parse(wrong).unwrap_err().to_string().contains("64 hexadecimal digits"));
        }
        assert!(Fingerprint::of_pem("nothing").is_err());
    }

    #[test]
    fn the_end_of_a_certificate_is_known() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(2000, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap().pem();
        let identity = Identity { certificate, private_key: Secret::new(key.serialize_pem()) };
        assert!(identity.seconds_left().unwrap() < 0);
        let wrong = Identity { certificate: "x".to_owned(), private_key: Secret::new("y") };
        assert!(wrong.seconds_left().unwrap_err().to_string().contains("'certificate'"));
    }
}
