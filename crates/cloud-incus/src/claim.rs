//! Which VM a disk is for. A daemon attaches one disk to two VMs without a word, so a disk is claimed first: by a change of its
//! configuration that succeeds only if nobody else changed it since it was read. That holds between processes, directors and
//! members.

use std::time::Duration;

use crate::client::{Settings, Tagged, Volume};
use crate::fault::Fault;
use crate::names::{DiskName, VmName};
use crate::session::Session;
use crate::tags::{self, Stage};

/// How often a change is tried that others get ahead of.
const TRIES: u32 = 12;

/// The VM that a disk is claimed for, if that VM still exists. One that is on a member that is down exists.
pub(crate) async fn holder(session: &Session, volume: &Volume) -> Result<Option<VmName>, Fault> {
    let Some(claimed) = volume.get(tags::ATTACHED_TO) else { return Ok(None) };
    let Some(vm) = windlass_contract::VmCid::new(claimed).ok().and_then(|cid| VmName::of(&cid)) else {
        return Err(Fault::cloud(format!(
            "the disk '{}' is claimed for '{claimed}', which is no VM of this cloud; clear '{}' of the volume",
            volume.name,
            tags::ATTACHED_TO
        )));
    };
    Ok(session.client.find_instance(vm.as_str()).await?.map(|_| vm))
}

/// Claims a disk for a VM.
pub(crate) async fn claim(session: &Session, disk: &DiskName, member: Option<&str>, vm: &VmName) -> Result<(), Fault> {
    let claimed = |config: &Settings| config.get(tags::ATTACHED_TO).map(String::as_str) == Some(vm.as_str());
    change(session, disk, member, &format!("claim the disk '{disk}' for the VM '{}'", vm.as_str()), async |read| {
        if let Some(other) = read.value.users().iter().find(|user| **user != vm.as_str()) {
            return Err(attached_to(disk, other));
        }
        if claimed(&read.value.config) {
            return Ok(None);
        }
        if let Some(other) = holder(session, &read.value).await? {
            return Err(attached_to(disk, other.as_str()));
        }
        let mut config = read.value.config.clone();
        config.insert(tags::ATTACHED_TO.to_owned(), vm.as_str().to_owned());
        config.insert(tags::USED.to_owned(), "true".to_owned());
        // It is the disk again, whatever was copied from it: from now on the copy is older.
        if matches!(Stage::of(&config), Stage::MovedTo(_)) {
            config.insert(tags::STAGE.to_owned(), Stage::Made.to_string());
        }
        Ok(Some(config))
    })
    .await
}

fn attached_to(disk: &DiskName, vm: &str) -> Fault {
    Fault::cloud(format!("the disk '{disk}' is attached to the VM '{vm}'; detach it there first"))
}

/// Clears a claim, if it still names this VM: a detach that comes late must not clear the next one's.
pub(crate) async fn release(
    session: &Session,
    disk: &DiskName,
    member: Option<&str>,
    vm: &VmName,
) -> Result<(), Fault> {
    let doing = format!("release the disk '{disk}' from the VM '{}'", vm.as_str());
    let released = change(session, disk, member, &doing, async |read| {
        let names_it = read.value.get(tags::ATTACHED_TO) == Some(vm.as_str());
        let has_it = read.value.users().contains(&vm.as_str());
        if !names_it || has_it {
            return Ok(None);
        }
        let mut config = read.value.config.clone();
        config.remove(tags::ATTACHED_TO);
        Ok(Some(config))
    });
    match released.await {
        Err(Fault::Client(error)) if error.is_missing() => Ok(()),
        other => other,
    }
}

/// Changes a disk's configuration unless somebody else does at the same time; then it is looked at again.
pub(crate) async fn change(
    session: &Session,
    disk: &DiskName,
    member: Option<&str>,
    doing: &str,
    decide: impl AsyncFn(&Tagged<Volume>) -> Result<Option<Settings>, Fault>,
) -> Result<(), Fault> {
    let mut tries = 0;
    loop {
        let read = session.client.volume(&disk.pool, &disk.volume, member).await?;
        let Some(config) = decide(&read).await? else { return Ok(()) };
        match session.client.put_volume(&disk.pool, &read, &config, doing).await {
            Err(error) if error.is_stale() && tries < TRIES => {
                tries += 1;
                // Not all at the same moment again.
                let jitter = u64::from(std::process::id() % 17);
                tokio::time::sleep(Duration::from_millis(10 * u64::from(tries) + jitter)).await;
            }
            other => return Ok(other?),
        }
    }
}
