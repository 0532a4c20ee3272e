//! What the server is, and whether it serves us.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Client, ClientError, Request};

/// A server, or a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `lxd` or `incus`.
    pub kind: String,
    /// Its version, for people.
    pub version: String,
    /// Whether it is a member of a cluster.
    pub is_clustered: bool,
    /// The certificate that it shows, as all members of a cluster do.
    pub certificate: String,
    extensions: BTreeSet<String>,
}

/// What all supported versions have.
const REQUIRED: [&str; 5] = [
    "api_filtering",
    "clustering_groups",
    "custom_block_volumes",
    "storage_api_remote_volume_handling",
    "storage_volume_api_filtering",
];

#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    auth: String,
    #[serde(default)]
    api_extensions: Vec<String>,
    #[serde(default)]
    environment: Environment,
}

#[derive(Default, Deserialize)]
struct Environment {
    #[serde(default)]
    server: String,
    #[serde(default)]
    server_version: String,
    #[serde(default)]
    server_clustered: bool,
    #[serde(default)]
    certificate: String,
}

impl Server {
    /// Whether the API has an extension. Versions say nothing: distributions move extensions between them.
    pub fn has(&self, extension: &str) -> bool {
        self.extensions.contains(extension)
    }

    /// What turns the socket off by which a guest reads its own configuration.
    pub fn guest_socket_key(&self) -> &'static str {
        if self.kind == "incus" { "security.guestapi" } else { "security.devlxd" }
    }

    /// Whether lists of volumes have no snapshots in them, as in Incus 7.0.
    pub fn leaves_snapshots_out(&self) -> bool {
        self.has("storage_volume_full")
    }
}

impl Client {
    /// Looks what answers, and whether it trusts us.
    pub async fn server(&self) -> Result<Server, ClientError> {
        let Root { api_version, auth, api_extensions, environment } =
            self.ask(Request::get(&[], "ask the server what it is")).await?;
        let endpoint = self.endpoint().to_string();
        if api_version != "1.0" {
            return Err(ClientError::UnknownApi { endpoint, found: api_version });
        }
        if auth != "trusted" {
            return Err(ClientError::Untrusted { endpoint, project: self.project().to_owned() });
        }
        let extensions: BTreeSet<String> = api_extensions.into_iter().collect();
        let missing: Vec<String> =
            REQUIRED.iter().filter(|name| !extensions.contains(**name)).map(|name| (*name).to_owned()).collect();
        if !missing.is_empty() {
            return Err(ClientError::MissingExtensions { endpoint, missing });
        }
        let Environment { server, server_version, server_clustered, certificate } = environment;
        Ok(Server { kind: server, version: server_version, is_clustered: server_clustered, certificate, extensions })
    }

    /// The configuration of the project. Daemons answer empty lists for a project that does not exist, or that is not ours, so
    /// this is asked before any list is believed.
    pub async fn project_config(&self) -> Result<BTreeMap<String, String>, ClientError> {
        self.config_of_project(self.project()).await
    }
}
