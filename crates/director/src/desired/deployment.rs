//! The deployment manifest: what the operator wants to run.

use std::net::IpAddr;

use windlass_contract::Object;
use windlass_manifest::{At, Content, Document, Problem, Problems};

use super::{object, optional_text, text, texts};

/// A deployment manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentManifest {
    /// Name.
    pub name: String,
    /// Stemcells by alias.
    pub stemcells: Vec<StemcellReference>,
    /// Groups of instances.
    pub groups: Vec<InstanceGroup>,
    /// How instances are updated, unless their group says otherwise.
    pub update: UpdateSettings,
    /// For the clouds.
    pub tags: Object,
}

/// Which stemcell an alias means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellReference {
    /// The alias.
    pub alias: String,
    /// By operating system, or
    pub os: Option<String>,
    /// by name.
    pub name: Option<String>,
    /// A version, or `latest`.
    pub version: String,
}

/// A group of equal instances.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceGroup {
    /// Where it stands, for messages of later checks.
    pub path: String,
    /// Its line.
    pub line: usize,
    /// Name.
    pub name: String,
    /// How many.
    pub instances: u64,
    /// Zones to spread over.
    pub azs: Vec<String>,
    /// Size of its VMs.
    pub vm_type: String,
    /// Extra properties of its VMs.
    pub vm_extensions: Vec<String>,
    /// Alias.
    pub stemcell: String,
    /// Its persistent disk.
    pub disk: Option<WantedDisk>,
    /// Its networks.
    pub networks: Vec<GroupNetwork>,
    /// For the agent.
    pub env: Object,
    /// How it is updated.
    pub update: UpdateSettings,
}

/// A persistent disk by size or by type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedDisk {
    /// In MiB.
    Size(u64),
    /// By name.
    Type(String),
}

/// A network of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNetwork {
    /// Name.
    pub name: String,
    /// One per instance, if any.
    pub static_ips: Vec<IpAddr>,
    /// What it is the default for.
    pub default: Vec<String>,
}

/// How instances are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateSettings {
    /// How many are tried first.
    pub canaries: Count,
    /// How many at a time.
    pub max_in_flight: Count,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self { canaries: Count::Number(1), max_in_flight: Count::Number(1) }
    }
}

/// A number of instances, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A number.
    Number(u64),
    /// Of a hundred.
    Percent(u64),
}

impl Count {
    /// How many of `size` that is, rounded down.
    pub fn of(self, size: usize) -> usize {
        match self {
            Self::Number(number) => usize::try_from(number).unwrap_or(usize::MAX),
            Self::Percent(percent) => size * usize::try_from(percent).unwrap_or(100) / 100,
        }
    }
}

impl DeploymentManifest {
    /// Reads a manifest. Everything that this director cannot do yet is refused here, before anything changes.
    pub fn read(document: &Document) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let root = document.root();
        let name = problems.check(root.field("name").and_then(|at| text(&at)));
        refuse_moved_keys(&root, &mut problems);
        let update = problems.check(read_update(&root, UpdateSettings::default())).unwrap_or_default();
        let tags = problems.check(object(&root, "tags")).unwrap_or_default();
        let mut stemcells = Vec::new();
        for at in problems.check(root.field("stemcells").and_then(|at| at.list())).unwrap_or_default() {
            stemcells.extend(problems.check(read_stemcell(&at)));
        }
        let mut groups: Vec<InstanceGroup> = Vec::new();
        for at in problems.check(root.optional_list("instance_groups")).unwrap_or_default() {
            if let Some(group) = problems.check(read_group(&at, update)) {
                if groups.iter().any(|other| other.name == group.name) {
                    problems.push(at.problem(format!("the name '{}' is taken already", group.name)));
                }
                groups.push(group);
            }
        }
        let manifest = Self { name: name.unwrap_or_default(), stemcells, groups, update, tags };
        problems.into_result(manifest)
    }
}

/// Keys of manifests of long ago, and keys that belong into the cloud config.
fn refuse_moved_keys(root: &At<'_>, problems: &mut Problems) {
    for key in ["networks", "resource_pools", "disk_pools", "azs", "vm_types", "disk_types", "compilation"] {
        if let Ok(Some(at)) = root.optional(key) {
            problems.push(at.problem(format!("'{key}' belongs into the cloud config")));
        }
    }
    if let Ok(Some(at)) = root.optional("jobs") {
        problems.push(at.problem("'jobs' are called 'instance_groups' in today's manifests"));
    }
    for key in ["releases", "addons"] {
        if let Some(at) = problems.check(root.optional_list(key)).unwrap_or_default().first() {
            problems.push(at.problem("this director cannot run releases yet; remove it"));
        }
    }
}

fn read_stemcell(at: &At<'_>) -> Result<StemcellReference, Problem> {
    let (os, name) = (optional_text(at, "os")?, optional_text(at, "name")?);
    if os.is_some() == name.is_some() {
        return Err(at.problem("needs either 'os' or 'name'"));
    }
    Ok(StemcellReference { alias: text(&at.field("alias")?)?, os, name, version: text(&at.field("version")?)? })
}

fn read_group(at: &At<'_>, update: UpdateSettings) -> Result<InstanceGroup, Problem> {
    if let Some(job) = at.optional_list("jobs")?.first() {
        return Err(job.problem("this director cannot run jobs yet; remove it"));
    }
    if let Some(lifecycle) = at.optional("lifecycle")?.filter(|at| at.string() != Ok("service")) {
        return Err(lifecycle.problem("this director cannot run errands yet; only 'service' is supported"));
    }
    for unsupported in ["vm_resources", "persistent_disks", "migrated_from"] {
        if let Some(found) = at.optional(unsupported)? {
            return Err(found.problem(format!("'{unsupported}' is not supported yet")));
        }
    }
    let disk = match (at.optional("persistent_disk")?, at.optional("persistent_disk_type")?) {
        (Some(size), Some(_)) => return Err(size.problem("give either 'persistent_disk' or 'persistent_disk_type'")),
        (Some(size), None) => Some(size.unsigned()?).filter(|size| *size > 0).map(WantedDisk::Size),
        (None, Some(kind)) => Some(WantedDisk::Type(text(&kind)?)),
        (None, None) => None,
    };
    let networks = at.field("networks")?;
    let networks = match networks.list()?.as_slice() {
        [] => return Err(networks.problem("an instance group needs a network")),
        list => list.iter().map(read_network).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(InstanceGroup {
        path: at.path().to_owned(),
        line: at.node().position.line,
        name: text(&at.field("name")?)?,
        instances: at.field("instances")?.unsigned()?,
        azs: texts(at, "azs")?,
        vm_type: text(&at.field("vm_type")?)?,
        vm_extensions: texts(at, "vm_extensions")?,
        stemcell: text(&at.field("stemcell")?)?,
        disk,
        networks,
        env: object(at, "env")?,
        update: read_update(at, update)?,
    })
}

fn read_network(at: &At<'_>) -> Result<GroupNetwork, Problem> {
    let static_ips = at
        .optional_list("static_ips")?
        .iter()
        .map(|at| text(at)?.parse().map_err(|_| at.problem("expected an address")))
        .collect::<Result<_, _>>()?;
    Ok(GroupNetwork { name: text(&at.field("name")?)?, static_ips, default: texts(at, "default")? })
}

fn read_update(at: &At<'_>, otherwise: UpdateSettings) -> Result<UpdateSettings, Problem> {
    let Some(at) = at.optional("update")? else { return Ok(otherwise) };
    let count = |name| at.optional(name)?.as_ref().map(read_count).transpose();
    Ok(UpdateSettings {
        canaries: count("canaries")?.unwrap_or(otherwise.canaries),
        max_in_flight: count("max_in_flight")?.unwrap_or(otherwise.max_in_flight),
    })
}

fn read_count(at: &At<'_>) -> Result<Count, Problem> {
    let wrong = || at.problem("expected a number such as 2, or a share such as 20%");
    match &at.node().content {
        Content::Number(_) => Ok(Count::Number(at.unsigned()?)),
        Content::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(Count::Percent).map_err(|_| wrong()),
            None => text.trim().parse().map(Count::Number).map_err(|_| wrong()),
        },
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<DeploymentManifest, String> {
        let document = Document::parse(yaml).map_err(|error| error.to_string())?;
        DeploymentManifest::read(&document).map_err(|problems| problems.to_string())
    }

    const GOOD: &str = "name: redis\nstemcells: [{alias: default, os: windlass-minimal, version: latest}]\nupdate: {canaries: 1, max_in_flight: 50%}\ninstance_groups:\n- name: db\n  instances: 2\n  vm_type: small\n  stemcell: default\n  persistent_disk: 1024\n  networks: [{name: n}]\n";

    #[test]
    fn a_manifest_is_read() {
        let manifest = read(GOOD).unwrap();
        assert_eq!(manifest.groups[0].disk, Some(WantedDisk::Size(1024)));
        assert_eq!(manifest.groups[0].update.max_in_flight.of(5), 2);
    }

    #[test]
    fn jobs_and_releases_are_refused_with_their_line() {
        let problems =
            read(&format!("{GOOD}  jobs: [{{name: redis, release: r}}]\nreleases: [{{name: r, version: 1}}]\n"))
                .unwrap_err();
        assert!(problems.contains("instance_groups[0].jobs[0]: this director cannot run jobs yet"), "{problems}");
        assert!(problems.contains("releases[0]: this director cannot run releases yet"), "{problems}");
    }

    #[test]
    fn keys_of_the_cloud_config_are_sent_there() {
        let problems = read(&format!("{GOOD}azs: []\n")).unwrap_err();
        assert!(problems.contains("azs: 'azs' belongs into the cloud config"), "{problems}");
    }
}
