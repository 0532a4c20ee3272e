//! Per-instance credentials for reading, without state: whoever knows the password for writing can tell what the password
//! of any instance is, and nobody else can.

use aws_lc_rs::hmac;
use windlass_contract::Secret;

/// The password with which the instance `id`, its own user name, reads its settings: the HMAC-SHA256 of its id under the
/// password for writing, in hexadecimal.
pub fn reading_password(writing: &Secret, id: &str) -> Secret {
    let key = hmac::Key::new(hmac::HMAC_SHA256, writing.reveal().as_bytes());
    let tag = hmac::sign(&key, id.as_bytes());
    Secret::new(tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
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
