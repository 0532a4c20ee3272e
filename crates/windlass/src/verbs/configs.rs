//! `windlass configs`: the configs that deployments use, or older ones as well.

use windlass_director_client::answers::Config;
use windlass_director_client::query;

use crate::cli::ConfigsArgs;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &ConfigsArgs) -> Result<(), Failure> {
    let mut asked = Vec::new();
    asked.extend(arguments.kind.clone().map(|kind| ("type", kind)));
    asked.extend(arguments.name.clone().map(|name| ("name", name)));
    asked.push(("limit", arguments.recent.to_string()));
    asked.push(("latest", (arguments.recent == 1).to_string()));
    let configs = session.director.get(&format!("/configs{}", query(asked))).await.while_("listing configs")?;
    session.screen.table(&table(configs, arguments.recent));
    Ok(())
}

fn table(configs: Vec<Config>, recent: u32) -> Table {
    let mut notes = Vec::new();
    notes.extend(configs.iter().any(|config| config.current).then_some("(*) Currently active"));
    notes.extend((recent <= 1).then_some(OLDER));
    let row = |config: Config| {
        let id = format!("{}{}", config.id, if config.current { "*" } else { "" });
        vec![id, config.kind, config.name, config.team, config.created_at]
    };
    Table {
        content: "configs",
        header: vec!["ID", "Type", "Name", "Team", "Created At"],
        rows: configs.into_iter().map(row).collect(),
        notes,
        lists_notes: true,
        ..Table::default()
    }
}

const OLDER: &str = "Only showing active configs. To see older versions use the --recent=10 option.";
