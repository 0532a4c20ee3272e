//! What a plan is made from: the manifest, the configs around it, and what there is to deploy.

use std::collections::BTreeSet;

use windlass_manifest::Document;
use windlass_planning::desired::{
    CloudConfig, Configs, CpiConfig, DeploymentManifest, Findings, RuntimeConfig, refuse_misplaced, releases_named_by,
};
use windlass_planning::names::DeploymentName;
use windlass_planning::records::{CompilationKey, ConfigRecord, ReleaseRecord, StemcellRecord};

use crate::Director;
use crate::tasks::{DeployOptions, TaskError};
use crate::variables::border;

/// The documents, read.
pub(super) struct Documents {
    pub(super) manifest: DeploymentManifest,
    /// The cloud and runtime configs that it uses.
    pub(super) configs: Vec<ConfigRecord>,
    /// Whose deployment it is.
    pub(super) teams: Vec<String>,
    pub(super) cloud: CloudConfig,
    pub(super) runtime: RuntimeConfig,
    pub(super) cpis: CpiConfig,
    /// The variables that the manifest names.
    pub(super) named: border::Named,
}

impl Documents {
    pub(super) async fn read(
        director: &Director,
        deployment: &DeploymentName,
        manifest: &str,
        options: &DeployOptions,
        findings: &mut Findings,
    ) -> Result<Self, TaskError> {
        let read = || {
            let document =
                Document::parse(manifest).map_err(|error| TaskError::Input(format!("the manifest: {error}")))?;
            let manifest = DeploymentManifest::read(&document, findings);
            refuse_misplaced(&document, findings);
            Ok::<_, TaskError>((manifest, border::Named::in_document(&document)))
        };
        let (manifest, named) = director.limits.heavily(read).await?;
        if let Some(name) = manifest.name.as_ref().filter(|name| deployment != name.value.as_str()) {
            findings.push(name.problem(format!("the manifest is for '{}', not for '{deployment}'", name.value)));
        }
        let configs = must_have_cloud_config(director, deployment, options).await?;
        let teams = teams_of(director, deployment, options).await?;
        let cpi_configs = director.store.current_configs("cpi").await?;
        let read = || Configs::read_for_plan(configs.iter().chain(&cpi_configs), findings);
        let Configs { cloud, runtime, cpis } = director.limits.heavily(read).await;
        Ok(Self { manifest, configs, teams, cloud, runtime, cpis, named })
    }
}

/// What there is to deploy.
pub(super) struct Offer {
    pub(super) stemcells: Vec<StemcellRecord>,
    /// None if nothing names any.
    pub(super) releases: Vec<ReleaseRecord>,
    /// What is compiled.
    pub(super) compiled: BTreeSet<CompilationKey>,
}

impl Offer {
    pub(super) async fn of(
        director: &Director,
        deployment: &DeploymentName,
        (manifest, runtime): (&DeploymentManifest, &RuntimeConfig),
        options: &DeployOptions,
    ) -> Result<Self, TaskError> {
        let store = &director.store;
        let mut stemcells = store.stemcells().await?;
        let mut releases = match manifest.releases.is_empty() && runtime.releases.is_empty() {
            true => Vec::new(),
            false => store.releases().await?,
        };
        // Only a deploy looks for newer ones: a restart or recreation uses what was deployed.
        if !options.takes_newer() {
            keep_versions_in_use(&mut stemcells, deployment, |it| (&it.operating_system, &it.version, &it.deployments));
            keep_versions_in_use(&mut releases, deployment, |it| (&it.name, &it.version, &it.deployments));
        }
        let used_releases = releases_named_by(manifest, runtime, &releases);
        store.add_specs(&mut releases, &used_releases).await?;
        let compiled = match releases.is_empty() {
            true => BTreeSet::new(),
            false => store.compiled_keys().await?,
        };
        Ok(Self { stemcells, releases, compiled })
    }
}

/// The configs, among which a cloud config must be: without one, no name in a manifest means anything. In BOSH's words.
pub(crate) async fn must_have_cloud_config(
    director: &Director,
    deployment: &DeploymentName,
    options: &DeployOptions,
) -> Result<Vec<ConfigRecord>, TaskError> {
    let used = configs(director, deployment, options).await?;
    if used.iter().any(|config| config.kind == "cloud") {
        return Ok(used);
    }
    let message = "Required property 'networks' was not specified in object ({}): there is no cloud config; use update-cloud-config";
    Err(TaskError::refused(40001, message))
}

async fn teams_of(
    director: &Director,
    deployment: &DeploymentName,
    options: &DeployOptions,
) -> Result<Vec<String>, TaskError> {
    Ok(director.store.teams_of(deployment).await?.unwrap_or_else(|| options.teams.clone()))
}

/// The cloud and runtime configs that the operator saw, or the current ones of the deployment's teams.
pub(crate) async fn configs(
    director: &Director,
    deployment: &DeploymentName,
    options: &DeployOptions,
) -> Result<Vec<ConfigRecord>, TaskError> {
    let mut configs = Vec::new();
    match &options.configs {
        None => {
            let teams = teams_of(director, deployment, options).await?;
            for kind in ["cloud", "runtime"] {
                configs.extend(director.store.current_configs_for(kind, &teams).await?);
            }
        }
        Some(ids) => {
            for id in ids {
                let found = director.store.config(*id).await?;
                configs.push(found.ok_or_else(|| TaskError::Input(format!("there is no config with the id {id}")))?);
            }
        }
    }
    Ok(configs)
}

/// Leaves out other versions of what a deployment uses; `of` says name, version and users.
fn keep_versions_in_use<T>(all: &mut Vec<T>, deployment: &DeploymentName, of: impl Fn(&T) -> (&str, &str, &[String])) {
    let is_used = |users: &[String]| users.iter().any(|user| deployment == user.as_str());
    let used: BTreeSet<(String, String)> = all
        .iter()
        .map(&of)
        .filter(|(_, _, users)| is_used(users))
        .map(|(name, version, _)| (name.to_owned(), version.to_owned()))
        .collect();
    all.retain(|each| {
        let (name, version, _) = of(each);
        used.contains(&(name.to_owned(), version.to_owned())) || !used.iter().any(|(known, _)| known == name)
    });
}
