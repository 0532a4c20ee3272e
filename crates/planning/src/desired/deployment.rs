//! The deployment manifest: what the operator wants to run.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use windlass_contract::Object;
use windlass_manifest::{At, Document};

use super::addons::{Addon, Level, read_addon};
use super::fields::Fields;
use super::findings::{Findings, Place, Placed};
use super::instance_group::{InstanceGroup, MOST_INSTANCES, read_group};
use super::jobs::{ReleaseReference, read_release};
use super::names_in_use::WantedNames;
use super::stemcells::StemcellReference;
use super::update::{UpdateBlock, read_update};
use super::variables::{VariableDefinition, read_variables};
use crate::dns::canonical;

/// A deployment manifest, as far as it could be read: what could not is in the findings.
#[derive(Debug, Clone, PartialEq)]
pub struct DeploymentManifest {
    pub name: Option<Placed<String>>,
    /// Releases that its jobs are of.
    pub releases: Vec<ReleaseReference>,
    /// Whether all of them could be read; if not, one that is missing here may be there.
    pub knows_all_releases: bool,
    /// Stemcells by alias.
    pub stemcells: Vec<StemcellReference>,
    /// Whether all of them could be read; if not, an alias that is missing here may be there.
    pub knows_all_stemcells: bool,
    pub groups: Vec<InstanceGroup>,
    /// Jobs for groups that match.
    pub addons: Vec<Addon>,
    /// For the clouds.
    pub tags: Object,
    /// For jobs that have none of their own.
    pub properties: Object,
    /// Whether jobs are kept in memory only; none if the manifest does not say.
    pub use_tmpfs: Option<bool>,
    /// Whose values are made at deploy, where they have none.
    pub variables: Vec<VariableDefinition>,
    /// Whether values are made once more when their definitions change.
    pub converge_variables: bool,
    /// How instances are to be called.
    pub names: WantedNames,
}

const KEYS: [&str; 11] = [
    "name",
    "director_uuid",
    "releases",
    "stemcells",
    "update",
    "instance_groups",
    "addons",
    "variables",
    "features",
    "tags",
    "properties",
];
/// Keys of manifests of long ago, and keys that belong into the cloud config.
const GONE: [(&str, &str); 9] = [
    ("networks", "'networks' belongs into the cloud config"),
    ("azs", "'azs' belongs into the cloud config"),
    ("vm_types", "'vm_types' belongs into the cloud config"),
    ("vm_extensions", "'vm_extensions' belongs into the cloud config"),
    ("disk_types", "'disk_types' belongs into the cloud config"),
    ("compilation", "'compilation' belongs into the cloud config"),
    ("resource_pools", "'resource_pools' are gone; use 'vm_types' in the cloud config"),
    ("disk_pools", "'disk_pools' are gone; use 'disk_types' in the cloud config"),
    ("jobs", "'jobs' are called 'instance_groups' in today's manifests"),
];
/// Features, and what those do that have no effect here.
const FEATURES: [(&str, Option<&str>); 8] = [
    ("use_dns_addresses", None),
    ("use_short_dns_addresses", None),
    ("use_link_dns_names", None),
    ("randomize_az_placement", Some("plans are reproducible, so zones are never chosen at random")),
    ("converge_variables", None),
    ("use_tmpfs_config", None),
    ("use_tmpfs_job_config", Some("today's name is 'use_tmpfs_config'")),
    ("redact_links", Some("plans and diffs show no values of links")),
];

impl DeploymentManifest {
    /// Reads a manifest. Everything that this director cannot do yet is refused here, before anything changes.
    pub fn read(document: &Document, findings: &mut Findings) -> Self {
        let mut manifest = Self {
            name: None,
            releases: Vec::new(),
            knows_all_releases: false,
            stemcells: Vec::new(),
            knows_all_stemcells: false,
            groups: Vec::new(),
            addons: Vec::new(),
            tags: Object::new(),
            properties: Object::new(),
            use_tmpfs: None,
            variables: Vec::new(),
            converge_variables: false,
            names: WantedNames::default(),
        };
        let known: Vec<&str> = KEYS.into_iter().chain(GONE.iter().map(|(key, _)| *key)).collect();
        let Some(mut root) = Fields::of(&document.root(), &known, findings) else { return manifest };
        for (key, why) in GONE {
            root.refuse(key, why);
        }
        let listed = root.list("releases");
        manifest.releases = listed.iter().filter_map(|release| read_release(release, root.findings())).collect();
        manifest.knows_all_releases = manifest.releases.len() == listed.len();
        manifest.properties = root.object("properties");
        manifest.name = root.name();
        manifest.tags = root.object("tags");
        let listed = manifest.knows_all_releases.then_some(manifest.releases.as_slice());
        for at in root.list("addons") {
            manifest.addons.extend(read_addon(&at, Level::Deployment, listed, root.findings()));
        }
        manifest.variables = read_variables(&mut root);
        if let Some(at) = root.optional("features") {
            let features = read_features(&at, root.findings());
            manifest.use_tmpfs = features.use_tmpfs;
            manifest.converge_variables = features.converge_variables;
            manifest.names = features.names;
        }
        let update = match root.optional("update") {
            Some(at) => read_update(&at, UpdateBlock::default(), root.findings()),
            None => UpdateBlock::default(),
        };
        root.required("stemcells");
        let listed = root.list("stemcells");
        for at in &listed {
            if let Some(stemcell) = StemcellReference::read(at, root.findings()) {
                let alias = &stemcell.alias;
                if manifest.stemcells.iter().any(|other| other.alias.value == alias.value) {
                    root.findings().push(alias.problem(format!("the alias '{}' is taken already", alias.value)));
                }
                manifest.stemcells.push(stemcell);
            }
        }
        manifest.knows_all_stemcells = manifest.stemcells.len() == listed.len();
        let mut taken: HashMap<String, String> = HashMap::new();
        for at in root.list("instance_groups") {
            let Some(group) = read_group(&at, update, root.findings()) else { continue };
            match taken.entry(canonical(&group.name)) {
                Entry::Vacant(free) => {
                    free.insert(group.name.clone());
                }
                Entry::Occupied(other) => {
                    let message = format!("the name '{}' is taken already, by '{}'", group.name, other.get());
                    root.findings().push(group.place.problem(message));
                }
            }
            manifest.groups.push(group);
        }
        let instances: usize = manifest.groups.iter().filter_map(|group| group.instances).sum();
        if instances as u64 > MOST_INSTANCES {
            root.push(format!("{instances} instances are wanted altogether; at most {MOST_INSTANCES} are possible"));
        }
        manifest.check_migrations(findings);
        manifest
    }

    /// A group is either there or taken over, and by one group only.
    fn check_migrations(&self, findings: &mut Findings) {
        let names: HashSet<&String> = self.groups.iter().map(|group| &group.name).collect();
        let mut taken: HashMap<&String, &String> = HashMap::new();
        for group in &self.groups {
            for from in &group.migrated_from {
                let name = &from.name.value;
                if *name != group.name && names.contains(name) {
                    findings.push(from.name.problem(format!(
                        "the group '{name}' is in the manifest, so '{}' cannot take it over; remove one of them",
                        group.name
                    )));
                }
                let other = *taken.entry(name).or_insert(&group.name);
                if *other != group.name {
                    findings.push(from.name.problem(format!("the group '{name}' is taken over by '{other}'")));
                }
            }
        }
    }
}

/// What of it has an effect.
#[derive(Debug, Default)]
struct Features {
    use_tmpfs: Option<bool>,
    converge_variables: bool,
    names: WantedNames,
}

fn read_features(at: &At<'_>, findings: &mut Findings) -> Features {
    let known: Vec<&str> = FEATURES.iter().map(|(feature, _)| *feature).collect();
    let Some(mut fields) = Fields::of(at, &known, findings) else { return Features::default() };
    for (feature, no_effect) in FEATURES {
        let Some(at) = fields.optional(feature) else { continue };
        if let (Some(true), Some(why)) = (fields.boolean(feature), no_effect) {
            fields.findings().warn(at.problem(format!("has no effect: {why}")));
        }
    }
    if fields.boolean("use_link_dns_names") == Some(true) {
        for implied in ["use_dns_addresses", "use_short_dns_addresses"] {
            if fields.boolean(implied) == Some(false) {
                fields.refuse(implied, "cannot be false where 'use_link_dns_names' is true");
            }
        }
    }
    let converge_variables = fields.boolean("converge_variables").unwrap_or_default();
    let mut named = |feature: &str| {
        let place = fields.optional(feature).map(|at| Place::of(&at))?;
        Some(Placed { value: fields.boolean(feature)?, place })
    };
    let names = WantedNames {
        dns_addresses: named("use_dns_addresses"),
        short: named("use_short_dns_addresses"),
        links: named("use_link_dns_names"),
    };
    Features { use_tmpfs: fields.boolean("use_tmpfs_config"), converge_variables, names }
}

#[cfg(test)]
mod tests {
    use windlass_contract::MiB;

    use super::super::instance_group::{DiskSize, Lifecycle, VmSize};
    use super::*;

    fn read(yaml: &str) -> (DeploymentManifest, Findings) {
        let mut findings = Findings::new();
        let manifest = DeploymentManifest::read(&Document::parse(yaml).unwrap(), &mut findings);
        (manifest, findings)
    }

    const GOOD: &str = "name: redis\nstemcells: [{alias: default, os: windlass-minimal, version: latest}]\nupdate: {canaries: 1, max_in_flight: 50%}\ninstance_groups:\n- name: db\n  instances: 2\n  vm_type: small\n  stemcell: default\n  persistent_disk: 1024\n  networks: [{name: n}]\n";

    /// Where each group was compared with all before it, this took minutes.
    #[test]
    fn very_many_groups_are_read_as_quickly_as_few() {
        let groups: String = (0..9_999).map(|number| format!("- {{name: g{number}, stemcell: s}}\n")).collect();
        let document = Document::parse(&format!("name: d\ninstance_groups:\n{groups}- {{name: G7}}\n")).unwrap();
        let (begun, mut findings) = (std::time::Instant::now(), Findings::new());
        assert_eq!(DeploymentManifest::read(&document, &mut findings).groups.len(), 10_000);
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_manifest_is_read() {
        let (manifest, findings) = read(GOOD);
        assert!(findings.is_clean() && findings.warnings().is_empty(), "{findings}");
        assert_eq!(manifest.groups[0].disks[0].size, DiskSize::Size(MiB(1024)));
        assert_eq!(manifest.groups[0].update.max_in_flight.of(5), 2);
    }

    #[test]
    fn a_group_may_say_everything_that_the_original_knows() {
        let (manifest, findings) = read(
            "name: d\nstemcells: [{alias: default, name: s, version: 621.latest}]\nupdate: {canaries: 2, serial: true}\nfeatures: {use_dns_addresses: true}\nvariables: [{name: password, type: password}]\ntags: {a: 1}\ninstance_groups:\n- name: g\n  instances: 2\n  azs: [z1, z2]\n  lifecycle: errand\n  vm_resources: {cpu: 1, ram: 1024, ephemeral_disk_size: 4096}\n  vm_extensions: [lb]\n  stemcell: default\n  persistent_disks: [{name: data, type: large}, {name: log, type: small}]\n  networks:\n  - {name: a, static_ips: [10.0.0.5 - 10.0.0.6], default: [dns, gateway], nic_group: 1}\n  - {name: pub, static_ips: [203.0.113.10, 203.0.113.11]}\n  migrated_from: [{name: old, az: z1}]\n  update: {canaries: 0}\n  env: {bosh: {swap_size: 0}}\n  tags: {b: 2}\n",
        );
        assert!(findings.is_clean(), "{findings}");
        assert!(manifest.names.dns_addresses.as_ref().is_some_and(|wanted| wanted.value));
        let group = &manifest.groups[0];
        assert_eq!(group.lifecycle, Lifecycle::Errand);
        assert!(matches!(&group.vm_size, Some(VmSize::Resources(resources)) if resources.ram.0 == 1024));
        assert_eq!(group.disks.len(), 2);
        assert_eq!(group.networks[0].static_ips.as_ref().unwrap()[0].value.size(), 2);
        assert_eq!(group.networks[0].nic_group.as_deref(), Some("1"));
        assert_eq!(group.migrated_from[0].az.as_ref().unwrap().value, "z1");
        assert!(group.update.serial && group.update.canaries.of(2) == 0, "the group's word over the global one");
    }

    #[test]
    fn jobs_and_releases_are_read_with_what_is_said_of_their_links() {
        let (manifest, findings) = read(&format!(
            "{GOOD}  jobs: [{{name: redis, release: r, properties: {{port: 1}}}}, {{name: x, release: r, consumes: {{a: {{from: b}}}}}}]\nreleases: [{{name: r, version: 1}}]\n"
        ));
        assert!(findings.is_clean(), "{findings}");
        assert_eq!(manifest.releases[0].version.value, "1");
        assert_eq!(manifest.groups[0].jobs[0].properties.as_ref().unwrap()["port"], 1);
        let (name, given) = &manifest.groups[0].jobs[1].links.consumes[0];
        assert_eq!((name.as_str(), given.place.path.as_str()), ("a", "instance_groups[0].jobs[1].consumes.a"));
    }

    #[test]
    fn keys_of_the_cloud_config_are_sent_there() {
        let (_, findings) = read(&format!("{GOOD}azs: []\n"));
        assert!(findings.to_string().contains("azs: 'azs' belongs into the cloud config"), "{findings}");
    }

    #[test]
    fn everything_wrong_with_a_group_is_told_at_once() {
        let (_, findings) = read(
            "stemcells: [{alias: a, os: x, name: y, version: 1}, {alias: b, os: x}]\ninstance_groups:\n- name: g/1\n  instances: 1000000000000\n  azs: []\n  vm_type: small\n  vm_resources: {cpu: 1}\n  persistent_disk: 5\n  persistent_disk_type: d\n  networks: []\n  lifecycle: sometimes\n  update: {canaries: x}\n  migrated_from: [{az: z1}]\n  resource_pool: p\n- 7\n",
        );
        let problems = findings.to_string();
        for expected in [
            "name: is required",
            "stemcells[0]: needs either 'os' or 'name'",
            "stemcells[1].version: is required",
            "instance_groups[0].name: a name must not contain '/'",
            "instance_groups[0].instances: expected a whole number from 0 to 100000, found 1000000000000 (line 4)",
            "instance_groups[0].azs: is empty",
            "instance_groups[0].vm_type: give either",
            "instance_groups[0].stemcell: is required",
            "instance_groups[0].persistent_disk_type: give only one of",
            "instance_groups[0].networks: an instance group needs a network",
            "instance_groups[0].lifecycle: expected 'service' or 'errand', found 'sometimes'",
            "instance_groups[0].update.canaries: expected a number",
            "instance_groups[0].migrated_from[0].name: is required",
            "instance_groups[0].resource_pool: 'resource_pool' is gone",
            "instance_groups[1]: expected an object, found 7",
        ] {
            assert!(problems.contains(expected), "{expected} in:\n{problems}");
        }
        assert_eq!(problems.lines().count(), 15, "one line each:\n{problems}");
    }

    #[test]
    fn a_group_is_taken_over_once_and_not_while_it_is_there() {
        let group = |name: &str, from: &str| {
            format!(
                "- {{name: {name}, instances: 0, vm_type: t, stemcell: default, networks: [{{name: n}}], migrated_from: [{{name: {from}}}]}}\n"
            )
        };
        let problems =
            read(&format!("{GOOD}{}{}{}", group("a", "old"), group("b", "old"), group("c", "db"))).1.to_string();
        assert!(
            problems.contains("instance_groups[2].migrated_from[0].name: the group 'old' is taken over by 'a'"),
            "{problems}"
        );
        assert!(
            problems.contains("instance_groups[3].migrated_from[0].name: the group 'db' is in the manifest"),
            "{problems}"
        );
        assert_eq!(problems.lines().count(), 2, "{problems}");
    }
}
