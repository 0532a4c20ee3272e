//! Instances: containers, and one day virtual machines.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Client, ClientError, Request, Tagged};

/// How often a change waits for others of the same instance.
const TRIES: u64 = 12;

/// Keys and values of a configuration.
pub type Settings = BTreeMap<String, String>;

/// Devices by name.
pub type Devices = BTreeMap<String, Settings>;

/// What a list tells of an instance.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Instance {
    pub name: String,
    /// `Running`, `Stopped`, `Error`, ….
    #[serde(default)]
    pub status: String,
    /// 112 is an error: the member that has it does not answer.
    #[serde(default)]
    pub status_code: u16,
    /// The member that has it; `none` without a cluster.
    #[serde(default)]
    pub location: String,
    /// Nothing, if the member that has it does not answer.
    #[serde(default)]
    pub config: Option<Settings>,
    /// As above.
    #[serde(default, deserialize_with = "or_default")]
    pub devices: Devices,
}

/// Daemons write null for what is empty.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Instance {
    /// Whether the member that has it answers.
    pub fn is_reachable(&self) -> bool {
        self.status_code != 112 && self.config.is_some()
    }

    /// The member that has it, in a cluster.
    pub fn member(&self) -> Option<&str> {
        member(&self.location)
    }

    /// A value of its configuration.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.config.as_ref()?.get(key).map(String::as_str)
    }
}

/// A location is a member's name only in a cluster.
pub(crate) fn member(location: &str) -> Option<&str> {
    (!location.is_empty() && location != "none").then_some(location)
}

/// An instance that is to be made.
#[derive(Debug, Clone, Serialize)]
pub struct NewInstance {
    pub name: String,
    /// `container`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Without `default`, nothing comes from there.
    pub profiles: Vec<String>,
    pub source: Value,
    pub config: Settings,
    pub devices: Devices,
}

/// What is done to an instance as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    Start,
    /// Stop it at once.
    Stop,
    /// Have it shut down and start again; at once if it does not within so many seconds.
    Restart {
        /// How long it may take to shut down.
        seconds: u64,
    },
}

impl Client {
    /// The instance of that name. A list, because lists are answered also for what is on a member that is down.
    pub async fn find_instance(&self, name: &str) -> Result<Option<Instance>, ClientError> {
        let request = Request::get(&["instances"], format!("look for the VM '{name}'"))
            .with("recursion", "1")
            .with("filter", format!("name eq {name}"));
        let found: Vec<Instance> = self.ask(request).await?;
        Ok(found.into_iter().find(|instance| instance.name == name))
    }

    /// All instances of the project.
    pub async fn instances(&self) -> Result<Vec<Instance>, ClientError> {
        self.ask(Request::get(&["instances"], "list the VMs").with("recursion", "1")).await
    }

    /// An instance whole, for a conditional change.
    pub async fn instance(&self, name: &str) -> Result<Tagged<Value>, ClientError> {
        let doing = format!("read the VM '{name}'");
        self.ask_tagged(Request::get(&["instances", name], doing.clone()), &doing).await
    }

    /// Makes an instance on a member, on any of a group (`@group`), or where the server wants.
    pub async fn create_instance(&self, new: &NewInstance, target: Option<&str>) -> Result<(), ClientError> {
        let request = Request::new(Method::POST, &["instances"], format!("make the VM '{}'", new.name))
            .target(target)
            .json(&json!(new));
        self.change(request).await
    }

    /// Adds to an instance's configuration and devices, or replaces what has the same name.
    pub async fn patch_instance(&self, name: &str, change: &Value, doing: &str) -> Result<(), ClientError> {
        let mut tries = 0;
        loop {
            // The same again does no harm, so whatever else is being done to the instance is waited for.
            match self.change(Request::new(Method::PATCH, &["instances", name], doing).json(change)).await {
                Err(error) if error.is_busy() && tries < TRIES => {
                    tries += 1;
                    self.wait_for_others(name).await?;
                    tokio::time::sleep(Duration::from_millis(20 * tries)).await;
                }
                other => return other,
            }
        }
    }

    /// Replaces an instance's configuration and devices, if nobody else changed it since it was read.
    pub async fn put_instance(&self, name: &str, read: &Tagged<Value>, doing: &str) -> Result<(), ClientError> {
        let keys = ["architecture", "config", "devices", "ephemeral", "profiles", "stateful", "description"];
        let whole: serde_json::Map<String, Value> =
            keys.iter().filter_map(|key| Some(((*key).to_owned(), read.value.get(*key)?.clone()))).collect();
        let request =
            Request::new(Method::PUT, &["instances", name], doing).if_match(&read.etag).json(&Value::Object(whole));
        self.change(request).await
    }

    /// Starts, stops or restarts an instance.
    pub async fn power(&self, name: &str, power: Power) -> Result<(), ClientError> {
        let (doing, state) = match power {
            Power::Start => ("start", json!({"action": "start", "timeout": 60})),
            Power::Stop => ("stop", json!({"action": "stop", "timeout": 60, "force": true})),
            Power::Restart { seconds } => ("restart", json!({"action": "restart", "timeout": seconds, "force": false})),
        };
        let request =
            Request::new(Method::PUT, &["instances", name, "state"], format!("{doing} the VM '{name}'")).json(&state);
        self.change(request).await
    }

    /// Removes an instance, which must be stopped.
    pub async fn delete_instance(&self, name: &str) -> Result<(), ClientError> {
        let request = Request::new(Method::DELETE, &["instances", name], format!("delete the VM '{name}'"));
        self.change(request).await
    }
}
