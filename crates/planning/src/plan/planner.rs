//! From what is to what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::cpi::methods::VmResources;
use windlass_contract::network::{Network, NetworkKind};
use windlass_contract::{DiskCid, Networks, Object, VmCid};

use super::addresses::{AddressRequest, Addresses};
use super::changes::{Goal, VmDecision, changes, decide_vm, new_instance, obstacle, removal, resting, rests};
use super::compilation::{self, CompilationPlan, is_compilation_group};
use super::link_contents::{self, LinkedInstance};
use super::placement::{InstanceSlot, Present, place};
use super::software_change::why_other_software;
use super::{Action, DiskSpec, GroupPlan, InstancePlan, InstanceSpec, Plan, SkipDrain, StateChange, Wish};
use crate::desired::{
    Count, Desired, DesiredCompilation, DesiredGroup, DesiredNetwork, DesiredSize, Findings, Lifecycle,
    NetworkPlacement, VmStrategy,
};
use crate::dns::DnsNumbers;
use crate::links::PlannedLinks;
use crate::names::CpiName;
use crate::records::{CompilationKey, DiskRecord, InstanceRecord, InstanceState, StemcellOfVm, VmRecord};
use crate::software::{
    RenderedAtDeploy, Software, SoftwareOfInstance, TemplateInstance, Templates, VariableSet, has_variables,
};
use crate::weight::{self, Room};

/// What is, as far as the director knows.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// Instances of the deployment.
    pub instances: Vec<CurrentInstance>,
    /// Addresses in use in all deployments, by holder (`deployment/group/uuid`).
    pub addresses: BTreeMap<IpAddr, String>,
    /// What CPIs answered to [`Desired::resources`].
    pub calculated: Calculated,
    /// What runs on the instances now, by its digest.
    pub software: BTreeMap<String, Software>,
    /// Packages that were compiled.
    pub compiled: BTreeSet<CompilationKey>,
    /// The numbers that names in DNS are made of.
    pub numbers: DnsNumbers,
    /// The versions of variables that instances are brought to; none where no variable is used, or for a look.
    pub variables: Option<VariableSet>,
}

/// Cloud properties that CPIs calculated.
#[derive(Debug, Clone, Default)]
pub struct Calculated(Vec<(CpiName, VmResources, Object)>);

impl Calculated {
    /// Keeps an answer.
    pub fn insert(&mut self, cpi: &CpiName, resources: VmResources, cloud_properties: Object) {
        self.0.push((cpi.clone(), resources, cloud_properties));
    }

    fn get(&self, cpi: &CpiName, resources: VmResources) -> Option<&Object> {
        let is_it = |(known, of, _): &&(CpiName, VmResources, Object)| known == cpi && *of == resources;
        self.0.iter().find(is_it).map(|(_, _, cloud_properties)| cloud_properties)
    }
}

/// An instance with what it has.
#[derive(Debug, Clone)]
pub struct CurrentInstance {
    pub record: InstanceRecord,
    pub vm: Option<VmRecord>,
    /// The VM that was made beside it, to take its place.
    pub spare: Option<VmRecord>,
    pub disks: Vec<DiskRecord>,
    /// Whether its VM should answer and does not.
    pub unresponsive: bool,
}

/// What the operator asked for beyond the manifest.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// All VMs are made anew.
    pub recreate: bool,
    /// Of those, only VMs that were made before this time, in Unix seconds.
    pub created_before: Option<i64>,
    /// All persistent disks are copied to new ones.
    pub recreate_disks: bool,
    /// Of those VMs and disks, only these.
    pub only: Option<WhatWasThere>,
    /// Something for some instances.
    pub change: Option<StateChange>,
    /// Who is stopped without being drained.
    pub skip_drain: SkipDrain,
    /// VMs whose agents do not answer are replaced, instead of being an obstacle.
    pub fix: bool,
    /// Instead of what the manifest says.
    pub canaries: Option<Count>,
    /// Instead of what the manifest says.
    pub max_in_flight: Option<Count>,
    /// An errand is about to run: the first instance of a group that is one gets its VM, and nothing else is planned for it.
    pub errand: bool,
}

/// VMs and disks that were there when somebody asked for new ones: what was made since then is new already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatWasThere {
    pub vms: BTreeSet<VmCid>,
    pub disks: BTreeSet<DiskCid>,
}

impl WhatWasThere {
    /// All that these instances have.
    pub fn of(instances: &[CurrentInstance]) -> Self {
        let vms = instances.iter().filter_map(|instance| instance.vm.as_ref()).map(|vm| vm.cid.clone());
        let disks = instances.iter().flat_map(|instance| &instance.disks).map(|disk| disk.cid.clone());
        Self { vms: vms.collect(), disks: disks.collect() }
    }
}

impl PlanOptions {
    fn wish_for(&self, instance: &InstanceRecord) -> Option<Wish> {
        self.change.as_ref().filter(|change| change.selection.includes(instance)).map(|change| change.wish)
    }

    /// Whether the instance's VM is to be made anew without another reason.
    fn recreates(&self, present: &CurrentInstance) -> bool {
        let is_old = |vm: &VmRecord| {
            self.created_before.is_none_or(|time| vm.created_at < time)
                && self.only.as_ref().is_none_or(|only| only.vms.contains(&vm.cid))
        };
        (self.recreate || self.wish_for(&present.record) == Some(Wish::Recreate))
            && present.vm.as_ref().is_none_or(is_old)
    }

    /// Whether the disk is to be copied to a new one without another reason.
    pub(super) fn renews(&self, disk: &DiskRecord) -> bool {
        self.recreate_disks && self.only.as_ref().is_none_or(|only| only.disks.contains(&disk.cid))
    }
}

/// Plans. `new_id` gives the UUIDs of new instances; with the same ids the same inputs give the same plan. A plan with
/// problems in the findings is not to be carried out.
pub fn plan(
    desired: &Desired,
    current: &Current,
    options: &PlanOptions,
    templates: &dyn Templates,
    new_id: &mut dyn FnMut() -> String,
    findings: &mut Findings,
) -> Plan {
    findings.begin("");
    // Places and addresses of very many take memory before the first of them has a spec.
    let instances = desired.groups.iter().fold(0_usize, |sum, group| sum.saturating_add(group.instances));
    if let Err(message) = Room::default().take(instances.saturating_mul(OF_AN_INSTANCE)) {
        findings.say(format!("{instances} instances: {message}"));
        return Plan { deployment: desired.deployment.clone(), ..Plan::default() };
    }
    let mut by_group: BTreeMap<&str, Vec<&CurrentInstance>> = BTreeMap::new();
    for instance in &current.instances {
        by_group.entry(&instance.record.group).or_default().push(instance);
    }
    let mut planner = Planner {
        desired,
        current,
        options,
        templates,
        addresses: Addresses::new(current.addresses.clone()),
        linked: BTreeMap::new(),
        unrendered: Vec::new(),
        room: Room::default(),
        findings,
    };
    let mut removed = Vec::new();
    let mut placed = Vec::new();
    let mut wanted = BTreeSet::new();
    for group in &desired.groups {
        wanted.insert(group.name.as_str());
        wanted.extend(group.migrated_from.iter().map(|(name, _)| name.as_str()));
        let present = planner.present(group, &by_group);
        match place(group, present, new_id) {
            Err(message) => planner.problem(group, message),
            Ok((slots, surplus)) => {
                let reason = "there are more instances than wanted in its az";
                let surplus = surplus.into_iter().filter(|_| !options.errand);
                removed.extend(surplus.map(|instance| planner.remove(group, instance, reason)));
                placed.push(planner.place_group(group, slots));
            }
        }
    }
    for instance in current.instances.iter().filter(|instance| !wanted.contains(instance.record.group.as_str())) {
        if let Some(message) = protected(instance).or_else(|| obstacle(instance, options.fix)) {
            planner.findings.say(message);
        }
        let reason = match is_compilation_group(&instance.record.group) {
            true => "it compiled packages for an earlier deploy",
            false => "its group is not in the manifest",
        };
        removed.push(removal(instance, reason, options));
    }
    let links = planner.links(&placed);
    let groups = placed.into_iter().map(|group| planner.group(group, &links)).collect();
    planner.refuse_unrendered();
    let compilation = planner.compilation(new_id);
    let software = planner.linked.into_values().map(|linked| linked.software.clone()).collect();
    let links = (!desired.links.are_kept).then_some(links);
    let deployment = desired.deployment.clone();
    Plan { deployment, warnings: Vec::new(), compilation, removed, groups, software, links }
}

/// Plans what has to be compiled, and that workers go which an earlier run left. Nothing else of the deployment changes.
pub fn plan_compilation(
    desired: &Desired,
    current: &Current,
    new_id: &mut dyn FnMut() -> String,
    findings: &mut Findings,
) -> Plan {
    let options = PlanOptions::default();
    let left = current.instances.iter().filter(|instance| is_compilation_group(&instance.record.group));
    let removed =
        left.map(|instance| removal(instance, "it compiled packages for an earlier task", &options)).collect();
    let mut planner = Planner {
        desired,
        current,
        options: &options,
        templates: &NoTemplates,
        addresses: Addresses::new(current.addresses.clone()),
        linked: BTreeMap::new(),
        unrendered: Vec::new(),
        room: Room::default(),
        findings,
    };
    let compilation = planner.compilation(new_id);
    Plan { deployment: desired.deployment.clone(), compilation, removed, ..Plan::default() }
}

/// What of a VM may have variables whose values are put in when it is made: its env alone, unless its cloud_properties have some.
fn late_values(env: &Object, cloud_properties: &Object, networks: &Networks) -> Object {
    let networks: Object = networks
        .iter()
        .map(|(name, network)| (name.clone(), Value::Object(network.cloud_properties.clone())))
        .collect();
    let (cloud_properties, networks) = (Value::Object(cloud_properties.clone()), Value::Object(networks));
    if !has_variables(&cloud_properties) && !has_variables(&networks) {
        return env.clone();
    }
    let env = ("env".to_owned(), Value::Object(env.clone()));
    Object::from_iter([env, ("cloud_properties".to_owned(), cloud_properties), ("networks".to_owned(), networks)])
}

/// Where nothing is rendered.
struct NoTemplates;

impl Templates for NoTemplates {
    fn rendered_at_deploy(&self, _: &Software) -> Option<RenderedAtDeploy> {
        None
    }

    fn env_values(&self, _: &Object, _: Option<VariableSet>) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn configuration_hash(&self, _: &Software, _: &TemplateInstance<'_>) -> Result<String, String> {
        Err("workers have no jobs".to_owned())
    }
}

/// Plans the end of a deployment.
pub fn plan_deletion(deployment: &str, current: &Current) -> Plan {
    let options = PlanOptions::default();
    let removed =
        current.instances.iter().map(|instance| removal(instance, "the deployment is deleted", &options)).collect();
    Plan { deployment: deployment.to_owned(), removed, ..Plan::default() }
}

/// What BOSH's director calls the wish to change the state of an ignored instance.
const STATE_OF_IGNORED: u32 = 140021;
/// What BOSH's director calls every error that has no number of its own, such as those of templates.
const RENDERING: u32 = 100;

/// What an instance takes of memory with nothing of its own: names, actions and their reasons.
const OF_AN_INSTANCE: usize = 2048;

struct Planner<'a, 'f> {
    desired: &'a Desired,
    current: &'a Current,
    options: &'a PlanOptions,
    templates: &'a dyn Templates,
    addresses: Addresses,
    /// What runs on groups, with its links, by group and by what ran there before if that matters.
    linked: BTreeMap<(String, String), Rc<Linked>>,
    /// What is wrong with the templates of groups.
    unrendered: Vec<String>,
    /// For what each instance has of its group.
    room: Room,
    findings: &'f mut Findings,
}

struct Linked {
    software: Software,
    digest: String,
    has_variables: bool,
}

/// A group whose instances have their addresses.
struct PlacedGroup<'a> {
    group: &'a DesiredGroup,
    is_first: bool,
    /// In the order of their update.
    instances: Vec<PlacedInstance<'a>>,
}

struct PlacedInstance<'a> {
    id: String,
    index: i64,
    az: Option<String>,
    bootstrap: bool,
    state: InstanceState,
    wish: Option<Wish>,
    present: Option<&'a CurrentInstance>,
    next: Next,
}

/// What is known of an instance's future before its jobs are rendered.
enum Next {
    /// Everything.
    Settled(Option<Box<InstanceSpec>>, Vec<Action>),
    Updated {
        spec: Box<InstanceSpec>,
        decision: VmDecision,
        swap: bool,
    },
}

impl PlacedInstance<'_> {
    fn networks(&self) -> Option<&Networks> {
        match &self.next {
            Next::Settled(spec, _) => spec.as_ref().map(|spec| &spec.networks),
            Next::Updated { spec, .. } => Some(&spec.networks),
        }
    }
}

impl<'a> Planner<'a, '_> {
    fn problem(&mut self, group: &DesiredGroup, message: impl Into<String>) {
        self.findings.push(group.place.problem(message));
    }

    fn remove(&mut self, group: &DesiredGroup, instance: &CurrentInstance, reason: &str) -> InstancePlan {
        if let Some(message) = protected(instance).or_else(|| obstacle(instance, self.options.fix)) {
            self.problem(group, message);
        }
        removal(instance, reason, self.options)
    }

    /// All errors of templates together, as BOSH tells them.
    fn refuse_unrendered(&mut self) {
        if self.unrendered.is_empty() {
            return;
        }
        let mut text = "Unable to render instance groups for deployment. Errors are:".to_owned();
        for errors in &self.unrendered {
            text.push_str(&format!("\n  - {}", errors.replace('\n', "\n  ")));
        }
        self.findings.refuse(RENDERING, None, text);
    }

    /// What has to be compiled. The workers get their addresses after everybody else.
    fn compilation(&mut self, new_id: &mut dyn FnMut() -> String) -> Option<CompilationPlan> {
        let packages = compilation::missing(self.desired, &self.current.compiled);
        let first = packages.first()?;
        let Some(compilation) = &self.desired.compilation else {
            let names: Vec<_> = packages.iter().map(|package| package.package.name.as_str()).collect();
            self.findings.say(format!(
                "packages have to be compiled ({}), and the cloud config does not say where; \
                 add 'compilation' with 'workers' and 'network' to it",
                names.join(", ")
            ));
            return None;
        };
        let mut stemcells = vec![(first.stemcell.as_str(), first.version.as_str())];
        for package in &packages {
            let stemcell = (package.stemcell.as_str(), package.version.as_str());
            if !stemcells.contains(&stemcell) {
                stemcells.push(stemcell);
            }
        }
        let mut workers = Vec::new();
        for stemcell in stemcells {
            let group = compilation::workers(compilation, &packages, stemcell, &new_id());
            for index in 0..group.instances {
                match self.worker(&group, index, new_id()) {
                    Ok(worker) => workers.push(worker),
                    // One is enough.
                    Err(_) if index > 0 => break,
                    Err(message) => {
                        self.findings.say(format!("packages cannot be compiled: {message}"));
                        return None;
                    }
                }
            }
        }
        let DesiredCompilation { reuse_vms, orphan_workers, .. } = *compilation;
        let at_once = compilation.workers.instances;
        Some(CompilationPlan { reuse_vms, orphan_workers, at_once, packages, workers })
    }

    fn worker(&mut self, group: &DesiredGroup, index: usize, id: String) -> Result<InstancePlan, String> {
        let zone = group.zones.first().ok_or("its az is not in the cloud config")?;
        let holder = format!("{}/{}/{id}", self.desired.deployment, group.name);
        let request = AddressRequest { holder: &holder, zone, statics: &BTreeMap::new(), present: None };
        let networks = self.addresses.assign(group, &request)?;
        let spec = Some(self.spec(group, zone, networks)?);
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let (group, az) = (group.name.clone(), zone.az.clone());
        let state = InstanceState::Started;
        Ok(InstancePlan { id, group, index, az, bootstrap: index == 0, state, spec, actions: Vec::new().into() })
    }

    /// The instances of a group, and of those that it takes over.
    fn present(
        &mut self,
        group: &'a DesiredGroup,
        by_group: &BTreeMap<&str, Vec<&'a CurrentInstance>>,
    ) -> Vec<Present<'a>> {
        let own = by_group.get(group.name.as_str()).into_iter().flatten();
        let mut present: Vec<_> = own.map(|instance| Present { instance, az: instance.record.az.as_deref() }).collect();
        let has_zones = group.zones.iter().any(|zone| zone.az.is_some());
        for (name, given) in group.migrated_from.iter().filter(|(name, _)| *name != group.name) {
            for instance in by_group.get(name.as_str()).into_iter().flatten() {
                let known = instance.record.az.as_deref();
                match (known, given.as_deref()) {
                    (Some(known), Some(given)) if known != given => {
                        let message = format!(
                            "migrated_from says that '{name}' is in az '{given}', but {} is in az '{known}'",
                            instance.record.name()
                        );
                        self.problem(group, message);
                    }
                    (None, None) if has_zones => {
                        let message = format!("migrated_from must say in which az '{name}' is: its records do not");
                        self.problem(group, message);
                    }
                    (known, given) => present.push(Present { instance, az: known.or(given) }),
                }
            }
        }
        present
    }

    /// Gives the instances of a group their addresses.
    fn place_group(&mut self, group: &'a DesiredGroup, slots: Vec<InstanceSlot<'a>>) -> PlacedGroup<'a> {
        let is_first = slots.iter().all(|slot| slot.present.is_none());
        let bootstrap = bootstrap(&slots);
        let mut instances = Vec::with_capacity(slots.len());
        for slot in slots {
            let is_bootstrap = Some(&slot.id) == bootstrap.as_ref();
            match self.place_instance(group, slot, is_bootstrap) {
                Ok(instance) => instances.push(instance),
                Err(message) => {
                    self.problem(group, message);
                    // The next one would lack an address just the same.
                    break;
                }
            }
        }
        let first_az = instances.iter().find(|instance| instance.bootstrap).and_then(|instance| instance.az.clone());
        instances.sort_by(|one, other| {
            let order = |instance: &PlacedInstance<'_>| (!instance.bootstrap, instance.az != first_az);
            order(one).cmp(&order(other)).then_with(|| one.az.cmp(&other.az)).then_with(|| one.id.cmp(&other.id))
        });
        if self.options.errand {
            instances.truncate(1);
        }
        PlacedGroup { group, is_first, instances }
    }

    fn place_instance(
        &mut self,
        group: &'a DesiredGroup,
        slot: InstanceSlot<'a>,
        bootstrap: bool,
    ) -> Result<PlacedInstance<'a>, String> {
        let wish = slot.present.and_then(|present| self.options.wish_for(&present.record));
        let before = slot.present.map(|present| present.record.state).unwrap_or_default();
        let state = wish.map_or(before, Wish::state);
        let (id, index, az, present) = (slot.id.clone(), slot.index, slot.zone.az.clone(), slot.present);
        let next = match present {
            Some(present) if present.record.ignored => {
                if wish.is_some() {
                    let name = present.record.name();
                    let message = format!(
                        "You are trying to change the state of the ignored instance '{name}'. \
                         This operation is not allowed. You need to unignore it first."
                    );
                    self.findings.refuse(STATE_OF_IGNORED, None, message);
                }
                Next::Settled(present.record.applied_spec().cloned().map(Box::new), Vec::new())
            }
            Some(present) if rests(present, state) => {
                let (spec, actions) = self.resting(group, present, state);
                Next::Settled(spec.map(Box::new), actions)
            }
            _ => self.addressed(group, &slot)?,
        };
        Ok(PlacedInstance { id, index, az, bootstrap, state, wish, present, next })
    }

    /// What an instance is brought to, as far as it is known without its jobs.
    fn addressed(&mut self, group: &DesiredGroup, slot: &InstanceSlot<'_>) -> Result<Next, String> {
        let InstanceSlot { id, zone, present, statics, .. } = slot;
        let before = present.and_then(|present| present.record.spec.as_ref());
        let recorded_group = present.map_or(&group.name, |present| &present.record.group);
        let holder = format!("{}/{recorded_group}/{id}", self.desired.deployment);
        let request = AddressRequest { holder: &holder, zone, statics, present: before.map(|spec| &spec.networks) };
        let networks = self.addresses.assign(group, &request)?;
        let mut spec = self.spec(group, zone, networks)?;
        let recreates = |present: &CurrentInstance| self.options.recreates(present);
        let decision =
            present.map_or(VmDecision::Missing, |present| decide_vm(self.desired, present, &spec, recreates(present)));
        let old = present.and_then(|present| present.vm.as_ref()).filter(|vm| vm.ready);
        let swap = group.strategy == VmStrategy::CreateSwapDelete && matches!(decision, VmDecision::Replaced(_));
        if let (true, Some(old)) = (swap, old) {
            spec.networks = self.addresses.renew(group, &request, spec.networks, &old.networks)?;
        }
        Ok(Next::Updated { spec: Box::new(spec), decision, swap: swap && old.is_some() })
    }

    /// What jobs provide to each other, now that everybody has addresses.
    fn links(&mut self, placed: &[PlacedGroup<'_>]) -> PlannedLinks {
        let mut instances = BTreeMap::new();
        for group in placed {
            let of_group: Vec<_> = group.instances.iter().filter_map(as_linked).collect();
            instances.insert(group.group.name.as_str(), of_group);
        }
        let (links, problems) =
            link_contents::contents(self.desired, &self.current.numbers, &instances, &mut self.room);
        problems.into_iter().for_each(|problem| self.findings.say(problem));
        links
    }

    fn group(&mut self, placed: PlacedGroup<'_>, links: &PlannedLinks) -> GroupPlan {
        let PlacedGroup { group, is_first, instances: placed } = placed;
        if let Some(later) = group.software.as_ref().and_then(|it| self.templates.rendered_at_deploy(it)) {
            self.findings.warn(group.place.problem(later.to_string()));
        }
        let mut instances = Vec::with_capacity(placed.len());
        for instance in placed {
            match self.instance(group, instance, links) {
                Ok(instance) => instances.push(instance),
                Err(message) => {
                    self.unrendered.push(message);
                    // Templates of the next one would fail just the same.
                    break;
                }
            }
        }
        let canaries = self.options.canaries.unwrap_or(group.update.canaries);
        let max_in_flight = self.options.max_in_flight.unwrap_or(group.update.max_in_flight);
        GroupPlan {
            name: group.name.clone(),
            canaries: canaries.of(group.instances),
            max_in_flight: max_in_flight.of(group.instances).max(1),
            serial: group.update.serial,
            zones_at_once: is_first && group.update.zones_at_once_at_first,
            canary_watch_time: Some(group.update.canary_watch_time),
            update_watch_time: Some(group.update.update_watch_time),
            lifecycle: group.lifecycle,
            strategy: group.strategy,
            instances,
        }
    }

    fn instance(
        &mut self,
        group: &DesiredGroup,
        placed: PlacedInstance<'_>,
        links: &PlannedLinks,
    ) -> Result<InstancePlan, String> {
        let PlacedInstance { id, index, az, bootstrap, state, wish, present, next } = placed;
        let (spec, actions) = match next {
            Next::Settled(spec, actions) => (spec.map(|spec| *spec), actions),
            Next::Updated { mut spec, decision, swap } => {
                // The cloud has chosen addresses for a VM that is there, which templates see.
                let on_vm = present.and_then(|present| present.vm.as_ref()).map(|vm| &vm.networks);
                let seen = on_vm.map_or_else(|| spec.networks.clone(), |on_vm| with_addresses(&spec.networks, on_vm));
                let linked = self.linked(group, present, links);
                let linked = linked.filter(|_| !self.desired.links.lacking.contains(&group.name));
                spec.variables = self.variables(linked.as_deref(), &spec);
                spec.dns_address = self.dns_address(group, &id);
                let instance = TemplateInstance {
                    deployment: &self.desired.deployment,
                    group: &group.name,
                    index,
                    id: &id,
                    az: az.as_deref(),
                    bootstrap,
                    networks: &seen,
                    persistent_disk: spec.managed_disk().map(|disk| disk.size),
                    variables: spec.variables,
                    dns_address: spec.dns_address.as_deref(),
                };
                spec.software = linked.as_deref().map(|linked| self.software(linked, &instance)).transpose()?;
                let software = linked.as_deref().map(|linked| &linked.software);
                let actions = self.updated(group, present, &spec, (state, wish), (decision, swap), software);
                (Some(*spec), actions)
            }
        };
        Ok(InstancePlan { id, group: group.name.clone(), index, az, bootstrap, state, spec, actions: actions.into() })
    }

    /// An instance that shall not run stays as it was made, with its addresses, until it is started.
    fn resting(
        &mut self,
        group: &DesiredGroup,
        present: &CurrentInstance,
        state: InstanceState,
    ) -> (Option<InstanceSpec>, Vec<Action>) {
        if let Some(message) = obstacle(present, self.options.fix) {
            self.problem(group, message);
        }
        let drain = self.options.skip_drain.drains(&group.name);
        (present.record.applied_spec().cloned(), resting(present, state, drain))
    }

    fn updated(
        &mut self,
        group: &DesiredGroup,
        present: Option<&CurrentInstance>,
        spec: &InstanceSpec,
        (state, wish): (InstanceState, Option<Wish>),
        (decision, swap): (VmDecision, bool),
        software: Option<&Software>,
    ) -> Vec<Action> {
        // An errand's VM is made when it is run.
        let has_vm = present.is_some_and(|present| present.vm.is_some());
        if group.lifecycle == Lifecycle::Errand && !has_vm && !self.options.errand {
            return Vec::new();
        }
        let Some(present) = present else { return new_instance(spec) };
        if let Some(message) = obstacle(present, self.options.fix) {
            self.problem(group, message);
        }
        let later = software.and_then(|software| self.templates.rendered_at_deploy(software));
        let goal = Goal {
            software: why_other_software(&self.current.software, present, software, spec, later.as_ref()),
            desired: self.desired,
            group: &group.name,
            spec,
            state,
            decision,
            swap,
            drain: self.options.skip_drain.drains(&group.name),
            restart: wish == Some(Wish::Restart),
            options: self.options,
        };
        changes(present, &goal).unwrap_or_else(|message| {
            self.problem(group, message);
            Vec::new()
        })
    }

    fn spec(
        &mut self,
        group: &DesiredGroup,
        zone: &crate::desired::Zone,
        networks: windlass_contract::Networks,
    ) -> Result<InstanceSpec, String> {
        let stemcell = group.stemcells.iter().find(|choice| choice.cpi == zone.cpi);
        let stemcell = stemcell.ok_or_else(|| format!("its stemcell is not with {}", zone.cpi))?;
        let mut cloud_properties = zone.cloud_properties.clone();
        let vm_type = match &group.vm_size {
            DesiredSize::Type { name, cloud_properties: own } => {
                cloud_properties.extend(own.clone());
                cloud_properties.extend(group.vm_extensions.clone());
                Some(name.clone())
            }
            DesiredSize::Resources(resources) => {
                let calculated = self.current.calculated.get(&zone.cpi, *resources);
                let calculated =
                    calculated.ok_or_else(|| format!("{} did not say what its vm_resources mean", zone.cpi))?;
                cloud_properties.extend(group.vm_extensions.clone());
                cloud_properties.extend(calculated.clone());
                None
            }
        };
        let of_network = |network: &Network| {
            let dns: usize = network.dns.iter().flatten().map(|server| 32 + server.len()).sum();
            512 + dns + weight::of_object(&network.cloud_properties)
        };
        let of_disk = |disk: &DiskSpec| 64 + weight::of_object(&disk.cloud_properties);
        let of_objects = [&cloud_properties, &group.env, &group.tags].map(weight::of_object);
        let of_lists = networks.values().map(of_network).chain(group.disks.iter().map(of_disk)).sum::<usize>();
        self.room.take(OF_AN_INSTANCE + of_lists + of_objects.iter().sum::<usize>())?;
        let late = late_values(&group.env, &cloud_properties, &networks);
        let env_values = self.templates.env_values(&late, self.current.variables)?;
        Ok(InstanceSpec {
            cpi: zone.cpi.clone(),
            stemcell_cid: stemcell.cid.clone(),
            stemcell: StemcellOfVm {
                name: stemcell.name.clone(),
                version: stemcell.version.clone(),
                api_version: stemcell.api_version,
            },
            vm_type,
            cloud_properties,
            networks,
            disks: group.disks.clone(),
            env: group.env.clone(),
            env_values,
            tags: group.tags.clone(),
            variables: None,
            dns_address: None,
            software: None,
        })
    }

    /// What runs on a group, with its links; all of its instances have the same, unless they keep what they have.
    fn linked(
        &mut self,
        group: &DesiredGroup,
        present: Option<&CurrentInstance>,
        links: &PlannedLinks,
    ) -> Option<Rc<Linked>> {
        let software = group.software.as_ref()?;
        let digest = |present: &CurrentInstance| Some(present.record.spec.as_ref()?.software.as_ref()?.digest.clone());
        let are_kept = self.desired.links.are_kept;
        let own = present.and_then(digest).filter(|_| are_kept);
        let key = (group.name.clone(), own.clone().unwrap_or_default());
        if let Some(known) = self.linked.get(&key) {
            return Some(known.clone());
        }
        let of_group = self.current.instances.iter().filter(|instance| instance.record.group == group.name);
        let before = own.or_else(|| of_group.filter_map(digest).next());
        let before = before.and_then(|digest| self.current.software.get(&digest));
        let software = match are_kept {
            true => link_contents::kept(software, before),
            false => link_contents::linked(software, &group.name, links, (self.desired, &self.current.numbers), before),
        };
        let (digest, has_variables) = (software.digest(), software.has_variables());
        let linked = Rc::new(Linked { software, digest, has_variables });
        self.linked.insert(key, linked.clone());
        Some(linked)
    }

    /// The name that templates see instead of an instance's address; none where they see that.
    fn dns_address(&self, group: &DesiredGroup, id: &str) -> Option<String> {
        let names = self.desired.names;
        let default = group.default_network()?;
        let is_dynamic =
            |network: &DesiredNetwork| matches!(network.definition.placement, NetworkPlacement::Dynamic(_));
        let network = group.networks.iter().find(|network| network.definition.name == default)?;
        let is_named = names.served && (names.dns_addresses || is_dynamic(network));
        is_named.then(|| link_contents::name_of(self.desired, group, &self.current.numbers, id, default, None))
    }

    /// The versions of variables that an instance gets; none if it uses none.
    fn variables(&self, linked: Option<&Linked>, spec: &InstanceSpec) -> Option<VariableSet> {
        let has_variables = linked.is_some_and(|linked| linked.has_variables) || spec.env_values.is_some();
        self.current.variables.filter(|_| has_variables)
    }

    fn software(&self, linked: &Linked, instance: &TemplateInstance<'_>) -> Result<SoftwareOfInstance, String> {
        // It is rendered at deploy, and until then nobody knows what it becomes.
        let configuration_hash = match self.templates.rendered_at_deploy(&linked.software) {
            Some(_) => String::new(),
            None => self.templates.configuration_hash(&linked.software, instance)?,
        };
        Ok(SoftwareOfInstance { digest: linked.digest.clone(), configuration_hash })
    }
}

fn as_linked<'i>(instance: &'i PlacedInstance<'_>) -> Option<LinkedInstance<'i>> {
    Some(LinkedInstance {
        id: &instance.id,
        index: instance.index,
        bootstrap: instance.bootstrap,
        az: instance.az.as_deref(),
        networks: instance.networks()?,
    })
}

/// The networks as they are planned, with the addresses that the cloud chose for the VM.
pub fn with_addresses(planned: &Networks, on_vm: &Networks) -> Networks {
    let mut networks = planned.clone();
    for (name, network) in &mut networks {
        let Some(known) = on_vm.get(name).filter(|_| network.kind == NetworkKind::Dynamic) else { continue };
        network.ip = network.ip.take().or_else(|| known.ip.clone());
        network.netmask = network.netmask.take().or_else(|| known.netmask.clone());
        network.gateway = network.gateway.take().or_else(|| known.gateway.clone());
    }
    networks
}

/// Why an instance cannot be changed that the operator wants to be left alone.
fn protected(instance: &CurrentInstance) -> Option<String> {
    let name = instance.record.name();
    instance.record.ignored.then(|| format!("{name} is ignored, so its state is not changed; unignore it first"))
}

/// Exactly one instance is updated first. Whoever was that stays it.
fn bootstrap(slots: &[InstanceSlot<'_>]) -> Option<String> {
    let mut holders = slots.iter().filter(|slot| slot.present.is_some_and(|present| present.record.bootstrap));
    match (holders.next(), holders.next()) {
        (Some(only), None) => Some(only.id.clone()),
        _ => slots.first().map(|slot| slot.id.clone()),
    }
}
