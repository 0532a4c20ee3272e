//! `delete_snapshot`: removes a snapshot, also when its disk is gone. One that is gone is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteSnapshot;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, snapshot: DeleteSnapshot) -> Result<(), CpiError> {
    let cid = snapshot.snapshot_cid;
    let Some((_lock, _)) = cloud.snapshots.lock_to_remove(cid.as_str())? else { return Ok(()) };
    cloud.faults.half_way();
    Ok(cloud.snapshots.remove(cid.as_str())?)
}
