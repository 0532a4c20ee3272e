//! Which files of jobs a deploy would change, line by line, without a value. What runs is rendered again from the records.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use windlass_contract::director::{ChangedFile, ChangedFiles, ChangedLine};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{CurrentInstance, InstancePlan, InstanceSpec, with_addresses};
use windlass_planning::records::InstanceRecord;
use windlass_planning::software::{Software, SoftwareOfInstance, TemplateInstance, Templates as _};
use windlass_render::{HiddenLine, LineChange, changed_lines, render_hidden};

use super::{Rendering, SoftwareError, provided, unfilled};
use crate::Director;
use crate::tasks::PreparedDeploy;

/// At most so many lines of a file are told.
const TOLD: usize = 100;

/// The files of an instance, by job and path.
type Files = BTreeMap<(String, String), Vec<HiddenLine>>;

/// Compares what a plan would bring to VMs with what they have.
pub(crate) async fn changed_files(
    director: &Director,
    prepared: &PreparedDeploy,
    user: &str,
) -> Result<ChangedFiles, SoftwareError> {
    let plan = &prepared.plan;
    let mut software: HashMap<String, &Software> = HashMap::new();
    software.extend(prepared.current.software.iter().map(|(digest, software)| (digest.clone(), software)));
    software.extend(plan.software.iter().map(|software| (software.digest(), software)));
    let jobs = software.values().flat_map(|software| &software.jobs);
    let rendering = director.library.rendering(jobs).await?.knowing(prepared.values.clone());
    let deployment = &plan.deployment;
    let compare = || {
        let comparison = Comparison { deployment, software: &software, rendering: &rendering };
        let mut changed = ChangedFiles::default();
        for instance in plan.instances() {
            let present = prepared.current.instances.iter().find(|present| present.record.id == instance.id);
            comparison.add(instance, present, &mut changed);
        }
        changed
    };
    Ok(director.limits.rendering_without_task(user).await.work(compare))
}

struct Comparison<'a> {
    deployment: &'a DeploymentName,
    software: &'a HashMap<String, &'a Software>,
    rendering: &'a Rendering,
}

impl Comparison<'_> {
    fn add(&self, plan: &InstancePlan, present: Option<&CurrentInstance>, changed: &mut ChangedFiles) {
        let label = format!("{}/{}", plan.group, plan.index);
        let wanted = plan.spec.as_ref().and_then(|spec| Some((spec, spec.software.as_ref()?)));
        let later =
            wanted.and_then(|(_, wanted)| self.rendering.rendered_at_deploy(self.software.get(&wanted.digest)?));
        if let Some(later) = later {
            changed.notes.push(format!("{label}: {later}"));
            return;
        }
        let has = present.and_then(|present| {
            let spec = present.record.spec.as_ref()?;
            Some((present, spec, spec.software.as_ref()?))
        });
        if has.map(|(_, _, has)| &has.configuration_hash) == wanted.map(|(_, wanted)| &wanted.configuration_hash) {
            return;
        }
        let before =
            has.map_or(Ok(Files::new()), |(present, spec, has)| self.had(&label, present, (spec, has), changed));
        let after = wanted.map_or(Ok(Files::new()), |(spec, wanted)| self.gets(plan, present, (spec, wanted)));
        match (before, after) {
            (Ok(before), Ok(after)) => compared(&label, &before, &after, has.is_none(), &mut changed.files),
            (Err(why), _) | (_, Err(why)) => changed.notes.push(format!("{label} cannot be compared: {why}")),
        }
    }

    /// What the VM has, rendered with the addresses that it has.
    fn had(
        &self,
        label: &str,
        present: &CurrentInstance,
        (spec, has): (&InstanceSpec, &SoftwareOfInstance),
        changed: &mut ChangedFiles,
    ) -> Result<Files, String> {
        let record: &InstanceRecord = &present.record;
        let instance = TemplateInstance {
            deployment: self.deployment,
            group: &record.group,
            index: record.index,
            id: &record.id,
            az: record.az.as_deref(),
            bootstrap: record.bootstrap,
            networks: present.vm.as_ref().map_or(&spec.networks, |vm| &vm.networks),
            persistent_disk: spec.managed_disk().map(|disk| disk.size),
            variables: spec.variables,
            dns_address: spec.dns_address.as_deref(),
        };
        let software = self.known(&has.digest)?;
        if self.rendering.configuration_hash(software, &instance)? != has.configuration_hash {
            changed.notes.push(format!(
                "{label}: its templates do not give what they gave when it was deployed, so other lines may change as well"
            ));
        }
        self.files(software, &instance)
    }

    fn gets(
        &self,
        plan: &InstancePlan,
        present: Option<&CurrentInstance>,
        (spec, wanted): (&InstanceSpec, &SoftwareOfInstance),
    ) -> Result<Files, String> {
        let on_vm = present.and_then(|present| present.vm.as_ref()).map(|vm| &vm.networks);
        let networks = on_vm.map_or_else(|| spec.networks.clone(), |on_vm| with_addresses(&spec.networks, on_vm));
        let instance = TemplateInstance {
            deployment: self.deployment,
            group: &plan.group,
            index: plan.index,
            id: &plan.id,
            az: plan.az.as_deref(),
            bootstrap: plan.bootstrap,
            networks: &networks,
            persistent_disk: spec.managed_disk().map(|disk| disk.size),
            variables: spec.variables,
            dns_address: spec.dns_address.as_deref(),
        };
        self.files(self.known(&wanted.digest)?, &instance)
    }

    fn known(&self, digest: &str) -> Result<&Software, String> {
        self.software.get(digest).copied().ok_or_else(|| "nothing on record says which jobs it has".to_owned())
    }

    fn files(&self, software: &Software, instance: &TemplateInstance<'_>) -> Result<Files, String> {
        let mark = uuid::Uuid::new_v4().simple().to_string();
        let mut files = Files::new();
        for (job, read, spec) in self.rendering.seen(software, instance) {
            let links: Vec<_> = job.provides.iter().map(provided).collect();
            let spec = spec.map_err(|lacking| unfilled(&job.name, &lacking))?;
            let rendered = render_hidden(&*self.rendering.renderer, read, &spec, &links, &mark);
            for (path, lines) in rendered.map_err(|error| error.to_string())? {
                files.insert((job.name.clone(), path), lines);
            }
        }
        Ok(files)
    }
}

/// Adds what changes for an instance to what changes for others in the same way.
fn compared(label: &str, before: &Files, after: &Files, is_new: bool, changed: &mut Vec<ChangedFile>) {
    let paths: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in paths {
        let (change, lines) = match (before.get(key), after.get(key)) {
            (None, Some(_)) => ("new", Vec::new()),
            (Some(_), None) => ("removed", Vec::new()),
            (Some(before), Some(after)) if before != after => ("changed", changed_lines(before, after)),
            _ => continue,
        };
        // All files of a new instance are new, so they are not listed.
        let file = if is_new { String::new() } else { key.1.clone() };
        let shown = lines.iter().take(TOLD).map(|line| ChangedLine {
            number: line.number,
            change: match line.change {
                LineChange::Added => '+',
                LineChange::Removed => '-',
                LineChange::Values => '~',
            },
            text: line.shown.clone(),
        });
        let more = lines.len().saturating_sub(TOLD);
        let (instances, change) = (vec![label.to_owned()], change.to_owned());
        let found = ChangedFile { instances, job: key.0.clone(), file, change, lines: shown.collect(), more };
        match changed.iter_mut().find(|known| known.is_same_change(&found)) {
            Some(known) if known.instances.last().is_some_and(|last| last == label) => {}
            Some(known) => known.instances.push(label.to_owned()),
            None => changed.push(found),
        }
    }
}
