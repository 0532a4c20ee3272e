//! The project as its operator sees it: everything that is in it, also on members that are down.

use std::path::Path;

use windlass_contract::cpi::CpiError;

use crate::client::{Client, Network, Settings, Volume};
use crate::config::IncusConfig;
use crate::fault::Fault;
use crate::network_plan::ranges;
use crate::session::Session;
use crate::tags::{self, Stage};

/// Something in the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `vm`, `disk`, `snapshot`, `stemcell` or `network`.
    pub kind: &'static str,
    /// By which the CPI's callers know it.
    pub cid: String,
    /// The member that has it, in a cluster.
    pub member: Option<String>,
    /// The VM that a disk is claimed for.
    pub vm: Option<String>,
    /// In words.
    pub details: String,
    /// What directors named it with.
    pub metadata: Settings,
}

/// Everything that the project of this configuration has, of whichever director.
pub async fn list(config: &Path) -> Result<Vec<Resource>, CpiError> {
    let config: IncusConfig = windlass_cpi::Config::load(config)?.plugin()?;
    Ok(everything(&Session::connect(&config, None).await?).await?)
}

/// A connection to the project of this configuration, past every CPI call.
pub fn client(config: &Path) -> Result<Client, CpiError> {
    let config: IncusConfig = windlass_cpi::Config::load(config)?.plugin()?;
    config.check()?;
    config.client().map_err(|error| Fault::from(error).into())
}

async fn everything(session: &Session) -> Result<Vec<Resource>, Fault> {
    let mut found = Vec::new();
    for instance in session.client.instances().await? {
        let config = instance.config.clone().unwrap_or_default();
        let details = match instance.is_reachable() {
            false => "its member does not answer".to_owned(),
            true if Stage::of(&config) == Stage::Ready => instance.status.to_lowercase(),
            true => "not finished".to_owned(),
        };
        found.push(Resource {
            kind: "vm",
            member: instance.member().map(str::to_owned),
            vm: None,
            details,
            metadata: tags::metadata(&config),
            cid: instance.name,
        });
    }
    for pool in session.client.pools().await? {
        let volumes = session.client.volumes(&pool, &session.server).await?;
        found.extend(volumes.into_iter().map(|volume| of_volume(&pool, volume)));
    }
    // Lists may have those of other projects.
    let is_ours = |network: &Network| network.config.get(tags::PROJECT) == Some(&session.config.project);
    for network in session.client.networks().await?.into_iter().filter(is_ours) {
        let ranges: Vec<String> = ranges(&network).map(|range| range.trunc().to_string()).collect();
        found.push(Resource {
            kind: "network",
            member: None,
            vm: None,
            details: format!("{} {}", network.kind, ranges.join(" ")),
            metadata: Settings::new(),
            cid: network.name,
        });
    }
    for image in session.client.images().await? {
        let said = |key: &str| image.properties.get(key).map(String::as_str).unwrap_or_default();
        found.push(Resource {
            kind: "stemcell",
            member: None,
            vm: None,
            details: format!("{} {}", said("windlass.name"), said("windlass.version")).trim().to_owned(),
            metadata: Settings::new(),
            cid: image.fingerprint,
        });
    }
    Ok(found)
}

/// A disk, or a snapshot of one.
fn of_volume(pool: &str, volume: Volume) -> Resource {
    let is_snapshot = volume.name.contains('/');
    let details = match Stage::of(&volume.config) {
        _ if is_snapshot => String::new(),
        Stage::Made | Stage::Ready => volume.get("size").unwrap_or_default().to_owned(),
        Stage::Unfinished => "not made by this CPI".to_owned(),
        Stage::Copying => "a copy that was not finished".to_owned(),
        Stage::MovedTo(place) => format!("moved to {place}"),
    };
    Resource {
        kind: if is_snapshot { "snapshot" } else { "disk" },
        cid: format!("{pool}:{}", volume.name.replace('/', ":")),
        member: volume.member().map(str::to_owned),
        vm: volume.get(tags::ATTACHED_TO).filter(|_| !is_snapshot).map(str::to_owned),
        details,
        metadata: tags::metadata(&volume.config),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_are_named_as_callers_know_them() {
        let volume = |name: &str, stage: &str| -> Volume {
            let config = json!({"user.windlass.stage": stage, "size": "64MiB", "user.windlass.attached_to": "vm-1",
                "user.bosh.deployment": "shop"});
            serde_json::from_value(json!({"name": name, "config": config, "location": "n2"})).unwrap()
        };
        let disk = of_volume("fast", volume("disk-1", "made"));
        assert_eq!((disk.kind, disk.cid.as_str(), disk.details.as_str()), ("disk", "fast:disk-1", "64MiB"));
        assert_eq!((disk.vm.as_deref(), disk.member.as_deref()), (Some("vm-1"), Some("n2")));
        assert_eq!(disk.metadata, Settings::from([("deployment".to_owned(), "shop".to_owned())]));
        let snapshot = of_volume("fast", volume("disk-1/snap-2", "made"));
        assert_eq!((snapshot.kind, snapshot.cid.as_str(), snapshot.vm), ("snapshot", "fast:disk-1:snap-2", None));
        assert_eq!(of_volume("fast", volume("disk-1", "moved-to:n3")).details, "moved to n3");
        assert_eq!(of_volume("fast", volume("x", "")).details, "not made by this CPI");
    }
}
