//! `windlass networks --orphaned` and `delete-network`.

use reqwest::Method;
use windlass_director_client::answers::Network;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::formats;
use crate::session::{Call, Session, While};
use crate::table::Table;

/// Deletes an orphaned network. One that is not there is not there afterwards either.
pub(super) async fn delete(session: &mut Session<'_>, name: &str) -> Result<(), Failure> {
    session.confirm()?;
    let call = Call::new(Method::DELETE, format!("/networks/{}", escape(name)));
    let Err(failure) = session.carry_out(call, &format!("deleting network '{name}'")).await else { return Ok(()) };
    match all_orphaned(session).await {
        Ok(networks) if networks.iter().all(|network| network.name != name) => Ok(()),
        _ => Err(failure),
    }
}

async fn all_orphaned(session: &Session<'_>) -> Result<Vec<Network>, Failure> {
    session.director.get("/networks?orphaned=true").await.while_("listing orphaned networks")
}

pub(super) async fn run(session: &mut Session<'_>, orphaned: bool) -> Result<(), Failure> {
    if !orphaned {
        return Err(Failure::OnlyOrphanedNetworks);
    }
    let mut networks = all_orphaned(session).await?;
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
