//! From what is to what is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use windlass_contract::{Networks, Object};

use super::addresses::{AddressRequest, Addresses};
use super::changes::{Goal, VmDecision, changes, decide_vm, new_instance, obstacle, removal, resting, rests};
use super::compilation::{self, CompilationPlan, is_compilation_group};
use super::instance_specs::{Linked, OF_AN_INSTANCE, with_addresses};
use super::link_contents::{self, LinkedInstance};
use super::placement::{InstanceSlot, Present, place};
use super::software_change::why_other_software;
use super::{Action, Current, CurrentInstance, GroupPlan, InstancePlan, InstanceSpec, Plan, PlanOptions, Wish};
use crate::desired::{Desired, DesiredCompilation, DesiredGroup, Findings, Lifecycle, VmStrategy};
use crate::links::PlannedLinks;
use crate::names::{DeploymentName, InstanceId, InstanceName};
use crate::records::InstanceState;
use crate::software::{RenderedAtDeploy, Software, TemplateInstance, Templates, VariableSet};
use crate::weight::Room;

/// Plans. `new_id` gives the UUIDs of new instances; with the same ids the same inputs give the same plan. A plan with
/// problems in the findings is not to be carried out.
pub fn plan(
    desired: &Desired,
    current: &Current,
    options: &PlanOptions,
    templates: &dyn Templates,
    new_id: &mut dyn FnMut() -> InstanceId,
    findings: &mut Findings,
) -> Plan {
    findings.begin("");
    // Places and addresses of very many take memory before the first of them has a spec.
    let instances = desired.groups.iter().fold(0_usize, |sum, group| sum.saturating_add(group.instances));
    if let Err(message) = Room::for_instances(desired.is_of_team).take(instances.saturating_mul(OF_AN_INSTANCE)) {
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
        addresses: Addresses::new(current.addresses.clone(), options.left_to_others),
        linked: BTreeMap::new(),
        unrendered: Vec::new(),
        not_told: 0,
        room: Room::for_instances(desired.is_of_team),
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
    new_id: &mut dyn FnMut() -> InstanceId,
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
        addresses: Addresses::new(current.addresses.clone(), options.left_to_others),
        linked: BTreeMap::new(),
        unrendered: Vec::new(),
        not_told: 0,
        room: Room::for_instances(desired.is_of_team),
        findings,
    };
    let compilation = planner.compilation(new_id);
    Plan { deployment: desired.deployment.clone(), compilation, removed, ..Plan::default() }
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
pub fn plan_deletion(deployment: &DeploymentName, current: &Current) -> Plan {
    let options = PlanOptions::default();
    let removed =
        current.instances.iter().map(|instance| removal(instance, "the deployment is deleted", &options)).collect();
    Plan { deployment: deployment.clone(), removed, ..Plan::default() }
}

/// What BOSH's director calls the wish to change the state of an ignored instance.
const STATE_OF_IGNORED: u32 = 140021;
/// What BOSH's director calls every error that has no number of its own, such as those of templates.
const RENDERING: u32 = 100;
/// How many bytes of errors of templates are told, or those of one group more.
const MOST_UNRENDERED: usize = 128 << 10;

pub(super) struct Planner<'a, 'f> {
    pub(super) desired: &'a Desired,
    pub(super) current: &'a Current,
    pub(super) options: &'a PlanOptions,
    pub(super) templates: &'a dyn Templates,
    pub(super) addresses: Addresses,
    /// What runs on groups, with its links, by group and by what ran there before if that matters.
    pub(super) linked: BTreeMap<(String, String), Rc<Linked>>,
    /// What is wrong with the templates of groups.
    pub(super) unrendered: Vec<String>,
    /// How many groups there are beyond those.
    pub(super) not_told: usize,
    /// For what each instance has of its group.
    pub(super) room: Room,
    pub(super) findings: &'f mut Findings,
}

/// A group whose instances have their addresses.
struct PlacedGroup<'a> {
    group: &'a DesiredGroup,
    is_first: bool,
    /// In the order of their update.
    instances: Vec<PlacedInstance<'a>>,
}

struct PlacedInstance<'a> {
    id: InstanceId,
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

    /// Thousands of groups may fail, each with as many errors as one may tell.
    fn note_unrendered(&mut self, message: String) {
        let known: usize = self.unrendered.iter().map(String::len).sum();
        match known > MOST_UNRENDERED {
            true => self.not_told += 1,
            false => self.unrendered.push(message),
        }
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
        if self.not_told > 0 {
            text.push_str(&format!("\n  - {} more groups; mend these first", self.not_told));
        }
        self.findings.refuse(RENDERING, None, text);
    }

    /// What has to be compiled. The workers get their addresses after everybody else.
    fn compilation(&mut self, new_id: &mut dyn FnMut() -> InstanceId) -> Option<CompilationPlan> {
        let packages = match compilation::missing(self.desired, &self.current.compiled, &mut self.room) {
            Ok(packages) => packages,
            Err(message) => {
                self.findings.say(message);
                return None;
            }
        };
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

    fn worker(&mut self, group: &DesiredGroup, index: usize, id: InstanceId) -> Result<InstancePlan, String> {
        let zone = group.zones.first().ok_or("its az is not in the cloud config")?;
        let holder = format!("{}/{}", self.desired.deployment, InstanceName::of(&group.name, &id));
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
                    self.note_unrendered(message);
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

    /// An instance that is not to run stays as it was made, with its addresses, until it is started.
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

/// Why an instance cannot be changed that the operator wants to be left alone.
fn protected(instance: &CurrentInstance) -> Option<String> {
    let name = instance.record.name();
    instance.record.ignored.then(|| format!("{name} is ignored, so its state is not changed; unignore it first"))
}

/// Exactly one instance is updated first. The one that was it stays it.
fn bootstrap(slots: &[InstanceSlot<'_>]) -> Option<InstanceId> {
    let mut holders = slots.iter().filter(|slot| slot.present.is_some_and(|present| present.record.bootstrap));
    match (holders.next(), holders.next()) {
        (Some(only), None) => Some(only.id.clone()),
        _ => slots.first().map(|slot| slot.id.clone()),
    }
}
