//! Finding disks, and what is true of them.

use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::{DiskCid, MiB};

use crate::client::Volume;
use crate::fault::Fault;
use crate::names::{DiskName, VmName};
use crate::session::Session;
use crate::tags::{self, Stage};

/// A disk. On local pools two members may have a volume of its name, while it moves and after a kill.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Disk {
    pub(crate) name: DiskName,
    /// The one with the data.
    pub(crate) volume: Volume,
    /// Others of the same name: copies that were not finished, and sources that were copied.
    pub(crate) others: Vec<Volume>,
}

impl Disk {
    /// The disk of that cid, if there is one.
    pub(crate) async fn find(session: &Session, cid: &DiskCid) -> Result<Option<Self>, Fault> {
        match DiskName::of(cid) {
            Some(name) => Self::named(session, name).await,
            None => Ok(None),
        }
    }

    /// As above; a disk that is not there is an error.
    pub(crate) async fn get(session: &Session, cid: &DiskCid) -> Result<Self, Fault> {
        Self::find(session, cid).await?.ok_or_else(|| CpiError::disk_not_found(cid).into())
    }

    pub(crate) async fn named(session: &Session, name: DiskName) -> Result<Option<Self>, Fault> {
        let volumes = match session.client.find_volumes(&name.pool, &name.volume).await {
            Ok(volumes) => volumes,
            // A pool cannot go while it has volumes, but its name can be hidden from us.
            Err(error) if error.is_missing() => {
                return Err(Fault::cloud(format!(
                    "there is no storage pool '{}', which the disk '{name}' is in; make it visible to the project again",
                    name.pool
                )));
            }
            Err(error) => return Err(error.into()),
        };
        choose(name, volumes)
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::of(&self.volume.config)
    }

    pub(crate) fn size(&self) -> Result<MiB, Fault> {
        let text = self.volume.get("size").unwrap_or_default();
        mebibytes(text).ok_or_else(|| {
            Fault::cloud(format!(
                "the disk '{}' has the size '{text}', which is not understood; set it in MiB",
                self.name
            ))
        })
    }

    /// Refuses a disk that a VM has, or that is claimed for one.
    pub(crate) async fn must_be_detached(&self, session: &Session) -> Result<(), Fault> {
        let holder = match self.volume.users().first() {
            Some(user) => Some((*user).to_owned()),
            None => crate::claim::holder(session, &self.volume).await?.map(|vm| vm.as_str().to_owned()),
        };
        match holder {
            None => Ok(()),
            Some(vm) => {
                Err(Fault::cloud(format!("the disk '{}' is attached to the VM '{vm}'; detach it first", self.name)))
            }
        }
    }

    /// The VM that it is claimed for.
    pub(crate) fn claimed_for(&self) -> Option<&str> {
        self.volume.get(tags::ATTACHED_TO)
    }
}

/// Which of the volumes of one name is the disk. Nothing is guessed: two that are whole are an error.
fn choose(name: DiskName, mut volumes: Vec<Volume>) -> Result<Option<Disk>, Fault> {
    let rank = |volume: &Volume| match Stage::of(&volume.config) {
        Stage::Made | Stage::Ready | Stage::Unfinished => 0,
        // Its source is `moved-to`, or it would not be the best: the copy is whole.
        Stage::Copying => 1,
        Stage::MovedTo(_) => 2,
    };
    volumes.sort_by_key(rank);
    let whole = volumes.iter().filter(|volume| rank(volume) == 0).count();
    if whole > 1 {
        let members: Vec<&str> = volumes.iter().map(|volume| volume.location.as_str()).collect();
        return Err(Fault::cloud(format!(
            "the members {} each have a volume '{}' in the pool '{}', and both are whole; look which one has the data, and \
             delete or rename the other",
            members.join(" and "),
            name.volume,
            name.pool
        )));
    }
    // A copy whose source is gone was never finished by us; it is all that there is, so it stays what it is.
    let mut volumes = volumes.into_iter();
    Ok(volumes.next().map(|volume| Disk { name, volume, others: volumes.collect() }))
}

/// Sizes as daemons write them. A number alone is bytes.
pub(crate) fn mebibytes(text: &str) -> Option<MiB> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    let bytes: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    Some(MiB(number.checked_mul(bytes)? >> 20))
}

/// How much larger a disk is to become. Callers copy to a new disk when it is to become smaller.
pub(crate) fn growth(disk: &Disk, new_size: MiB) -> Result<MiB, Fault> {
    let size = disk.size()?;
    new_size.0.checked_sub(size.0).map(MiB).ok_or_else(|| {
        let words = format!(
            "the disk '{}' has {size} and cannot shrink to {new_size}; copy its content to a new disk",
            disk.name
        );
        CpiError::new(ErrorType::NotSupported, words).into()
    })
}

/// The largest size that every pool understands.
pub(crate) const LARGEST: MiB = MiB(1 << 34);

/// Refuses sizes that no disk has.
pub(crate) fn check_size(size: MiB) -> Result<(), Fault> {
    if size.0 == 0 || size > LARGEST {
        return Err(Fault::cloud(format!("a disk cannot have {size}; choose a size from 1 MiB to {LARGEST}")));
    }
    Ok(())
}

/// The VM of that cid, if this cloud has it.
pub(crate) async fn find_vm(
    session: &Session,
    cid: &windlass_contract::VmCid,
) -> Result<Option<(VmName, crate::client::Instance)>, Fault> {
    let Some(name) = VmName::of(cid) else { return Ok(None) };
    Ok(session.client.find_instance(name.as_str()).await?.map(|instance| (name, instance)))
}

/// The VM of that cid, on a member that answers.
pub(crate) async fn reachable_vm(
    session: &Session,
    cid: &windlass_contract::VmCid,
) -> Result<(VmName, crate::client::Instance), Fault> {
    let (name, instance) = find_vm(session, cid).await?.ok_or_else(|| CpiError::vm_not_found(cid))?;
    must_be_reachable(&instance)?;
    Ok((name, instance))
}

/// Refuses a VM whose member does not answer. It is not gone: its processes may run on.
pub(crate) fn must_be_reachable(instance: &crate::client::Instance) -> Result<(), Fault> {
    if instance.is_reachable() {
        return Ok(());
    }
    Err(Fault::cloud(format!(
        "the VM '{}' is on the member '{}', which does not answer, and it may still run there; bring the member back, or, if it \
         is dead for good, remove it from the cluster by force, which declares its VMs dead",
        instance.name, instance.location
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(stage: &str, location: &str) -> Volume {
        let config = json!({"user.windlass.stage": stage, "size": "64MiB"});
        serde_json::from_value(json!({"name": "disk-1", "config": config, "location": location})).unwrap()
    }

    fn chosen(volumes: Vec<Volume>) -> Result<Option<(String, usize)>, Fault> {
        let name = DiskName { pool: "fast".to_owned(), volume: "disk-1".to_owned() };
        Ok(choose(name, volumes)?.map(|disk| (disk.volume.location, disk.others.len())))
    }

    #[test]
    fn of_two_volumes_of_one_name_the_whole_one_is_the_disk_and_two_whole_ones_are_nobodys_guess() {
        assert_eq!(chosen(vec![]).unwrap(), None);
        assert_eq!(chosen(vec![volume("made", "n1")]).unwrap(), Some(("n1".to_owned(), 0)));
        let copied = vec![volume("copying", "n2"), volume("made", "n1")];
        assert_eq!(chosen(copied).unwrap(), Some(("n1".to_owned(), 1)), "the copy may be half");
        let moved = vec![volume("moved-to:n2", "n1"), volume("copying", "n2")];
        assert_eq!(chosen(moved).unwrap(), Some(("n2".to_owned(), 1)), "the source says that the copy is whole");
        let done = vec![volume("moved-to:n2", "n1"), volume("made", "n2")];
        assert_eq!(chosen(done).unwrap(), Some(("n2".to_owned(), 1)));
        assert_eq!(chosen(vec![volume("moved-to:n2", "n1")]).unwrap(), Some(("n1".to_owned(), 0)), "all that is left");
        let error = chosen(vec![volume("made", "n1"), volume("made", "n2")]).unwrap_err().to_string();
        assert!(error.contains("n1 and n2") && error.contains("look which one has the data"), "{error}");
    }

    #[test]
    fn sizes_are_read_in_all_units() {
        for (text, size) in [("64MiB", 64), ("2GiB", 2048), ("1TiB", 1 << 20), ("1048576", 1), ("1073741824B", 1024)] {
            assert_eq!(mebibytes(text), Some(MiB(size)), "{text}");
        }
        for wrong in ["", "x", "10%", "5 MiB", "99999999999999999999MiB"] {
            assert_eq!(mebibytes(wrong), None, "{wrong}");
        }
    }
}
