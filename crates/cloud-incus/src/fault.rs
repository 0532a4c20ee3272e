//! Why a method failed, inside: a daemon's refusal is kept until it is known what it means to the caller.

use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::explain;

use crate::client::ClientError;

/// why a method failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// the cluster refused or did not answer
    #[error(transparent)]
    Client(#[from] ClientError),
    /// an answer for the caller
    #[error("{}", .0.message)]
    Cpi(#[from] CpiError),
}

impl Fault {
    pub(crate) fn cloud(message: impl Into<String>) -> Self {
        Self::Cpi(CpiError::cloud(message))
    }

    /// Whether the same call, asked again, finds out what the lost request did and goes on from there.
    pub(crate) fn is_unknown_effect(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_unknown_effect())
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_transient())
    }

    /// With a hint that stands before what the daemon said.
    pub(crate) fn about(self, what: &str) -> Self {
        match self {
            Self::Client(ClientError::Refused { doing, code, text }) => {
                Self::Client(ClientError::Refused { doing, code, text: format!("{what}: {text}") })
            }
            other => other,
        }
    }
}

/// What a daemon says when a pool is full.
const FULL: [&str; 3] = ["no space left on device", "disk quota exceeded", "not enough space"];

/// What it says of a project that forbids some things, and what would allow them.
const RESTRICTED: [(&str, &str); 3] = [
    ("privileged containers are forbidden", "restricted.containers.privilege=allow"),
    ("only managed network devices are allowed", "restricted.devices.nic=allow"),
    ("network devices are forbidden", "restricted.devices.nic=allow"),
];

/// What it says when the certificate may not do this.
const FORBIDDEN: [&str; 4] =
    ["not authorized", "not have permission", "certificate is restricted", "permission denied"];

impl From<Fault> for CpiError {
    fn from(fault: Fault) -> Self {
        let error = match fault {
            Fault::Cpi(error) => return error,
            Fault::Client(error) => error,
        };
        let message = explain(&error);
        let says_one = |words: &[&str]| words.iter().any(|words| error.says(words));
        match &error {
            ClientError::Configuration(_)
            | ClientError::WrongServer { .. }
            | ClientError::Untrusted { .. }
            | ClientError::UnknownApi { .. }
            | ClientError::MissingExtensions { .. } => CpiError::cpi(message),
            ClientError::Refused { code, .. } if says_one(&FORBIDDEN) || (*code == 403 && !error.says("evacuated")) => {
                CpiError::cpi(format!(
                    "{message}; the client certificate may not do this: look which projects it is restricted to, and what \
                     the project forbids ('restricted.…')"
                ))
            }
            ClientError::Refused { .. } if says_one(&FULL) => CpiError::new(
                ErrorType::NoDiskSpace,
                format!("{message}; make the pool larger, or delete disks from it"),
            ),
            ClientError::Refused { .. } if error.is_member_down() => CpiError::cloud(format!(
                "{message}; a member of the cluster does not answer, and what it has may still run: bring it back, or, if it \
                 is dead for good, remove it from the cluster by force"
            )),
            // What `tar` said, such as that the pool is full, is not told the second time.
            ClientError::Refused { .. } if error.says("unpack failed") => CpiError::cloud(format!(
                "{message}; look whether the pool is full, and upload the stemcell again if not"
            )),
            ClientError::Refused { .. } => match RESTRICTED.iter().find(|(words, _)| error.says(words)) {
                Some((_, allowed)) => CpiError::cloud(format!(
                    "{message}; do without, or have the project allow it: 'incus project set PROJECT {allowed}' or 'lxc project \
                     set PROJECT {allowed}'"
                )),
                None => CpiError::cloud(message),
            },
            _ => CpiError::cloud(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, text: &str) -> CpiError {
        Fault::Client(ClientError::Refused { doing: "do it".to_owned(), code, text: text.to_owned() }).into()
    }

    #[test]
    fn a_refusal_becomes_what_callers_know_and_names_the_remedy() {
        let full = refused(500, "write: no space left on device");
        assert_eq!(full.kind, ErrorType::NoDiskSpace);
        assert!(full.message.contains("make the pool larger"));
        for (code, text) in [(403, "not authorized"), (500, "Certificate is restricted"), (403, "whatever")] {
            let error = refused(code, text);
            assert_eq!(error.kind, ErrorType::CpiError, "{text}");
            assert!(error.message.contains("certificate"), "{error}");
        }
        for (text, remedy) in [
            ("Failed checking if instance creation allowed: Privileged containers are forbidden", "privilege=allow"),
            ("Invalid device: Only managed network devices are allowed", "set PROJECT restricted.devices.nic=allow"),
            ("Unpack failed: Failed to run: tar: Process exited with non-zero value 2", "whether the pool is full"),
        ] {
            let error = refused(400, text);
            assert!(error.kind == ErrorType::CloudError && error.message.contains(remedy), "{error}");
        }
        let evacuated = refused(403, "Cluster member is evacuated");
        assert_eq!(evacuated.kind, ErrorType::CloudError, "not a matter of rights");
        let down = refused(500, "Missing event connection with target cluster member");
        assert_eq!(down.kind, ErrorType::CloudError);
        assert!(down.message.contains("may still run") && down.message.contains("by force"), "{down}");
    }
}
