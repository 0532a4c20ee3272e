//! Volumes of storage pools, their snapshots, and the pools and networks that the operator made.

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::instances::{Settings, member, or_default};
use super::{Client, ClientError, Request, Tagged};

/// A volume, as lists and single answers tell it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Its configuration.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Settings,
    /// `filesystem` or `block`.
    #[serde(default)]
    pub content_type: String,
    /// The member that has it; empty on pools that all members share.
    #[serde(default)]
    pub location: String,
    /// Paths of instances.
    #[serde(default, deserialize_with = "or_default")]
    pub used_by: Vec<String>,
}

impl Volume {
    /// The member that has it, in a cluster and on a local pool.
    pub fn member(&self) -> Option<&str> {
        member(&self.location)
    }

    /// A value of its configuration.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The instances that have it.
    pub fn users(&self) -> Vec<&str> {
        self.used_by.iter().filter_map(|path| path.split('?').next()?.rsplit('/').next()).collect()
    }
}

/// Where a copy comes from, and what it becomes.
#[derive(Debug, Clone)]
pub struct Copied<'a> {
    /// The pool of the source.
    pub from_pool: &'a str,
    /// The source.
    pub from: &'a str,
    /// The member that has the source, if the copy is made on another one.
    pub from_member: Option<&'a str>,
    /// The copy's name.
    pub name: &'a str,
    /// All of the copy's configuration: nothing comes from the source's.
    pub config: Settings,
}

/// A storage pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Pool {
    /// `btrfs`, `dir`, `zfs`, ….
    pub driver: String,
}

impl Pool {
    /// Whether each member has volumes of its own in it.
    pub fn is_local(&self) -> bool {
        !matches!(self.driver.as_str(), "ceph" | "cephfs" | "lvmcluster" | "powerflex" | "linstor" | "truenas")
    }
}

/// A network of the operator's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Network {
    /// `bridge`, `ovn`, `physical`, ….
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Whether the daemon made it.
    #[serde(default)]
    pub managed: bool,
    /// Its configuration.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Settings,
}

impl Client {
    /// The volumes of that name in a pool: more than one if several members have one. A list, because lists are answered
    /// also for what is on a member that is down.
    pub async fn find_volumes(&self, pool: &str, name: &str) -> Result<Vec<Volume>, ClientError> {
        let request = Request::get(
            &["storage-pools", pool, "volumes", "custom"],
            format!("look for the disk '{name}' in the pool '{pool}'"),
        );
        let request = request.with("recursion", "1").with("filter", format!("name eq {name}"));
        let found: Vec<Volume> = self.ask(request).await?;
        Ok(found.into_iter().filter(|volume| volume.name == name).collect())
    }

    /// All volumes of the project in a pool, and their snapshots, whose names are `VOLUME/SNAPSHOT`.
    pub async fn volumes(&self, pool: &str) -> Result<Vec<Volume>, ClientError> {
        let doing = format!("list the disks in the pool '{pool}'");
        let parts = ["storage-pools", pool, "volumes", "custom"];
        self.ask(Request::get(&parts, doing).with("recursion", "1")).await
    }

    /// The names of all pools.
    pub async fn pools(&self) -> Result<Vec<String>, ClientError> {
        let paths: Vec<String> = self.ask(Request::get(&["storage-pools"], "list the storage pools")).await?;
        let name = |path: &String| path.split('?').next().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
        Ok(paths.iter().filter_map(name).collect())
    }

    /// A volume, for a conditional change.
    pub async fn volume(&self, pool: &str, name: &str, member: Option<&str>) -> Result<Tagged<Volume>, ClientError> {
        let doing = format!("read the disk '{name}' in the pool '{pool}'");
        let request = Request::get(&["storage-pools", pool, "volumes", "custom", name], doing.clone()).target(member);
        self.ask_tagged(request, &doing).await
    }

    /// Makes a volume with a file system.
    pub async fn create_volume(
        &self,
        pool: &str,
        name: &str,
        config: &Settings,
        target: Option<&str>,
    ) -> Result<(), ClientError> {
        let doing = format!("make the disk '{name}' in the pool '{pool}'");
        let request = Request::new(Method::POST, &["storage-pools", pool, "volumes", "custom"], doing)
            .target(target)
            .json(&json!({"name": name, "type": "custom", "content_type": "filesystem", "config": config}));
        self.change(request).await.map(drop)
    }

    /// Copies a volume with its snapshots into `pool`.
    pub async fn copy_volume(&self, pool: &str, copied: &Copied<'_>, target: Option<&str>) -> Result<(), ClientError> {
        let Copied { from_pool, from, from_member, name, config } = copied;
        let doing = format!("copy the disk '{from}' from the pool '{from_pool}' to '{pool}'");
        let mut source = json!({"type": "copy", "pool": from_pool, "name": from});
        if let Some(member) = from_member {
            source["location"] = json!(member);
        }
        let request = Request::new(Method::POST, &["storage-pools", pool, "volumes", "custom"], doing)
            .target(target)
            .json(&json!({
                "name": name, "type": "custom", "content_type": "filesystem", "config": config, "source": source
            }));
        self.change(request).await.map(drop)
    }

    /// Replaces a volume's configuration, if nobody else changed it since it was read.
    pub async fn put_volume(
        &self,
        pool: &str,
        read: &Tagged<Volume>,
        config: &Settings,
        doing: &str,
    ) -> Result<(), ClientError> {
        let Volume { name, description, .. } = &read.value;
        let request = Request::new(Method::PUT, &["storage-pools", pool, "volumes", "custom", name], doing)
            .target(read.value.member())
            .if_match(&read.etag)
            .json(&json!({"config": config, "description": description}));
        self.change(request).await.map(drop)
    }

    /// Adds to a volume's configuration.
    pub async fn patch_volume(
        &self,
        pool: &str,
        volume: &Volume,
        change: &Value,
        doing: &str,
    ) -> Result<(), ClientError> {
        let request = Request::new(Method::PATCH, &["storage-pools", pool, "volumes", "custom", &volume.name], doing)
            .target(volume.member())
            .json(change);
        self.change(request).await.map(drop)
    }

    /// Removes a volume with its snapshots.
    pub async fn delete_volume(&self, pool: &str, volume: &Volume) -> Result<(), ClientError> {
        let doing = format!("delete the disk '{}' in the pool '{pool}'", volume.name);
        let request = Request::new(Method::DELETE, &["storage-pools", pool, "volumes", "custom", &volume.name], doing)
            .target(volume.member());
        self.change(request).await.map(drop)
    }

    /// The names of a volume's snapshots.
    pub async fn snapshots(&self, pool: &str, volume: &Volume) -> Result<Vec<String>, ClientError> {
        let doing = format!("list the snapshots of the disk '{}'", volume.name);
        let request = Request::get(&["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots"], doing)
            .target(volume.member());
        let paths: Vec<String> = self.ask(request).await?;
        let name = |path: &String| path.split('?').next().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
        Ok(paths.iter().filter_map(name).collect())
    }

    /// Takes a snapshot of a volume.
    pub async fn create_snapshot(&self, pool: &str, volume: &Volume, name: &str) -> Result<(), ClientError> {
        let doing = format!("take the snapshot '{name}' of the disk '{}'", volume.name);
        let parts = ["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots"];
        let request = Request::new(Method::POST, &parts, doing).target(volume.member()).json(&json!({"name": name}));
        self.change(request).await.map(drop)
    }

    /// Names a snapshot for people.
    pub async fn describe_snapshot(
        &self,
        pool: &str,
        volume: &Volume,
        name: &str,
        description: &str,
    ) -> Result<(), ClientError> {
        let doing = format!("describe the snapshot '{name}' of the disk '{}'", volume.name);
        let parts = ["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots", name];
        let request = Request::new(Method::PATCH, &parts, doing)
            .target(volume.member())
            .json(&json!({"description": description}));
        self.change(request).await.map(drop)
    }

    /// Removes a snapshot.
    pub async fn delete_snapshot(&self, pool: &str, volume: &Volume, name: &str) -> Result<(), ClientError> {
        let doing = format!("delete the snapshot '{name}' of the disk '{}'", volume.name);
        let parts = ["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots", name];
        self.change(Request::new(Method::DELETE, &parts, doing).target(volume.member())).await.map(drop)
    }

    /// A storage pool.
    pub async fn pool(&self, name: &str) -> Result<Pool, ClientError> {
        self.ask(Request::get(&["storage-pools", name], format!("use the storage pool '{name}'"))).await
    }

    /// A network.
    pub async fn network(&self, name: &str) -> Result<Network, ClientError> {
        self.ask(Request::get(&["networks", name], format!("use the network '{name}'"))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_volume_is_read_from_paths_of_all_versions() {
        let volume: Volume = serde_json::from_value(json!({"name": "disk-1", "config": null, "location": "none",
            "used_by": ["/1.0/instances/vm-1", "/1.0/instances/vm-2?project=bosh-d1"]}))
        .unwrap();
        assert_eq!(volume.users(), ["vm-1", "vm-2"]);
        assert_eq!(volume.member(), None);
        let unused: Volume = serde_json::from_value(json!({"name": "disk-1", "used_by": null})).unwrap();
        assert!(unused.users().is_empty());
    }
}
