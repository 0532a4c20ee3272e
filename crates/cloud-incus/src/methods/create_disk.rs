//! `create_disk`: a volume with a file system, on the member of the VM that it is for. One request makes it with its tags, so it
//! is whole as soon as it is there.

use windlass_contract::DiskCid;
use windlass_contract::cpi::methods::CreateDisk;
use windlass_cpi::Call;

use crate::client::{Instance, Pool, Settings};
use crate::disks::{Disk, check_size, find_vm};
use crate::fault::Fault;
use crate::names::DiskName;
use crate::placement;
use crate::properties::DiskProperties;
use crate::session::Session;
use crate::tags::{self, Stage};

/// What it is going to be called.
pub(crate) fn name(session: &Session, call: &Call, disk: &CreateDisk) -> Result<DiskName, Fault> {
    let properties = DiskProperties::of(&disk.cloud_properties)?;
    Ok(DiskName::new(&session.disk_pool(properties.pool.as_ref())?, call.id))
}

pub(crate) async fn run(session: &Session, call: &Call, disk: &CreateDisk) -> Result<DiskCid, Fault> {
    check_size(disk.size)?;
    let properties = DiskProperties::of(&disk.cloud_properties)?;
    let name = name(session, call, disk)?;
    let kind = pool_of_disks(session, &name.pool).await?;
    if let Some(found) = Disk::named(session, name.clone()).await? {
        return ours(session, call, &found);
    }
    let vm = match &disk.vm_cid {
        Some(cid) => find_vm(session, cid).await?.map(|(_, instance)| instance),
        None => None,
    };
    let target = if kind.is_local() { target(session, vm.as_ref(), &properties).await? } else { None };
    let mut config: Settings = tags::of_call(call);
    config.extend(properties.config);
    config.extend(vm.and_then(|vm| vm.config).map(|config| tags::inherited(&config)).unwrap_or_default());
    config.insert("size".to_owned(), format!("{}MiB", disk.size.0));
    config.insert(tags::STAGE.to_owned(), Stage::Made.to_string());
    match session.client.create_volume(&name.pool, &name.volume, &config, target.as_deref()).await {
        Ok(()) => Ok(name.cid()?),
        Err(error) if error.is_taken() => match Disk::named(session, name).await? {
            Some(found) => ours(session, call, &found),
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// The pool of that name; one that is not there is named with the remedy.
pub(crate) async fn pool_of_disks(session: &Session, pool: &str) -> Result<Pool, Fault> {
    match session.client.pool(pool).await {
        Err(error) if error.is_missing() => Err(Fault::cloud(format!(
            "there is no storage pool '{pool}'; make it in the cluster, or name another as 'pool' in the disk type's \
             cloud_properties or as 'disk_pool' in the CPI's configuration"
        ))),
        other => Ok(other?),
    }
}

/// The disk that an interrupted call made, unless it is somebody else's.
fn ours(session: &Session, call: &Call, found: &Disk) -> Result<DiskCid, Fault> {
    session.must_be_ours(&format!("the disk '{}'", found.name), found.volume.get(tags::DIRECTOR), call)?;
    if found.volume.get(tags::ID) != Some(call.id.to_string().as_str()) {
        return Err(Fault::cloud(format!(
            "a volume '{}' is in the pool '{}' already, and this CPI did not make it; delete or rename it",
            found.name.volume, found.name.pool
        )));
    }
    Ok(found.name.cid()?)
}

async fn target(
    session: &Session,
    vm: Option<&Instance>,
    properties: &DiskProperties,
) -> Result<Option<String>, Fault> {
    match vm.and_then(|vm| vm.member()) {
        Some(member) => Ok(Some(member.to_owned())),
        None => {
            let target = properties.target.as_deref().or(session.config.target.as_deref());
            placement::of_disk(session, target).await
        }
    }
}
