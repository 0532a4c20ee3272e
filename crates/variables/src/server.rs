//! What a config server does for a director, whether it is embedded or somewhere else.

use async_trait::async_trait;
use serde_json::Value;

use crate::generate::Generation;

/// A value that a variable has or had.
#[derive(Clone, PartialEq)]
pub struct Version {
    pub id: String,
    /// Absolute.
    pub name: String,
    pub value: Value,
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// why a config server does not give a value
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// it cannot be asked
    #[error("the config server cannot be asked for '{name}'")]
    Unreachable {
        name: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the config server refuses '{name}': {reason}")]
    Refused { name: String, reason: String },
    /// the value cannot be made
    #[error("the variable '{name}' cannot be generated")]
    Generate {
        name: String,
        #[source]
        source: Box<windlass_pki::generate::GenerateError>,
    },
    /// what is stored cannot be read
    #[error("the value of '{name}' cannot be read")]
    Damaged {
        name: String,
        #[source]
        source: crate::Unsealed,
    },
}

/// Holds values of variables. Values never change: a variable gets another version.
#[async_trait]
pub trait ConfigServer: std::fmt::Debug + Send + Sync {
    /// The newest version of a variable; none if there is none.
    async fn current(&self, name: &str) -> Result<Option<Version>, ServerError>;

    /// A version by its id.
    async fn version(&self, name: &str, id: &str) -> Result<Option<Version>, ServerError>;

    /// The version that is there, or a new one where the request asks for it.
    async fn generate(&self, request: &Generation) -> Result<Version, ServerError>;
}
