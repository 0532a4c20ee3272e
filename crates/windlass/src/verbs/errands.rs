//! `windlass errands`.

use windlass_director_client::answers::Named;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let path = format!("/deployments/{}/errands", escape(&deployment));
    let errands = session.director.get::<Vec<Named>>(&path).await.while_("listing errands")?;
    let mut rows: Vec<_> = errands.into_iter().map(|errand| vec![errand.name]).collect();
    rows.sort();
    session.screen.table(&Table { content: "errands", header: vec!["Name"], rows, ..Table::default() });
    Ok(())
}
