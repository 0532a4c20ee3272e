//! `windlass orphan-disk` and `delete-disk`.

use reqwest::Method;
use windlass_director_client::answers::OrphanedDisk;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Call, Session};

pub(super) async fn orphan(session: &mut Session<'_>, cid: &str) -> Result<(), Failure> {
    session.confirm()?;
    let call = Call::new(Method::DELETE, format!("/disks/{}?orphan=true", escape(cid)));
    session.carry_out(call, &format!("orphaning disk '{cid}'")).await.map(|_| ())
}

pub(super) async fn run(session: &mut Session<'_>, cid: &str) -> Result<(), Failure> {
    session.confirm()?;
    let was_orphan = is_orphan(session, cid).await;
    let call = Call::new(Method::DELETE, format!("/disks/{}", escape(cid)));
    let deleted = session.carry_out(call, &format!("deleting disk '{cid}'")).await;
    if let Err(failure) = deleted
        && (matches!(failure, Failure::Interrupted { .. }) || is_orphan(session, cid).await != Some(false))
    {
        return Err(failure);
    }
    if was_orphan == Some(false) {
        session.was_not_there(&format!("There is no orphaned disk '{cid}' ('windlass disks' lists those in use)"));
    }
    Ok(())
}

/// None if the director does not say.
async fn is_orphan(session: &Session<'_>, cid: &str) -> Option<bool> {
    let orphans = session.director.get::<Vec<OrphanedDisk>>("/disks").await.ok()?;
    Some(orphans.iter().any(|disk| disk.disk_cid == cid))
}
