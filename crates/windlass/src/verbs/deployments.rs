//! `windlass deployments`.

use windlass_director_client::answers::{Deployment, Versioned};

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployments = session.director.get("/deployments?exclude_configs=true").await.while_("listing deployments")?;
    session.screen.table(&table(deployments));
    Ok(())
}

fn table(mut deployments: Vec<Deployment>) -> Table {
    deployments.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |deployment: Deployment| {
        let teams = deployment.teams.join("\n");
        vec![deployment.name, slugs(deployment.releases), slugs(deployment.stemcells), teams]
    };
    Table {
        content: "deployments",
        header: vec!["Name", "Release(s)", "Stemcell(s)", "Team(s)"],
        rows: deployments.into_iter().map(row).collect(),
        ..Table::default()
    }
}

pub(super) fn slugs(of: Option<Vec<Versioned>>) -> String {
    of.into_iter().flatten().map(|thing| format!("{}/{}", thing.name, thing.version)).collect::<Vec<_>>().join("\n")
}
