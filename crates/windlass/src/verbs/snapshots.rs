//! `windlass snapshots`, `take-snapshot`, `delete-snapshot` and `delete-snapshots`.

use reqwest::Method;
use windlass_director_client::answers::Snapshot;
use windlass_director_client::escape;

use crate::cli::Instance;
use crate::failure::Failure;
use crate::formats;
use crate::session::{Call, Session, While};
use crate::table::Table;

pub(super) async fn list(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let snapshots = all(session, &deployment).await?;
    session.screen.table(&table(snapshots));
    Ok(())
}

async fn all(session: &Session<'_>, deployment: &str) -> Result<Vec<Snapshot>, Failure> {
    session.director.get(&format!("/deployments/{}/snapshots", escape(deployment))).await.while_("listing snapshots")
}

fn table(snapshots: Vec<Snapshot>) -> Table {
    let row = |snapshot: Snapshot| {
        let job = if snapshot.job.is_empty() { "?" } else { &snapshot.job };
        let instance = format!("{job}/{}", snapshot.index.map_or("?".to_owned(), |index| index.to_string()));
        let taken = formats::date_of_director(&snapshot.created_at);
        vec![instance, snapshot.snapshot_cid, taken, snapshot.clean.to_string()]
    };
    Table {
        content: "snapshots",
        header: vec!["Instance", "CID", "Created At", "Clean"],
        rows: snapshots.into_iter().map(row).collect(),
        ..Table::default()
    }
}

pub(super) async fn take(session: &mut Session<'_>, instance: Option<&Instance>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let (path, what) = match instance {
        Some(instance) => (format!("jobs/{}/snapshots", instance.path()), format!("'{instance}'")),
        None => ("snapshots".to_owned(), "all instances".to_owned()),
    };
    let call = Call::new(Method::POST, format!("/deployments/{}/{path}", escape(&deployment)));
    let doing = format!("taking snapshots of {what} of deployment '{deployment}'");
    session.carry_out(call, &doing).await.map(|_| ())
}

pub(super) async fn delete(session: &mut Session<'_>, cid: &str) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    session.confirm()?;
    let path = format!("/deployments/{}/snapshots/{}", escape(&deployment), escape(cid));
    let deleted = session.carry_out(Call::new(Method::DELETE, path), &format!("deleting snapshot '{cid}'")).await;
    let Err(failure) = deleted else { return Ok(()) };
    // One that is not there is not there afterwards either.
    match all(session, &deployment).await {
        Ok(snapshots) if snapshots.iter().all(|snapshot| snapshot.snapshot_cid != cid) => Ok(()),
        _ => Err(failure),
    }
}

pub(super) async fn delete_all(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    session.confirm()?;
    let call = Call::new(Method::DELETE, format!("/deployments/{}/snapshots", escape(&deployment)));
    let doing = format!("deleting the snapshots of deployment '{deployment}'");
    session.carry_out(call, &doing).await.map(|_| ())
}
