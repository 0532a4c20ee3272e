//! Users: a name, a password, and the password's hash as `/etc/shadow` has it.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::{GenerateError, PasswordOptions, password, random_letters};

const ROUNDS: usize = 5000;
const USUAL_LENGTH: usize = 30;
/// The hash of a password takes time by the square of its length.
const LONGEST: usize = 1024;
const SALT_LENGTH: usize = 8;
const ALPHABET: &[u8] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UserOptions {
    username: String,
    length: usize,
}

pub(super) fn generate(options: UserOptions) -> Result<Value, GenerateError> {
    let username = if options.username.is_empty() { random_letters(20)? } else { options.username };
    let length = if options.length == 0 { USUAL_LENGTH } else { options.length };
    if length > LONGEST {
        return Err(GenerateError::Length { length, most: LONGEST });
    }
    let password = password(PasswordOptions { length })?;
    let hash = sha512_crypt(password.as_str().unwrap_or_default().as_bytes(), random_letters(SALT_LENGTH)?.as_bytes());
    Ok(json!({"username": username, "password": password, "password_hash": hash}))
}

/// The hash that `crypt` calls `$6$`, with its usual number of rounds.
fn sha512_crypt(password: &[u8], salt: &[u8]) -> String {
    let mut other = Sha512::new();
    for part in [password, salt, password] {
        other.update(part);
    }
    let other = other.finalize();

    let mut first = Sha512::new();
    first.update(password);
    first.update(salt);
    first.update(repeated(&other, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(other)
        } else {
            first.update(password)
        }
        bits >>= 1;
    }
    let mut digest = first.finalize();

    let mut of_password = Sha512::new();
    password.iter().for_each(|_| of_password.update(password));
    let p = repeated(&of_password.finalize(), password.len());
    let mut of_salt = Sha512::new();
    (0..16 + usize::from(digest[0])).for_each(|_| of_salt.update(salt));
    let s = repeated(&of_salt.finalize(), salt.len());

    for round in 0..ROUNDS {
        let mut next = Sha512::new();
        if round % 2 == 1 {
            next.update(&p)
        } else {
            next.update(digest)
        }
        if round % 3 != 0 {
            next.update(&s);
        }
        if round % 7 != 0 {
            next.update(&p);
        }
        if round % 2 == 1 {
            next.update(digest)
        } else {
            next.update(&p)
        }
        digest = next.finalize();
    }
    format!("$6${}${}", String::from_utf8_lossy(salt), encoded(&digest))
}

/// The beginning of a digest that is written again and again.
fn repeated(digest: &[u8], length: usize) -> Vec<u8> {
    digest.iter().copied().cycle().take(length).collect()
}

/// Three bytes at a time, in the order that `crypt` takes them.
fn encoded(digest: &[u8]) -> String {
    let mut text = String::new();
    let mut add = |bytes: [usize; 3], letters: usize| {
        let byte = |at: usize| digest.get(at).copied().map_or(0, usize::from);
        let mut word = (byte(bytes[0]) << 16) | (byte(bytes[1]) << 8) | byte(bytes[2]);
        for _ in 0..letters {
            text.push(char::from(ALPHABET[word & 0x3f]));
            word >>= 6;
        }
    };
    let (mut one, mut two, mut three) = (0, 21, 42);
    for _ in 0..21 {
        add([one, two, three], 4);
        (one, two, three) = (two + 1, three + 1, one + 1);
    }
    // There is no byte 64: the last word has one byte only.
    add([64, 64, 63], 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_crypt() {
        // What openssl passwd -6 prints.
        let expected =
            "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
        assert_eq!(sha512_crypt(b"Hello world!", b"saltstring"), expected);
    }

    #[test]
    fn a_user_has_a_name_and_a_password_with_its_hash() {
        let user = generate(UserOptions { username: "eve".into(), length: 12 }).unwrap();
        assert_eq!((user["username"].as_str(), user["password"].as_str().unwrap().len()), (Some("eve"), 12));
        assert!(user["password_hash"].as_str().unwrap().starts_with("$6$"));
        let other = generate(UserOptions::default()).unwrap();
        assert_eq!((other["username"].as_str().unwrap().len(), other["password"].as_str().unwrap().len()), (20, 30));
    }
}
