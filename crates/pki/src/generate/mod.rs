//! Values for variables that a document only defines: passwords, keys and certificates, in the forms that the original's
//! command line gives them, so that a vars store can go from one to the other.

mod certificate;
mod keys;
mod user;

use serde::Deserialize;
use serde_json::{Value, json};

/// Finds the value of another variable, for the CA of a certificate.
pub type Lookup<'a> = dyn FnMut(&str) -> Result<Option<Value>, Box<dyn std::error::Error + Send + Sync>> + 'a;

/// why a value cannot be made
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// a kind that nobody knows
    #[error("'{0}' cannot be made; the types are 'password', 'certificate', 'rsa', 'ssh' and 'user'")]
    Kind(String),
    /// options that do not fit the kind
    #[error("the options are not those of a {kind}")]
    Options {
        kind: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// a password of an impossible length
    #[error("a password cannot have {length} letters; the most is {most}")]
    Length { length: usize, most: usize },
    /// a key of an unusual length
    #[error("a key cannot have {0} bits; choose 2048, 3072 or 4096")]
    KeyLength(u32),
    /// a certificate that nobody signs
    #[error("a certificate needs a CA: name one in the option 'ca', or make it one with 'is_ca'")]
    NoCa,
    /// a CA that is no variable
    #[error("the CA '{0}' has no value; define it before the certificates that it signs")]
    UnknownCa(String),
    /// a CA that is something else
    #[error("the value of '{0}' is no CA: it must have 'certificate' and 'private_key', as PEM")]
    NotACa(String),
    /// the CA cannot be looked up
    #[error("the CA '{name}' cannot be had")]
    Lookup {
        name: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// a purpose that nobody knows
    #[error("'{0}' is no extended key usage; choose 'client_auth' or 'server_auth'")]
    Usage(String),
    /// the library cannot make it
    #[error("cannot make a {what}")]
    Make {
        what: &'static str,
        #[source]
        source: rcgen::Error,
    },
    #[error("the system has no random numbers")]
    Random,
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const LONGEST_PASSWORD: usize = 1 << 16;
const USUAL_PASSWORD: usize = 20;

/// Makes the value of a variable of a kind, with the options of its definition.
pub fn generate(kind: &str, options: &Value, lookup: &mut Lookup<'_>) -> Result<Value, GenerateError> {
    match kind {
        "password" => password(read_options("password", options)?),
        "certificate" => certificate::generate(&read_options("certificate", options)?, lookup),
        "rsa" => {
            let key = keys::Rsa::new(2048)?;
            Ok(json!({"private_key": key.private_pem(), "public_key": key.public_pem()}))
        }
        "ssh" => {
            let key = keys::Rsa::new(2048)?;
            Ok(json!({
                "private_key": key.private_pem(), "public_key": key.ssh_line(),
                "public_key_fingerprint": key.ssh_fingerprint(),
            }))
        }
        "user" => user::generate(read_options("user", options)?),
        other => Err(GenerateError::Kind(other.to_owned())),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PasswordOptions {
    length: usize,
}

fn read_options<'a, T: Deserialize<'a> + Default>(kind: &'static str, options: &'a Value) -> Result<T, GenerateError> {
    match options {
        Value::Null => Ok(T::default()),
        options => T::deserialize(options).map_err(|source| GenerateError::Options { kind, source }),
    }
}

fn password(options: PasswordOptions) -> Result<Value, GenerateError> {
    let length = if options.length == 0 { USUAL_PASSWORD } else { options.length };
    if length > LONGEST_PASSWORD {
        return Err(GenerateError::Length { length, most: LONGEST_PASSWORD });
    }
    random_letters(length).map(Value::String)
}

fn random_letters(length: usize) -> Result<String, GenerateError> {
    let mut password = String::new();
    while password.len() < length {
        let mut random = [0_u8; 64];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| GenerateError::Random)?;
        // Bytes beyond the last whole alphabet would make its first letters more likely.
        let fair = random.iter().filter(|byte| usize::from(**byte) < 256 / LETTERS.len() * LETTERS.len());
        let letters = fair.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        password.extend(letters.take(length - password.len()));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(kind: &str, options: Value) -> Result<Value, GenerateError> {
        generate(kind, &options, &mut |_| Ok(None))
    }

    #[test]
    fn passwords_have_the_length_that_was_asked_for() {
        let usual = make("password", Value::Null).unwrap();
        assert_eq!(usual.as_str().unwrap().len(), 20);
        assert_ne!(usual, make("password", Value::Null).unwrap());
        let long = make("password", json!({"length": 100})).unwrap();
        assert!(long.as_str().unwrap().bytes().all(|letter| LETTERS.contains(&letter)));
        assert_eq!(long.as_str().unwrap().len(), 100);
    }

    #[test]
    fn what_cannot_be_made_is_explained() {
        let refusal = |kind, options| make(kind, options).unwrap_err().to_string();
        assert!(refusal("dsa", Value::Null).contains("'dsa'"));
        assert!(refusal("password", json!({"size": 1})).contains("options"));
        assert!(refusal("password", json!({"length": 1_000_000})).contains("1000000"));
        // Its hash would take seven seconds of a processor, while all who need keys wait.
        assert!(refusal("user", json!({"length": 1 << 16})).contains("the most is 1024"));
        assert!(refusal("certificate", json!({"common_name": "x"})).contains("'ca'"));
        assert!(refusal("certificate", json!({"ca": "nope"})).contains("'nope'"));
        assert!(refusal("certificate", json!({"is_ca": true, "key_length": 512})).contains("512"));
    }
}
