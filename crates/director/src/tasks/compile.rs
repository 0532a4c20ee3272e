//! Compiles packages on workers, before anything else of a deploy is made.
//!
//! What a worker compiled is a file and a record, written together under a lock; what has no record is removed, and a killed
//! deploy compiles only what is missing. A worker is an instance on record before it has a VM, so the next deploy removes one
//! that a kill left.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use windlass_blobs::BlobFile;
use windlass_durable::{file, kill_point};
use windlass_operations::steps::{CompilePackage, Dependency};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Action, ActionKind, CompilationPlan, InstancePlan, PackageToCompile};
use windlass_planning::records::{CompilationKey, CompiledPackage};

use super::execute::{Execution, Failures};
use super::log::EventPart;
use super::update_deployment::{all, one_or_several};
use super::{EventStage, TaskError, TaskLog};
use crate::Director;
use crate::blobs::RELEASES;
use crate::software::{self, SoftwareError};
use crate::store::{LockError, LockName};

/// How often somebody who waits for another task's compilation looks whether it is there.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Compiles what a plan says.
pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    plan: &CompilationPlan,
) -> Result<(), TaskError> {
    let stage = log.stage("Compiling packages", &[], plan.packages.len());
    let queue = Queue::new(&plan.packages);
    let reuses_vms = plan.reuse_vms && has_no_team(director, deployment).await?;
    let compilation = Compilation { director, log, deployment, plan, reuses_vms, stage, queue };
    let each = plan.workers.iter().map(|worker| -> BoxFuture<'_, _> { Box::pin(compilation.work(worker)) });
    let at_once = if plan.at_once == 0 { plan.workers.len() } else { plan.at_once };
    all(Box::new(each), at_once.max(1)).await
}

struct Compilation<'a> {
    director: &'a Arc<Director>,
    log: &'a TaskLog,
    deployment: &'a DeploymentName,
    plan: &'a CompilationPlan,
    /// Whether a worker compiles several packages on one VM.
    reuses_vms: bool,
    stage: EventStage,
    queue: Queue<'a>,
}

/// Whether nobody but admins says what a deployment has. A team may deploy a release that has packages of its own beside those of everybody, and
/// a script of the former may change the VM that it runs on.
async fn has_no_team(director: &Director, deployment: &DeploymentName) -> Result<bool, TaskError> {
    Ok(director.store.teams_of(deployment).await?.is_none_or(|teams| teams.is_empty()))
}

impl<'a> Compilation<'a> {
    /// What one worker does, until nothing is left for it. Its VM goes, also after a failure.
    async fn work(&self, worker: &'a InstancePlan) -> Result<(), TaskError> {
        let mut execution: Option<Execution> = None;
        let mut errors = Vec::new();
        let mut before: Option<&'a PackageToCompile> = None;
        while let Some(package) = self.queue.next(worker, before).await {
            if let Some(execution) = &mut execution
                && execution.vm().is_some()
                && !may_share_vm(before, package)
            {
                errors.extend(self.give_up_vm(execution, "it compiled packages of another release").await);
                if !errors.is_empty() {
                    self.queue.ended(package, false);
                    break;
                }
            }
            before = Some(package);
            let part = self.stage.part(&package.label());
            let result = part.run(self.compile(worker, &mut execution, package, &part)).await;
            self.queue.ended(package, result.is_ok());
            errors.extend(result.err());
            if !errors.is_empty() {
                break;
            }
            if !self.reuses_vms
                && let Some(execution) = &mut execution
            {
                errors.extend(self.give_up_vm(execution, "it compiled its package").await);
                if !errors.is_empty() {
                    break;
                }
            }
        }
        let execution = execution.get_or_insert_with(|| self.execution(worker, self.stage.part(&worker.label())));
        let left = self.give_up_vm(execution, "everything is compiled").await;
        let is_gone = left.is_empty();
        errors.extend(left);
        if is_gone {
            let remove = Action { what: ActionKind::RemoveInstance, reason: "everything is compiled".to_owned() };
            errors.extend(execution.run(&[remove], Failures::Stop).await.err().unwrap_or_default());
        }
        if errors.is_empty() { Ok(()) } else { Err(one_or_several(errors)) }
    }

    /// Deletes the VM of a worker, or leaves it to the task that deletes orphaned VMs.
    async fn give_up_vm(&self, execution: &mut Execution, reason: &str) -> Vec<TaskError> {
        match self.plan.orphan_workers {
            true => execution.orphan_vm().await.err().into_iter().collect(),
            false => execution.run(&execution.deletion(reason), Failures::Stop).await.err().unwrap_or_default(),
        }
    }

    fn execution(&self, worker: &InstancePlan, part: Arc<EventPart>) -> Execution {
        Execution::new(self.director, self.log, part, self.deployment, worker, None)
    }

    async fn compile(
        &self,
        worker: &InstancePlan,
        execution: &mut Option<Execution>,
        package: &PackageToCompile,
        part: &Arc<EventPart>,
    ) -> Result<(), TaskError> {
        let key = package.key();
        if self.is_compiled_by_others(&key).await? {
            return Ok(());
        }
        let execution = execution.get_or_insert_with(|| self.execution(worker, part.clone()));
        execution.report_to(part.clone());
        if execution.vm().is_none() {
            let create = Action { what: ActionKind::CreateVm, reason: format!("to compile {}", package.label()) };
            execution.run(&[create], Failures::Stop).await.map_err(one_or_several)?;
        }
        // The cloud's own console shows what the VM is for.
        execution.tag("compiling", &package.package.name);
        let name = Action { what: ActionKind::SetMetadata, reason: format!("it compiles {}", package.label()) };
        execution.run(&[name], Failures::Stop).await.map_err(one_or_several)?;
        let build = self.director.store.next_build(&key).await?;
        let into = self.director.folders.temporary().join(format!("compiled-{}", uuid::Uuid::new_v4()));
        let (compiled, _archives) = self.operation(execution, package, build, into.clone()).await?;
        let sha1 = match compiled.run().await {
            Ok(sha1) => sha1,
            Err(error) => {
                // What it left is of no use to anybody.
                let _ = file::remove_file(&into);
                return Err(error.into());
            }
        };
        self.keep(CompiledPackage { key, build, sha1, blob: uuid::Uuid::new_v4().to_string() }, &into).await
    }

    /// Whether another deploy compiled it, or does so now: then that is waited for.
    async fn is_compiled_by_others(&self, key: &CompilationKey) -> Result<bool, TaskError> {
        let store = &self.director.store;
        let name = LockName::of_compilation(key);
        loop {
            let lock = store.take_lock(&name, self.log.task(), &self.director.uuid).await;
            if store.compiled_package(key).await?.is_some() {
                return Ok(true);
            }
            match lock {
                Ok(()) => return Ok(false),
                Err(LockError::Held { task, .. }) if task == self.log.task() => return Ok(false),
                Err(LockError::Held { .. }) if self.log.is_cancelled() => return Err(TaskError::Cancelled),
                Err(LockError::Held { .. }) => tokio::time::sleep(LOOK_AGAIN).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The compilation, and the archives for it, which are there as long as they are held.
    async fn operation(
        &self,
        execution: &Execution,
        package: &PackageToCompile,
        build: i64,
        into: std::path::PathBuf,
    ) -> Result<(CompilePackage, Vec<BlobFile>), TaskError> {
        let (store, blobs) = (&self.director.store, &self.director.blobs);
        let wanted = &package.package;
        let gone =
            || SoftwareError::Gone { what: format!("package '{}'", wanted.name), release: wanted.release.clone() };
        let found = store.package_of_release(&wanted.release, &wanted.name, &wanted.version).await?;
        let source = found.and_then(|found| found.source).ok_or_else(gone)?;
        let archive = software::archive(blobs, &source.blob, &source.sha1).await?;
        let source = (source.sha1, archive.as_ref().to_owned());
        let (mut archives, mut dependencies) = (vec![archive], Vec::new());
        for key in &package.needs {
            let not_compiled = || SoftwareError::NotCompiled {
                package: key.package.clone(),
                stemcell: format!("{}/{}", key.os, key.stemcell),
            };
            let needed = store.compiled_package(key).await?.ok_or_else(not_compiled)?;
            let archive = software::archive(blobs, &needed.blob, &needed.sha1).await?;
            dependencies.push(Dependency {
                name: key.package.clone(),
                version: needed.version(),
                path: archive.as_ref().to_owned(),
                digest: needed.sha1,
                blob: needed.blob,
            });
            archives.push(archive);
        }
        let vm = execution.vm().cloned().ok_or_else(|| SoftwareError::NotOnRecord(wanted.name.clone()))?;
        let compilation = CompilePackage {
            context: execution.context().clone(),
            vm,
            name: wanted.name.clone(),
            version: format!("{}.{build}", wanted.version),
            source,
            dependencies,
            into,
            compiled: None,
        };
        Ok((compilation, archives))
    }

    /// Moves the file to where packages are, and puts it on record. Nobody removes files without a record meanwhile.
    async fn keep(&self, package: CompiledPackage, from: &std::path::Path) -> Result<(), TaskError> {
        let _turn = self.director.release_files.read().await;
        let kept = self.director.blobs.keep(RELEASES, &package.blob, from).await;
        if kept.is_err() {
            // What it left is of no use to anybody.
            let _ = file::remove_file(from);
        }
        kept?;
        kill_point("before a compiled package is put on record");
        Ok(self.director.store.add_compiled_package(&package).await?)
    }
}

/// Whether a package is compiled where another one was. A script of a release may change the VM that it runs on, and what
/// is compiled of another release is for deployments of all teams.
fn may_share_vm(before: Option<&PackageToCompile>, package: &PackageToCompile) -> bool {
    before.is_none_or(|before| before.package.release == package.package.release)
}

/// The packages that are still to be compiled, and who waits for which.
struct Queue<'a> {
    state: Mutex<State<'a>>,
    changed: Notify,
}

struct State<'a> {
    /// Those that need what is not compiled yet.
    waiting: Vec<&'a PackageToCompile>,
    /// The last one is compiled first, as BOSH does it: what became possible by a compilation comes right after it.
    ready: Vec<&'a PackageToCompile>,
    running: BTreeSet<CompilationKey>,
    failed: bool,
}

enum Next<'a> {
    Package(&'a PackageToCompile),
    Wait,
    Nothing,
}

impl<'a> Queue<'a> {
    fn new(packages: &'a [PackageToCompile]) -> Self {
        let waiting = packages.iter().collect();
        let mut state = State { waiting, ready: Vec::new(), running: BTreeSet::new(), failed: false };
        state.find_ready();
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// The next package that a worker can compile, once what it needs is there, and on the same VM if possible. None when nothing is
    /// left for it.
    async fn next(&self, worker: &InstancePlan, before: Option<&PackageToCompile>) -> Option<&'a PackageToCompile> {
        loop {
            let changed = self.changed.notified();
            match self.look(worker, before) {
                Next::Package(package) => return Some(package),
                Next::Nothing => return None,
                Next::Wait => changed.await,
            }
        }
    }

    fn look(&self, worker: &InstancePlan, before: Option<&PackageToCompile>) -> Next<'a> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stemcell = worker.spec.as_ref().map(|spec| (&spec.stemcell.name, &spec.stemcell.version));
        let fits = |package: &&PackageToCompile| Some((&package.stemcell, &package.version)) == stemcell;
        if state.failed || !state.ready.iter().chain(&state.waiting).any(&fits) {
            return Next::Nothing;
        }
        let on_same_vm = state.ready.iter().rposition(|package| fits(package) && may_share_vm(before, package));
        match on_same_vm.or_else(|| state.ready.iter().rposition(fits)) {
            Some(position) => {
                let package = state.ready.remove(position);
                state.running.insert(package.key());
                Next::Package(package)
            }
            None => Next::Wait,
        }
    }

    fn ended(&self, package: &PackageToCompile, succeeded: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.remove(&package.key());
        state.failed |= !succeeded;
        state.find_ready();
        drop(state);
        self.changed.notify_waiters();
    }
}

impl<'a> State<'a> {
    /// Moves what needs nothing any more to what is ready.
    fn find_ready(&mut self) {
        let open: BTreeSet<CompilationKey> =
            self.waiting.iter().chain(&self.ready).map(|package| package.key()).chain(self.running.clone()).collect();
        let is_ready = |package: &&PackageToCompile| !package.needs.iter().any(|needed| open.contains(needed));
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition::<Vec<_>, _>(is_ready);
        self.ready.extend(ready);
        self.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use windlass_planning::software::PackageOfGroup;

    use super::*;

    fn package(name: &str, needs: &[&str]) -> PackageToCompile {
        let of_group = |name: &str| PackageOfGroup {
            name: name.into(),
            release: "r".into(),
            version: "f".into(),
            dependencies: Vec::new(),
            dependency_key: "[]".into(),
            is_direct: true,
            compiled_for: None,
        };
        PackageToCompile {
            package: of_group(name),
            os: "os".into(),
            stemcell: "s".into(),
            version: "1".into(),
            needs: needs.iter().map(|name| of_group(name).key("os", "1")).collect(),
        }
    }

    fn worker(stemcell: &str) -> InstancePlan {
        let spec = serde_json::json!({"cpi": "", "stemcell_cid": "c", "vm_type": null, "cloud_properties": {}, "networks": {},
            "stemcell": {"name": stemcell, "version": "1", "api_version": null}, "env": {}, "tags": {}});
        InstancePlan {
            id: "id".into(),
            group: "g".into(),
            index: 0,
            az: None,
            bootstrap: true,
            state: Default::default(),
            spec: serde_json::from_value(spec).unwrap(),
            actions: Vec::new().into(),
        }
    }

    fn next<'a>(queue: &Queue<'a>, worker: &InstancePlan) -> Option<&'a PackageToCompile> {
        match queue.look(worker, None) {
            Next::Package(package) => Some(package),
            _ => None,
        }
    }

    /// Otherwise one release would have a say in what is compiled of others.
    #[test]
    fn a_vm_compiles_for_one_release_only_and_goes_on_with_that_one() {
        let of = |release: &str, name: &str| {
            let mut package = package(name, &[]);
            package.package.release = release.into();
            package
        };
        let packages = [of("own", "a"), of("other", "b"), of("own", "c"), of("other", "d")];
        let queue = Queue::new(&packages);
        let (mut before, mut order, mut vms) = (None, Vec::new(), 1);
        while let Next::Package(package) = queue.look(&worker("s"), before) {
            vms += usize::from(!may_share_vm(before, package));
            order.push(package.package.name.as_str());
            before = Some(package);
            queue.ended(package, true);
        }
        assert_eq!((order.as_slice(), vms), (&["d", "b", "c", "a"][..], 2));
    }

    /// A team could add a package to a release of everybody, and have it compiled beside those that everybody has.
    #[tokio::test]
    async fn a_team_has_each_package_compiled_on_a_vm_of_its_own() {
        let test = crate::testing::TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"of-team".into(), &["shop".to_owned()]).await.unwrap();
        store.add_deployment(&"of-admins".into(), &[]).await.unwrap();
        assert!(!has_no_team(&test.director, &"of-team".into()).await.unwrap());
        assert!(has_no_team(&test.director, &"of-admins".into()).await.unwrap());
    }

    #[test]
    fn what_became_possible_last_is_compiled_first_and_nothing_before_what_it_needs() {
        let packages =
            [package("a", &[]), package("b", &[]), package("of-b", &["b"]), package("of-both", &["a", "of-b"])];
        let queue = Queue::new(&packages);
        let (one, other) = (worker("s"), worker("other"));
        assert!(matches!(queue.look(&other, None), Next::Nothing), "no package is for that stemcell");
        let mut order = Vec::new();
        while let Some(package) = next(&queue, &one) {
            order.push(package.package.name.as_str());
            queue.ended(package, true);
        }
        assert_eq!(order, ["b", "of-b", "a", "of-both"]);
        assert!(matches!(queue.look(&one, None), Next::Nothing));

        let queue = Queue::new(&packages);
        let (first, second) = (next(&queue, &one).unwrap(), next(&queue, &one).unwrap());
        assert_eq!((first.package.name.as_str(), second.package.name.as_str()), ("b", "a"));
        assert!(matches!(queue.look(&one, None), Next::Wait), "the rest needs what is being compiled");
        queue.ended(first, false);
        assert!(matches!(queue.look(&one, None), Next::Nothing), "nothing more is begun after a failure");
    }
}
