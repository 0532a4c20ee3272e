//! Deleting what nobody uses.

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use windlass_contract::director::{CleanUpPlan, CleanableRelease, CompiledPackage};
use windlass_contract::explain;
use windlass_planning::records::CompilationKey;

use super::input::{JsonBody, Parameters};
use super::{ApiError, Json, Shared, User, disks, queue, resources, stemcells};
use crate::tasks::{CleanUp, Job, Rubbish, find_rubbish};
use crate::{Director, blobs};

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    config: CleanUp,
}

pub(super) async fn run(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(Request { config }): JsonBody<Request>,
) -> Result<Response, ApiError> {
    queue(&director, user, Job::CleanUp(config)).await
}

pub(super) async fn dry_run(State(director): Shared, Query(query): Parameters) -> Result<Json<CleanUpPlan>, ApiError> {
    let how =
        CleanUp { remove_all: query.is_set("remove_all"), keep_orphaned_disks: query.is_set("keep_orphaned_disks") };
    let Rubbish { releases, stemcells, compiled, disks, vms, exported } = find_rubbish(&director, how).await?;
    let package = |key: &CompilationKey| CompiledPackage {
        name: key.package.clone(),
        stemcell_os: key.os.clone(),
        stemcell_version: key.stemcell.clone(),
    };
    let unreferenced = if how.remove_all { unreferenced_blobs(&director).await } else { Vec::new() };
    Ok(Json(CleanUpPlan {
        unreferenced_blobs: unreferenced,
        releases: releases.into_iter().map(|(name, versions)| CleanableRelease { name, versions }).collect(),
        compiled_packages: compiled.iter().map(package).collect(),
        exported_releases: exported,
        dns_blobs: Vec::new(),
        stemcells: stemcells.iter().map(stemcells::shown).collect(),
        orphaned_vms: vms.iter().map(resources::shown_vm).collect(),
        orphaned_disks: disks.iter().map(disks::shown).collect(),
    }))
}

/// A store that does not answer keeps nobody from seeing the rest.
async fn unreferenced_blobs(director: &Director) -> Vec<String> {
    match blobs::unreferenced(director).await {
        Ok(found) => found.into_iter().map(|(drawer, id)| format!("{}/{id}", drawer.0)).collect(),
        Err(error) => {
            tracing::error!(error = explain(&error), "cannot look for blobs that nobody names");
            Vec::new()
        }
    }
}
