//! `windlass leaks`: what the clouds may hold that nothing owns.

use crate::director_answers::Leak;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let leaks: Vec<Leak> = session.director.get("/windlass/leaks").await.while_("listing leaks")?;
    let row = |leak: Leak| vec![leak.request_id, leak.cpi, leak.method, leak.subject, leak.why];
    session.screen.table(&Table {
        content: "possible leaks",
        header: vec!["Request ID", "CPI", "Method", "Subject", "Why"],
        rows: leaks.into_iter().map(row).collect(),
        ..Table::default()
    });
    Ok(())
}
