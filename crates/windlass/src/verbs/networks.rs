//! `windlass networks --orphaned`.

use crate::director_answers::Network;
use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>, orphaned: bool) -> Result<(), Failure> {
    if !orphaned {
        return Err(Failure::OnlyOrphanedNetworks);
    }
    let mut networks: Vec<Network> =
        session.director.get("/networks?orphaned=true").await.while_("listing orphaned networks")?;
    networks.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |network: Network| {
        let date = formats::date_of_director;
        vec![network.name, network.kind, date(&network.created_at), date(&network.orphaned_at)]
    };
    session.screen.table(&Table {
        content: "networks",
        header: vec!["Name", "Type", "Created At", "Orphaned At"],
        rows: networks.into_iter().map(row).collect(),
        ..Table::default()
    });
    Ok(())
}
