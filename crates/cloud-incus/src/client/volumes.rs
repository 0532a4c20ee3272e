//! Volumes of storage pools, their snapshots, and the pools and networks that the operator made.

use std::collections::BTreeSet;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::instances::{Settings, member, or_default};
use super::server::Server;
use super::{Answer, Client, ClientError, Request, Tagged};

/// A volume, as lists and single answers tell it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Volume {
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
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

    /// Its snapshot, as lists of volumes tell it: some versions name snapshots alone, some after their volume.
    fn with_snapshot(&self, snapshot: Volume) -> Volume {
        let name = format!("{}/{}", self.name, snapshot.name.rsplit('/').next().unwrap_or_default());
        Volume { name, location: self.location.clone(), ..snapshot }
    }

    /// The instances that have it.
    pub fn users(&self) -> Vec<&str> {
        self.used_by.iter().filter_map(|path| path.split('?').next()?.rsplit('/').next()).collect()
    }
}

/// Where a copy's content comes from.
#[derive(Debug, Clone)]
pub enum Origin<'a> {
    /// A volume of the same member.
    Here { pool: &'a str, name: &'a str },
    /// What another member offers.
    Offered(&'a Offer),
}

/// A volume with its snapshots that a member gives to a client with the secrets. An offer that nobody takes ends by itself, after
/// 10 s (LXD) or 30 s (Incus).
#[derive(Debug, Clone)]
pub struct Offer {
    /// Where the member is asked for it.
    operation: String,
    secrets: Value,
}

/// What a copy becomes.
#[derive(Debug, Clone)]
pub struct Copied<'a> {
    /// Where its content comes from.
    pub from: Origin<'a>,
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

    /// All volumes of the project in a pool, and their snapshots, whose names are `VOLUME/SNAPSHOT`. Snapshots on a member that is
    /// down are missing where `server` leaves snapshots out of its lists.
    pub async fn volumes(&self, pool: &str, server: &Server) -> Result<Vec<Volume>, ClientError> {
        let doing = format!("list the disks in the pool '{pool}'");
        let parts = ["storage-pools", pool, "volumes", "custom"];
        let listed: Vec<Volume> = self.ask(Request::get(&parts, doing).with("recursion", "1")).await?;
        if !server.leaves_snapshots_out() {
            return Ok(listed);
        }
        let mut all = Vec::new();
        // Each question to such a member takes ten seconds.
        let mut down = BTreeSet::new();
        for volume in listed {
            if !down.contains(&volume.location) {
                match self.snapshots(pool, &volume).await {
                    Ok(snapshots) => all.extend(snapshots),
                    Err(error) if error.is_member_down() => drop(down.insert(volume.location.clone())),
                    // It was deleted meanwhile.
                    Err(error) if error.is_missing() => continue,
                    Err(error) => return Err(error),
                }
            }
            all.push(volume);
        }
        Ok(all)
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
        self.change(request).await
    }

    /// Has the member that has a volume offer it to others, with its snapshots. `url` is where they reach that member.
    ///
    /// There is one request that copies between members (`source.location`), but LXD 5.0 does not know it, and Incus 6.0 looks for
    /// the volume in the project `default`, whichever is asked for.
    pub async fn offer_volume(&self, pool: &str, volume: &Volume, url: &str) -> Result<Offer, ClientError> {
        let Volume { name, location, .. } = volume;
        let doing = format!("have the member '{location}' offer the disk '{name}' to others");
        let request = Request::new(Method::POST, &["storage-pools", pool, "volumes", "custom", name], doing.clone())
            .target(volume.member())
            .json(&json!({"name": name, "pool": pool, "migration": true}));
        match self.send(request).await? {
            Answer::Begun { operation, told } if told.is_object() => {
                Ok(Offer { operation: format!("{}{operation}", url.trim_end_matches('/')), secrets: told })
            }
            _ => Err(ClientError::NotUnderstood { doing, reason: "it has no secrets".to_owned() }),
        }
    }

    /// Makes a copy of a volume with its snapshots in `pool`. `certificate` is the one that members show each other.
    pub async fn copy_volume(
        &self,
        pool: &str,
        copied: &Copied<'_>,
        target: Option<&str>,
        certificate: &str,
    ) -> Result<(), ClientError> {
        let Copied { from, name, config } = copied;
        let doing = match target {
            Some(member) => format!("copy the disk '{name}' into the pool '{pool}' of the member '{member}'"),
            None => format!("copy the disk '{name}' into the pool '{pool}'"),
        };
        let source = match from {
            Origin::Here { pool, name } => json!({"type": "copy", "pool": pool, "name": name}),
            Origin::Offered(Offer { operation, secrets }) => json!({"type": "migration", "mode": "pull",
                "operation": operation, "certificate": certificate, "secrets": secrets}),
        };
        let request = Request::new(Method::POST, &["storage-pools", pool, "volumes", "custom"], doing)
            .target(target)
            .json(&json!({
                "name": name, "type": "custom", "content_type": "filesystem", "config": config, "source": source
            }));
        self.change(request).await
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
        self.change(request).await
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
        self.change(request).await
    }

    /// Removes a volume with its snapshots.
    pub async fn delete_volume(&self, pool: &str, volume: &Volume) -> Result<(), ClientError> {
        let doing = format!("delete the disk '{}' in the pool '{pool}'", volume.name);
        let request = Request::new(Method::DELETE, &["storage-pools", pool, "volumes", "custom", &volume.name], doing)
            .target(volume.member());
        self.change(request).await
    }

    /// The snapshots of a volume, named `VOLUME/SNAPSHOT`.
    pub async fn snapshots(&self, pool: &str, volume: &Volume) -> Result<Vec<Volume>, ClientError> {
        let doing = format!("list the snapshots of the disk '{}'", volume.name);
        let request = Request::get(&["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots"], doing)
            .target(volume.member())
            .with("recursion", "1");
        let found: Vec<Volume> = self.ask(request).await?;
        Ok(found.into_iter().map(|snapshot| volume.with_snapshot(snapshot)).collect())
    }

    /// Takes a snapshot of a volume.
    pub async fn create_snapshot(&self, pool: &str, volume: &Volume, name: &str) -> Result<(), ClientError> {
        let doing = format!("take the snapshot '{name}' of the disk '{}'", volume.name);
        let parts = ["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots"];
        let request = Request::new(Method::POST, &parts, doing).target(volume.member()).json(&json!({"name": name}));
        self.change(request).await
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
        self.change(request).await
    }

    /// Removes a snapshot.
    pub async fn delete_snapshot(&self, pool: &str, volume: &Volume, name: &str) -> Result<(), ClientError> {
        let doing = format!("delete the snapshot '{name}' of the disk '{}'", volume.name);
        let parts = ["storage-pools", pool, "volumes", "custom", &volume.name, "snapshots", name];
        self.change(Request::new(Method::DELETE, &parts, doing).target(volume.member())).await
    }

    /// A storage pool.
    pub async fn pool(&self, name: &str) -> Result<Pool, ClientError> {
        self.ask(Request::get(&["storage-pools", name], format!("use the storage pool '{name}'"))).await
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
        for name in ["snap-1", "disk-1/snap-1"] {
            let snapshot: Volume = serde_json::from_value(json!({"name": name})).unwrap();
            let listed = Volume { location: "n2".to_owned(), ..volume.clone() }.with_snapshot(snapshot);
            assert_eq!((listed.name.as_str(), listed.member()), ("disk-1/snap-1", Some("n2")));
        }
        let unused: Volume = serde_json::from_value(json!({"name": "disk-1", "used_by": null})).unwrap();
        assert!(unused.users().is_empty());
    }
}
