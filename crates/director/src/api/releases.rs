//! Releases; and what there is nothing of: variables, managed networks. Lists of those are empty, and a request
//! to add something is told why that cannot be.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use windlass_contract::director::{
    PackageForStemcell, Release, ReleaseContents, ReleaseJob, ReleasePackage, ReleaseVersion, ReleaseVersions,
};
use windlass_contract::explain;
use windlass_planning::records::{CompiledPackage, PackageRecord, ReleaseRecord};
use windlass_release::{Package, PackageGraph, ReleaseError, ReleaseManifest, Version};

use super::input::{JsonBody, Parameters, TextBody};
use super::permissions::Permission;
use super::uploads::{self, Upload};
use super::{ApiError, Json, Shared, User, queue};
use crate::software::ruby_needs::WaitForRubyNeeds;
use crate::tasks::{ExportRequest, Job};

/// Ten times the packages of the largest releases.
const MOST_PACKAGES: usize = 2000;

/// All releases, each with its versions in their order.
pub(super) async fn list(State(director): Shared) -> Result<Json<Vec<Release>>, ApiError> {
    let mut releases: BTreeMap<String, Vec<ReleaseRecord>> = BTreeMap::new();
    for release in director.store.releases().await? {
        releases.entry(release.name.clone()).or_default().push(release);
    }
    let version = |release: &ReleaseRecord| ReleaseVersion {
        version: release.version.clone(),
        commit_hash: release.commit_hash.clone(),
        uncommitted_changes: release.uncommitted_changes,
        currently_deployed: !release.deployments.is_empty(),
        job_names: release.jobs.iter().map(|job| job.name.clone()).collect(),
    };
    let shown = |(name, mut versions): (String, Vec<ReleaseRecord>)| {
        versions.sort_by_key(|release| Version::parse(&release.version).ok());
        Release { name, release_versions: versions.iter().map(version).collect() }
    };
    Ok(Json(releases.into_iter().map(shown).collect()))
}

/// One release: what a version has, or without a version what all of them have.
pub(super) async fn show(
    State(director): Shared,
    Path(name): Path<String>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let mut releases = director.store.releases().await?;
    releases.retain(|release| release.name == name);
    if releases.is_empty() {
        return Err(ApiError::not_found(30005, format!("Release '{name}' doesn't exist")));
    }
    let Some(wanted) = query.get("version") else {
        releases.sort_by_key(|release| Version::parse(&release.version).ok());
        let versions = releases.into_iter().map(|release| release.version).collect();
        return Ok(Json(ReleaseVersions { versions }).into_response());
    };
    releases.retain(|release| release.version == wanted);
    let ids: Vec<i64> = releases.iter().map(|release| release.id).collect();
    director.store.add_specs(&mut releases, &ids).await?;
    let Some(mut release) = releases.into_iter().next() else {
        return Err(ApiError::not_found(30006, format!("Release version '{name}/{wanted}' doesn't exist")));
    };
    let links = |spec: &Value, key: &str| spec.get(key).cloned().unwrap_or_else(|| json!([]));
    let (mut jobs, wait) = (Vec::new(), WaitForRubyNeeds::begin());
    for mut job in std::mem::take(&mut release.jobs) {
        // It may be large, and a blobstore may be asked for the templates.
        let spec = job.spec.take();
        let (consumes, provides) = (links(&spec, "consumes"), links(&spec, "provides"));
        drop(spec);
        jobs.push(ReleaseJob {
            name: job.name.clone(),
            blobstore_id: job.blob.clone(),
            sha1: job.sha1.clone(),
            fingerprint: job.fingerprint.clone(),
            consumes,
            provides,
            needs_ruby: director.library.needs_ruby(&director.limits, &name, &job, wait).await,
        });
    }
    let compiled = director.store.compiled_packages_of(&name).await?;
    let package = |package: &PackageRecord| {
        let is_of_it =
            |found: &&CompiledPackage| (&found.key.package, &found.key.version) == (&package.name, &package.version);
        let shown = |found: &CompiledPackage| PackageForStemcell {
            stemcell: format!("{}/{}", found.key.os, found.key.stemcell),
            sha1: found.sha1.clone(),
            blobstore_id: found.blob.clone(),
        };
        let source = package.source.as_ref();
        ReleasePackage {
            name: package.name.clone(),
            blobstore_id: source.map(|source| source.blob.clone()).unwrap_or_default(),
            sha1: source.map(|source| source.sha1.clone()).unwrap_or_default(),
            fingerprint: package.fingerprint.clone(),
            compiled_packages: compiled.iter().filter(is_of_it).map(shown).collect(),
        }
    };
    Ok(Json(ReleaseContents { jobs, packages: release.packages.iter().map(package).collect() }).into_response())
}

/// The fingerprints of those packages of a manifest that need not be sent again: the same bytes are here. The uploader
/// chooses the fingerprints, so those alone prove nothing.
pub(super) async fn matches(State(director): Shared, TextBody(manifest): TextBody) -> Result<Json<Value>, ApiError> {
    let read = director.limits.heavily(|| ReleaseManifest::parse(&manifest)).await;
    let manifest = read.map_err(|error| refused(&error))?;
    if manifest.packages.is_empty() {
        return Err(ApiError::bad_request(440001, "Manifest doesn't have a usable packages section"));
    }
    if manifest.packages.len() > MOST_PACKAGES {
        let reason = format!("the manifest has {} packages; {MOST_PACKAGES} are the most", manifest.packages.len());
        return Err(ApiError::bad_request(440001, reason));
    }
    let wanted: HashSet<String> = manifest.packages.iter().map(|package| package.fingerprint.clone()).collect();
    let found = director.store.packages_like(&wanted).await?;
    let known: HashSet<(&str, &str)> = found
        .iter()
        .filter_map(|package| Some((package.fingerprint.as_str(), package.source.as_ref()?.sha1.as_str())))
        .collect();
    let is_here = |package: &&Package| known.contains(&(package.fingerprint.as_str(), package.sha1.as_str()));
    let here: BTreeSet<&String> =
        manifest.packages.iter().filter(is_here).map(|package| &package.fingerprint).collect();
    Ok(Json(json!(here)))
}

fn refused(error: &ReleaseError) -> ApiError {
    ApiError::bad_request(error.code(), explain(error))
}

pub(super) async fn upload(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    request: Request,
) -> Result<Response, ApiError> {
    let (fix, rebase) = (query.is_set("fix"), query.is_set("rebase"));
    let replaces = user.may(&director, Permission::Admin);
    match uploads::take(&director, request, "release").await? {
        Upload::Tarball(received) => {
            let job = Job::UpdateRelease { tarball: received.path().to_owned(), fix, rebase, replaces };
            uploads::queue_with(&director, user, job, received).await
        }
        Upload::Remote { location, sha1 } => {
            queue(&director, user, Job::DownloadRelease { location, sha1, fix, rebase, replaces }).await
        }
    }
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let version = query.get("version").map(str::to_owned);
    queue(&director, user, Job::DeleteRelease { name, version }).await
}

/// The fingerprints of those compiled packages of a manifest that need not be sent again. Clients leave archives out by their
/// fingerprints alone, so one counts only if everything with it is here.
pub(super) async fn compiled_matches(
    State(director): Shared,
    TextBody(manifest): TextBody,
) -> Result<Json<Value>, ApiError> {
    let read = || {
        let manifest = ReleaseManifest::parse(&manifest)?;
        let graph = PackageGraph::new(manifest.all_packages())?;
        let listed = manifest.compiled_packages.iter().map(|compiled| {
            let key = graph.dependency_key(&compiled.package.name)?;
            let Package { name, fingerprint, sha1, .. } = compiled.package.clone();
            Ok::<_, ReleaseError>((name, fingerprint, compiled.stemcell.to_string(), key, sha1))
        });
        Ok::<_, ReleaseError>((manifest.is_compiled, listed.collect::<Result<Vec<_>, _>>()?))
    };
    let (is_compiled, listed) = director.limits.heavily(read).await.map_err(|error| refused(&error))?;
    if !is_compiled {
        return Err(ApiError::bad_request(440001, "Manifest doesn't have a usable packages section"));
    }
    let known = director.store.compiled_packages().await?.into_iter().map(
        |(fingerprint, CompiledPackage { key, sha1, .. })| {
            (key.package, fingerprint, format!("{}/{}", key.os, key.stemcell), key.dependency_key, sha1)
        },
    );
    let known: HashSet<_> = known.collect();
    let (here, sent): (Vec<_>, Vec<_>) = listed.iter().partition(|package| known.contains(*package));
    let sent: HashSet<&String> = sent.into_iter().map(|(_, fingerprint, ..)| fingerprint).collect();
    let here: BTreeSet<&String> = here.into_iter().map(|(_, fingerprint, ..)| fingerprint).collect();
    Ok(Json(here.into_iter().filter(|fingerprint| !sent.contains(*fingerprint)).cloned().collect()))
}

pub(super) async fn nothing() -> Json<Value> {
    Json(json!([]))
}

pub(super) async fn export(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(request): JsonBody<ExportRequest>,
) -> Result<Response, ApiError> {
    queue(&director, user, Job::ExportRelease(request)).await
}

pub(super) async fn no_network(Path(name): Path<String>) -> ApiError {
    ApiError::not_found(580000, format!("Network '{name}' doesn't exist: this director makes no networks"))
}
