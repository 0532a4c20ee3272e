//! The members of a cluster.

use serde::Deserialize;

use super::{Client, ClientError, Request};

/// A member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Member {
    pub server_name: String,
    /// Where it answers.
    #[serde(default)]
    pub url: String,
    /// `Online`, `Offline`, `Evacuated`.
    #[serde(default)]
    pub status: String,
    /// The groups that it is in.
    #[serde(default)]
    pub groups: Vec<String>,
}

impl Member {
    /// Whether it takes new instances. One reading proves nothing: right after a member died, all may look dead.
    pub fn is_online(&self) -> bool {
        self.status.eq_ignore_ascii_case("online")
    }

    /// Whether the operator took its instances away; its daemon answers.
    pub fn is_evacuated(&self) -> bool {
        self.status.eq_ignore_ascii_case("evacuated")
    }
}

/// What a member has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Resources {
    pub cpu: Total,
    /// Its memory, in bytes.
    pub memory: Total,
}

/// How much there is of something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Total {
    pub total: u64,
}

impl Client {
    /// What a member has, or the one server.
    pub async fn resources(&self, member: Option<&str>) -> Result<Resources, ClientError> {
        self.ask(Request::get(&["resources"], "ask how large the server is").target(member)).await
    }

    pub async fn members(&self) -> Result<Vec<Member>, ClientError> {
        self.ask(Request::get(&["cluster", "members"], "list the members of the cluster").with("recursion", "1")).await
    }
}
