//! cloud-check: compares what agents and clouds say with the records.
//!
//! Agents are asked first; a cloud is asked for a VM only when its agent does not answer, and for every disk. Where the cloud
//! can say which disks a VM has (`get_disks`), it is asked as well: an agent may still have mounted what the cloud took away. One that
//! cannot say it of a VM that it has cannot reach that VM: it is not gone, and may run on. An agent that answers also says whether
//! its jobs run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use windlass_agent_client::Deadlines;
use windlass_contract::cpi::methods::{GetDisks, HasDisk, HasVm};
use windlass_contract::cpi::{ErrorType, Method};
use windlass_contract::{DiskCid, VmCid, explain};
use windlass_manifest::Document;
use windlass_planning::desired::{DeploymentManifest, Findings, InstanceGroup};
use windlass_planning::names::{CpiName, DeploymentName, InstanceId};
use windlass_planning::plan::{Current, CurrentInstance};
use windlass_planning::problems::Problem;
use windlass_planning::records::{DiskRecord, InstanceState, VmRecord};

use super::errands::errands_of;
use super::large::reload;
use super::{OutputKind, TaskError, TaskLog, lock_deployment_at_once};
use crate::Director;

/// How long an agent may take; it is asked once.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What agents call the state of jobs that should run and do not.
pub(super) const FAILING: &str = "failing";

/// Scans a whole deployment.
pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<String, TaskError> {
    lock_deployment_at_once(director, log, deployment).await?;
    let scan = Scan::new(director, log, deployment).await?;
    let (mut problems, owners) = scan.vms(|_| true).await;
    problems.extend(scan.disks(&owners).await);
    director.store.replace_problems(deployment, None, &problems).await?;
    Ok("scan complete".to_owned())
}

/// A deployment that is being looked at.
pub(super) struct Scan<'a> {
    director: &'a Director,
    log: &'a TaskLog,
    pub(super) current: Current,
    /// Instances that nobody looks at.
    left_alone: BTreeSet<InstanceId>,
}

/// Which VMs mounted a disk, and which VM the cloud says it is attached to.
#[derive(Debug, Default)]
pub(super) struct Owners {
    mounted: BTreeMap<DiskCid, Vec<VmCid>>,
    /// What VMs have, for those whose cloud can say so.
    attached: BTreeMap<VmCid, Vec<DiskCid>>,
}

/// What was found out about one VM.
struct SeenVm {
    problem: Option<Problem>,
    vm: Option<VmCid>,
    mounted: Vec<DiskCid>,
    attached: Option<Vec<DiskCid>>,
}

impl<'a> Scan<'a> {
    pub(super) async fn new(
        director: &'a Director,
        log: &'a TaskLog,
        deployment: &DeploymentName,
    ) -> Result<Self, TaskError> {
        let current = reload(director, log, deployment).await?;
        let left_alone = left_alone(director, deployment, &current).await?;
        Ok(Self { director, log, current, left_alone })
    }

    /// Looks at the VMs of some instances.
    pub(super) async fn vms(&self, wanted: impl Fn(&CurrentInstance) -> bool) -> (Vec<Problem>, Owners) {
        let looked_at =
            |instance: &&CurrentInstance| !self.left_alone.contains(&instance.record.id) && wanted(instance);
        let instances: Vec<_> = self.current.instances.iter().filter(looked_at).collect();
        let stage = self.log.stage(&format!("Scanning {} VMs", instances.len()), &[], 2);
        let mut looking: Vec<BoxFuture<'_, SeenVm>> = Vec::new();
        for instance in &instances {
            looking.push(Box::pin(self.look_at_vm(instance)));
        }
        let looking = stream::iter(looking).buffered(self.director.settings.max_threads).collect();
        let seen: Vec<SeenVm> = stage.part("Checking VM states").watch(looking).await;
        let stubs = self.clouds_without_answers(&instances, &seen).await;
        let mut owners = Owners::default();
        for (instance, seen) in instances.iter().zip(&seen) {
            let Some(vm) = &seen.vm else { continue };
            for disk in &seen.mounted {
                owners.mounted.entry(disk.clone()).or_default().push(vm.clone());
            }
            let is_stub = instance.vm.as_ref().is_some_and(|vm| stubs.contains(&vm.cpi));
            if let Some(attached) = seen.attached.as_ref().filter(|_| !is_stub) {
                owners.attached.insert(vm.clone(), attached.clone());
            }
        }
        let problems: Vec<_> = seen.into_iter().filter_map(|seen| seen.problem).collect();
        let missing = problems.iter().filter(|problem| matches!(problem, Problem::MissingVm { .. })).count();
        let failing = problems.iter().filter(|problem| matches!(problem, Problem::FailingJobs { .. })).count();
        let unresponsive = problems.len() - missing - failing;
        let ok = instances.len() - problems.len();
        let mut summary = format!("{ok} OK, {unresponsive} unresponsive, {missing} missing, 0 unbound");
        if failing > 0 {
            summary.push_str(&format!(", {failing} with failing jobs"));
        }
        stage.part(&summary).watch(async {}).await;
        (problems, owners)
    }

    /// CPIs of others whose `get_disks` names no disk of any VM: many answer an empty list whatever they have.
    async fn clouds_without_answers(&self, instances: &[&CurrentInstance], seen: &[SeenVm]) -> BTreeSet<CpiName> {
        let vms = instances.iter().zip(seen).filter_map(|(instance, seen)| Some((instance.vm.as_ref()?, seen)));
        let answers = vms.filter_map(|(vm, seen)| Some((&vm.cpi, seen.attached.as_deref()?)));
        let mut stubs = BTreeSet::new();
        for cpi in silent(answers) {
            let info = match self.director.clouds.cpi(&cpi) {
                Ok(cpi) => cpi.info().await.ok(),
                Err(_) => None,
            };
            if info.is_none_or(|info| info.windlass.is_none()) {
                stubs.insert(cpi);
            }
        }
        stubs
    }

    async fn look_at_vm(&self, instance: &CurrentInstance) -> SeenVm {
        let id = instance.record.id.clone();
        let Some(vm) = &instance.vm else {
            let problem = Some(Problem::MissingVm { instance: id });
            return SeenVm { problem, vm: None, mounted: Vec::new(), attached: None };
        };
        let deadlines = Deadlines { message: PATIENCE, silence: PATIENCE, task: PATIENCE };
        let agent = self.director.agents.of(vm).with_deadlines(deadlines);
        match agent.get_state(true).await {
            Ok(state) => {
                let listed = agent.list_disk().await.unwrap_or_else(|error| {
                    self.log.debug(&format!("{}: {}", instance.record.name(), explain(&error)));
                    Vec::new()
                });
                // What it lists is nowhere that jobs could see if nothing is mounted where it belongs.
                let mounted = if state.has_store() == Some(false) { Vec::new() } else { listed };
                let attached = self.ask(&vm.cpi, Some(vm), &GetDisks { vm_cid: vm.cid.clone() }).await;
                let is_wanted = instance.record.state == InstanceState::Started;
                let problem = (is_wanted && state.job_state == FAILING)
                    .then(|| Problem::FailingJobs { instance: id, processes: state.failing_processes() });
                SeenVm { problem, vm: Some(vm.cid.clone()), mounted, attached }
            }
            Err(error) => {
                self.log.debug(&format!("{}: {}", instance.record.name(), explain(&error)));
                let exists = self.ask(&vm.cpi, Some(vm), &HasVm { vm_cid: vm.cid.clone() }).await != Some(false);
                let problem = match exists {
                    true => Problem::UnresponsiveAgent { instance: id, unreachable: self.unreachable(vm).await },
                    false => Problem::MissingVm { instance: id },
                };
                // One problem is enough: whether its disks are mounted can only be seen once its agent answers.
                let mounted = instance.disks.iter().filter(|disk| is_attached_to(disk, vm));
                let mounted = mounted.map(|disk| disk.cid.clone()).collect();
                SeenVm { problem: Some(problem), vm: Some(vm.cid.clone()), mounted, attached: None }
            }
        }
    }

    /// Why a cloud of ours cannot reach a VM that it has. Of other clouds nobody knows what a failure means.
    async fn unreachable(&self, vm: &VmRecord) -> Option<String> {
        let cpi = self.director.clouds.cpi(&vm.cpi).ok()?;
        cpi.info().await.ok()?.windlass?;
        let cpi_log = |line: &str| self.log.write(OutputKind::Cpi, &format!("{line}\n"));
        let question = GetDisks { vm_cid: vm.cid.clone() };
        let error = cpi.call_logged(&question, vm.stemcell.api_version, &cpi_log).await.err()?;
        error.cpi_error().filter(|error| error.kind == ErrorType::CloudError).map(|error| error.message.clone())
    }

    /// Looks at the disks of all instances.
    async fn disks(&self, owners: &Owners) -> Vec<Problem> {
        let instances = self.current.instances.iter().filter(|instance| !self.left_alone.contains(&instance.record.id));
        let disks: Vec<_> = instances.flat_map(|it| it.disks.iter().map(move |disk| (it, disk))).collect();
        let stage = self.log.stage(&format!("Scanning {} persistent disks", disks.len()), &[], 2);
        let mut looking: Vec<BoxFuture<'_, Option<Problem>>> = Vec::new();
        for (instance, disk) in &disks {
            looking.push(Box::pin(self.look_at_disk(instance, disk, owners)));
        }
        let looking = stream::iter(looking).buffered(self.director.settings.max_threads).collect();
        let seen: Vec<Option<Problem>> = stage.part("Looking for inactive disks").watch(looking).await;
        let problems: Vec<_> = seen.into_iter().flatten().collect();
        let count = |kind: &str| problems.iter().filter(|problem| problem.kind() == kind).count();
        let summary = format!(
            "{} OK, {} missing, {} inactive, {} mount-info mismatch",
            disks.len() - problems.len(),
            count("missing_disk"),
            count("inactive_disk"),
            count("mount_info_mismatch"),
        );
        stage.part(&summary).watch(async {}).await;
        problems
    }

    async fn look_at_disk(&self, instance: &CurrentInstance, disk: &DiskRecord, owners: &Owners) -> Option<Problem> {
        let cid = disk.cid.clone();
        let owner = instance.vm.as_ref();
        if self.ask(&disk.cpi, owner, &HasDisk { disk_cid: cid.clone() }).await == Some(false) {
            return Some(Problem::MissingDisk { disk: cid });
        }
        if !disk.active {
            return Some(Problem::InactiveDisk { disk: cid });
        }
        let vm = instance.vm.as_ref()?;
        let owner_vms = owners.mounted.get(&cid).cloned().unwrap_or_default();
        let is_detached = owners.attached.get(&vm.cid).is_some_and(|attached| !attached.contains(&cid));
        // Agents mount only the disk without a name by themselves.
        let is_mounted_right = !disk.name.is_managed() || owner_vms == [vm.cid.clone()];
        let is_right = is_mounted_right && !is_detached;
        (!is_right).then_some(Problem::MountInfoMismatch { disk: cid, owner_vms, is_detached })
    }

    /// Asks a cloud about a VM or what it has; none where it cannot say.
    async fn ask<M: Method<Answer: Send> + Send + Sync>(
        &self,
        cpi: &CpiName,
        vm: Option<&VmRecord>,
        question: &M,
    ) -> Option<M::Answer> {
        let cpi_log = |line: &str| self.log.write(OutputKind::Cpi, &format!("{line}\n"));
        let version = vm.and_then(|vm| vm.stemcell.api_version);
        match self.director.clouds.cpi(cpi).ok()?.call_logged(question, version, &cpi_log).await {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.log.debug(&format!("{}: {}", M::NAME, explain(&error)));
                None
            }
        }
    }
}

/// The CPIs that answered and named nothing.
fn silent<'a>(answers: impl Iterator<Item = (&'a CpiName, &'a [DiskCid])>) -> BTreeSet<CpiName> {
    let mut named: BTreeMap<&CpiName, bool> = BTreeMap::new();
    for (cpi, disks) in answers {
        *named.entry(cpi).or_default() |= !disks.is_empty();
    }
    named.into_iter().filter(|(_, names)| !names).map(|(cpi, _)| cpi.clone()).collect()
}

fn is_attached_to(disk: &DiskRecord, vm: &VmRecord) -> bool {
    disk.vm.as_ref() == Some(&vm.cid)
}

/// Instances of which nobody expects a VM, or which nobody touches.
async fn left_alone(
    director: &Director,
    deployment: &DeploymentName,
    current: &Current,
) -> Result<BTreeSet<InstanceId>, TaskError> {
    let errands = errands_of(director, deployment).await?.unwrap_or_default();
    let is_left_alone = |instance: &&CurrentInstance| {
        let record = &instance.record;
        record.ignored || record.state == InstanceState::Detached || errands.contains(&record.group)
    };
    Ok(current.instances.iter().filter(is_left_alone).map(|instance| instance.record.id.clone()).collect())
}

/// The groups of the manifest that was deployed last.
pub(super) async fn groups_of(
    director: &Director,
    deployment: &DeploymentName,
) -> Result<Vec<InstanceGroup>, TaskError> {
    let manifest = director.store.deployment(deployment).await?.and_then(|deployment| deployment.manifest);
    let Some(manifest) = manifest else { return Ok(Vec::new()) };
    let read = || {
        let document = Document::parse(&manifest).ok();
        document.map(|document| DeploymentManifest::read(&document, &mut Findings::new()).groups)
    };
    Ok(director.limits.heavily(read).await.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpi_that_never_names_a_disk_is_known_as_such() {
        let disk = [DiskCid::new("disk-1").unwrap()];
        let [stub, real] = ["stub", "real"].map(CpiName::from);
        let answers: [(&CpiName, &[DiskCid]); 4] = [(&stub, &[]), (&real, &[]), (&real, &disk), (&stub, &[])];
        assert_eq!(silent(answers.into_iter()), BTreeSet::from([stub.clone()]));
    }
}
