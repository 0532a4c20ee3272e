//! A string that never prints itself.

use serde::{Deserialize, Serialize};

/// A password, key or token. `Debug` and `Display` print `<redacted>`; [`Secret::reveal`] is the only way to it.
/// It is serialised in the clear, because the wire and the store need it: never serialise one into a log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// What stands in a log in place of a secret.
pub const REDACTED: &str = "<redacted>";

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "<redacted> <redacted>");
        assert_eq!(secret.reveal(), "hunter2");
    }
}
