//! `create_stemcell`: unpacks the image once, for all VMs made from it. A light one names what it is made from.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use windlass_archive::{Budget, Refusal};
use windlass_contract::cpi::methods::CreateStemcell;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::explain;
use windlass_contract::{Object, StemcellCid};
use windlass_cpi::Call;

use crate::cloud::LocalCloud;
use crate::oci::{self, OciError, OciImage};
use crate::state::StemcellRecord;
use crate::unpack::{UnpackError, unpack, unpacked_size};
use crate::userland::Userland;

/// What a stemcell's root file system is made from.
enum Source {
    /// A tar.
    Image(PathBuf),
    /// A folder that is used as it is, and stays where it is.
    Folder(PathBuf),
    /// An image in an OCI layout.
    Oci(OciImage),
}

pub(crate) fn run(cloud: &LocalCloud, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
    let cid = StemcellCid::new(cloud.stemcells.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.stemcells.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let cloud_properties = stemcell.cloud_properties.unwrap_or_default();
    refuse_windows(&cloud_properties)?;
    Userland::of(&cloud_properties)?;
    let source = source(cloud, stemcell.image_path, &cloud_properties)?;
    let needed = match &source {
        Source::Image(image) => unpacked_size(image).unwrap_or_default(),
        Source::Oci(image) => image.size(),
        Source::Folder(_) => 0,
    };
    cloud.check_space(needed)?;
    let root = match &source {
        Source::Folder(folder) => Some(folder.clone()),
        Source::Image(_) | Source::Oci(_) => None,
    };
    let record = StemcellRecord { cid: cid.clone(), root, cloud_properties };
    cloud.stemcells.make(cid.as_str(), &record, |folder| fill(&source, &folder.join("root")))?;
    Ok(cid)
}

fn fill(source: &Source, root: &Path) -> Result<(), CpiError> {
    let unwritable = |source| refused(&UnpackError::Write { entry: "/".into(), source });
    match source {
        Source::Folder(_) => return Ok(()),
        Source::Image(image) => {
            fs::create_dir(root).map_err(unwritable)?;
            let budget = Budget::of_space(root).map_err(unwritable)?;
            unpack(image, root, &budget).map_err(|error| refused(&error))?;
        }
        Source::Oci(image) => {
            fs::create_dir(root).map_err(unwritable)?;
            let budget = Budget::of_space(root).map_err(unwritable)?;
            image.unpack(root, &budget).map_err(|error| refused_oci(&error))?;
        }
    }
    // VMs see it as their root folder.
    fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(unwritable)?;
    flush(root).map_err(unwritable)
}

/// One flush for the thousands of files of an image.
fn flush(root: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}

/// A light stemcell has an empty image, and says what it means in `image_reference`.
fn source(cloud: &LocalCloud, image: PathBuf, properties: &Object) -> Result<Source, CpiError> {
    let is_empty = fs::metadata(&image).is_ok_and(|metadata| metadata.len() == 0);
    let Some(reference) = properties.get("image_reference").filter(|_| is_empty) else {
        return Ok(Source::Image(image));
    };
    let reference = reference.as_str().unwrap_or_default();
    if let Some(rest) = reference.strip_prefix("oci:") {
        let (path, name) = match rest.rsplit_once(':') {
            Some((path, name)) if !name.contains('/') && !Path::new(rest).is_dir() => (path, Some(name)),
            _ => (rest, None),
        };
        let layout = permitted(cloud, Path::new(path))?;
        return OciImage::open(&layout, name).map(Source::Oci).map_err(|error| refused_oci(&error));
    }
    let path = Path::new(reference.strip_prefix("dir:").unwrap_or(reference));
    if !path.is_absolute() {
        return Err(CpiError::cloud(format!(
            "the light stemcell names the image '{reference}', and nothing is fetched from elsewhere; let it name a folder of \
             this machine (dir:/PATH) or an OCI layout (oci:/PATH:NAME)"
        )));
    }
    let folder = permitted(cloud, path)?;
    if oci::is_layout(&folder) {
        return OciImage::open(&folder, None).map(Source::Oci).map_err(|error| refused_oci(&error));
    }
    Ok(Source::Folder(folder))
}

/// Where `path` really is, if light stemcells may name it. Nothing is said about folders that they may not name, not even
/// whether they are there.
fn permitted(cloud: &LocalCloud, path: &Path) -> Result<PathBuf, CpiError> {
    let really = |path: &Path| fs::canonicalize(path).ok();
    let state = really(cloud.state()).unwrap_or_else(|| cloud.state().to_owned());
    let found = really(path).filter(|found| found.is_dir());
    let is_apart = |found: &Path| !found.starts_with(&state) && !state.starts_with(found);
    let allowed = cloud.config.image_folders.iter().filter_map(|folder| really(folder));
    let found = found.filter(|found| is_apart(found));
    match found.filter(|found| allowed.into_iter().any(|folder| found.starts_with(folder))) {
        Some(found) => Ok(found),
        None => Err(CpiError::cloud(format!(
            "the light stemcell names the folder {}, which is not there or not below 'image_folders' of this cloud; name \
             another, or let an administrator add its folder to 'image_folders' in the CPI's configuration",
            path.display()
        ))),
    }
}

fn refuse_windows(properties: &Object) -> Result<(), CpiError> {
    let is_windows = ["os_type", "os_distro", "name"].iter().any(|key| {
        let value = properties.get(*key).and_then(serde_json::Value::as_str).unwrap_or_default();
        value.to_ascii_lowercase().contains("windows")
    });
    if is_windows {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            "this is a Windows stemcell, and the VMs of this cloud share the Linux kernel of this machine; use a Linux \
             stemcell for containers",
        ));
    }
    Ok(())
}

fn refused_oci(error: &OciError) -> CpiError {
    match error {
        OciError::Unpack(error) => refused(error),
        error => CpiError::cloud(explain(error)),
    }
}

fn refused(error: &UnpackError) -> CpiError {
    let is_full = std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .is_some_and(|cause| cause.kind() == io::ErrorKind::StorageFull);
    let is_full = is_full || matches!(error, UnpackError::Refused { source: Refusal::Bytes(_), .. });
    let kind = if is_full { ErrorType::NoDiskSpace } else { ErrorType::CloudError };
    CpiError::new(kind, explain(error))
}
