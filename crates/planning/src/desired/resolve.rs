//! Manifest, configs and stemcells brought together: every name is looked up, every group is complete.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use serde_json::Value;
use windlass_contract::Object;
use windlass_contract::cpi::methods::VmResources;

use super::addons::with_addons;
use super::cloud_config::Section;
use super::findings::{Findings, Place};
use super::instance_group::{DiskSize, InstanceGroup, Lifecycle, VmSize};
use super::links::{DesiredLinks, LinkReader, LinksFrom};
use super::names_in_use::NamesInUse;
use super::networks::{NetworkDefinition, NetworkPlacement};
use super::software::Releases;
use super::stemcells::StemcellChoice;
use super::update::{UpdateBlock, VmStrategy};
use super::{CloudConfig, CpiConfig, DeploymentManifest, RuntimeConfig, compiled};
use crate::names::{CpiName, DeploymentName};
use crate::records::{CompilationKey, ReleaseRecord, StemcellRecord};
use crate::software::Software;
use crate::spec::DiskSpec;
use crate::weight::{self, Room};

/// All documents, and the stemcells that were uploaded.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub manifest: &'a DeploymentManifest,
    pub cloud: &'a CloudConfig,
    pub runtime: &'a RuntimeConfig,
    pub cpis: &'a CpiConfig,
    /// In every cloud.
    pub stemcells: &'a [StemcellRecord],
    /// With their jobs and packages.
    pub releases: &'a [ReleaseRecord],
    /// All packages that are there compiled.
    pub compiled: &'a BTreeSet<CompilationKey>,
    /// Of the deployment.
    pub teams: &'a [String],
    pub links: LinksFrom<'a>,
    pub names: NamesInUse,
}

/// A deployment in which every name means something.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    pub deployment: DeploymentName,
    /// Groups in the order of the manifest.
    pub groups: Vec<DesiredGroup>,
    /// Ids of the stemcells in use.
    pub stemcells: Vec<i64>,
    /// Ids of the versions of releases in use.
    pub releases: Vec<i64>,
    /// How packages are compiled; none if the cloud config does not say.
    pub compilation: Option<DesiredCompilation>,
    /// Names of CPIs, each with the earlier names of the same one.
    pub cpi_names: Vec<Vec<CpiName>>,
    /// What jobs provide to each other.
    pub links: DesiredLinks,
    /// How instances are called.
    pub names: NamesInUse,
    /// Whether it has no groups because they would take too much memory. There is nothing to plan then.
    pub is_too_large: bool,
    /// Whether it belongs to a team, which may have less than others.
    pub is_of_team: bool,
}

/// A group in which every name means something.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredGroup {
    pub name: String,
    /// Where it stands in the manifest.
    pub place: Place,
    pub instances: usize,
    /// Where they may be; one without a name when the group names none.
    pub zones: Vec<Zone>,
    /// How large its VMs are.
    pub vm_size: DesiredSize,
    /// Extensions together, the later over the earlier.
    pub vm_extensions: Object,
    /// The stemcell, once per CPI in use, by its present name.
    pub stemcells: Vec<StemcellChoice>,
    /// Its persistent disks.
    pub disks: Vec<DiskSpec>,
    /// Networks in the order of the manifest.
    pub networks: Vec<DesiredNetwork>,
    /// For the agent.
    pub env: Object,
    /// For the clouds: runtime config, deployment and group together.
    pub tags: Object,
    pub update: UpdateBlock,
    /// How a VM is replaced.
    pub strategy: VmStrategy,
    /// Whether it has VMs all the time.
    pub lifecycle: Lifecycle,
    /// Groups that it takes over, each with the zone of instances that have none.
    pub migrated_from: Vec<(String, Option<String>)>,
    /// What runs on it.
    pub software: Option<Software>,
}

/// The VMs that packages are compiled on.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredCompilation {
    /// Whether a worker compiles several packages on one VM.
    pub reuse_vms: bool,
    /// Whether VMs of workers are given up rather than deleted.
    pub orphan_workers: bool,
    /// The workers; they have the stemcell of those who need the package.
    pub workers: DesiredGroup,
    /// Every stemcell of the manifest in every cloud.
    pub stemcells: Vec<StemcellChoice>,
}

/// Where instances may be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Zone {
    /// The az's name; none for nowhere in particular.
    pub az: Option<String>,
    /// The CPI that serves it.
    pub cpi: CpiName,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// The size of a VM.
#[derive(Debug, Clone, PartialEq)]
pub enum DesiredSize {
    /// Properties of a type.
    Type {
        name: String,
        /// What only the cloud understands.
        cloud_properties: Object,
    },
    /// What the VM needs; the CPI of its zone says what that means.
    Resources(VmResources),
}

/// A network of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredNetwork {
    /// From the cloud config.
    pub definition: NetworkDefinition,
    /// One per instance, or none.
    pub static_ips: Vec<IpAddr>,
    /// What it is the default for, sorted.
    pub default: Vec<String>,
    /// Networks of the same group share a network card.
    pub nic_group: Option<String>,
}

/// What BOSH's director calls a stemcell that was not uploaded.
const NO_SUCH_STEMCELL: u32 = 50003;

/// Looks every name up. What is wrong is in the findings; groups that could not be completed are left out.
pub fn resolve(wanted: Wanted<'_>, findings: &mut Findings) -> Desired {
    findings.begin("");
    let mut chosen = Vec::new();
    for reference in &wanted.manifest.stemcells {
        match reference.choose(wanted.stemcells) {
            Ok(choices) => chosen.push((reference.alias.value.as_str(), choices)),
            Err(message) => {
                findings.refuse(NO_SUCH_STEMCELL, Some(&reference.version.place), message);
                chosen.push((reference.alias.value.as_str(), Vec::new()));
            }
        }
    }
    let os = |group: &InstanceGroup| {
        let alias = group.stemcell.as_ref().map(|alias| alias.value.as_str());
        let choices = chosen.iter().find(|(known, _)| Some(*known) == alias).map(|(_, choices)| choices);
        choices.and_then(|choices| Some(choices.first()?.os.clone())).unwrap_or_default()
    };
    let mut room = Room::for_groups();
    let (manifest, added) = with_addons(wanted.manifest, wanted.teams, wanted.runtime, os, &mut room, findings);
    let releases = Releases::choose(wanted.manifest, &added, wanted.releases, findings);
    let resolver = Resolver { wanted, chosen, releases };
    let deployment = wanted.manifest.name.as_ref().map_or("", |name| name.value.as_str());
    let mut links = LinkReader::new(deployment, wanted.links, wanted.names);
    let mut groups: Vec<_> = manifest
        .iter()
        .map_while(|group| resolver.group_within(group, &mut links, &mut room, findings))
        .flatten()
        .collect();
    if room.is_spent() {
        groups.clear();
    }
    compiled::choose(&mut groups, &resolver.releases, wanted.compiled, findings);
    let links = match groups.len() == manifest.len() {
        true => links.resolve(&groups, findings),
        false => links.give_up(),
    };
    let mut stemcells: Vec<i64> =
        groups.iter().flat_map(|group| &group.stemcells).map(|stemcell| stemcell.id).collect();
    stemcells.sort_unstable();
    stemcells.dedup();
    // Without jobs nothing is compiled, so it does not matter whether it could be.
    let has_jobs = manifest.iter().any(|group| !group.jobs.is_empty());
    let compilation = has_jobs.then(|| resolver.compilation(findings)).flatten();
    Desired {
        releases: resolver.releases.ids(),
        compilation,
        deployment: deployment.into(),
        groups,
        links,
        stemcells,
        cpi_names: wanted.cpis.names(),
        names: wanted.names,
        is_too_large: room.is_spent(),
        is_of_team: !wanted.teams.is_empty(),
    }
}

impl DesiredGroup {
    /// What it takes of memory, but for what runs on it.
    fn weight(&self) -> usize {
        let zones: usize = self.zones.iter().map(|zone| 128 + weight::of_object(&zone.cloud_properties)).sum();
        let networks: usize = self.networks.iter().map(|network| 128 + network.definition.weight()).sum();
        let disks: usize = self.disks.iter().map(|disk| 128 + weight::of_object(&disk.cloud_properties)).sum();
        let stemcells = 256 * self.stemcells.len();
        let size = match &self.vm_size {
            DesiredSize::Type { cloud_properties, .. } => weight::of_object(cloud_properties),
            DesiredSize::Resources(_) => 0,
        };
        let own = [&self.vm_extensions, &self.env, &self.tags].map(weight::of_object);
        zones + networks + disks + stemcells + size + own.iter().sum::<usize>()
    }

    /// What may have variables whose values are put in when a CPI is asked.
    pub fn late_values(&self) -> Vec<&Object> {
        let mut late = vec![&self.env, &self.tags, &self.vm_extensions];
        late.extend(self.zones.iter().map(|zone| &zone.cloud_properties));
        late.extend(self.disks.iter().map(|disk| &disk.cloud_properties));
        if let DesiredSize::Type { cloud_properties, .. } = &self.vm_size {
            late.push(cloud_properties);
        }
        for network in &self.networks {
            match &network.definition.placement {
                NetworkPlacement::Manual(subnets) => late.extend(subnets.iter().map(|subnet| &subnet.cloud_properties)),
                NetworkPlacement::Dynamic(subnets) => {
                    late.extend(subnets.iter().map(|subnet| &subnet.cloud_properties))
                }
                NetworkPlacement::Vip { cloud_properties, .. } => late.push(cloud_properties),
            }
        }
        late
    }

    /// The network that others reach its instances in.
    pub fn default_network(&self) -> Option<&str> {
        let by = |purpose: &str| {
            self.networks.iter().find(|network| network.default.iter().any(|default| default == purpose))
        };
        by("addressable").or_else(|| by("gateway")).map(|network| network.definition.name.as_str())
    }
}

impl Desired {
    /// What its instances have of their groups, in bytes of memory, roughly.
    pub fn weight(&self) -> usize {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.instances.saturating_mul(group.weight())))
    }

    /// The zones and networks that names of its instances are made of, in the order of the manifest.
    pub fn named_places(&self) -> (Vec<&str>, Vec<&str>) {
        let zones = self.groups.iter().flat_map(|group| &group.zones).filter_map(|zone| zone.az.as_deref());
        let networks = self.groups.iter().flat_map(|group| &group.networks);
        (zones.collect(), networks.map(|network| network.definition.name.as_str()).collect())
    }

    /// Whether both names mean the same CPI.
    pub fn is_same_cpi(&self, one: &CpiName, other: &CpiName) -> bool {
        one == other || self.cpi_names.iter().any(|names| names.contains(one) && names.contains(other))
    }

    /// What CPIs have to calculate before there can be a plan.
    pub fn resources(&self) -> Vec<(&CpiName, VmResources)> {
        let (mut needed, mut known) = (Vec::new(), HashSet::new());
        let workers = self.compilation.iter().map(|compilation| &compilation.workers);
        for group in self.groups.iter().chain(workers) {
            let DesiredSize::Resources(resources) = group.vm_size else { continue };
            for zone in &group.zones {
                let size = (resources.cpu, resources.ram, resources.ephemeral_disk_size);
                if known.insert((&zone.cpi, size)) {
                    needed.push((&zone.cpi, resources));
                }
            }
        }
        needed
    }
}

pub(super) struct Resolver<'a> {
    pub(super) wanted: Wanted<'a>,
    /// Stemcells by alias; none for an alias that means no stemcell.
    pub(super) chosen: Vec<(&'a str, Vec<StemcellChoice>)>,
    pub(super) releases: Releases<'a>,
}

impl Resolver<'_> {
    /// A group, or none if it was said already why there is none; nothing at all when there is no room for more of them.
    fn group_within(
        &self,
        group: &InstanceGroup,
        links: &mut LinkReader<'_>,
        room: &mut Room,
        findings: &mut Findings,
    ) -> Option<Option<DesiredGroup>> {
        if findings.is_full() {
            return None;
        }
        let found = self.group(group, links, room, findings);
        // It was said already, and would be for each of thousands.
        if room.is_spent() {
            return None;
        }
        if let Err(message) = room.take(found.as_ref().map_or(0, DesiredGroup::weight)) {
            findings.push(group.place.problem(message));
            return None;
        }
        Some(found)
    }

    fn group(
        &self,
        group: &InstanceGroup,
        links: &mut LinkReader<'_>,
        room: &mut Room,
        findings: &mut Findings,
    ) -> Option<DesiredGroup> {
        let problems = findings.problems().len();
        let zones = self.zones(group, findings);
        let vm_size = self.vm_size(group, findings);
        let vm_extensions = self.vm_extensions(group, findings);
        let disks = self.disks(group, findings);
        let networks = self.networks(group, room, findings);
        let stemcells = self.stemcells(group, &zones, findings);
        links.disks(group);
        let software = self.releases.software(group, links, room, findings);
        for az in group.migrated_from.iter().filter_map(|from| from.az.as_ref()) {
            self.wanted.cloud.find(Section::Azs, az, findings);
        }
        let has_vip =
            networks.iter().any(|network| matches!(network.definition.placement, NetworkPlacement::Vip { .. }));
        let (strategy, fallback) = group.strategy(has_vip);
        if let Some(why) = fallback {
            findings.warn(group.place.problem(format!(
                "because of {why}, its VMs are replaced by delete-create instead of create-swap-delete"
            )));
        }
        let mut tags = self.wanted.runtime.tags.clone();
        tags.extend(self.wanted.manifest.tags.clone());
        tags.extend(group.tags.clone());
        if findings.problems().len() > problems {
            return None;
        }
        Some(DesiredGroup {
            name: group.name.clone(),
            place: group.place.clone(),
            instances: group.instances?,
            zones,
            vm_size: vm_size?,
            vm_extensions,
            stemcells: stemcells?,
            disks,
            networks,
            env: env(group, self.wanted.manifest.use_tmpfs),
            tags,
            update: group.update,
            strategy,
            lifecycle: group.lifecycle,
            migrated_from: group
                .migrated_from
                .iter()
                .map(|from| (from.name.value.clone(), from.az.as_ref().map(|az| az.value.clone())))
                .collect(),
            software,
        })
    }

    /// The workers are looked up like a group; what is wrong with them is the cloud config's.
    pub(super) fn compilation(&self, findings: &mut Findings) -> Option<DesiredCompilation> {
        let compilation = self.wanted.cloud.compilation.as_ref()?;
        let workers = &compilation.workers;
        findings.begin(compilation.document.clone());
        let (zones, vm_size) = (self.zones(workers, findings), self.vm_size(workers, findings));
        let vm_extensions = self.vm_extensions(workers, findings);
        let networks = self.networks(workers, &mut Room::for_groups(), findings);
        findings.begin("");
        Some(DesiredCompilation {
            reuse_vms: compilation.reuse_vms,
            orphan_workers: compilation.orphan_workers,
            workers: DesiredGroup {
                name: workers.name.clone(),
                place: workers.place.clone(),
                instances: workers.instances?,
                zones,
                vm_size: vm_size?,
                vm_extensions,
                stemcells: Vec::new(),
                disks: Vec::new(),
                networks,
                env: workers.env.clone(),
                tags: self.wanted.runtime.tags.clone(),
                update: workers.update,
                strategy: VmStrategy::DeleteCreate,
                lifecycle: Lifecycle::Service,
                migrated_from: Vec::new(),
                software: None,
            },
            stemcells: self.chosen.iter().flat_map(|(_, choices)| choices.iter().cloned()).collect(),
        })
    }

    fn zones(&self, group: &InstanceGroup, findings: &mut Findings) -> Vec<Zone> {
        let cpis = self.wanted.cpis;
        if group.azs.is_empty() {
            return match cpis.of(None) {
                Ok(cpi) => vec![Zone { cpi, ..Zone::default() }],
                Err(_) => {
                    findings.push(group.place.problem("needs 'azs', because each az names one of the CPIs"));
                    Vec::new()
                }
            };
        }
        let mut zones = Vec::new();
        for name in &group.azs {
            if !self.wanted.cloud.find(Section::Azs, name, findings) {
                continue;
            }
            for az in self.wanted.cloud.azs.iter().filter(|az| az.name == name.value) {
                match cpis.of(az.cpi.as_deref()) {
                    Ok(cpi) => zones.push(Zone {
                        az: Some(az.name.clone()),
                        cpi,
                        cloud_properties: az.cloud_properties.clone(),
                    }),
                    Err(why) => findings.push(name.problem(format!("the az '{}' {why}", name.value))),
                }
            }
        }
        zones
    }

    fn vm_size(&self, group: &InstanceGroup, findings: &mut Findings) -> Option<DesiredSize> {
        match group.vm_size.as_ref()? {
            VmSize::Resources(resources) => Some(DesiredSize::Resources(*resources)),
            VmSize::Properties(cloud_properties) => {
                Some(DesiredSize::Type { name: String::new(), cloud_properties: cloud_properties.clone() })
            }
            VmSize::Type(name) => {
                self.wanted.cloud.find(Section::VmTypes, name, findings);
                let found = self.wanted.cloud.vm_types.iter().find(|vm_type| vm_type.name == name.value)?;
                let cloud_properties = found.cloud_properties.clone();
                Some(DesiredSize::Type { name: name.value.clone(), cloud_properties })
            }
        }
    }

    fn vm_extensions(&self, group: &InstanceGroup, findings: &mut Findings) -> Object {
        let mut together = Object::new();
        for name in &group.vm_extensions {
            self.wanted.cloud.find(Section::VmExtensions, name, findings);
            let found = self.wanted.cloud.vm_extensions.iter().filter(|extension| extension.name == name.value);
            found.for_each(|extension| together.extend(extension.cloud_properties.clone()));
        }
        together
    }

    fn disks(&self, group: &InstanceGroup, findings: &mut Findings) -> Vec<DiskSpec> {
        let mut disks = Vec::new();
        for disk in &group.disks {
            let name = disk.name.clone();
            match &disk.size {
                DiskSize::Size(size) => disks.push(DiskSpec { name, size: *size, cloud_properties: Object::new() }),
                DiskSize::Type(kind) => {
                    self.wanted.cloud.find(Section::DiskTypes, kind, findings);
                    let found = self.wanted.cloud.disk_types.iter().find(|found| found.name == kind.value);
                    disks.extend(found.map(|found| DiskSpec {
                        name,
                        size: found.size,
                        cloud_properties: found.cloud_properties.clone(),
                    }));
                }
            }
        }
        disks
    }

    /// None if it was said already why there is none.
    fn stemcells(&self, group: &InstanceGroup, zones: &[Zone], findings: &mut Findings) -> Option<Vec<StemcellChoice>> {
        let alias = group.stemcell.as_ref()?;
        let Some((_, choices)) = self.chosen.iter().find(|(known, _)| *known == alias.value) else {
            if self.wanted.manifest.knows_all_stemcells {
                findings.push(alias.problem(format!("the alias '{}' is not in the manifest's stemcells", alias.value)));
            }
            return None;
        };
        let first = choices.first()?;
        let mut stemcells: Vec<StemcellChoice> = Vec::new();
        for zone in zones {
            if stemcells.iter().any(|stemcell| stemcell.cpi == zone.cpi) {
                continue;
            }
            match choices.iter().find(|choice| self.wanted.cpis.are_same(&choice.cpi, &zone.cpi)) {
                Some(choice) => stemcells.push(StemcellChoice { cpi: zone.cpi.clone(), ..choice.clone() }),
                None => findings.push(alias.problem(format!(
                    "the stemcell {}/{} was not uploaded to {}; upload it again",
                    first.name, first.version, zone.cpi
                ))),
            }
        }
        Some(stemcells)
    }
}

/// What agents get; jobs are kept in memory only where the manifest says so and the group does not say otherwise.
fn env(group: &InstanceGroup, use_tmpfs: Option<bool>) -> Object {
    let mut env = group.env.clone();
    let Some(use_tmpfs) = use_tmpfs else { return env };
    for path in [&["bosh", "job_dir", "tmpfs"][..], &["bosh", "agent", "settings", "tmpfs"]] {
        set_unless_given(&mut env, path, use_tmpfs.into());
    }
    env
}

fn set_unless_given(object: &mut Object, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            object.entry(*last).or_insert(value);
        }
        [first, rest @ ..] => {
            let inner = object.entry(*first).or_insert_with(|| Value::Object(Object::new()));
            if let Some(inner) = inner.as_object_mut() {
                set_unless_given(inner, rest, value);
            }
        }
    }
}
