//! Per-instance credentials for reading, without state: the password for writing tells what the password
//! of any instance is, and nobody else can.

use std::fmt::Write;

use aws_lc_rs::hmac;
use windlass_contract::Secret;

/// A user and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: Secret,
}

/// The password with which the instance `id`, its own user name, reads its settings: the HMAC-SHA256 of its id under the
/// password for writing, in hexadecimal.
pub fn reading_password(writing: &Secret, id: &str) -> Secret {
    reading_password_with(&reading_key(writing), id)
}

/// The key from which the passwords of instances are made.
pub(crate) fn reading_key(writing: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, writing.reveal().as_bytes())
}

/// [`reading_password`] for many instances.
pub(crate) fn reading_password_with(key: &hmac::Key, id: &str) -> Secret {
    let tag = hmac::sign(key, id.as_bytes());
    let mut password = String::with_capacity(2 * tag.as_ref().len());
    for byte in tag.as_ref() {
        let _ = write!(password, "{byte:02x}");
    }
    Secret::new(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_an_instance_is_its_hmac_and_nobody_elses() {
        // Test case 2 of RFC 4231.
        let password = reading_password(&Secret::new("Jefe"), "what do ya want for nothing?");
        assert_eq!(password.reveal(), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_ne!(reading_password(&Secret::new("Jefe"), "vm-1"), reading_password(&Secret::new("Jefe"), "vm-2"));
    }
}
