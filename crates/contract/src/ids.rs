//! Ids. Each kind has its own type; none can be empty, or so long that lists of them take much memory.

use serde::{Deserialize, Serialize};

/// Those of clouds have less than 500 bytes.
const LONGEST: usize = 4096;

/// why a text is no id
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// it says nothing
    #[error("{kind} must not be empty")]
    Empty {
        /// Such as `a VM's cid`.
        kind: &'static str,
    },
    /// records and lists have it many times
    #[error("{kind} has {bytes} bytes, and at most {LONGEST} can be one")]
    TooLong {
        /// Such as `a VM's cid`.
        kind: &'static str,
        bytes: usize,
    },
    /// no database takes it
    #[error("{kind} must not have a zero byte")]
    ZeroByte {
        /// Such as `a VM's cid`.
        kind: &'static str,
    },
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Wraps `id`, which must not be empty, very long, or have a zero byte.
            pub fn new(id: impl Into<String>) -> Result<Self, InvalidId> {
                let (id, kind) = (id.into(), $kind);
                match id.len() {
                    0 => Err(InvalidId::Empty { kind }),
                    bytes if bytes > LONGEST => Err(InvalidId::TooLong { kind, bytes }),
                    _ if id.contains('\0') => Err(InvalidId::ZeroByte { kind }),
                    _ => Ok(Self(id)),
                }
            }

            /// The id as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(id: String) -> Result<Self, InvalidId> {
                Self::new(id)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(id: &str) -> Result<Self, InvalidId> {
                Self::new(id)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Cloud id of a VM.
    VmCid, "a VM's cid"
);
id!(
    /// Cloud id of a persistent disk.
    DiskCid, "a disk's cid"
);
id!(
    /// Cloud id of a stemcell.
    StemcellCid, "a stemcell's cid"
);
id!(
    /// Cloud id of a disk snapshot.
    SnapshotCid, "a snapshot's cid"
);
id!(
    /// Cloud id of a network made by `create_network`.
    NetworkCid, "a network's cid"
);
id!(
    /// The id that the director chose for the agent of a VM.
    AgentId, "an agent id"
);
id!(
    /// The id of one request to a CPI.
    RequestId, "a request id"
);
impl AgentId {
    /// A new random agent id.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// The DNS name in the agent's certificate; it is verified whatever address is dialled.
    pub fn dns_name(&self) -> String {
        format!("{}.agent.bosh-internal", self.0)
    }
}

impl RequestId {
    /// A new random request id. Being a UUID it is unique, so a CPI may remember it.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// Whether the id is unique enough to be remembered: the original director sends `cpi-` and six random digits,
    /// which repeat.
    pub fn is_unique(&self) -> bool {
        uuid::Uuid::parse_str(&self.0).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cid_is_refused_on_the_wire() {
        let error = serde_json::from_str::<VmCid>("\"\"").unwrap_err();
        assert!(error.to_string().contains("a VM's cid must not be empty"), "{error}");
        assert!(serde_json::from_str::<VmCid>("7").is_err(), "a number is not a cid");
    }

    /// A CPI that answered with cids of 250 KB cost a director a gigabyte for 250 instances.
    #[test]
    fn a_cid_of_many_kilobytes_or_with_a_zero_byte_is_refused() {
        let error = DiskCid::new("x".repeat(LONGEST + 1)).unwrap_err().to_string();
        assert_eq!(error, "a disk's cid has 4097 bytes, and at most 4096 can be one");
        DiskCid::new("x".repeat(LONGEST)).unwrap();
        assert_eq!(VmCid::new("a\0b").unwrap_err().to_string(), "a VM's cid must not have a zero byte");
    }

    #[test]
    fn only_a_uuid_is_a_unique_request_id() {
        assert!(RequestId::random().is_unique());
        assert!(!RequestId::new("cpi-482913").unwrap().is_unique());
    }
}
