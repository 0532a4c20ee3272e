//! What a CPI is configured with before it is called, where the caller knows it: its credentials are removed from what the CPI
//! says.

use std::fmt;
use std::path::PathBuf;

use windlass_contract::Object;

/// Properties of a CPI.
#[derive(Clone)]
pub enum Configuration {
    Given(Object),
    /// A file of JSON, read for each call: somebody may change it meanwhile.
    InFile(PathBuf),
}

impl Configuration {
    /// Nothing where the file cannot be read: then the CPI itself is not there, which its caller is told.
    pub(crate) fn read(&self) -> Object {
        match self {
            Self::Given(properties) => properties.clone(),
            Self::InFile(path) => {
                let bytes = std::fs::read(path).unwrap_or_default();
                serde_json::from_slice(&bytes).unwrap_or_default()
            }
        }
    }
}

/// It holds what it hides.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(…)"),
            Self::InFile(path) => write!(f, "InFile({})", path.display()),
        }
    }
}
