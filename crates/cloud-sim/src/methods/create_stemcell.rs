//! `create_stemcell`: notes that there is an image; nothing will ever run it.

use std::io;
use std::path::Path;

use windlass_contract::StemcellCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateStemcell;
use windlass_cpi::Call;

use crate::cloud::SimCloud;
use crate::records::StemcellRecord;

pub(crate) fn run(cloud: &SimCloud, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
    let cid = StemcellCid::new(cloud.stemcells.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.stemcells.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let image_bytes = size_of_image(&stemcell.image_path)
        .map_err(|error| CpiError::cloud(format!("cannot read {}: {error}", stemcell.image_path.display())))?;
    let tags = stemcell.env.unwrap_or_default().remove("tags").and_then(|tags| serde_json::from_value(tags).ok());
    let record = StemcellRecord {
        cid: cid.clone(),
        cloud_properties: stemcell.cloud_properties.unwrap_or_default(),
        tags: tags.unwrap_or_default(),
        image_bytes,
    };
    cloud.stemcells.make(cid.as_str(), &record, |_| {
        cloud.faults.half_way();
        Ok(())
    })?;
    Ok(cid)
}

/// It must be a file that can be opened. An empty one is fine: light stemcells have such.
fn size_of_image(path: &Path) -> io::Result<u64> {
    let image = std::fs::File::open(path)?.metadata()?;
    if image.is_file() { Ok(image.len()) } else { Err(io::Error::other("it is not a file")) }
}
