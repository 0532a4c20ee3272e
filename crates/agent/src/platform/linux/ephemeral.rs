//! Disks that live as long as the VM: the ephemeral one with swap and the data folder, raw ones for jobs, and the root disk.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_contract::settings::AgentSettings;

use super::command::tool;
use super::content::{self, Content, FileSystemKind};
use super::disk_lock::DiskLock;
use super::mounts;
use super::partitions::{self, Marks, NewPartition, Table};
use super::persistent::{DiskSetupError, io_failed, make_file_system};
use super::{Linux, set_mode};
use crate::disks::{self, DiskSettings};

const MIB: u64 = 1 << 20;
/// The least that must be left of a root disk for it to hold the data folder.
const LEAST_REST: u64 = 1024 * MIB;
/// How much a partition may differ in size from what would be made now.
const TOLERANCE: u64 = 20 * MIB;

/// why there is no place for data
#[derive(Debug, thiserror::Error)]
pub(crate) enum EphemeralError {
    /// no disk, and the root disk must not be used
    #[error("No ephemeral disk found, cannot use root partition as ephemeral disk; check the VM type's ephemeral disk")]
    None,
    /// too little is left of the root disk
    #[error(
        "Insufficient remaining disk space ({0}B) for ephemeral partition (min: {LEAST_REST}B); use a larger root disk"
    )]
    Space(u64),
    /// nobody knows which disk is the root disk
    #[error("cannot find the disk of the root file system among the mounts; set SkipDiskSetup if there is none")]
    NoRoot,
    /// the ephemeral disk is not what its name says
    #[error("the ephemeral disk {device} is also {what}, and would lose its content; correct the CPI's settings")]
    Precious { device: PathBuf, what: String },
    /// a disk is not as it should be
    #[error(transparent)]
    Disk(#[from] DiskSetupError),
}

macro_rules! from_disk_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for EphemeralError {
            fn from(error: $error) -> Self {
                Self::Disk(error.into())
            }
        }
    )*};
}
from_disk_errors!(
    super::command::CommandError,
    super::devices::DeviceError,
    super::disk_lock::DiskLockError,
    super::mounts::MountError,
    super::partitions::PartitionError
);

impl Linux {
    /// Raw disks, the ephemeral disk, and what is left of the root disk.
    pub(super) fn set_up_disks(&self, settings: &AgentSettings) -> Result<(), EphemeralError> {
        let data = self.base.data();
        std::fs::create_dir_all(&data).map_err(io_failed(&data))?;
        set_mode(&data, 0o750).map_err(io_failed(&data))?;
        if self.options.skip_disk_setup {
            return Ok(());
        }
        self.set_up_raw_disks(settings)?;
        let ephemeral = self.ephemeral_device(settings);
        let swap = swap_size(settings);
        match &ephemeral {
            Some(device) => self.set_up_ephemeral(device, swap, settings)?,
            None if self.options.create_partition_if_no_ephemeral_disk => self.use_rest_of_root_disk(swap)?,
            None => return Err(EphemeralError::None),
        }
        if ephemeral.is_some() || !self.options.create_partition_if_no_ephemeral_disk {
            self.grow_root()?;
        }
        Ok(())
    }

    /// A disk that cannot be found counts as none, as with the original.
    fn ephemeral_device(&self, settings: &AgentSettings) -> Option<PathBuf> {
        let hint = Value::from(settings.disks.ephemeral.clone()?);
        let disk = DiskSettings::new("", hint, settings).ok()?;
        let found = self.devices.wait_for(&disk);
        found.inspect_err(|error| tracing::warn!("no ephemeral disk: {}", windlass_contract::explain(error))).ok()
    }

    fn set_up_ephemeral(
        &self,
        device: &Path,
        swap: Option<u64>,
        settings: &AgentSettings,
    ) -> Result<(), EphemeralError> {
        let _lock = DiskLock::acquire(device)?;
        let size = content::size_of(device).map_err(io_failed(device))?;
        let wanted = layout(size, swap, memory(), &label(settings.agent_id.as_str()));
        let is_ours = |table: &Table| {
            let prefix = label(settings.agent_id.as_str());
            table.partitions.len() >= wanted.len()
                && table.partitions.iter().take(wanted.len()).all(|found| found.name.starts_with(&prefix))
        };
        let found = match content::of(device).map_err(io_failed(device))? {
            Content::Partitions => Some(partitions::read(device)?).filter(is_ours),
            _ => None,
        };
        let table = match found {
            Some(table) => {
                partitions::show(device, &table)?;
                table
            }
            None => {
                self.refuse_precious(device, settings)?;
                partitions::create(device, &wanted, Marks::Wipe)?
            }
        };
        self.use_partitions(&table, wanted.len())
    }

    /// A disk that holds somebody's data must not be wiped.
    fn refuse_precious(&self, device: &Path, settings: &AgentSettings) -> Result<(), EphemeralError> {
        let precious = |what: String| EphemeralError::Precious { device: device.to_owned(), what };
        let known = disks::known(&self.base.disk_hints(), settings).unwrap_or_default();
        for (cid, disk) in known {
            if self.devices.present(&disk).is_ok_and(|found| found.as_deref() == Some(device)) {
                return Err(precious(format!("the persistent disk '{cid}'")));
            }
        }
        let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_on_it = |source: &Path| {
            let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
            source == device
                || source.parent() == device.parent()
                    && source.file_name().is_some_and(|found| {
                        let rest = found.to_string_lossy().strip_prefix(&name).map(str::to_owned);
                        rest.is_some_and(|rest| rest.trim_start_matches('p').parse::<u32>().is_ok())
                    })
        };
        match mounts::all()?.into_iter().find(|mount| is_on_it(&mount.source)) {
            Some(mount) => Err(precious(format!("mounted on {}", mount.target.display()))),
            None => Ok(()),
        }
    }

    /// The first of two partitions is swap, the last one of `count` holds the data folder.
    fn use_partitions(&self, table: &Table, count: usize) -> Result<(), EphemeralError> {
        let first = table.partitions.len().saturating_sub(count);
        if let [swap, _] = &table.partitions[first..] {
            let path = &swap.path;
            if content::of(path).map_err(io_failed(path))? != Content::Other(content::SWAP) {
                tool("mkswap", [path]).run()?;
            }
            if !self.is_swap_on(path) {
                tool("swapon", [path]).run()?;
            }
        }
        let Some(data) = table.partitions.last() else { return Ok(()) };
        let kind = match content::of(&data.path).map_err(io_failed(&data.path))? {
            Content::FileSystem(found) => found.kind,
            _ => {
                make_file_system(&data.path, FileSystemKind::Ext4, true)?;
                FileSystemKind::Ext4
            }
        };
        let place = self.base.data();
        match mounts::on(&place)? {
            Some(_) => Ok(()),
            None => Ok(mounts::mount(&data.path, &place, kind.name(), &[])?),
        }
    }

    fn is_swap_on(&self, path: &Path) -> bool {
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        swaps.lines().any(|line| line.split_whitespace().next() == path.to_str())
    }

    /// Partitions after those that are there.
    fn use_rest_of_root_disk(&self, swap: Option<u64>) -> Result<(), EphemeralError> {
        let (device, number) = self.root_disk()?;
        let _lock = DiskLock::acquire(&device)?;
        let size = content::size_of(&device).map_err(io_failed(&device))?;
        let table = partitions::read(&device)?;
        let root =
            table.partitions.iter().find(|partition| partition.number == number).ok_or(EphemeralError::NoRoot)?;
        let rest = size.saturating_sub(root.end());
        if rest < LEAST_REST {
            return Err(EphemeralError::Space(rest));
        }
        let wanted = layout(rest, swap, memory(), "bosh-partition");
        let after: Vec<_> = table.partitions.iter().filter(|partition| partition.start >= root.end()).collect();
        let is_like = |(found, wanted): (&&partitions::Partition, &NewPartition)| {
            wanted.size.is_none_or(|size| found.size.abs_diff(size) <= TOLERANCE)
        };
        let table = match after.len() == wanted.len() && after.iter().zip(&wanted).all(is_like) {
            true => {
                partitions::show(&device, &table)?;
                table
            }
            false => partitions::append(&device, &wanted)?,
        };
        self.use_partitions(&table, wanted.len())
    }

    /// Lets the root file system use all of its disk.
    fn grow_root(&self) -> Result<(), EphemeralError> {
        let (device, number) = match self.root_disk() {
            Err(EphemeralError::NoRoot) => {
                tracing::info!("the root file system is not on a partition, so it keeps its size");
                return Ok(());
            }
            found => found?,
        };
        let _lock = DiskLock::acquire(&device)?;
        let table = partitions::read(&device)?;
        let Some(last) = table.partitions.iter().max_by_key(|partition| partition.start) else { return Ok(()) };
        if last.number != number {
            return Ok(());
        }
        if last.end() + TOLERANCE < content::size_of(&device).map_err(io_failed(&device))? {
            partitions::grow(&device, number)?;
        }
        let path = &last.path;
        let Content::FileSystem(found) = content::of(path).map_err(io_failed(path))? else { return Ok(()) };
        if found.size + TOLERANCE < content::size_of(path).map_err(io_failed(path))? {
            match found.kind {
                FileSystemKind::Xfs => tool("xfs_growfs", ["-d".as_ref(), self.root.at("/").as_os_str()]).run()?,
                FileSystemKind::Ext4 => tool("resize2fs", ["-f".as_ref(), path.as_os_str()]).run()?,
            };
        }
        Ok(())
    }

    /// The disk of the root file system and the number of its partition, as the kernel tells them.
    fn root_disk(&self) -> Result<(PathBuf, u32), EphemeralError> {
        let device = self.root.at("/").metadata().map_err(io_failed(Path::new("/")))?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let entry = self.root.at(format!("/sys/dev/block/{major}:{minor}")).canonicalize();
        let entry = entry.map_err(|_| EphemeralError::NoRoot)?;
        let number = std::fs::read_to_string(entry.join("partition")).map_err(|_| EphemeralError::NoRoot)?;
        let number = number.trim().parse().map_err(|_| EphemeralError::NoRoot)?;
        let disk = entry.parent().and_then(Path::file_name).ok_or(EphemeralError::NoRoot)?;
        Ok((self.root.at("/dev").join(disk), number))
    }

    /// One partition over all of each raw disk; what is in it is the jobs' affair.
    fn set_up_raw_disks(&self, settings: &AgentSettings) -> Result<(), EphemeralError> {
        let raw = settings.disks.other.get("raw_ephemeral").and_then(Value::as_array);
        let found = raw.into_iter().flatten().map(|entry| {
            // The original's own field names, in any case; a volume id has no place there.
            let text = |key: &str| {
                let named = |(name, value): (&String, &Value)| {
                    name.eq_ignore_ascii_case(key).then(|| value.as_str().map(str::to_owned)).flatten()
                };
                entry.as_object()?.iter().find_map(named)
            };
            DiskSettings {
                path: text("path").unwrap_or_default(),
                id: text("id").unwrap_or_default(),
                device_id: text("DeviceID").unwrap_or_default(),
                lun: text("lun").unwrap_or_default(),
                host_device_id: text("HostDeviceID").unwrap_or_default(),
                ..DiskSettings::default()
            }
        });
        let disks: Vec<DiskSettings> = found.collect();
        for (position, device) in self.raw_devices(&disks)?.iter().enumerate() {
            let _lock = DiskLock::acquire(device)?;
            if content::of(device).map_err(io_failed(device))? == Content::Partitions {
                let table = partitions::read(device)?;
                if table.partitions.iter().any(|partition| partition.name.starts_with("raw-ephemeral-")) {
                    continue;
                }
            }
            self.refuse_precious(device, settings)?;
            let wanted = NewPartition { size: None, is_swap: false, name: format!("raw-ephemeral-{position}") };
            partitions::create(device, &[wanted], Marks::Wipe)?;
        }
        Ok(())
    }

    /// Where raw disks are. On machines whose disks come in any order, all that is no volume of the cloud.
    fn raw_devices(&self, disks: &[DiskSettings]) -> Result<Vec<PathBuf>, EphemeralError> {
        let managed = &self.options.instance_storage_managed_volume_pattern;
        if managed.is_empty() || !disks.iter().any(|disk| disk.path.starts_with("/dev/nvme")) {
            return Ok(disks.iter().map(|disk| self.devices.wait_for(disk)).collect::<Result<_, _>>()?);
        }
        let pattern = match self.options.instance_storage_device_pattern.as_str() {
            "" => "/dev/nvme*n1",
            pattern => pattern,
        };
        let found = |pattern: &str| -> Vec<PathBuf> {
            let pattern = self.root.at(pattern);
            let paths = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
            paths.filter_map(|path| path.canonicalize().ok()).collect()
        };
        let managed = found(managed);
        let devices: Vec<PathBuf> = found(pattern).into_iter().filter(|path| !managed.contains(path)).collect();
        match devices.len() == disks.len() {
            true => Ok(devices),
            false => Err(DiskSetupError::Device(super::devices::DeviceError::Missing {
                cid: "raw_ephemeral".to_owned(),
                patience: std::time::Duration::ZERO,
                looked_for: format!("{} devices like {pattern}", disks.len()),
                seen: format!("{devices:?}"),
            })
            .into()),
        }
    }
}

/// Swap, then data; no swap where none is wanted.
fn layout(size: u64, swap: Option<u64>, memory: u64, label: &str) -> Vec<NewPartition> {
    let swap = swap.unwrap_or_else(|| memory.min(size / 2));
    let mut wanted = Vec::new();
    if swap > 0 {
        wanted.push(NewPartition { size: Some(swap), is_swap: true, name: format!("{label}-0") });
    }
    wanted.push(NewPartition { size: None, is_swap: false, name: format!("{label}-{}", wanted.len()) });
    wanted
}

/// How partitions are named that belong to this VM.
fn label(agent_id: &str) -> String {
    let mut label = format!("bosh-partition-{agent_id}");
    if label.len() > 33 {
        let end = (0..=32).rev().find(|end| label.is_char_boundary(*end)).unwrap_or_default();
        label.truncate(end);
    }
    label
}

/// How much swap was asked for, in bytes; none if the agent chooses.
fn swap_size(settings: &AgentSettings) -> Option<u64> {
    settings.env.bosh.other.get("swap_size").and_then(Value::as_u64).map(|mib| mib * MIB)
}

/// How much memory the machine has.
fn memory() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram as u64 * u64::from(found.mem_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_comes_first_and_is_as_large_as_memory_or_half_the_disk() {
        let sizes = |size, swap, memory| -> Vec<Option<u64>> {
            layout(size, swap, memory, "l").into_iter().map(|wanted| wanted.size).collect()
        };
        assert_eq!(sizes(10_000 * MIB, None, 4000 * MIB), [Some(4000 * MIB), None]);
        assert_eq!(sizes(4000 * MIB, None, 4000 * MIB), [Some(2000 * MIB), None]);
        assert_eq!(sizes(4000 * MIB, Some(100 * MIB), 4000 * MIB), [Some(100 * MIB), None]);
        assert_eq!(sizes(4000 * MIB, Some(0), 4000 * MIB), [None]);
        let names: Vec<String> = layout(10 * MIB, None, MIB, "l").into_iter().map(|wanted| wanted.name).collect();
        assert_eq!(names, ["l-0", "l-1"]);
    }

    #[test]
    fn partitions_are_named_as_the_original_names_them() {
        assert_eq!(label("a"), "bosh-partition-a");
        assert_eq!(label("11111111-2222-3333-4444-555555555555"), "bosh-partition-11111111-2222-333");
    }
}
