//! RSA keys in the forms that people paste into other programs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use super::GenerateError;

pub(super) struct Rsa(pub(super) KeyPair);

impl Rsa {
    pub(super) fn new(bits: u32) -> Result<Self, GenerateError> {
        let size = match bits {
            2048 => RsaKeySize::_2048,
            3072 => RsaKeySize::_3072,
            4096 => RsaKeySize::_4096,
            other => return Err(GenerateError::KeyLength(other)),
        };
        let made = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size);
        made.map(Self).map_err(|source| GenerateError::Make { what: "key", source })
    }

    /// PKCS #1, `RSA PRIVATE KEY`.
    pub(super) fn private_pem(&self) -> String {
        // PKCS #8 wraps it: a sequence of version, algorithm and an octet string with the key.
        let parts = der::parts(der::content(self.0.serialized_der()));
        let key = parts.get(2).map(|part| der::content(part)).unwrap_or_default();
        pem("RSA PRIVATE KEY", key)
    }

    /// `PUBLIC KEY`.
    pub(super) fn public_pem(&self) -> String {
        self.0.public_key_pem()
    }

    /// The modulus as a number: without leading zeros.
    pub(super) fn modulus(&self) -> &[u8] {
        let content = der::content(self.0.public_key_raw());
        let modulus = der::parts(content).first().map(|part| der::content(part)).unwrap_or_default();
        modulus.strip_prefix(&[0]).unwrap_or(modulus)
    }

    /// `ssh-rsa AAAA…`, as it stands in `authorized_keys`.
    pub(super) fn ssh_line(&self) -> String {
        format!("ssh-rsa {}\n", STANDARD.encode(self.ssh_blob()))
    }

    /// MD5, as older tools show it.
    pub(super) fn ssh_fingerprint(&self) -> String {
        let digest = Md5::digest(self.ssh_blob());
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
    }

    fn ssh_blob(&self) -> Vec<u8> {
        let content = der::content(self.0.public_key_raw());
        let numbers: Vec<&[u8]> = der::parts(content).iter().map(|part| der::content(part)).collect();
        let [modulus, exponent] = numbers[..] else { return Vec::new() };
        let mut blob = Vec::new();
        for part in [b"ssh-rsa".as_slice(), exponent, modulus] {
            blob.extend(u32::try_from(part.len()).unwrap_or_default().to_be_bytes());
            blob.extend(part);
        }
        blob
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: String = text.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
}

/// The little of DER that is needed to look into keys that our own library wrote.
mod der {
    /// The length of the header and of the content of the first element.
    fn measure(der: &[u8]) -> Option<(usize, usize)> {
        match *der.get(1)? {
            short @ 0..=0x7f => Some((2, usize::from(short))),
            long => {
                let count = usize::from(long & 0x7f);
                let length = der.get(2..2 + count)?.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
                Some((2 + count, length))
            }
        }
    }

    /// What is in the first element.
    pub(super) fn content(der: &[u8]) -> &[u8] {
        measure(der).and_then(|(header, length)| der.get(header..header + length)).unwrap_or_default()
    }

    /// The elements, each with its header.
    pub(super) fn parts(der: &[u8]) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        let mut rest = der;
        while let Some((part, after)) =
            measure(rest).and_then(|(header, length)| rest.split_at_checked(header + length))
        {
            parts.push(part);
            rest = after;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_its_forms() {
        let key = Rsa::new(2048).unwrap();
        let private = key.private_pem();
        assert!(private.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        let again = KeyPair::from_pem(&private).unwrap();
        assert_eq!(again.public_key_raw(), key.0.public_key_raw());
        assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----\n"));
        assert_eq!(key.modulus().len(), 256);
        assert!(key.ssh_line().starts_with("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ"), "{}", key.ssh_line());
        assert_eq!(key.ssh_fingerprint().len(), 47);
    }
}
