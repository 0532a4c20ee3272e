//! Manifest, cloud config and stemcells brought together: every name is looked up, every group is complete.

use windlass_contract::{ApiVersion, Object, StemcellCid};
use windlass_manifest::{Position, Problem, Problems};

use super::{CloudConfig, DeploymentManifest, InstanceGroup, NetworkDefinition, UpdateSettings, WantedDisk};
use crate::store::StemcellRecord;

/// A deployment in which every name means something.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    /// Name.
    pub deployment: String,
    /// Groups in the order of the manifest.
    pub groups: Vec<DesiredGroup>,
    /// For the clouds.
    pub tags: Object,
    /// Ids of the stemcells in use.
    pub stemcells: Vec<i64>,
}

/// A group in which every name means something.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredGroup {
    /// Name.
    pub name: String,
    /// Where it stands in the manifest.
    pub place: (String, usize),
    /// How many.
    pub instances: usize,
    /// Zones with their properties; empty when the group names none.
    pub azs: Vec<super::Az>,
    /// Type and extensions together; the zone's properties lie under them.
    pub cloud_properties: Object,
    /// The type's name.
    pub vm_type: String,
    /// The stemcell, once per CPI.
    pub stemcells: Vec<StemcellChoice>,
    /// Size and properties.
    pub disk: Option<(u64, Object)>,
    /// Networks in the order of the manifest.
    pub networks: Vec<DesiredNetwork>,
    /// For the agent.
    pub env: Object,
    /// How it is updated.
    pub update: UpdateSettings,
}

/// A stemcell in one cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct StemcellChoice {
    /// The CPI's name.
    pub cpi: String,
    /// Its cid there.
    pub cid: StemcellCid,
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// What its agent can do.
    pub api_version: Option<ApiVersion>,
}

/// A network of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredNetwork {
    /// From the cloud config.
    pub definition: NetworkDefinition,
    /// One per instance, if any.
    pub static_ips: Vec<std::net::IpAddr>,
    /// What it is the default for, sorted.
    pub default: Vec<String>,
}

/// Looks every name up.
pub fn resolve(
    manifest: &DeploymentManifest,
    cloud: &CloudConfig,
    stemcells: &[StemcellRecord],
) -> Result<Desired, Problems> {
    let mut problems = Problems::new();
    let mut used = Vec::new();
    let mut groups = Vec::new();
    for group in &manifest.groups {
        match resolve_group(group, manifest, cloud, stemcells, &mut used) {
            Ok(group) => groups.push(group),
            Err(message) => problems.push(Problem {
                path: group.path.clone(),
                position: Position { line: group.line, column: 1 },
                message,
            }),
        }
    }
    used.sort_unstable();
    used.dedup();
    let desired = Desired { deployment: manifest.name.clone(), groups, tags: manifest.tags.clone(), stemcells: used };
    problems.into_result(desired)
}

fn resolve_group(
    group: &InstanceGroup,
    manifest: &DeploymentManifest,
    cloud: &CloudConfig,
    stemcells: &[StemcellRecord],
    used: &mut Vec<i64>,
) -> Result<DesiredGroup, String> {
    let azs = group
        .azs
        .iter()
        .map(|name| {
            let az = cloud.azs.iter().find(|az| &az.name == name);
            az.cloned().ok_or_else(|| format!("the az '{name}' is not in the cloud config"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let vm_type = cloud.vm_types.iter().find(|vm_type| vm_type.name == group.vm_type);
    let mut cloud_properties = vm_type
        .ok_or_else(|| format!("the vm_type '{}' is not in the cloud config", group.vm_type))?
        .cloud_properties
        .clone();
    for name in &group.vm_extensions {
        let extension = cloud.vm_extensions.iter().find(|extension| &extension.name == name);
        let extension = extension.ok_or_else(|| format!("the vm_extension '{name}' is not in the cloud config"))?;
        cloud_properties.extend(extension.cloud_properties.clone());
    }
    let disk = match &group.disk {
        None => None,
        Some(WantedDisk::Size(size)) => Some((*size, Object::new())),
        Some(WantedDisk::Type(name)) => {
            let disk_type = cloud.disk_types.iter().find(|disk_type| &disk_type.name == name);
            let disk_type = disk_type.ok_or_else(|| format!("the disk type '{name}' is not in the cloud config"))?;
            Some((disk_type.size, disk_type.cloud_properties.clone()))
        }
    };
    let instances = usize::try_from(group.instances).unwrap_or(usize::MAX);
    let networks = resolve_networks(group, cloud, instances)?;
    let stemcells = choose_stemcells(&group.stemcell, manifest, stemcells, used)?;
    Ok(DesiredGroup {
        name: group.name.clone(),
        place: (group.path.clone(), group.line),
        instances,
        azs,
        cloud_properties,
        vm_type: group.vm_type.clone(),
        stemcells,
        disk,
        networks,
        env: group.env.clone(),
        update: group.update,
    })
}

/// With one network, that one is the default for everything; with several, the manifest says which.
fn resolve_networks(
    group: &InstanceGroup,
    cloud: &CloudConfig,
    instances: usize,
) -> Result<Vec<DesiredNetwork>, String> {
    let mut networks = Vec::new();
    for network in &group.networks {
        let definition = cloud.networks.iter().find(|definition| definition.name == network.name);
        let definition =
            definition.ok_or_else(|| format!("the network '{}' is not in the cloud config", network.name))?.clone();
        if !network.static_ips.is_empty() && network.static_ips.len() != instances {
            return Err(format!(
                "network '{}' has {} static_ips for {instances} instances; give one each",
                network.name,
                network.static_ips.len()
            ));
        }
        let mut default = network.default.clone();
        default.sort();
        networks.push(DesiredNetwork { definition, static_ips: network.static_ips.clone(), default });
    }
    for purpose in ["dns", "gateway"] {
        let claims = networks.iter().filter(|network| network.default.iter().any(|claim| claim == purpose)).count();
        match (claims, networks.as_mut_slice()) {
            (1, _) => {}
            (0, [only]) => {
                only.default.push(purpose.to_owned());
                only.default.sort();
            }
            (0, _) => return Err(format!("none of its networks is the default for '{purpose}'")),
            _ => return Err(format!("several of its networks are the default for '{purpose}'")),
        }
    }
    Ok(networks)
}

fn choose_stemcells(
    alias: &str,
    manifest: &DeploymentManifest,
    stemcells: &[StemcellRecord],
    used: &mut Vec<i64>,
) -> Result<Vec<StemcellChoice>, String> {
    let reference = manifest
        .stemcells
        .iter()
        .find(|reference| reference.alias == alias)
        .ok_or_else(|| format!("the stemcell alias '{alias}' is not in the manifest's stemcells"))?;
    let fits = |stemcell: &&StemcellRecord| match (&reference.os, &reference.name) {
        (Some(os), _) => &stemcell.operating_system == os,
        (None, name) => Some(&stemcell.name) == name.as_ref(),
    };
    let what = reference.os.as_ref().or(reference.name.as_ref()).map_or("", String::as_str);
    let candidates: Vec<&StemcellRecord> = stemcells.iter().filter(fits).collect();
    let version = match reference.version.as_str() {
        "latest" => candidates.iter().map(|stemcell| stemcell.version.as_str()).max_by_key(|version| order(version)),
        exact => candidates.iter().map(|stemcell| stemcell.version.as_str()).find(|version| *version == exact),
    };
    let Some(version) = version else {
        let uploaded: Vec<_> = stemcells
            .iter()
            .map(|stemcell| format!("{}/{} ({})", stemcell.name, stemcell.version, stemcell.operating_system))
            .collect();
        let uploaded = if uploaded.is_empty() { "none".to_owned() } else { uploaded.join(", ") };
        return Err(format!(
            "no stemcell '{what}' of version '{}' was uploaded (uploaded: {uploaded}); use upload-stemcell",
            reference.version
        ));
    };
    let chosen: Vec<_> = candidates.into_iter().filter(|stemcell| stemcell.version == version).collect();
    used.extend(chosen.iter().map(|stemcell| stemcell.id));
    Ok(chosen
        .into_iter()
        .map(|stemcell| StemcellChoice {
            cpi: stemcell.cpi.clone(),
            cid: stemcell.cid.clone(),
            name: stemcell.name.clone(),
            version: stemcell.version.clone(),
            api_version: stemcell.api_version,
        })
        .collect())
}

/// Versions in the order of their numbers: 1.10 is later than 1.9.
fn order(version: &str) -> Vec<(u64, String)> {
    version
        .split(['.', '-', '+', '_'])
        .map(|part| part.parse().map_or_else(|_| (0, part.to_owned()), |number| (number, String::new())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["1.10", "1.9", "1", "2"];
        versions.sort_by_key(|version| order(version));
        assert_eq!(versions, ["1", "1.9", "1.10", "2"]);
    }
}
