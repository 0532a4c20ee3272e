//! `windlass deployment`: one deployment, with the configs that it uses.

use windlass_director_client::answers::{Deployment, DeploymentConfig};
use windlass_director_client::escape;

use crate::failure::{Failure, KnownNames};
use crate::session::{Session, While};
use crate::table::Table;
use crate::verbs::deployments::slugs;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let name = session.deployment()?;
    let all: Vec<Deployment> = session.director.get("/deployments").await.while_("listing deployments")?;
    let known = KnownNames(all.iter().map(|deployment| deployment.name.clone()).collect());
    let found = all.into_iter().find(|deployment| deployment.name == name);
    let deployment = found.ok_or_else(|| Failure::NoSuchDeployment { name: name.clone(), known })?;
    let path = format!("/deployment_configs?deployment[]={}", escape(&name));
    let used: Vec<DeploymentConfig> = session.director.get(&path).await.while_("listing the deployment's configs")?;
    session.screen.table(&table(deployment, &used));
    Ok(())
}

fn table(deployment: Deployment, used: &[DeploymentConfig]) -> Table {
    let used: Vec<_> =
        used.iter().map(|used| format!("{} {}/{}", used.config.id, used.config.kind, used.config.name)).collect();
    let Deployment { name, releases, stemcells, teams, .. } = deployment;
    Table {
        content: "deployments",
        header: vec!["Name", "Release(s)", "Stemcell(s)", "Config(s)", "Team(s)"],
        rows: vec![vec![name, slugs(releases), slugs(stemcells), used.join("\n"), teams.join("\n")]],
        ..Table::default()
    }
}
