//! A disk goes to another member or pool by a copy.
//!
//! | step | source | copy | after a kill here |
//! |---|---|---|---|
//! | the copy is begun | `made` | `copying` | the copy is deleted and begun again |
//! | the copy is whole | `made` | `copying` | as above |
//! | the source says so | `moved-to:<place>` | `copying` | the copy becomes `made` |
//! | the copy is the disk | `moved-to:<place>` | `made` | the source is deleted |
//! | the source is deleted | – | `made` | – |
//!
//! Only a `moved-to` volume is ever deleted as a source, and only a `copying` one whose source is whole as a copy.

use crate::claim;
use crate::client::{Copied, Origin, Volume};
use crate::disks::Disk;
use crate::fault::Fault;
use crate::names::DiskName;
use crate::session::Session;
use crate::tags::{self, Stage};

/// Finishes or takes back what a killed call left of a move between members; tells where the disk is then.
pub(crate) async fn settle(session: &Session, disk: Disk) -> Result<Disk, Fault> {
    if disk.others.is_empty() && disk.stage() != Stage::Copying {
        return Ok(disk);
    }
    session.client.wait_for_others(&disk.name.volume).await?;
    let Some(mut disk) = Disk::named(session, disk.name.clone()).await? else {
        return Err(Fault::cloud(format!("the disk '{}' vanished while it was looked at", disk.name)));
    };
    let sources_moved = disk.others.iter().any(|other| matches!(Stage::of(&other.config), Stage::MovedTo(_)));
    if disk.stage() == Stage::Copying {
        if !sources_moved {
            return Err(Fault::cloud(format!(
                "the disk '{}' is a copy that was not finished, and its source is gone; look what it holds, and set '{}' of the \
                 volume to 'made' if that is all",
                disk.name,
                tags::STAGE
            )));
        }
        mark(session, &disk.name, &disk.volume, &Stage::Made).await?;
    }
    for other in std::mem::take(&mut disk.others) {
        match Stage::of(&other.config) {
            Stage::MovedTo(_) | Stage::Copying => session.client.delete_volume(&disk.name.pool, &other).await?,
            _ => {
                return Err(Fault::cloud(format!(
                    "the member '{}' has a volume '{}' that is nobody's; look what it holds, and delete or rename it",
                    other.location, other.name
                )));
            }
        }
    }
    Ok(disk)
}

/// Brings a disk that is attached to nothing to another member.
pub(crate) async fn to_member(session: &Session, disk: Disk, member: &str) -> Result<Disk, Fault> {
    let Some(from) = disk.volume.member().map(str::to_owned) else { return Ok(disk) };
    if from == member {
        return Ok(disk);
    }
    let members = session.client.members().await?;
    let Some(url) = members.iter().find(|known| known.server_name == from).map(|known| known.url.as_str()) else {
        return Err(Fault::cloud(format!(
            "the disk '{}' is on the member '{from}', which the cluster does not know any more; look at its members",
            disk.name
        )));
    };
    // As it is now: it was claimed since the disk was found, and a copy without the claim would be anybody's.
    let mut config = session.client.volume(&disk.name.pool, &disk.name.volume, Some(&from)).await?.value.config;
    config.retain(|key, _| !key.starts_with("volatile."));
    config.insert(tags::STAGE.to_owned(), Stage::Copying.to_string());
    let offer = session.client.offer_volume(&disk.name.pool, &disk.volume, url).await?;
    let copied = Copied { from: Origin::Offered(&offer), name: &disk.name.volume, config };
    session.client.copy_volume(&disk.name.pool, &copied, Some(member), &session.server.certificate).await?;
    mark(session, &disk.name, &disk.volume, &Stage::MovedTo(member.to_owned())).await?;
    let found = Disk::named(session, disk.name.clone()).await?;
    match found {
        Some(disk) => settle(session, disk).await,
        None => Err(Fault::cloud(format!("the disk '{}' vanished while it was moved", disk.name))),
    }
}

/// Brings a disk that is attached to nothing into another pool, as another disk.
pub(crate) async fn to_pool(session: &Session, disk: &Disk, new: &DiskName) -> Result<(), Fault> {
    let target = disk.volume.member();
    let found = Disk::named(session, new.clone()).await?;
    let moved = Stage::MovedTo(new.to_string());
    let copy = match found {
        Some(copy) if disk.stage() == moved => Some(copy),
        // The source was used again after it was copied.
        Some(copy) if copy.stage() != Stage::Copying => {
            return Err(Fault::cloud(format!(
                "the disk '{}' was copied to '{}', and both are whole; look which one has the data, and delete the other",
                disk.name, copy.name
            )));
        }
        Some(copy) => {
            session.client.wait_for_others(&new.volume).await?;
            session.client.delete_volume(&new.pool, &copy.volume).await?;
            None
        }
        None => None,
    };
    if copy.is_none() {
        let mut config = disk.volume.config.clone();
        config.retain(|key, _| key.starts_with("user.") || key == "size");
        config.insert(tags::STAGE.to_owned(), Stage::Copying.to_string());
        let from = Origin::Here { pool: &disk.name.pool, name: &disk.name.volume };
        let copied = Copied { from, name: &new.volume, config };
        session.client.copy_volume(&new.pool, &copied, target, &session.server.certificate).await?;
    }
    mark(session, &disk.name, &disk.volume, &moved).await?;
    if let Some(copy) = Disk::named(session, new.clone()).await? {
        mark(session, new, &copy.volume, &Stage::Made).await?;
    }
    Ok(session.client.delete_volume(&disk.name.pool, &disk.volume).await?)
}

async fn mark(session: &Session, disk: &DiskName, volume: &Volume, stage: &Stage) -> Result<(), Fault> {
    if Stage::of(&volume.config) == *stage {
        return Ok(());
    }
    claim::change(session, disk, volume.member(), &format!("mark the disk '{disk}' as {stage}"), async |read| {
        if let (Stage::MovedTo(_), Some(user)) = (stage, read.value.users().first()) {
            return Err(Fault::cloud(format!("the disk '{disk}' was attached to the VM '{user}' while it was copied")));
        }
        let mut config = read.value.config.clone();
        config.insert(tags::STAGE.to_owned(), stage.to_string());
        Ok(Some(config))
    })
    .await
}
