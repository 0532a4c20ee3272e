//! Our certificate authority: the director's server certificate, its client certificate, and one server certificate per
//! agent. Every caller of agents has one: the director keeps it in its state directory, a certification only in memory.
//!
//! A [`Keychain`] keeps the director's keys on disk and renews them in time.
//!
//! [`generate`] makes the keys, certificates and passwords of documents that only define them.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod generate;
mod keychain;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use time::{Duration, OffsetDateTime};
use windlass_contract::{AgentId, Secret};
use windlass_durable::file;

pub use keychain::{Keychain, Keys};

/// The DNS name in the director's client certificate.
pub const DIRECTOR_NAME: &str = "director.bosh-internal";

/// Clocks differ; a certificate that is valid from now on is refused by a machine that is a little behind.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// why certificates cannot be made or read
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// a file cannot be read or written
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a certificate cannot be read
    #[error("a certificate cannot be read")]
    Unreadable {
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// a certificate cannot be made
    #[error("cannot make a certificate for {subject}")]
    Make {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
}

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: String,
    pub private_key: Secret,
}

/// How long certificates live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of the director and of agents.
    pub leaf: std::time::Duration,
    pub ca: std::time::Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let days = |count: u64| std::time::Duration::from_secs(count * 24 * 60 * 60);
        Self { leaf: days(730), ca: days(3650) }
    }
}

/// The authority: everything that it issued is trusted by director and agents.
#[derive(Debug)]
pub struct Authority {
    /// Holders of its certificates trust all of these: the CA that signs, and those before and after it.
    certificates: String,
    signer: Identity,
    lifetimes: Lifetimes,
}

/// What a certificate is for.
enum Purpose {
    Server,
    Client,
}

impl Authority {
    /// Reads the authority in `folder`, or makes one there. Nobody trusts one that has ended, so another takes its place.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        Self::open_at(folder, OffsetDateTime::now_utc())
    }

    fn open_at(folder: &Path, now: OffsetDateTime) -> Result<Self, PkiError> {
        let lifetimes = Lifetimes::default();
        let made = || new_ca(lifetimes, now);
        let mut signer = stored(folder, "ca", made)?;
        if expiry(&signer.certificate)? <= now {
            let path = folder.join("ca.pem");
            // Without its certificate, a key that a kill leaves is replaced with it.
            file::remove_file(&path).map_err(|source| PkiError::File { path, source })?;
            signer = stored(folder, "ca", made)?;
        }
        Ok(Self::of(signer, lifetimes))
    }

    /// An authority that is kept nowhere.
    pub fn new() -> Result<Self, PkiError> {
        let lifetimes = Lifetimes::default();
        new_ca(lifetimes, OffsetDateTime::now_utc()).map(|signer| Self::of(signer, lifetimes))
    }

    fn of(signer: Identity, lifetimes: Lifetimes) -> Self {
        Self { certificates: signer.certificate.clone(), signer, lifetimes }
    }

    /// The CA's certificate, as PEM; during a change of CAs those of both.
    pub fn certificate(&self) -> &str {
        &self.certificates
    }

    /// What stands for the certificates that are trusted, in whatever order they are.
    pub fn trust(&self) -> String {
        let mut each: Vec<&str> = self.each().collect();
        each.sort_unstable();
        digest(&each.concat())
    }

    /// What stands for each of the certificates that are trusted.
    pub fn digests(&self) -> Vec<String> {
        self.each().map(digest).collect()
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        const END: &str = "-----END CERTIFICATE-----";
        self.certificates.split_inclusive(END).map(str::trim).filter(|it| !it.is_empty())
    }

    /// Expiry of a certificate issued at `now`; never later than the CA's.
    pub fn next_expiry(&self, now: OffsetDateTime) -> Result<OffsetDateTime, PkiError> {
        Ok((now + self.lifetimes.leaf).min(expiry(&self.signer.certificate)?))
    }

    /// The director's server certificate in `folder`, or a new one. RSA, because the original client offers nothing
    /// else under TLS 1.2. It is replaced when the names change.
    pub fn director_server(&self, folder: &Path, names: &[String]) -> Result<Identity, PkiError> {
        let names_path = folder.join("server.names");
        let wanted = names.join("\n");
        let earlier = std::fs::read_to_string(&names_path).ok();
        if earlier.as_ref().is_some_and(|names| *names != wanted) {
            for name in ["server.pem", "server.key"] {
                let path = folder.join(name);
                file::remove_file(&path).map_err(|source| PkiError::File { path, source })?;
            }
        }
        let identity = stored(folder, "server", || self.new_server(names, OffsetDateTime::now_utc()))?;
        if earlier.as_ref() != Some(&wanted) {
            file::write(&names_path, wanted.as_bytes(), file::PRIVATE)
                .map_err(|source| PkiError::File { path: names_path, source })?;
        }
        Ok(identity)
    }

    fn new_server(&self, names: &[String], now: OffsetDateTime) -> Result<Identity, PkiError> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        self.issue("the director", key, names, Purpose::Server, now)
    }

    /// The director's client certificate in `folder`, or a new one.
    pub fn director_client(&self, folder: &Path) -> Result<Identity, PkiError> {
        stored(folder, "client", || self.new_client())
    }

    /// A new client certificate for a caller of agents.
    pub fn new_client(&self) -> Result<Identity, PkiError> {
        self.client_from(OffsetDateTime::now_utc())
    }

    fn client_from(&self, now: OffsetDateTime) -> Result<Identity, PkiError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        self.issue("calls to agents", key, &[DIRECTOR_NAME.to_owned()], Purpose::Client, now)
    }

    /// A server certificate for the agent of a VM.
    pub fn agent(&self, agent_id: &AgentId, addresses: &[IpAddr]) -> Result<Identity, PkiError> {
        let mut names = vec![agent_id.dns_name()];
        names.extend(addresses.iter().map(ToString::to_string));
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        self.issue(&format!("agent {agent_id}"), key, &names, Purpose::Server, OffsetDateTime::now_utc())
    }

    fn issue(
        &self,
        subject: &str,
        key: Result<KeyPair, rcgen::Error>,
        names: &[String],
        purpose: Purpose,
        now: OffsetDateTime,
    ) -> Result<Identity, PkiError> {
        let made = |source| PkiError::Make { subject: subject.to_owned(), source };
        let key = key.map_err(made)?;
        let ca_key = KeyPair::from_pem(self.signer.private_key.reveal()).map_err(made)?;
        let issuer = Issuer::from_ca_cert_pem(&self.signer.certificate, ca_key).map_err(made)?;
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(made)?;
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into().map_err(made)?),
            });
        }
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("", String::as_str));
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![match purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        set_lifetime(&mut params, now, self.next_expiry(now)?);
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        Ok(Identity { certificate: certificate.pem(), private_key: Secret::new(key.serialize_pem()) })
    }
}

fn new_ca(lifetimes: Lifetimes, now: OffsetDateTime) -> Result<Identity, PkiError> {
    let made = |source| PkiError::Make { subject: "the CA".to_owned(), source };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(made)?;
    let mut params = CertificateParams::new(Vec::<String>::new()).map_err(made)?;
    params.distinguished_name.push(DnType::CommonName, "Windlass CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_lifetime(&mut params, now, now + lifetimes.ca);
    let certificate = params.self_signed(&key).map_err(made)?;
    Ok(Identity { certificate: certificate.pem(), private_key: Secret::new(key.serialize_pem()) })
}

fn set_lifetime(params: &mut CertificateParams, now: OffsetDateTime, end: OffsetDateTime) {
    params.not_before = now - CLOCK_SKEW;
    params.not_after = end;
}

/// When a certificate ends.
pub fn expiry(pem: &str) -> Result<OffsetDateTime, PkiError> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes())
        .map_err(|error| PkiError::Unreadable { source: error.to_string().into() })?;
    let certificate = block.parse_x509().map_err(|error| PkiError::Unreadable { source: error.to_string().into() })?;
    Ok(certificate.validity().not_after.to_datetime())
}

/// Reads `NAME.pem` and `NAME.key`, or makes and keeps them. The certificate is written last: without it, a key that was
/// left by a kill is made again.
fn stored(folder: &Path, name: &str, make: impl FnOnce() -> Result<Identity, PkiError>) -> Result<Identity, PkiError> {
    let (certificate_path, key_path) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let read = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { path: path.to_owned(), source }),
    };
    if let (Some(certificate), Some(key)) = (read(&certificate_path)?, read(&key_path)?) {
        return Ok(Identity { certificate, private_key: Secret::new(key) });
    }
    let identity = make()?;
    for (path, text) in [(key_path, identity.private_key.reveal()), (certificate_path, &identity.certificate)] {
        file::write(&path, text.as_bytes(), file::PRIVATE).map_err(|source| PkiError::File { path, source })?;
    }
    Ok(identity)
}

fn digest(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_kept_and_the_servers_certificate_follows_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::open(folder.path()).unwrap();
        let again = Authority::open(folder.path()).unwrap();
        assert_eq!(first.certificate(), again.certificate());
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let server = again.director_server(folder.path(), &names).unwrap();
        assert_eq!(again.director_server(folder.path(), &names).unwrap().certificate, server.certificate);
        assert_ne!(again.director_server(folder.path(), &names[..1]).unwrap().certificate, server.certificate);
    }

    /// Somebody who comes back to an environment after eleven years can still give it a VM that can be reached.
    #[test]
    fn an_authority_that_has_ended_is_replaced_and_no_earlier() {
        let folder = tempfile::tempdir().unwrap();
        let day = |count: i64| OffsetDateTime::now_utc() + time::Duration::days(count);
        let first = Authority::open_at(folder.path(), day(0)).unwrap();
        assert_eq!(Authority::open_at(folder.path(), day(3649)).unwrap().certificate(), first.certificate());
        let later = Authority::open_at(folder.path(), day(4000)).unwrap();
        assert_ne!(later.certificate(), first.certificate());
        assert!(later.next_expiry(day(4000)).unwrap() > day(4700), "what it signs is of use");
        assert_eq!(Authority::open_at(folder.path(), day(4001)).unwrap().certificate(), later.certificate());
        later.client_from(day(4000)).unwrap();
    }
}
