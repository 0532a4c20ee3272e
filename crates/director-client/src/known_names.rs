//! The names of what a director has: for errors that say what was meant, and for shells that complete words.

use crate::answers::{Deployment, InstanceSummary, Named, Release, Stemcell, Task};
use crate::client::{ClientError, DirectorClient, escape};

/// What something is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deployment,
    Instance,
    Stemcell,
    Release,
    Task,
    Errand,
}

/// The instances of a deployment.
pub async fn members(director: &DirectorClient, deployment: &str) -> Result<Vec<InstanceSummary>, ClientError> {
    director.get(&format!("/deployments/{}/instances", escape(deployment))).await
}

/// All names of a kind; those of instances and errands are the deployment's.
pub async fn all(director: &DirectorClient, kind: Kind, deployment: Option<&str>) -> Result<Vec<String>, ClientError> {
    let of = |what: &str| format!("/deployments/{}/{what}", escape(deployment.unwrap_or_default()));
    let mut names: Vec<String> = match kind {
        Kind::Deployment => {
            let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
            director.get::<Vec<Deployment>>(path).await?.into_iter().map(|it| it.name).collect()
        }
        Kind::Instance => {
            let members = members(director, deployment.unwrap_or_default()).await?;
            members.into_iter().map(|it| format!("{}/{}", it.job, it.id)).collect()
        }
        Kind::Stemcell => {
            let stemcells: Vec<Stemcell> = director.get("/stemcells").await?;
            stemcells.into_iter().map(|it| format!("{}/{}", it.name, it.version)).collect()
        }
        Kind::Release => {
            let releases: Vec<Release> = director.get("/releases").await?;
            let versions = |it: Release| {
                let Release { name, release_versions } = it;
                release_versions.into_iter().map(move |version| format!("{name}/{}", version.version))
            };
            releases.into_iter().flat_map(versions).collect()
        }
        Kind::Task => {
            let tasks: Vec<Task> = director.get("/tasks?limit=30&verbose=1").await?;
            return Ok(tasks.into_iter().map(|it| it.id.to_string()).collect());
        }
        Kind::Errand => director.get::<Vec<Named>>(&of("errands")).await?.into_iter().map(|it| it.name).collect(),
    };
    names.sort();
    names.dedup();
    Ok(names)
}
