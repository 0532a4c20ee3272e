//! `create_stemcell`: the image is uploaded as it is, with metadata beside it. The fingerprint is known before, and has the
//! call's id in it, so a repeated call finds the image.

use windlass_contract::StemcellCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateStemcell;
use windlass_cpi::Call;

use crate::fault::Fault;
use crate::image;
use crate::session::Session;
use crate::tags;

/// What of a stemcell's properties is noted for people.
const FOR_PEOPLE: [&str; 5] = ["name", "version", "os_type", "os_distro", "infrastructure"];

pub(crate) async fn run(session: &Session, call: &Call, stemcell: &CreateStemcell) -> Result<StemcellCid, Fault> {
    let given = stemcell.cloud_properties.clone().unwrap_or_default();
    refuse_others(&given)?;
    let architecture = image::architecture(&given)?;
    let nature = image::inspect(&stemcell.image_path)?;
    let mut properties = nature.properties();
    properties.insert(tags::IMAGE_DIRECTOR.to_owned(), call.context.director_uuid.clone());
    properties.insert("windlass.id".to_owned(), call.id.to_string());
    let text = |key: &str| given.get(key).and_then(|value| value.as_str().map(str::to_owned));
    properties.extend(FOR_PEOPLE.iter().filter_map(|key| Some((format!("windlass.{key}"), text(key)?))));
    if let Some(disk) = given.get("disk").and_then(serde_json::Value::as_u64) {
        properties.insert("windlass.disk".to_owned(), disk.to_string());
    }
    let description = ["name", "version"].iter().filter_map(|key| text(key)).collect::<Vec<_>>().join(" ");
    properties.insert("description".to_owned(), description);
    let unreadable = |error: std::io::Error| {
        CpiError::cloud(format!("cannot read the stemcell's image {}: {error}", stemcell.image_path.display()))
    };
    let metadata = image::metadata(architecture, &properties).map_err(unreadable)?;
    let fingerprint = image::fingerprint(&metadata, &stemcell.image_path).map_err(unreadable)?;
    let cid = StemcellCid::new(fingerprint.clone()).map_err(|error| CpiError::cpi(error.to_string()))?;
    if session.client.find_image(&fingerprint).await?.is_some() {
        return Ok(cid);
    }
    match session.client.upload_image(&metadata, &stemcell.image_path, &fingerprint).await {
        Ok(()) => Ok(cid),
        // An interrupted call's upload arrived meanwhile.
        Err(error) if error.is_taken() => Ok(cid),
        Err(error) => Err(error.into()),
    }
}

fn refuse_others(properties: &windlass_contract::Object) -> Result<(), CpiError> {
    let text = |key: &str| properties.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    if ["os_type", "os_distro", "name"].iter().any(|key| text(key).to_ascii_lowercase().contains("windows")) {
        return Err(CpiError::new(
            windlass_contract::cpi::ErrorType::NotSupported,
            "this is a Windows stemcell, and containers share the Linux kernel of their member; use a Linux stemcell for \
             containers",
        ));
    }
    if matches!(text("disk_format"), "qcow2" | "raw" | "vmdk" | "vhd" | "ovf" | "rawdisk") {
        return Err(image::virtual_machines());
    }
    Ok(())
}
