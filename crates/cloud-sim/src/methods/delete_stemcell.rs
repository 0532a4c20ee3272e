//! `delete_stemcell`: removes an image that no VM uses. Both callers take nothing but success for one that is gone.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteStemcell;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, stemcell: DeleteStemcell) -> Result<(), CpiError> {
    let cid = stemcell.stemcell_cid;
    let Some((_lock, _)) = cloud.stemcells.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let _making = cloud.making_vms()?;
    if let Some(user) = cloud.vms.all()?.into_iter().find(|vm| vm.stemcell_cid == cid) {
        return Err(CpiError::cloud(format!(
            "the stemcell '{cid}' is in use by the VM '{}'; delete it first",
            user.cid
        )));
    }
    cloud.faults.half_way();
    Ok(cloud.stemcells.remove(cid.as_str())?)
}
