//! Networks that the daemons manage.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::instances::{Settings, or_default};
use super::{Client, ClientError, Request};

/// A network, of the operator's or of a director's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Network {
    #[serde(default)]
    pub name: String,
    /// `bridge`, `ovn`, `physical`, ….
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Whether the daemon made it.
    #[serde(default)]
    pub managed: bool,
    /// `Created`; `Pending` while members know of it and the cluster does not.
    #[serde(default)]
    pub status: String,
    #[serde(default, deserialize_with = "or_default")]
    pub config: Settings,
    /// Paths of what is in it.
    #[serde(default, deserialize_with = "or_default")]
    used_by: Vec<String>,
}

impl Network {
    /// Whether it is whole. A server that is no cluster may not say so.
    pub fn is_made(&self) -> bool {
        self.status.is_empty() || self.status.eq_ignore_ascii_case("created")
    }

    /// Instances and profiles that are in it, without their projects.
    pub fn users(&self) -> Vec<&str> {
        self.used_by.iter().filter_map(|path| path.split('?').next()?.rsplit('/').next()).collect()
    }
}

/// A network that is to be made.
#[derive(Debug, Clone, Serialize)]
pub struct NewNetwork {
    pub name: String,
    /// `bridge` or `ovn`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people.
    pub description: String,
    pub config: Settings,
}

impl Client {
    pub async fn network(&self, name: &str) -> Result<Network, ClientError> {
        self.ask(Request::get(&["networks", name], format!("use the network '{name}'"))).await
    }

    /// The server's address in a network with the length of its range, as the machine has it. Who is confined to a project may see
    /// this, and not the configuration.
    pub async fn range_of_network(&self, name: &str) -> Result<Option<String>, ClientError> {
        #[derive(Deserialize)]
        struct State {
            #[serde(default, deserialize_with = "or_default")]
            addresses: Vec<Address>,
        }
        #[derive(Deserialize)]
        struct Address {
            family: String,
            address: String,
            netmask: String,
            scope: String,
        }
        let request = Request::get(&["networks", name, "state"], format!("look at the network '{name}'"));
        let state: State = match self.ask(request).await {
            Err(ClientError::Refused { .. }) => return Ok(None),
            other => other?,
        };
        let mut addresses = state.addresses.into_iter();
        let own = addresses.find(|address| address.family == "inet" && address.scope == "global");
        Ok(own.map(|Address { address, netmask, .. }| format!("{address}/{netmask}")))
    }

    /// As [`Self::network`]; nothing if there is none.
    pub async fn find_network(&self, name: &str) -> Result<Option<Network>, ClientError> {
        match self.network(name).await {
            Err(error) if error.is_missing() => Ok(None),
            found => found.map(Some),
        }
    }

    /// All networks that the project may see, those of the machines included.
    pub async fn networks(&self) -> Result<Vec<Network>, ClientError> {
        self.ask(Request::get(&["networks"], "list the networks").with("recursion", "1")).await
    }

    /// Tells a member of a network that the cluster is about to get.
    pub async fn define_network(&self, new: &NewNetwork, member: &str) -> Result<(), ClientError> {
        let body = json!({"name": new.name, "type": new.kind});
        self.make_network(new, &body, Some(member)).await
    }

    /// Makes a network, which all members of a cluster know of already, if its type is one that each member has for itself.
    pub async fn create_network(&self, new: &NewNetwork) -> Result<(), ClientError> {
        self.make_network(new, &json!(new), None).await
    }

    async fn make_network(&self, new: &NewNetwork, body: &Value, member: Option<&str>) -> Result<(), ClientError> {
        let doing = format!("make the network '{}'", new.name);
        self.change(Request::new(Method::POST, &["networks"], doing).target(member).json(body)).await
    }

    /// Removes a network that nothing is in.
    pub async fn delete_network(&self, name: &str) -> Result<(), ClientError> {
        let request = Request::new(Method::DELETE, &["networks", name], format!("delete the network '{name}'"));
        self.change(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_network_is_read_from_paths_of_all_versions() {
        let network: Network = serde_json::from_value(json!({"name": "br-a", "type": "bridge", "managed": true,
            "status": "Created", "config": null, "used_by": ["/1.0/instances/vm-1", "/1.0/instances/vm-2?project=bosh-d1"]}))
        .unwrap();
        assert_eq!(network.users(), ["vm-1", "vm-2"]);
        assert!(network.is_made());
        let pending: Network =
            serde_json::from_value(json!({"name": "br-a", "status": "Pending", "used_by": null})).unwrap();
        assert!(!pending.is_made() && pending.users().is_empty());
    }
}
