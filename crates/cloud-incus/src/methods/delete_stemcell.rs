//! `delete_stemcell`: VMs that were made from the image stay.

use windlass_contract::cpi::methods::DeleteStemcell;
use windlass_cpi::Call;

use crate::fault::Fault;
use crate::names;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, call: &Call, stemcell: &DeleteStemcell) -> Result<(), Fault> {
    let Some(fingerprint) = names::fingerprint(&stemcell.stemcell_cid) else { return Ok(()) };
    let Some(image) = session.client.find_image(fingerprint).await? else { return Ok(()) };
    let director = image.properties.get(tags::IMAGE_DIRECTOR).map(String::as_str);
    session.must_be_ours(&format!("the stemcell '{fingerprint}'"), director, call)?;
    match session.client.delete_image(fingerprint).await {
        Err(error) if error.is_missing() => Ok(()),
        other => Ok(other?),
    }
}
