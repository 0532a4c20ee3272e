//! `create_stemcell`: unpacks the image once, for all VMs made from it.

use std::fs::File;
use std::io;
use std::path::Path;

use windlass_contract::StemcellCid;
use windlass_contract::cpi::methods::CreateStemcell;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_cpi::Call;

use crate::cloud::LocalCloud;
use crate::state::StemcellRecord;
use crate::unpack::{UnpackError, unpack};

pub(crate) fn run(cloud: &LocalCloud, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
    let cid = StemcellCid::new(cloud.stemcells.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.stemcells.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let record = StemcellRecord { cid: cid.clone(), cloud_properties: stemcell.cloud_properties.unwrap_or_default() };
    cloud.stemcells.make(cid.as_str(), &record, |folder| {
        let root = folder.join("root");
        std::fs::create_dir(&root).map_err(|source| refused(&UnpackError::Write { entry: "/".into(), source }))?;
        unpack(&stemcell.image_path, &root).map_err(|error| refused(&error))?;
        flush(&root).map_err(|source| refused(&UnpackError::Write { entry: "/".into(), source }))
    })?;
    Ok(cid)
}

/// One flush for the thousands of files of an image.
fn flush(root: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}

fn refused(error: &UnpackError) -> CpiError {
    let cause = std::error::Error::source(error);
    let is_full = cause
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .is_some_and(|cause| cause.kind() == io::ErrorKind::StorageFull);
    let kind = if is_full { ErrorType::NoDiskSpace } else { ErrorType::CloudError };
    CpiError::new(kind, cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
}
