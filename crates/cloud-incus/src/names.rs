//! What things are called in the cluster, and the cids that callers know them by. Names come from the id of the request, so
//! that a repeated request finds what the first one made.

use uuid::Uuid;
use windlass_contract::cpi::CpiError;
use windlass_contract::{DiskCid, NetworkCid, SnapshotCid, StemcellCid, VmCid};

const VM: &str = "vm-";
const DISK: &str = "disk-";
const SNAPSHOT: &str = "snap-";
const NETWORK: &str = "wl-";

/// How many digits of its id a network is named by: names of bridges have 15 letters at most.
const NETWORK_DIGITS: usize = 12;

/// The name of a VM's instance, which is also its cid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VmName(String);

impl VmName {
    pub(crate) fn new(id: Uuid) -> Self {
        Self(format!("{VM}{id}"))
    }

    /// None if this cloud gives no such cids.
    pub(crate) fn of(cid: &VmCid) -> Option<Self> {
        is_named(cid.as_str(), VM).then(|| Self(cid.as_str().to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn cid(&self) -> Result<VmCid, CpiError> {
        VmCid::new(self.0.clone()).map_err(|error| CpiError::cpi(error.to_string()))
    }
}

/// A disk's pool and volume; the cid is `POOL:disk-…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskName {
    pub(crate) pool: String,
    pub(crate) volume: String,
}

impl DiskName {
    pub(crate) fn new(pool: &str, id: Uuid) -> Self {
        Self { pool: pool.to_owned(), volume: format!("{DISK}{id}") }
    }

    pub(crate) fn of(cid: &DiskCid) -> Option<Self> {
        Self::parse(cid.as_str())
    }

    fn parse(text: &str) -> Option<Self> {
        let (pool, volume) = text.split_once(':')?;
        let is_disk = is_pool(pool) && is_named(volume, DISK);
        is_disk.then(|| Self { pool: pool.to_owned(), volume: volume.to_owned() })
    }

    /// That of a device, if the device is a persistent disk.
    pub(crate) fn of_device(device: &crate::client::Settings) -> Option<Self> {
        let (pool, volume) = (device.get("pool")?, device.get("source")?);
        let is_disk = device.get("type").is_some_and(|kind| kind == "disk") && is_named(volume, DISK);
        is_disk.then(|| Self { pool: pool.clone(), volume: volume.clone() })
    }

    pub(crate) fn cid(&self) -> Result<DiskCid, CpiError> {
        DiskCid::new(self.to_string()).map_err(|error| CpiError::cpi(error.to_string()))
    }
}

impl std::fmt::Display for DiskName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.pool, self.volume)
    }
}

/// The name of a network that was made, which is also its cid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkName(String);

impl NetworkName {
    pub(crate) fn new(id: Uuid) -> Self {
        Self(format!("{NETWORK}{}", &id.simple().to_string()[..NETWORK_DIGITS]))
    }

    /// None if this cloud gives no such cids.
    pub(crate) fn of(cid: &NetworkCid) -> Option<Self> {
        let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        let digits = cid.as_str().strip_prefix(NETWORK)?;
        (digits.len() == NETWORK_DIGITS && digits.bytes().all(is_digit)).then(|| Self(cid.as_str().to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn cid(&self) -> Result<NetworkCid, CpiError> {
        NetworkCid::new(self.0.clone()).map_err(|error| CpiError::cpi(error.to_string()))
    }
}

/// A snapshot of a disk; the cid is `POOL:disk-…:snap-…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotName {
    pub(crate) disk: DiskName,
    pub(crate) snapshot: String,
}

impl SnapshotName {
    pub(crate) fn new(disk: DiskName, id: Uuid) -> Self {
        Self { disk, snapshot: format!("{SNAPSHOT}{id}") }
    }

    pub(crate) fn of(cid: &SnapshotCid) -> Option<Self> {
        let (disk, snapshot) = cid.as_str().rsplit_once(':')?;
        let disk = DiskName::parse(disk)?;
        is_named(snapshot, SNAPSHOT).then(|| Self { disk, snapshot: snapshot.to_owned() })
    }

    pub(crate) fn cid(&self) -> Result<SnapshotCid, CpiError> {
        let cid = format!("{}:{}", self.disk, self.snapshot);
        SnapshotCid::new(cid).map_err(|error| CpiError::cpi(error.to_string()))
    }
}

/// A stemcell's cid is the fingerprint of its image.
pub(crate) fn fingerprint(cid: &StemcellCid) -> Option<&str> {
    let is_one = cid.as_str().len() == 64 && cid.as_str().bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then(|| cid.as_str())
}

fn is_named(text: &str, prefix: &str) -> bool {
    // Only as we write them: another spelling of the same id would be another name.
    text.strip_prefix(prefix).is_some_and(|id| Uuid::parse_str(id).is_ok_and(|parsed| parsed.to_string() == id))
}

fn is_pool(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f3e2d1c-0000-4000-8000-0123456789ab";

    #[test]
    fn cids_come_back_as_names_and_others_name_nothing() {
        let id = Uuid::parse_str(ID).unwrap();
        let disk = DiskName::new("fast", id);
        assert_eq!(disk.cid().unwrap().as_str(), format!("fast:disk-{ID}"));
        assert_eq!(DiskName::of(&disk.cid().unwrap()), Some(disk.clone()));
        let snapshot = SnapshotName::new(disk, id);
        assert_eq!(snapshot.cid().unwrap().as_str(), format!("fast:disk-{ID}:snap-{ID}"));
        assert_eq!(SnapshotName::of(&snapshot.cid().unwrap()), Some(snapshot));
        let vm = VmName::new(id);
        assert_eq!(VmName::of(&vm.cid().unwrap()), Some(vm));
        for odd in ["x", "vm-1", &format!("vm-{}", ID.to_uppercase()), "vm-../../x", &format!("VM-{ID}")] {
            assert_eq!(VmName::of(&VmCid::new(odd).unwrap()), None, "{odd}");
        }
        for odd in [&format!("disk-{ID}"), &format!("a/b:disk-{ID}"), &format!(":disk-{ID}"), "fast:other"] {
            assert_eq!(DiskName::of(&DiskCid::new(odd.to_string()).unwrap()), None, "{odd}");
        }
        let network = NetworkName::new(id);
        assert_eq!(network.as_str(), "wl-5f3e2d1c0000");
        assert_eq!(NetworkName::of(&network.cid().unwrap()), Some(network));
        for odd in ["br-a", "wl-", "wl-5f3e2d1c000", "wl-5F3E2D1C0000", "wl-../../1.0/x"] {
            assert_eq!(NetworkName::of(&NetworkCid::new(odd).unwrap()), None, "{odd}");
        }
        assert_eq!(fingerprint(&StemcellCid::new("sc-1").unwrap()), None);
    }
}
