//! `windlass variables`: the variables of a deployment that the director knows.

use crate::director_answers::Variable;
use crate::director_client::escape;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let path = format!("/deployments/{}/variables", escape(&deployment));
    let mut variables = session.director.get::<Vec<Variable>>(&path).await.while_("listing variables")?;
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    session.screen.table(&Table {
        content: "variables",
        header: vec!["ID", "Name"],
        rows: variables.into_iter().map(|variable| vec![variable.id, variable.name]).collect(),
        ..Table::default()
    });
    Ok(())
}
