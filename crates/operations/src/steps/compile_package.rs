//! Compiles a package on a worker, and brings the result here. What it leaves in the worker goes with the worker's VM.

use std::path::{Path, PathBuf};

use serde_json::json;
use windlass_agent_client::CompiledBlob;
use windlass_archive::Limits;
use windlass_archive::digest::Digest;
use windlass_contract::{Object, explain};
use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError, run};
use crate::full_disk;

/// What a compiled package may have.
const LARGEST: u64 = 64 << 30;

/// A package to be compiled.
#[derive(Debug)]
pub struct CompilePackage {
    /// What everything works with; its instance is the worker.
    pub context: Context,
    /// The worker's VM.
    pub vm: VmRecord,
    pub name: String,
    /// The version of what comes out.
    pub version: String,
    /// The digest and the archive of the source.
    pub source: (String, PathBuf),
    /// What it needs directly.
    pub dependencies: Vec<Dependency>,
    /// Where the result is put.
    pub into: PathBuf,
    /// Where the agent has the result, once it is compiled.
    pub compiled: Option<CompiledBlob>,
}

/// A compiled package that another one needs.
#[derive(Debug, Clone)]
pub struct Dependency {
    pub name: String,
    pub version: String,
    pub digest: String,
    pub blob: String,
    pub path: PathBuf,
}

steps! { CompilePackage:
    SendSource => send;
    CompilePackage => compile;
    FetchPackage => fetch;
}

impl Operation for CompilePackage {
    const NAME: &'static str = "compiling";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

impl CompilePackage {
    /// Compiles it; says what the result's digest is.
    pub async fn run(mut self) -> Result<String, super::OperationError> {
        run(&mut self).await?;
        Ok(self.compiled.map(|compiled| compiled.sha1).unwrap_or_default())
    }

    fn source_blob(&self) -> String {
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, self.version.as_bytes()).to_string()
    }
}

async fn send(op: &mut CompilePackage) -> Result<(), StepError> {
    let agent = op.context.agent(&op.vm);
    let blob = op.source_blob();
    op.context.unless_cancelled(agent.put_blob(&blob, &op.source.1)).await?;
    for dependency in &op.dependencies {
        op.context.unless_cancelled(agent.put_blob(&dependency.blob, &dependency.path)).await?;
    }
    Ok(())
}

async fn compile(op: &mut CompilePackage) -> Result<(), StepError> {
    let entry = |dependency: &Dependency| {
        let entry = json!({
            "name": dependency.name,
            "version": dependency.version,
            "sha1": dependency.digest,
            "blobstore_id": dependency.blob,
        });
        (dependency.name.clone(), entry)
    };
    let dependencies: Object = op.dependencies.iter().map(entry).collect();
    let (blob, agent) = (op.source_blob(), op.context.agent(&op.vm));
    let package = (op.name.as_str(), op.version.as_str());
    // The worker is of no use afterwards, whatever still runs on it.
    let compiling = agent.compile_package((&blob, &op.source.0), package, &dependencies);
    op.compiled = Some(op.context.unless_cancelled(compiling).await?);
    Ok(())
}

async fn fetch(op: &mut CompilePackage) -> Result<(), StepError> {
    let refused = |why: String| StepError::NotCompiled { package: op.name.clone(), why };
    let compiled = op.compiled.clone().ok_or_else(|| refused("the agent did not say where it is".to_owned()))?;
    let agent = op.context.agent(&op.vm);
    let folder = op.into.parent().unwrap_or(Path::new("."));
    let most = room(folder).map_err(refused)?;
    // A VM may send as slowly as it likes, and several at once, each as much as there was room for.
    let is_there = tokio::select! {
        fetched = op.context.unless_cancelled(agent.get_blob(&compiled.blobstore_id, &op.into, most)) => fetched?,
        full = full_disk::wait_for(folder) => return Err(refused(full.map_or_else(|error| explain(&error), |()| no_space(folder)))),
    };
    if !is_there {
        return Err(refused(format!("it has no blob {}", compiled.blobstore_id)));
    }
    let into = op.into.clone();
    let checked = tokio::task::spawn_blocking(move || {
        let digest = Digest::parse(&compiled.sha1).map_err(|error| explain(&error))?;
        let mut file = std::fs::File::open(into).map_err(|error| explain(&error))?;
        digest.verify(&mut file).map_err(|error| explain(&error))
    });
    checked.await.map_err(|error| refused(error.to_string()))?.map_err(refused)
}

/// How large the result may be: no worker fills the disk.
fn room(folder: &Path) -> Result<u64, String> {
    match Limits::of_space(folder).map_err(|error| explain(&error))?.bytes {
        0 => Err(no_space(folder)),
        left => Ok(LARGEST.min(left)),
    }
}

fn no_space(folder: &Path) -> String {
    format!("there is no space left for it in {}; free some on this machine", folder.display())
}

#[test]
fn a_full_disk_is_told_before_the_agent_is_blamed() {
    // A file system without room.
    let told = room(Path::new("/proc")).unwrap_err();
    assert!(told.contains("no space left for it in /proc; free some"), "{told}");
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::without_vm().compiling());
