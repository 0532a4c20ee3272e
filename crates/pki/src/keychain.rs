//! The keys of a director on disk, renewed in time.
//!
//! A certificate is replaced when a third of its life is left. A CA cannot simply be replaced: those who trust the old one
//! must learn to trust the new one before it signs anything. So its successor is made when half of the CA's life is left,
//! and trusted from then on; it begins to sign when a third is left, if everybody was heard to trust it, and when a sixth is
//! left in any case; the old one stays trusted until it ends. One that ended while nobody looked is replaced at once.
//!
//! ```text
//! ca.pem ca.key            the CA that signs
//! next-ca.pem next-ca.key  its successor, while there is one
//! old-ca.pem               its predecessor, until it ends
//! server.* client.*        the director's own; server.names is what they were made for
//! ```

use std::path::{Path, PathBuf};

use time::{Duration, OffsetDateTime};
use windlass_durable::file;

use crate::{Authority, CLOCK_SKEW, Identity, Lifetimes, PkiError, expiry, new_ca, stored};

/// Where a director keeps its keys, and what they are for.
#[derive(Debug, Clone)]
pub struct Keychain {
    folder: PathBuf,
    names: Vec<String>,
    lifetimes: Lifetimes,
}

/// The keys in force.
#[derive(Debug)]
pub struct Keys {
    /// Signs, and is trusted.
    pub authority: Authority,
    /// The director's server certificate.
    pub server: Identity,
    /// The director's client certificate.
    pub client: Identity,
}

/// Whether a CA's successor may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Succession {
    /// It need not be there yet.
    Unneeded,
    /// It is to be trusted.
    Announced,
    /// It may sign, if everybody trusts it.
    Possible,
    /// It must sign.
    Overdue,
}

impl Keychain {
    /// In `folder`; clients know the director by `names`.
    pub fn new(folder: &Path, names: Vec<String>, lifetimes: Lifetimes) -> Self {
        Self { folder: folder.to_owned(), names, lifetimes }
    }

    /// How often it must be looked at.
    pub fn interval(&self) -> std::time::Duration {
        const HOUR: std::time::Duration = std::time::Duration::from_secs(60 * 60);
        (self.lifetimes.leaf / 12).clamp(std::time::Duration::from_secs(1), HOUR)
    }

    /// Reads the keys, makes what is missing, and renews what is due. `all_trust_successor` is what was heard of those who
    /// trust the CA.
    pub fn refresh(&self, now: OffsetDateTime, all_trust_successor: bool) -> Result<Keys, PkiError> {
        let mut ca = self.current_ca(now)?;
        // Whatever one that has ended signs is refused. Its successor may have ended as well, and then has none.
        while expiry(&ca.certificate)? <= now {
            ca = self.promote(&ca, now)?;
        }
        let succession = self.succession(&ca, now)?;
        let is_time = succession == Succession::Overdue || succession == Succession::Possible && all_trust_successor;
        if is_time && self.path("next-ca.pem").exists() {
            ca = self.promote(&ca, now)?;
        } else if succession != Succession::Unneeded {
            stored(&self.folder, "next-ca", || new_ca(self.lifetimes, now))?;
        }
        let mut certificates = ca.certificate.clone();
        for name in ["next-ca.pem", "old-ca.pem"] {
            let path = self.path(name);
            match std::fs::read_to_string(&path) {
                Ok(other) if expiry(&other)? > now => certificates.push_str(&other),
                Ok(_) => self.remove(name)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(PkiError::File { path, source }),
            }
        }
        let authority = Authority { certificates, signer: ca, lifetimes: self.lifetimes };
        let server = self.renewed("server", &self.names.join("\n"), now, || authority.new_server(&self.names, now))?;
        let client = self.renewed("client", "", now, || authority.client_from(now))?;
        Ok(Keys { authority, server, client })
    }

    /// When the director's own certificates end, by the files that have them.
    pub fn expiries(&self) -> Result<Vec<(PathBuf, OffsetDateTime)>, PkiError> {
        let mut found = Vec::new();
        for name in ["ca.pem", "next-ca.pem", "old-ca.pem", "server.pem", "client.pem"] {
            let path = self.path(name);
            if let Ok(pem) = std::fs::read_to_string(&path) {
                found.push((path, expiry(&pem)?));
            }
        }
        Ok(found)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn remove(&self, name: &str) -> Result<(), PkiError> {
        let path = self.path(name);
        file::remove_file(&path).map_err(|source| PkiError::File { path, source })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PkiError> {
        let path = self.path(name);
        file::write(&path, text.as_bytes(), file::PRIVATE).map_err(|source| PkiError::File { path, source })
    }

    /// The CA that signs. A kill in the middle of a promotion leaves the successor's key beside the old certificate.
    fn current_ca(&self, now: OffsetDateTime) -> Result<Identity, PkiError> {
        let key = std::fs::read_to_string(self.path("ca.key")).ok();
        let next = std::fs::read_to_string(self.path("next-ca.key")).ok();
        let successor = std::fs::read_to_string(self.path("next-ca.pem")).ok();
        if let (Some(key), Some(next), Some(successor)) = (key, next, successor)
            && key == next
        {
            self.finish_promotion(&successor)?;
        }
        stored(&self.folder, "ca", || new_ca(self.lifetimes, now))
    }

    fn succession(&self, ca: &Identity, now: OffsetDateTime) -> Result<Succession, PkiError> {
        let left = expiry(&ca.certificate)? - now;
        let life = Duration::try_from(self.lifetimes.ca).unwrap_or(Duration::MAX);
        Ok(match left {
            _ if left <= life / 6 => Succession::Overdue,
            _ if left <= life / 3 => Succession::Possible,
            _ if left <= life / 2 => Succession::Announced,
            _ => Succession::Unneeded,
        })
    }

    fn promote(&self, old: &Identity, now: OffsetDateTime) -> Result<Identity, PkiError> {
        let next = stored(&self.folder, "next-ca", || new_ca(self.lifetimes, now))?;
        self.write("old-ca.pem", &old.certificate)?;
        self.write("ca.key", next.private_key.reveal())?;
        self.finish_promotion(&next.certificate)?;
        Ok(next)
    }

    fn finish_promotion(&self, successor: &str) -> Result<(), PkiError> {
        self.write("ca.pem", successor)?;
        self.remove("next-ca.pem")?;
        self.remove("next-ca.key")
    }

    /// The certificate that is there, unless it is about to end or was made for something else.
    fn renewed(
        &self,
        name: &str,
        made_for: &str,
        now: OffsetDateTime,
        make: impl FnOnce() -> Result<Identity, PkiError>,
    ) -> Result<Identity, PkiError> {
        let (certificate, purpose) = (format!("{name}.pem"), format!("{name}.names"));
        let earlier = std::fs::read_to_string(self.path(&purpose)).ok();
        let is_for_something_else = earlier.as_ref().is_some_and(|earlier| earlier != made_for);
        let is_due = match std::fs::read_to_string(self.path(&certificate)) {
            Ok(pem) => is_due(&pem, now)?,
            Err(_) => false,
        };
        if is_for_something_else || is_due {
            // A key whose certificate a kill prevented is made again with it.
            self.remove(&certificate)?;
        }
        let identity = stored(&self.folder, name, make)?;
        // Where nothing changed, nothing is written: a start needs no space then.
        if earlier.as_deref() != Some(made_for) {
            self.write(&purpose, made_for)?;
        }
        Ok(identity)
    }
}

/// Whether a third of its life is left, or less.
fn is_due(pem: &str, now: OffsetDateTime) -> Result<bool, PkiError> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes())
        .map_err(|error| PkiError::Unreadable { source: error.to_string().into() })?;
    let certificate = block.parse_x509().map_err(|error| PkiError::Unreadable { source: error.to_string().into() })?;
    let begin = certificate.validity().not_before.to_datetime() + CLOCK_SKEW;
    let end = certificate.validity().not_after.to_datetime();
    Ok(end - now <= (end - begin) / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn keychain(folder: &Path, names: &[&str]) -> Keychain {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Keychain::new(folder, names, Lifetimes::default())
    }

    fn day(count: u64) -> OffsetDateTime {
        OffsetDateTime::now_utc() + std::time::Duration::from_secs(count * DAY)
    }

    fn trusted(keys: &Keys) -> usize {
        keys.authority.certificate().matches("BEGIN CERTIFICATE").count()
    }

    /// A director that nobody restarts for years goes on working, and so do its clients.
    #[test]
    fn certificates_are_made_anew_long_before_they_end_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let keychain = keychain(folder.path(), &["127.0.0.1"]);
        let first = keychain.refresh(day(0), false).unwrap();
        let later = keychain.refresh(day(480), false).unwrap();
        assert_eq!(
            (&first.server.certificate, &first.client.certificate),
            (&later.server.certificate, &later.client.certificate)
        );
        let renewed = keychain.refresh(day(490), false).unwrap();
        assert_ne!(first.server.certificate, renewed.server.certificate);
        assert_ne!(first.client.certificate, renewed.client.certificate);
        assert_eq!(first.authority.certificate(), renewed.authority.certificate(), "the CA stays");
        assert!(expiry(&renewed.server.certificate).unwrap() > day(1200));
    }

    #[test]
    fn the_servers_certificate_follows_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let first = keychain(folder.path(), &["127.0.0.1"]).refresh(day(0), false).unwrap();
        let other = keychain(folder.path(), &["127.0.0.1", "director.example.com"]).refresh(day(0), false).unwrap();
        assert_ne!(first.server.certificate, other.server.certificate);
        assert_eq!(first.client.certificate, other.client.certificate);
    }

    /// Those who trust the old CA get years to trust the new one before it matters.
    #[test]
    fn a_ca_hands_over_to_its_successor_only_when_it_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let keychain = keychain(folder.path(), &["127.0.0.1"]);
        let first = keychain.refresh(day(0), false).unwrap().authority;
        let announced = keychain.refresh(day(1900), false).unwrap();
        assert_eq!(trusted(&announced), 2);
        assert!(announced.authority.certificate().contains(first.certificate()));
        assert_eq!(announced.authority.signer.certificate, first.signer.certificate, "the old one signs");
        let waiting = keychain.refresh(day(2500), false).unwrap();
        assert_eq!(waiting.authority.signer.certificate, first.signer.certificate, "not everybody trusts the new one");
        let handed_over = keychain.refresh(day(2500), true).unwrap();
        assert_ne!(handed_over.authority.signer.certificate, first.signer.certificate);
        assert_eq!(trusted(&handed_over), 2, "the old one is trusted until it ends");
        assert_eq!(trusted(&keychain.refresh(day(3700), true).unwrap()), 1);

        let folder = tempfile::tempdir().unwrap();
        let keychain = self::keychain(folder.path(), &["127.0.0.1"]);
        let first = keychain.refresh(day(0), false).unwrap().authority;
        keychain.refresh(day(3100), false).unwrap();
        let forced = keychain.refresh(day(3101), false).unwrap();
        assert_ne!(
            forced.authority.signer.certificate, first.signer.certificate,
            "somebody is left behind, but only one"
        );
    }

    /// A director that was off for longer than its CA lived is reached by its clients from its start on.
    #[test]
    fn a_ca_that_ended_while_nobody_looked_is_replaced_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let keychain = keychain(folder.path(), &["127.0.0.1"]);
        let first = keychain.refresh(day(0), false).unwrap();
        let late = keychain.refresh(day(4000), false).unwrap();
        assert_ne!(late.authority.signer.certificate, first.authority.signer.certificate);
        assert_eq!(trusted(&late), 1, "the one that ended is trusted by nobody");
        for certificate in [&late.server.certificate, &late.client.certificate] {
            assert!(expiry(certificate).unwrap() > day(4700));
        }
        let again = keychain.refresh(day(4001), false).unwrap();
        assert_eq!(again.authority.certificate(), late.authority.certificate());
        keychain.refresh(day(4000 + 2000), false).unwrap();
        assert!(folder.path().join("next-ca.pem").exists());
        let much_later = keychain.refresh(day(4000 + 2000 + 4000), false).unwrap();
        assert_eq!(trusted(&much_later), 1, "its successor had ended, too");
        assert!(expiry(&much_later.authority.signer.certificate).unwrap() > day(13000));
    }

    #[test]
    fn a_kill_in_the_middle_of_a_handover_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let keychain = keychain(folder.path(), &["127.0.0.1"]);
        keychain.refresh(day(0), false).unwrap();
        keychain.refresh(day(1900), false).unwrap();
        let next = std::fs::read_to_string(folder.path().join("next-ca.key")).unwrap();
        std::fs::write(folder.path().join("ca.key"), next).unwrap();
        let successor = std::fs::read_to_string(folder.path().join("next-ca.pem")).unwrap();
        let keys = keychain.refresh(day(1900), false).unwrap();
        assert_eq!(keys.authority.signer.certificate, successor);
        // It signs with the key that belongs to it.
        keys.authority.agent(&windlass_contract::AgentId::random(), &[]).unwrap();
    }
}
