//! Exports a release: compiles for a stemcell what is not compiled yet, under the lock and with the workers of a deployment that uses
//! the release, and packs jobs and compiled packages into a tarball for a client to fetch.
//!
//! The tarball's name comes from the task, and is on record before the file is there. So a task that goes on after a kill writes the
//! same file again, and clean-up finds every one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_durable::{file, kill_point};
use windlass_manifest::Document;
use windlass_planning::desired::{
    Configs, DeploymentManifest, Desired, Export, Findings, LinksFrom, Wanted, resolve_export, stemcell_of,
};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Plan, plan_compilation};
use windlass_planning::records::{CompiledPackage, JobRecord, ReleaseRecord};
use windlass_stemcell::HOST;
use windlass_stemcell::digest::verify as verify_digest;

use super::large;
use super::prepare::{calculate, configs, new_ids, read_current};
use super::update_deployment::{DeployRun, instance_records};
use super::update_release::blocking;
use super::{DeployOptions, OutputKind, TaskError, TaskLog, compile, lock_deployment_patiently};
use crate::Director;
use crate::blobs::MADE;
use crate::software;
use crate::software::exported::{self, ExportedJob, ExportedPackage};

/// How long the deployment is waited for.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExportRequest {
    /// Whose configs say where packages are compiled.
    deployment_name: DeploymentName,
    release_name: String,
    release_version: String,
    stemcell_os: String,
    stemcell_version: String,
    /// Whether the tarball's digest is SHA-256, rather than SHA-1.
    #[serde(default)]
    sha2: bool,
    /// Empty for all of them.
    #[serde(default)]
    jobs: Vec<WantedJob>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WantedJob {
    name: String,
}

impl ExportRequest {
    /// As people name it.
    pub(crate) fn release(&self) -> String {
        format!("{}/{}", self.release_name, self.release_version)
    }

    /// As people name it.
    pub(crate) fn stemcell(&self) -> String {
        format!("{}/{}", self.stemcell_os, self.stemcell_version)
    }

    fn wants(&self, job: &JobRecord) -> bool {
        self.jobs.is_empty() || self.jobs.iter().any(|wanted| wanted.name == job.name)
    }
}

pub(super) async fn run(director: &Arc<Director>, log: &TaskLog, request: &ExportRequest) -> Result<String, TaskError> {
    let deployment = &request.deployment_name;
    // What is wrong need not be waited for.
    must_be_exportable(director, request).await?;
    lock_deployment_patiently(director, log, deployment, PATIENCE).await?;
    let release = must_be_exportable(director, request).await?;
    let stage = log.stage("Preparing package compilation", &[], 1);
    let finding = stage.part("Finding packages to compile");
    let preparing = async {
        // Nobody waits for a place in the turn to reserve addresses.
        large::take_place_for(director, log, deployment).await?;
        prepare_and_reserve(director, request, &release).await
    };
    let (desired, plan) = finding.run(preparing).await?;
    DeployRun::new(director, log, deployment).remove(&plan).await?;
    if let Some(compilation) = &plan.compilation {
        compile::run(director, log, deployment, compilation).await?;
    }
    let (blob, sha1) = pack(director, log, request, (&release, &desired)).await?;
    log.write(OutputKind::Result, &format!("{}\n", json!({"blobstore_id": blob, "sha1": sha1})));
    Ok(format!("Exported release: {} for {}", request.release(), request.stemcell()))
}

/// The release, which the deployment must name, in BOSH's words and order.
async fn must_be_exportable(director: &Director, request: &ExportRequest) -> Result<ReleaseRecord, TaskError> {
    let ExportRequest { deployment_name: deployment, release_name: name, release_version: version, .. } = request;
    let Some(record) = director.store.deployment(deployment).await? else {
        return Err(TaskError::refused(70000, format!("Deployment '{deployment}' doesn't exist")));
    };
    let mut releases = director.store.releases().await?;
    let Some(at) = releases.iter().position(|release| release.name == *name && release.version == *version) else {
        return Err(match releases.iter().any(|release| release.name == *name) {
            true => TaskError::refused(30006, format!("Release version '{name}/{version}' doesn't exist")),
            false => TaskError::refused(30005, format!("Release '{name}' doesn't exist")),
        });
    };
    let mut release = releases.swap_remove(at);
    let id = release.id;
    director.store.add_specs(std::slice::from_mut(&mut release), &[id]).await?;
    // Its VMs have the programs of the machine that they run on.
    if request.stemcell_os == HOST {
        let reason = format!(
            "what is compiled for '{HOST}' fits this machine alone, so it is not exported; export the release for a stemcell \
             that has a system of its own"
        );
        return Err(TaskError::refused(100, reason));
    }
    let names_it = record.manifest.as_ref().is_some_and(|manifest| names_release(manifest, name));
    if !names_it || !release.deployments.iter().any(|user| deployment == user.as_str()) {
        let reason = format!(
            "Release version '{}' not found in deployment '{deployment}' manifest; export it in a deployment that uses it",
            request.release()
        );
        return Err(TaskError::refused(30011, reason));
    }
    Ok(release)
}

/// Releases that only runtime configs bring are not exported.
fn names_release(manifest: &str, name: &str) -> bool {
    let Ok(document) = Document::parse(manifest) else { return false };
    let manifest = DeploymentManifest::read(&document, &mut Findings::new());
    manifest.releases.iter().any(|release| release.name.value == *name)
}

/// Plans what has to be compiled, and puts the workers on record with their addresses.
async fn prepare_and_reserve(
    director: &Director,
    request: &ExportRequest,
    release: &ReleaseRecord,
) -> Result<(Desired, Plan), TaskError> {
    let deployment = &request.deployment_name;
    let mut findings = Findings::new();
    let text = director.store.deployment(deployment).await?.and_then(|record| record.manifest).unwrap_or_default();
    let document = Document::parse(&text).map_err(|error| TaskError::Input(format!("the manifest: {error}")))?;
    let manifest = DeploymentManifest::read(&document, &mut findings);
    let used = Some(director.store.configs_of(deployment).await?);
    let options = DeployOptions { configs: used, ..DeployOptions::default() };
    let used = configs(director, deployment, &options).await?;
    let teams = director.store.teams_of(deployment).await?.unwrap_or_default();
    let cpi_configs = director.store.current_configs("cpi").await?;
    let Configs { cloud, runtime, cpis } = Configs::read(used.iter().chain(&cpi_configs), &mut findings);
    let stemcells = director.store.stemcells().await?;
    let chosen = stemcell_of(&request.stemcell_os, &request.stemcell_version, &stemcells)
        .map_err(|message| TaskError::refused(50003, message))?;
    let (releases, compiled) = (director.store.releases().await?, director.store.compiled_keys().await?);
    let wanted = Wanted {
        manifest: &manifest,
        cloud: &cloud,
        runtime: &runtime,
        cpis: &cpis,
        stemcells: &stemcells,
        releases: &releases,
        compiled: &compiled,
        teams: &teams,
        links: LinksFrom::Records,
        names: Default::default(),
    };
    let jobs: Vec<String> = request.jobs.iter().map(|job| job.name.clone()).collect();
    let export = Export { release, jobs: &jobs, stemcells: chosen };
    let desired = director.limits.heavily(|| resolve_export(wanted, export, &mut findings)).await;
    let calculated = calculate(director, &desired, &mut findings).await;
    // Nobody else reserves addresses meanwhile.
    let _turn = director.limits.addresses().await;
    let mut current = read_current(director, deployment).await?;
    current.addresses = director.store.addresses().await?;
    (current.calculated, current.compiled) = (calculated, compiled);
    let mut new_id = new_ids(director, deployment).await?;
    let make = || plan_compilation(&desired, &current, &mut new_id, &mut findings);
    let plan = director.limits.heavily(make).await;
    if !findings.is_clean() {
        let problems: Vec<String> = findings.problems().iter().map(|found| found.describe_to_sender(false)).collect();
        return Err(match findings.code() {
            Some(code) => TaskError::refused(code, problems.join("\n")),
            None => TaskError::Input(problems.join("\n")),
        });
    }
    director.store.begin_instances(instance_records(&plan), &[]).await?;
    Ok((desired, plan))
}

/// Packs the tarball; says what it is called and what its digest is.
async fn pack(
    director: &Director,
    log: &TaskLog,
    request: &ExportRequest,
    (release, desired): (&ReleaseRecord, &Desired),
) -> Result<(String, String), TaskError> {
    let folder = director.folders.temporary().join(format!("export-{}", log.task()));
    file::create_private_dir(&folder).map_err(|source| TaskError::Folder { path: folder.clone(), source })?;
    let packed = pack_in(director, log, request, (release, desired), &folder).await;
    if let Err(error) = file::remove_tree(&folder)
        && !log.is_of_another_director()
    {
        log.warning(&format!("cannot remove {}: {error}", folder.display()));
    }
    packed
}

async fn pack_in(
    director: &Director,
    log: &TaskLog,
    request: &ExportRequest,
    (release, desired): (&ReleaseRecord, &Desired),
    folder: &Path,
) -> Result<(String, String), TaskError> {
    let compiled = compiled_packages(director, request, (release, desired)).await?;
    let stage = log.stage("copying packages", &[], compiled.len());
    let mut packages = Vec::new();
    for (package, found) in compiled {
        let part = stage.part(&format!("{}/{}", package.name, package.version));
        let archive = part.run(copy(director, &found.blob, &found.sha1, folder)).await?;
        packages.push(ExportedPackage { package, sha1: found.sha1, archive });
    }
    let wanted: Vec<&JobRecord> = release.jobs.iter().filter(|job| request.wants(job)).collect();
    let stage = log.stage("copying jobs", &[], wanted.len());
    let mut jobs = Vec::new();
    for job in wanted {
        let part = stage.part(&format!("{}/{}", job.name, job.version));
        let archive = part.run(copy(director, &job.blob, &job.sha1, folder)).await?;
        jobs.push(ExportedJob { job: job.clone(), archive });
    }
    let manifest = exported::manifest(release, &request.stemcell(), &packages, &jobs);
    let (tarball, sha2) = (folder.join("release.tgz"), request.sha2);
    let into = tarball.clone();
    let digest = blocking(move || {
        let packed = exported::pack(&manifest, &jobs, &packages, &into).and_then(|()| exported::digest(&into, sha2));
        packed.map_err(|source| TaskError::Folder { path: into, source })
    })
    .await?;
    let blob = blob_of(director, log);
    kill_point("before an exported release is put on record");
    director.store.note_exported_release(&blob, &digest).await?;
    director.blobs.keep(MADE, &blob, &tarball).await?;
    Ok((blob, digest))
}

/// The same whenever the task begins again.
fn blob_of(director: &Director, log: &TaskLog) -> String {
    let seed = format!("{}/export/{}", director.uuid, log.task());
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, seed.as_bytes()).to_string()
}

/// The packages that jobs name in the order of the release, then what they need, as BOSH lists them; each compiled for the stemcell.
async fn compiled_packages(
    director: &Director,
    request: &ExportRequest,
    (release, desired): (&ReleaseRecord, &Desired),
) -> Result<Vec<(windlass_planning::records::PackageRecord, CompiledPackage)>, TaskError> {
    let Some((software, stemcell)) =
        desired.groups.first().and_then(|group| Some((group.software.as_ref()?, group.stemcells.first()?)))
    else {
        return Ok(Vec::new());
    };
    let direct: BTreeSet<&str> =
        software.packages.iter().filter(|package| package.is_direct).map(|package| package.name.as_str()).collect();
    let (first, then): (Vec<_>, Vec<_>) = release
        .packages
        .iter()
        .filter(|record| software.package(&record.name).is_some())
        .partition(|record| direct.contains(record.name.as_str()));
    let mut found = Vec::new();
    let mut others = Vec::new();
    for record in first.into_iter().chain(then) {
        let Some(package) = software.package(&record.name) else { continue };
        let key = package.exact_key(&stemcell.os, &stemcell.version);
        match director.store.compiled_package(&key).await? {
            Some(compiled) => found.push((record.clone(), compiled)),
            None => others.push(format!(" - '{}/{}'", record.name, record.version)),
        }
    }
    if others.is_empty() {
        return Ok(found);
    }
    let reason = format!(
        "Can't export release '{}' for '{}': these packages have no source, and are compiled for another stemcell of its line:\n{}\n\
         export it for the stemcell that they are compiled for (inspect-release shows it), or upload the release with its sources",
        request.release(),
        request.stemcell(),
        others.join("\n")
    );
    Err(TaskError::refused(60001, reason))
}

/// Takes a blob aside, so that nobody removes it meanwhile, and checks that it is whole.
#[expect(clippy::disallowed_methods, reason = "a folder that goes with the task")]
async fn copy(director: &Director, blob: &str, digest: &str, folder: &Path) -> Result<PathBuf, TaskError> {
    let archive = software::archive(&director.blobs, blob, digest).await?;
    let (to, digest) = (folder.join(blob), digest.to_owned());
    blocking(move || {
        let from: &Path = archive.as_ref();
        let copied = match to.exists() {
            // Two packages may have the same bytes.
            true => Ok(()),
            false => std::fs::hard_link(from, &to).or_else(|_| std::fs::copy(from, &to).map(drop)),
        };
        copied.map_err(|source| TaskError::Folder { path: to.clone(), source })?;
        verify_digest(&to, &digest)?;
        Ok(to)
    })
    .await
}
