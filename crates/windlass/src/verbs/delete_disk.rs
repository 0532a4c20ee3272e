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
    let call = Call::new(Method::DELETE, format!("/disks/{}", escape(cid)));
    let Err(failure) = session.carry_out(call, &format!("deleting disk '{cid}'")).await else { return Ok(()) };
    if matches!(failure, Failure::Interrupted { .. }) {
        return Err(failure);
    }
    // What is not there need not be deleted.
    match session.director.get::<Vec<OrphanedDisk>>("/disks").await {
        Ok(left) if !left.iter().any(|disk| disk.disk_cid == cid) => Ok(()),
        _ => Err(failure),
    }
}
