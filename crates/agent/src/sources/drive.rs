//! A drive with files on it: a folder, or a device with an ISO 9660 image or with a file system that the kernel knows.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use windlass_durable::kill_point;

use super::iso9660;

/// Settings are small; more than this is not read.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// why a file on a drive cannot be read
#[derive(Debug, thiserror::Error)]
pub(super) enum DriveError {
    /// the drive cannot be opened or read
    #[error("{path} cannot be read")]
    Drive {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// there is no file system
    #[error("{path} holds no file system that this agent reads, which are ISO 9660, FAT and ext2 to ext4")]
    NoFileSystem { path: PathBuf },
    /// the kernel does not show the files
    #[error("the {kind} on {path} cannot be mounted; it takes root and a kernel with this file system")]
    Mount {
        path: PathBuf,
        kind: &'static str,
        #[source]
        source: io::Error,
    },
    /// the file is not there, or cannot be read
    #[error("{name} on {path} cannot be read")]
    File {
        path: PathBuf,
        name: String,
        #[source]
        source: io::Error,
    },
}

/// The content of the file `name` on the drive at `path`.
pub(super) fn read_file(path: &Path, name: &str) -> Result<Vec<u8>, DriveError> {
    let name = name.trim_start_matches('/');
    let no_drive = |source| DriveError::Drive { path: path.to_owned(), source };
    let no_file = |source| DriveError::File { path: path.to_owned(), name: name.to_owned(), source };
    let device = File::open(path).map_err(no_drive)?;
    if device.metadata().map_err(no_drive)?.is_dir() {
        return File::open(path.join(name)).and_then(read).map_err(no_file);
    }
    if iso9660::is_iso9660(&device) {
        let found = iso9660::read_file(&device, name, LARGEST_FILE).map_err(no_file)?;
        return found.ok_or_else(|| no_file(io::ErrorKind::NotFound.into()));
    }
    let kind = file_system(&device).ok_or_else(|| DriveError::NoFileSystem { path: path.to_owned() })?;
    drop(device);
    let root = mount(path, kind).map_err(|source| DriveError::Mount { path: path.to_owned(), kind, source })?;
    // A link on the drive must not lead into the machine.
    openat2(&root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH)
        .map_err(io::Error::from)
        .and_then(|file| read(File::from(file)))
        .map_err(no_file)
}

fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("it is larger than the {LARGEST_FILE} bytes that are read")));
    }
    Ok(bytes)
}

/// The kernel's name of the file system on a device, by its mark.
fn file_system(device: &File) -> Option<&'static str> {
    let has = |at: u64, mark: &[u8]| {
        let mut found = vec![0; mark.len()];
        device.read_exact_at(&mut found, at).is_ok() && found == mark
    };
    if has(0x438, &[0x53, 0xef]) {
        Some("ext4")
    } else if has(0x36, b"FAT") || has(0x52, b"FAT32") {
        Some("vfat")
    } else {
        None
    }
}

/// Mounts a device nowhere: its files are reached through the handle alone and it is released with it, also by a kill.
fn mount(device: &Path, kind: &'static str) -> io::Result<rustix::fd::OwnedFd> {
    kill_point("before a drive is mounted");
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "source", device)?;
    rustix::mount::fsconfig_set_flag(&context, "ro")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
