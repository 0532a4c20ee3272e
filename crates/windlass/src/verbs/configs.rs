//! `windlass configs`: the configs that deployments use.

use crate::director_answers::Config;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let configs = session.director.get("/configs?latest=true&limit=1").await.while_("listing configs")?;
    session.screen.table(&table(configs));
    Ok(())
}

fn table(configs: Vec<Config>) -> Table {
    let row = |config: Config| {
        let id = format!("{}{}", config.id, if config.current { "*" } else { "" });
        vec![id, config.kind, config.name, config.team, config.created_at]
    };
    Table {
        content: "configs",
        header: vec!["ID", "Type", "Name", "Team", "Created At"],
        rows: configs.into_iter().map(row).collect(),
        notes: vec!["(*) Currently active"],
        ..Table::default()
    }
}
