//! Errors of a CPI, by their wire names.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct CpiError {
    /// The type decides how a caller reacts.
    #[serde(rename = "type")]
    pub kind: ErrorType,
    /// One line that stands on its own.
    pub message: String,
    /// Read by the original only for `VMCreationFailed`.
    pub ok_to_retry: bool,
}

/// The type of an error. Exactly these names mean something to the original director.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ErrorType {
    /// Something is wrong with the CPI or its configuration.
    CpiError,
    /// Something is wrong with the cloud or the request.
    CloudError,
    /// The method exists, but not for this case; the caller falls back.
    NotSupported,
    /// The method does not exist; callers may carry on without it.
    NotImplemented,
    /// No such VM.
    VmNotFound,
    /// No such disk.
    DiskNotFound,
    /// The disk is not attached.
    DiskNotAttached,
    /// No such network.
    NetworkNotFound,
    /// The VM could not be made; repeated when `ok_to_retry`.
    VmCreationFailed,
    /// Not enough space.
    NoDiskSpace,
    /// A name that means nothing to the original director.
    Other(String),
}

const INVALID_CALL: &str = "InvalidCall";

const NAMES: [(ErrorType, &str); 10] = [
    (ErrorType::CpiError, "Bosh::Clouds::CpiError"),
    (ErrorType::CloudError, "Bosh::Clouds::CloudError"),
    (ErrorType::NotSupported, "Bosh::Clouds::NotSupported"),
    (ErrorType::NotImplemented, "Bosh::Clouds::NotImplemented"),
    (ErrorType::VmNotFound, "Bosh::Clouds::VMNotFound"),
    (ErrorType::DiskNotFound, "Bosh::Clouds::DiskNotFound"),
    (ErrorType::DiskNotAttached, "Bosh::Clouds::DiskNotAttached"),
    (ErrorType::NetworkNotFound, "Bosh::Clouds::NetworkNotFound"),
    (ErrorType::VmCreationFailed, "Bosh::Clouds::VMCreationFailed"),
    (ErrorType::NoDiskSpace, "Bosh::Clouds::NoDiskSpace"),
];

impl ErrorType {
    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => NAMES.iter().find(|(kind, _)| kind == known).map_or("Unknown", |(_, name)| name),
        }
    }

    /// Whether a CPI in order says so. `InvalidCall` is how BOSH's library for Ruby refuses a request that it cannot read; the
    /// director takes it for an unknown error, which it is.
    pub fn is_usual(&self) -> bool {
        !matches!(self, Self::Other(name) if name != INVALID_CALL)
    }
}

impl From<String> for ErrorType {
    fn from(name: String) -> Self {
        match NAMES.iter().find(|(_, known)| *known == name) {
            Some((kind, _)) => kind.clone(),
            None => Self::Other(name),
        }
    }
}

impl From<ErrorType> for String {
    fn from(kind: ErrorType) -> String {
        kind.as_str().to_owned()
    }
}

impl std::fmt::Display for ErrorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl CpiError {
    /// An error that is not to be retried.
    pub fn new(kind: ErrorType, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), ok_to_retry: false }
    }

    /// Something is wrong with the cloud or the request.
    pub fn cloud(message: impl Into<String>) -> Self {
        Self::new(ErrorType::CloudError, message)
    }

    /// Something is wrong with the CPI or its configuration.
    pub fn cpi(message: impl Into<String>) -> Self {
        Self::new(ErrorType::CpiError, message)
    }

    /// The CPI does not have this method.
    pub fn not_implemented(method: &str) -> Self {
        Self::new(ErrorType::NotImplemented, format!("this CPI does not implement '{method}'"))
    }

    /// No such VM.
    pub fn vm_not_found(cid: &crate::VmCid) -> Self {
        Self::new(ErrorType::VmNotFound, format!("there is no VM '{cid}'"))
    }

    /// No such disk.
    pub fn disk_not_found(cid: &crate::DiskCid) -> Self {
        Self::new(ErrorType::DiskNotFound, format!("there is no disk '{cid}'"))
    }

    /// Whether the method is missing, in any of the ways that CPIs have of saying so.
    pub fn is_not_implemented(&self) -> bool {
        match &self.kind {
            ErrorType::NotImplemented => true,
            ErrorType::CloudError => self.message.starts_with("Invalid Method:"),
            ErrorType::Other(name) => name == INVALID_CALL && self.message.starts_with("Method is not known, got"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_known_type_keeps_its_wire_name() {
        for (kind, name) in NAMES {
            assert_eq!(serde_json::to_value(&kind).unwrap(), json!(name));
            assert_eq!(serde_json::from_value::<ErrorType>(json!(name)).unwrap(), kind);
        }
        assert_eq!(ErrorType::from("Made::Up".to_owned()).as_str(), "Made::Up");
        let is_usual = |name: &str| ErrorType::from(name.to_owned()).is_usual();
        assert!(is_usual("InvalidCall") && is_usual("Bosh::Clouds::CloudError") && !is_usual("Made::Up"));
    }

    #[test]
    fn the_three_ways_of_saying_not_implemented() {
        assert!(CpiError::not_implemented("x").is_not_implemented());
        assert!(CpiError::cloud("Invalid Method: x").is_not_implemented());
        assert!(
            CpiError::new(ErrorType::Other("InvalidCall".into()), "Method is not known, got x").is_not_implemented()
        );
        assert!(!CpiError::cloud("broken").is_not_implemented());
    }
}
