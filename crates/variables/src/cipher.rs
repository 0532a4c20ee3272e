//! Encrypts values with AES-256-GCM, each with a nonce of its own and bound to what it belongs to: a value that somebody moves to
//! another name, id or table is refused.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::key::{Key, KeyError};

/// Encrypts and decrypts with one key.
pub struct Cipher {
    key: RandomizedNonceKey,
    digests: hmac::Key,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

/// what was encrypted cannot be read
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was encrypted with another key, moved from elsewhere, or damaged")]
pub struct Unsealed;

impl Cipher {
    pub fn new(key: &Key) -> Self {
        #[expect(clippy::expect_used, reason = "the only mistake is a key that has not 32 bytes, and this one has")]
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, key.bytes()).expect("a key of 32 bytes");
        // A key of its own, so that what is said of digests says nothing about the cipher.
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.bytes()), b"windlass digests of values");
        Self { key: cipher, digests: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()) }
    }

    /// Encrypts what belongs to `context`.
    pub fn seal(&self, context: &[&str], plain: &[u8]) -> Result<String, Unsealed> {
        let mut sealed = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(bound(context)), &mut sealed).map_err(|_| Unsealed)?;
        let whole = [&nonce.as_ref()[..], &sealed].concat();
        Ok(STANDARD.encode(whole))
    }

    /// Decrypts what was encrypted for the same context.
    pub fn open(&self, context: &[&str], sealed: &str) -> Result<Vec<u8>, Unsealed> {
        let whole = STANDARD.decode(sealed).map_err(|_| Unsealed)?;
        let (nonce, sealed) = whole.split_at_checked(NONCE_LEN).ok_or(Unsealed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Unsealed)?;
        let mut opened = sealed.to_vec();
        let plain = self.key.open_in_place(nonce, Aad::from(bound(context)), &mut opened).map_err(|_| Unsealed)?;
        let length = plain.len();
        opened.truncate(length);
        Ok(opened)
    }

    /// Encrypts a key with this one.
    pub fn wrap_key(&self, key: &Key) -> Result<String, Unsealed> {
        self.seal(&["data key"], key.bytes())
    }

    /// The key that was encrypted with this one.
    pub fn unwrap_key(&self, wrapped: &str) -> Result<Key, Unsealed> {
        let bytes = self.open(&["data key"], wrapped)?;
        bytes.try_into().map(Key::from_bytes).map_err(|_| Unsealed)
    }

    /// Stands for a value, so that a change of it is noticed. Without the key nobody can try values on it.
    pub fn digest(&self, value: &[u8]) -> String {
        hmac::sign(&self.digests, value).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Key {
    /// A new key, and the same encrypted with this one.
    pub fn new_data_key(&self) -> Result<(Self, String), KeyError> {
        let data = Self::random()?;
        let wrapped = Cipher::new(self).wrap_key(&data).map_err(|_| KeyError::Random)?;
        Ok((data, wrapped))
    }
}

/// Each part with its length: `ab`, `c` is not `a`, `bc`.
fn bound(context: &[&str]) -> Vec<u8> {
    context.iter().flat_map(|part| [&part.len().to_be_bytes()[..], part.as_bytes()].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_with_its_key_in_its_place_only() {
        let cipher = Cipher::new(&Key::random().unwrap());
        let sealed = cipher.seal(&["7", "/a"], b"hunter2").unwrap();
        assert_ne!(cipher.seal(&["7", "/a"], b"hunter2").unwrap(), sealed, "a nonce of its own");
        assert_eq!(cipher.open(&["7", "/a"], &sealed).unwrap(), b"hunter2");
        assert!(!sealed.contains("hunter2"));
        for context in [&["8", "/a"][..], &["7", "/b"], &["7/", "a"], &["7"]] {
            assert_eq!(cipher.open(context, &sealed), Err(Unsealed), "{context:?}");
        }
        assert_eq!(Cipher::new(&Key::random().unwrap()).open(&["7", "/a"], &sealed), Err(Unsealed));
        let mut damaged = sealed.into_bytes();
        damaged[20] = if damaged[20] == b'A' { b'B' } else { b'A' };
        assert_eq!(cipher.open(&["7", "/a"], &String::from_utf8(damaged).unwrap()), Err(Unsealed));
        for nothing in ["", "AAAA", "no base64"] {
            assert_eq!(cipher.open(&[], nothing), Err(Unsealed));
        }
    }

    #[test]
    fn a_data_key_is_wrapped_by_another_one() {
        let (old, new) = (Key::random().unwrap(), Key::random().unwrap());
        let (data, wrapped) = old.new_data_key().unwrap();
        assert_eq!(Cipher::new(&old).unwrap_key(&wrapped).unwrap(), data);
        assert_eq!(Cipher::new(&new).unwrap_key(&wrapped), Err(Unsealed));
        let again = Cipher::new(&new).wrap_key(&data).unwrap();
        assert_eq!(Cipher::new(&new).unwrap_key(&again).unwrap(), data);
    }

    #[test]
    fn digests_depend_on_the_key() {
        let (one, other) = (Cipher::new(&Key::random().unwrap()), Cipher::new(&Key::random().unwrap()));
        assert_eq!(one.digest(b"x"), one.digest(b"x"));
        assert_ne!(one.digest(b"x"), one.digest(b"y"));
        assert_ne!(one.digest(b"x"), other.digest(b"x"));
    }
}
