//! `delete_snapshot`: removes a snapshot, also when its disk is gone. Gone already is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteSnapshot;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, asked: DeleteSnapshot) -> Result<(), CpiError> {
    let cid = asked.snapshot_cid;
    let Some((_lock, _)) = cloud.snapshots.lock_to_remove(cid.as_str())? else { return Ok(()) };
    Ok(cloud.snapshots.remove(cid.as_str())?)
}
