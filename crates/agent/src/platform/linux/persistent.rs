//! Persistent disks: a partition and a file system where there is nothing yet, growth where the disk grew, and the mount.
//!
//! The rule that everything here serves: what is not blank is never formatted.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};
use windlass_durable::file;

use super::command::{CommandError, tool};
use super::content::{self, Content, FileSystem, FileSystemKind};
use super::devices::{self, DeviceError};
use super::disk_lock::{DiskLock, DiskLockError};
use super::mounts::{self, Mount, MountError, MountOptions};
use super::partitions::{self, Marks, NewPartition, Partition, PartitionError};
use super::places::{DiskPlaces, PlacesError};
use super::{Linux, set_mode};
use crate::disks::DiskSettings;
use crate::layout::Base;

const MIB: u64 = 1 << 20;
/// How much of a disk may stay unused before it counts as grown.
const SLACK: u64 = 100 * MIB;
/// The name of the one partition, by which the original knows that it was made for it.
const PARTITION_NAME: &str = "bosh-partition-0";
/// How long a mount may stay in use until it must be gone.
pub(super) const UNMOUNT_PATIENCE: Duration = Duration::from_secs(600);

/// why a disk is not as it should be
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskSetupError {
    /// something is on it
    #[error(
        "disk '{cid}' is not formatted, because {device} holds {found}; attach an empty disk, or erase this one by hand if \
         nobody needs what is on it"
    )]
    NotBlank { cid: String, device: PathBuf, found: String },
    /// it has no file system
    #[error(
        "disk '{cid}' cannot be mounted: {device} holds {found}, and on this stemcell disks come formatted with ext4 or xfs"
    )]
    NoFileSystem { cid: String, device: PathBuf, found: String },
    /// it has several partitions
    #[error(
        "Persistent disks with many partitions are not supported. Expected 1, got {count}. Disk '{cid}' is {device}; copy its \
         data to a disk of one partition"
    )]
    ManyPartitions { cid: String, device: PathBuf, count: usize },
    /// nobody makes such a file system
    #[error("The filesystem type \"{0}\" is not supported; env.persistent_disk_fs is ext4 or xfs")]
    FileSystemType(String),
    /// the hint leads to something else
    #[error("the hint of disk '{cid}' leads to {path}, which is no {expected}")]
    Kind { cid: String, path: PathBuf, expected: &'static str },
    /// both places for disks are taken
    #[error("disk '{cid}' cannot be mounted: {store} and {target} both hold other disks; unmount one of them first")]
    Occupied { cid: String, store: PathBuf, target: PathBuf },
    /// it is used elsewhere
    #[error("disk '{cid}' cannot be formatted, because {device} is mounted on {place}; unmount it there")]
    InUse { cid: String, device: PathBuf, place: PathBuf },
    /// the disk cannot be found
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// it cannot be mounted
    #[error(transparent)]
    Mount(#[from] MountError),
    /// its partitions cannot be made
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Tool(#[from] CommandError),
    /// somebody else works on it
    #[error(transparent)]
    Lock(#[from] DiskLockError),
    /// its place cannot be kept
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// a file cannot be read or written
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(super) fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> DiskSetupError {
    let path = path.to_owned();
    move |source| DiskSetupError::Io { path, source }
}

/// A disk as it can be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MountableDisk {
    /// A folder that somebody else mounted or made.
    Folder(PathBuf),
    /// A block device with a file system.
    Device(PathBuf),
}

impl MountableDisk {
    /// Whether this is what a mount shows.
    pub(super) fn is(&self, mount: &Mount) -> bool {
        match self {
            Self::Folder(path) => {
                let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
                identity(path).is_some_and(|here| identity(&mount.target) == Some(here))
            }
            Self::Device(path) => {
                let device = path.metadata().map(|found| found.rdev());
                device.is_ok_and(|device| device == mount.device) && mount.shows == Path::new("/")
            }
        }
    }
}

/// That a partition was found blank and is being formatted: an agent that finds it half made may begin again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Formatting {
    cid: String,
    partition: String,
}

impl Formatting {
    fn path(base: &Base) -> PathBuf {
        base.bosh().join("formatting.json")
    }

    fn is_noted(&self, base: &Base) -> bool {
        let noted = std::fs::read(Self::path(base)).unwrap_or_default();
        serde_json::from_slice::<Self>(&noted).is_ok_and(|noted| noted == *self)
    }
}

impl Linux {
    /// Where persistent disks are mounted, the usual place first.
    pub(super) fn mount_points(&self) -> [PathBuf; 2] {
        [self.base.store(), self.base.migration_target()]
    }

    pub(super) fn places_path(&self) -> PathBuf {
        self.base.bosh().join("disk_places.json")
    }

    /// Mounts a disk on the store, or beside it if another one is there.
    pub(super) fn mount_disk(&self, disk: &DiskSettings) -> Result<(), DiskSetupError> {
        let mut places = DiskPlaces::read(&self.places_path());
        if let Some(from) = places.migrating_to(&disk.id) {
            // A boot has ended the mounts in the middle of a migration.
            if places.is_copied {
                return self.take_place(disk, &mut places);
            }
            let store = self.base.store();
            if mounts::on(&store)?.is_none() {
                let volume = self.prepare(from)?;
                self.mount_volume(&volume, &store, from)?;
            }
        }
        let [store, target] = self.mount_points();
        // Before anything of the disk changes.
        if mounts::on(&store)?.is_some() && mounts::on(&target)?.is_some() && !self.is_disk_mounted(disk)? {
            return Err(DiskSetupError::Occupied { cid: disk.id.clone(), store, target });
        }
        let volume = self.prepare(disk)?;
        let mut free = None;
        for place in self.mount_points() {
            match mounts::on(&place)? {
                Some(mount) if volume.is(&mount) => {
                    self.let_write(&place, &mount, disk)?;
                    return self.grow_file_system(&volume, &place, disk);
                }
                Some(_) => {}
                None if free.is_none() => free = Some(place),
                None => {}
            }
        }
        let Some(place) = free else { return Err(DiskSetupError::Occupied { cid: disk.id.clone(), store, target }) };
        // First where it belongs: mounts end with a boot, and then this is all that is known.
        match place == store {
            true => places = DiskPlaces { store: Some(disk.clone()), ..DiskPlaces::default() },
            false => {
                places.target = Some(disk.clone());
                places.is_copied = false;
            }
        }
        places.write(&self.places_path())?;
        self.mount_volume(&volume, &place, disk)
    }

    /// An interrupted migration has left its source read-only; the caller wants to write to the disk.
    fn let_write(&self, place: &Path, mount: &Mount, disk: &DiskSettings) -> Result<(), DiskSetupError> {
        let wanted = MountOptions::parse(disk.mount_options.iter().flatten().map(String::as_str)).flags;
        match (mount.flags - wanted).contains(MountFlags::RDONLY) {
            true => Ok(mounts::remove_flags(place, MountFlags::RDONLY)?),
            false => Ok(()),
        }
    }

    /// Unmounts a disk wherever it is; says whether it was mounted.
    pub(super) fn unmount_disk(&self, disk: &DiskSettings) -> Result<bool, DiskSetupError> {
        let mut was_mounted = false;
        if let Some(volume) = self.present_volume(disk)? {
            for place in self.mount_points() {
                while mounts::on(&place)?.is_some_and(|mount| volume.is(&mount)) {
                    mounts::unmount(&place, UNMOUNT_PATIENCE)?;
                    was_mounted = true;
                }
            }
        }
        let mut places = DiskPlaces::read(&self.places_path());
        places.remove(&disk.id);
        places.write(&self.places_path())?;
        Ok(was_mounted)
    }

    /// Whether a disk is mounted.
    pub(super) fn is_disk_mounted(&self, disk: &DiskSettings) -> Result<bool, DiskSetupError> {
        let Some(volume) = self.present_volume(disk)? else { return Ok(false) };
        for place in self.mount_points() {
            if mounts::on(&place)?.is_some_and(|mount| volume.is(&mount)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A disk as it is now, if it is there; nothing of it changes.
    fn present_volume(&self, disk: &DiskSettings) -> Result<Option<MountableDisk>, DiskSetupError> {
        let found = self.devices.present(disk)?;
        Ok(found.map(|path| match self.kind() {
            Kind::Folder => MountableDisk::Folder(path),
            Kind::Device => MountableDisk::Device(path),
            Kind::Partition => MountableDisk::Device(devices::partition(&path, 1)),
        }))
    }

    fn kind(&self) -> Kind {
        match (self.options.bind_mount_persistent_disk, self.options.use_preformatted_persistent_disk) {
            (true, _) => Kind::Folder,
            (false, true) => Kind::Device,
            (false, false) => Kind::Partition,
        }
    }

    /// Waits for a disk and makes it mountable.
    fn prepare(&self, disk: &DiskSettings) -> Result<MountableDisk, DiskSetupError> {
        let path = self.devices.wait_for(disk)?;
        let kind = path.metadata().map_err(io_failed(&path))?.file_type();
        let wrong = |expected| DiskSetupError::Kind { cid: disk.id.clone(), path: path.clone(), expected };
        match self.kind() {
            Kind::Folder if kind.is_dir() => Ok(MountableDisk::Folder(path)),
            Kind::Folder => Err(wrong("directory, as disks are on this stemcell")),
            _ if !kind.is_block_device() => Err(wrong("block device")),
            Kind::Device => Ok(MountableDisk::Device(path)),
            Kind::Partition => {
                let wanted = file_system_type(disk)?;
                let _lock = DiskLock::acquire(&path)?;
                let partition = self.partition(disk, &path)?;
                self.format(disk, &partition, wanted)?;
                Ok(MountableDisk::Device(partition.path))
            }
        }
    }

    /// The one partition of a disk: made on one that is blank, grown on one that grew.
    fn partition(&self, disk: &DiskSettings, device: &Path) -> Result<Partition, DiskSetupError> {
        let table = match content::of(device).map_err(io_failed(device))? {
            Content::Blank => {
                let wanted = NewPartition { size: None, is_swap: false, name: PARTITION_NAME.to_owned() };
                partitions::create(device, &[wanted], Marks::Keep)?
            }
            Content::Partitions => partitions::read(device)?,
            found @ Content::FileSystem(_) => {
                let found = format!("{found} on the whole disk, where a partition should be");
                return Err(not_blank(disk, device, found));
            }
            found => return Err(not_blank(disk, device, found.to_string())),
        };
        let table = match table.partitions.as_slice() {
            [only] if only.end() + SLACK < content::size_of(device).map_err(io_failed(device))? => {
                partitions::grow(device, only.number)?
            }
            [_] => table,
            // Somebody wrote the table and then nothing: whether it is worth something is not ours to say.
            [] => return Err(not_blank(disk, device, "a partition table without partitions")),
            several => {
                return Err(DiskSetupError::ManyPartitions {
                    cid: disk.id.clone(),
                    device: device.to_owned(),
                    count: several.len(),
                });
            }
        };
        // Kernels that do not read tables forget partitions, and the nodes of those may still be there.
        if table.partitions.iter().any(|partition| File::open(&partition.path).is_err()) {
            partitions::show(device, &table)?;
        }
        table.partitions.into_iter().next().ok_or_else(|| not_blank(disk, device, "no partition"))
    }

    /// A file system on a partition that is blank.
    fn format(&self, disk: &DiskSettings, partition: &Partition, wanted: FileSystemKind) -> Result<(), DiskSetupError> {
        let path = &partition.path;
        let note = Formatting { cid: disk.id.clone(), partition: partition.id.clone() };
        let was_begun = note.is_noted(&self.base);
        match content::of(path).map_err(io_failed(path))? {
            Content::FileSystem(_) => return self.note_formatted(),
            Content::Blank => {}
            // Of a tool that died with its machine, in a partition that was blank when it began.
            Content::Unknown if was_begun => {}
            found => return Err(not_blank(disk, path, found.to_string())),
        }
        let volume = MountableDisk::Device(path.clone());
        if let Some(mount) = mounts::all()?.into_iter().find(|mount| volume.is(mount)) {
            return Err(DiskSetupError::InUse { cid: disk.id.clone(), device: path.clone(), place: mount.target });
        }
        let note_path = Formatting::path(&self.base);
        file::write_json(&note_path, &note, file::PRIVATE).map_err(io_failed(&note_path))?;
        make_file_system(path, wanted, was_begun)?;
        tracing::info!("disk {} has a new {} file system on {}", disk.id, wanted.name(), path.display());
        self.note_formatted()
    }

    fn note_formatted(&self) -> Result<(), DiskSetupError> {
        let path = Formatting::path(&self.base);
        match path.exists() {
            true => file::remove_file(&path).map_err(io_failed(&path)),
            false => Ok(()),
        }
    }

    /// Mounts a disk where data migrates to, whatever is on the store.
    pub(super) fn mount_beside(&self, disk: &DiskSettings) -> Result<(), DiskSetupError> {
        let volume = self.prepare(disk)?;
        self.mount_volume(&volume, &self.base.migration_target(), disk)
    }

    pub(super) fn mount_volume(
        &self,
        volume: &MountableDisk,
        place: &Path,
        disk: &DiskSettings,
    ) -> Result<(), DiskSetupError> {
        std::fs::create_dir_all(place).map_err(io_failed(place))?;
        set_mode(place, 0o700).map_err(io_failed(place))?;
        let options: Vec<&str> = disk.mount_options.iter().flatten().map(String::as_str).collect();
        match volume {
            MountableDisk::Folder(path) => {
                mounts::bind(path, place)?;
                let flags = MountOptions::parse(options).flags;
                if !flags.is_empty() {
                    mounts::add_flags(place, flags, Duration::ZERO)?;
                }
                Ok(())
            }
            MountableDisk::Device(path) => {
                let kind = match content::of(path).map_err(io_failed(path))? {
                    Content::FileSystem(FileSystem { kind, .. }) => kind,
                    found => {
                        let (cid, device, found) = (disk.id.clone(), path.clone(), found.to_string());
                        return Err(DiskSetupError::NoFileSystem { cid, device, found });
                    }
                };
                mounts::mount(path, place, kind.name(), &options)?;
                self.grow_file_system(volume, place, disk)
            }
        }
    }

    /// Lets a mounted file system use all of its partition, if that grew: also when a kill came between the two.
    fn grow_file_system(
        &self,
        volume: &MountableDisk,
        place: &Path,
        disk: &DiskSettings,
    ) -> Result<(), DiskSetupError> {
        let (MountableDisk::Device(path), Kind::Partition) = (volume, self.kind()) else { return Ok(()) };
        let Content::FileSystem(found) = content::of(path).map_err(io_failed(path))? else { return Ok(()) };
        if found.size + SLACK >= content::size_of(path).map_err(io_failed(path))? {
            return Ok(());
        }
        match found.kind {
            FileSystemKind::Ext4 => grow_ext4(path, place, disk)?,
            FileSystemKind::Xfs => drop(tool("xfs_growfs", [place]).run()?),
        }
        tracing::info!("the file system on {} has grown", path.display());
        Ok(())
    }
}

/// Grows a file system while it is mounted. A machine that does not let its root user do that can still do it unmounted.
fn grow_ext4(path: &Path, place: &Path, disk: &DiskSettings) -> Result<(), DiskSetupError> {
    let resize = || tool("resize2fs", ["-f".as_ref(), path.as_os_str()]).run().map(drop);
    let Err(error) = resize() else { return Ok(()) };
    if mounts::unmount(place, Duration::ZERO).is_err() {
        return Err(error.into());
    }
    tracing::info!("growing the file system on {} unmounted: {error}", path.display());
    let checked = match tool("e2fsck", ["-f".as_ref(), "-p".as_ref(), path.as_os_str()]).run() {
        // Something was corrected.
        Err(CommandError::Failed { status, .. }) if status.code() == Some(1) => Ok(()),
        checked => checked.map(drop),
    };
    let grown = checked.and_then(|()| resize());
    let options: Vec<&str> = disk.mount_options.iter().flatten().map(String::as_str).collect();
    mounts::mount(path, place, FileSystemKind::Ext4.name(), &options)?;
    Ok(grown?)
}

/// What a disk is on this stemcell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    Device,
    Partition,
}

fn not_blank(disk: &DiskSettings, device: &Path, found: impl Into<String>) -> DiskSetupError {
    DiskSetupError::NotBlank { cid: disk.id.clone(), device: device.to_owned(), found: found.into() }
}

fn file_system_type(disk: &DiskSettings) -> Result<FileSystemKind, DiskSetupError> {
    match disk.file_system_type.as_str() {
        "" | "ext4" => Ok(FileSystemKind::Ext4),
        "xfs" => Ok(FileSystemKind::Xfs),
        other => Err(DiskSetupError::FileSystemType(other.to_owned())),
    }
}

/// Makes a file system. The tools refuse a device on which they see something, unless it is their own unfinished work.
pub(super) fn make_file_system(device: &Path, kind: FileSystemKind, again: bool) -> Result<(), CommandError> {
    let (program, mut arguments) = match kind {
        FileSystemKind::Ext4 => ("mke2fs", vec!["-t", "ext4", "-j", "-E", "lazy_itable_init=1"]),
        FileSystemKind::Xfs => ("mkfs.xfs", vec![]),
    };
    if again {
        arguments.push(match kind {
            FileSystemKind::Ext4 => "-F",
            FileSystemKind::Xfs => "-f",
        });
    }
    tool(program, arguments.iter().map(Path::new).chain([device])).run()?;
    Ok(())
}
