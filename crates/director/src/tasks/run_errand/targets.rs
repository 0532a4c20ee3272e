//! Where an errand runs: instances that have its job, and VMs that are made for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sha1::{Digest, Sha1};
use windlass_planning::desired::Lifecycle;
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::{CurrentInstance, InstancePlan, InstanceSpec, Plan};
use windlass_planning::records::InstanceState;
use windlass_planning::software::Software;

use super::{ErrandRequest, InstanceFilter};
use crate::Director;
use crate::tasks::errands_of;
use crate::tasks::large::reload;
use crate::tasks::scan::groups_of;
use crate::tasks::update_deployment::prepare_and_reserve;
use crate::tasks::{DeployOptions, TaskError, TaskLog, compile};

const NOT_RUN: u32 = 510000;

/// Where an errand runs.
pub(super) struct Target {
    pub(super) instance: InstancePlan,
    /// What makes its VM; none for one that has its VM all the time.
    pub(super) plan: Option<Plan>,
    /// Changes with the instance's packages and files.
    pub(super) state: String,
}

/// An errand of a deploy that failed is listed, and the manifest that has it is not the one that was deployed.
fn why_not(errand: &str, is_planned: bool) -> String {
    match is_planned {
        true => format!("Errand '{errand}' was never deployed successfully; deploy it first"),
        false => format!("Errand '{errand}' doesn't exist"),
    }
}

/// Finds them, and whether the errand's name is a job's.
pub(super) async fn targets(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    request: &ErrandRequest,
) -> Result<(bool, Vec<Target>), TaskError> {
    let errand = &request.errand;
    let current = reload(director, log, deployment).await?;
    let (software, _) = director.store.software_of(deployment).await?;
    let groups = groups_of(director, deployment).await?;
    let (matched, unmatched) = matching(&current.instances, &request.instances);
    refuse_stopped(&matched)?;

    let has_job = |name: &str| {
        let of_group = current.instances.iter().filter(|instance| instance.record.group == name);
        of_group.filter_map(|instance| software_of(instance, &software)).any(|found| runs(found, errand))
    };
    let mut chosen: Vec<_> = groups.iter().filter(|group| has_job(&group.name)).collect();
    let by_job = !chosen.is_empty();
    let same_name = groups.iter().find(|group| group.name == *errand);
    match (by_job, same_name) {
        (true, Some(_)) => log.warning(&format!(
            "Ambiguous request: the requested errand name '{errand}' matches both a job name and an errand instance group name. \
             Executing errand on all relevant instances with job '{errand}'."
        )),
        (true, None) => {}
        (false, None) => {
            let errands = errands_of(director, deployment).await?.unwrap_or_default();
            return Err(TaskError::refused(70009, why_not(errand, errands.contains(errand))));
        }
        (false, Some(group)) if group.lifecycle != Lifecycle::Errand => {
            return Err(TaskError::refused(
                NOT_RUN,
                format!(
                    "Instance group '{errand}' is not an errand. To mark an instance group as an errand set its lifecycle to \
                     'errand' in the deployment manifest."
                ),
            ));
        }
        (false, Some(_)) if !request.instances.is_empty() => {
            let reason = "Filtering by instances is not supported when running errand by instance group name";
            return Err(TaskError::refused(NOT_RUN, reason));
        }
        (false, Some(group)) => chosen.push(group),
    }

    let mut targets = Vec::new();
    for group in chosen {
        let of_group: Vec<_> = matched.iter().filter(|instance| instance.record.group == group.name).collect();
        if of_group.len() > 1 {
            log.warning(
                "Executing errand on multiple instances in parallel. Use the `--instance` flag to run the errand on a single \
                 instance.",
            );
        }
        if group.lifecycle == Lifecycle::Errand {
            let target = on_new_vm(director, log, deployment, &group.name).await?;
            targets.extend(target.filter(|target| of_group.iter().any(|found| found.record.id == target.instance.id)));
            continue;
        }
        for instance in of_group {
            let plan = InstancePlan::of(&instance.record, Vec::new());
            match instance.vm.as_ref().filter(|vm| vm.ready) {
                Some(_) => targets.push(Target {
                    state: state(&plan.id, instance.record.spec.as_ref(), software_of(instance, &software)),
                    instance: plan,
                    plan: None,
                }),
                None => log.warning(&format!("Skipping instance: {} no matching VM reference was found", plan.label())),
            }
        }
    }
    if !unmatched.is_empty() {
        let reason = format!("No instances match selection criteria: [{}]", unmatched.join(", "));
        return Err(TaskError::refused(100, reason));
    }
    if targets.is_empty() && !by_job {
        let reason = format!("Instance '{deployment}/{errand}/0' doesn't exist");
        return Err(TaskError::refused(70001, reason));
    }
    Ok((by_job, targets))
}

/// Plans the VM of the first instance of a group that is an errand, and compiles what it needs.
async fn on_new_vm(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    group: &str,
) -> Result<Option<Target>, TaskError> {
    let manifest = director.store.deployment(deployment).await?.and_then(|found| found.manifest).unwrap_or_default();
    let options = DeployOptions {
        configs: Some(director.store.configs_of(deployment).await?),
        errand: Some(group.to_owned()),
        ..DeployOptions::default()
    };
    let mut plan = prepare_and_reserve(director, log, deployment, &manifest, &options).await?.plan;
    let stage = log.stage("Preparing package compilation", &[], 1);
    stage.part("Finding packages to compile").run(async { Ok::<_, TaskError>(()) }).await?;
    if let Some(compilation) = &plan.compilation {
        compile::run(director, log, deployment, compilation).await?;
    }
    let Some(instance) = plan.instances().next().cloned() else { return Ok(None) };
    let spec = instance.spec.as_ref();
    let digest = spec.and_then(|spec| spec.software.as_ref()).map(|software| software.digest.as_str());
    let software = plan.software.iter().find(|software| Some(software.digest().as_str()) == digest);
    let state = state(&instance.id, spec, software);
    // A job may be an errand of many groups, each with a plan of its own.
    plan.software.clear();
    Ok(Some(Target { state, instance, plan: Some(plan) }))
}

fn software_of<'s>(instance: &CurrentInstance, known: &'s BTreeMap<String, Software>) -> Option<&'s Software> {
    known.get(&instance.record.spec.as_ref()?.software.as_ref()?.digest)
}

fn runs(software: &Software, job: &str) -> bool {
    software.jobs.iter().any(|found| found.name == job)
}

fn state(id: &InstanceId, spec: Option<&InstanceSpec>, software: Option<&Software>) -> String {
    let files = spec.and_then(|spec| spec.software.as_ref()).map(|software| software.configuration_hash.as_str());
    let packages: Vec<_> = software.into_iter().flat_map(|software| &software.packages).collect();
    let packages: BTreeMap<_, _> =
        packages.iter().map(|package| (&package.name, (&package.version, &package.dependency_key))).collect();
    let whole = json!([id, files, packages]).to_string();
    Sha1::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nobody knows why it was stopped, so nothing runs on it.
fn refuse_stopped(instances: &[&CurrentInstance]) -> Result<(), TaskError> {
    let stopped = instances.iter().filter(|instance| instance.record.state == InstanceState::Stopped);
    let names: Vec<_> = stopped.map(|instance| format!("'{}'", instance.record.name())).collect();
    if names.is_empty() {
        return Ok(());
    }
    let reason = format!("Instance(s) {} is stopped, unable to run errand. Maybe start vm?", names.join(","));
    Err(TaskError::refused(NOT_RUN, reason))
}

/// The instances that filters mean, and the filters that mean none, in BOSH's words.
fn matching<'c>(
    instances: &'c [CurrentInstance],
    filters: &[InstanceFilter],
) -> (Vec<&'c CurrentInstance>, Vec<String>) {
    if filters.is_empty() {
        return (instances.iter().collect(), Vec::new());
    }
    let of_group = |filter: &InstanceFilter| -> Vec<&CurrentInstance> {
        instances.iter().filter(|instance| instance.record.group == filter.group).collect()
    };
    let meant = |filter: &InstanceFilter| -> Vec<&InstanceId> {
        let of_group = of_group(filter);
        let ids = of_group.iter().map(|instance| &instance.record.id);
        match filter.id.as_deref() {
            None | Some("") => ids.collect(),
            Some("first") => ids.min().into_iter().collect(),
            Some(id) => of_group
                .iter()
                .filter(|instance| instance.record.id == id || instance.record.index.to_string() == id)
                .map(|instance| &instance.record.id)
                .collect(),
        }
    };
    let ids: Vec<&InstanceId> = filters.iter().flat_map(meant).collect();
    let matched = instances.iter().filter(|instance| ids.contains(&&instance.record.id)).collect();
    let unmatched = filters.iter().filter(|filter| meant(filter).is_empty());
    let shown = |filter: &InstanceFilter| match &filter.id {
        Some(id) => format!(r#"{{"group" => "{}", "id" => "{id}"}}"#, filter.group),
        None => format!(r#"{{"group" => "{}"}}"#, filter.group),
    };
    (matched, unmatched.map(shown).collect())
}

#[cfg(test)]
mod tests {
    use windlass_operations::testing::new_instance_record;
    use windlass_planning::records::InstanceRecord;

    use super::*;

    fn instance(group: &str, id: &str, index: i64) -> CurrentInstance {
        let record = InstanceRecord { index, bootstrap: false, ..new_instance_record("d", group, id) };
        CurrentInstance { record, vm: None, spare: None, disks: Vec::new(), unresponsive: false }
    }

    #[test]
    fn an_errand_of_a_deploy_that_failed_is_not_denied() {
        assert_eq!(why_not("smoke", false), "Errand 'smoke' doesn't exist");
        assert_eq!(why_not("smoke", true), "Errand 'smoke' was never deployed successfully; deploy it first");
    }

    #[test]
    fn instances_are_chosen_by_group_uuid_index_or_as_the_first() {
        let all = [instance("a", "z", 0), instance("a", "b", 1), instance("c", "d", 0)];
        let chosen = |filters: &[(&str, Option<&str>)]| {
            let filters: Vec<_> = filters
                .iter()
                .map(|(group, id)| InstanceFilter { group: (*group).into(), id: id.map(str::to_owned) })
                .collect();
            let (matched, unmatched) = matching(&all, &filters);
            (matched.iter().map(|found| found.record.id.clone()).collect::<Vec<_>>(), unmatched)
        };
        assert_eq!(chosen(&[]).0, ["z", "b", "d"]);
        assert_eq!(chosen(&[("a", None)]).0, ["z", "b"]);
        assert_eq!(chosen(&[("a", Some("first")), ("c", Some("0"))]).0, ["b", "d"]);
        assert_eq!(chosen(&[("a", Some("1"))]).0, ["b"]);
        let (_, unmatched) = chosen(&[("a", Some("9")), ("x", None)]);
        assert_eq!(unmatched, [r#"{"group" => "a", "id" => "9"}"#, r#"{"group" => "x"}"#]);
    }
}
