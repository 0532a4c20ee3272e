//! `delete_stemcell`: removes an image that no VM uses. Both callers take nothing but success for one that is gone.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteStemcell;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, stemcell: DeleteStemcell) -> Result<(), CpiError> {
    let cid = stemcell.stemcell_cid;
    let Some((_lock, _)) = cloud.stemcells.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let users: Vec<String> =
        cloud.vms.all()?.into_iter().filter(|vm| vm.stemcell_cid == cid).map(|vm| format!("'{}'", vm.cid)).collect();
    if !users.is_empty() {
        return Err(CpiError::cloud(format!(
            "the stemcell '{cid}' is in use by the VMs {}; delete them first",
            users.join(", ")
        )));
    }
    Ok(cloud.stemcells.remove(cid.as_str())?)
}
