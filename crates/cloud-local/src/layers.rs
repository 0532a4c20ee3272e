//! What a layer of an OCI image takes away from those below it.
//!
//! Folders are opened as the VM would find them, so that no link of a lower layer makes an upper one remove files of this
//! machine.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use windlass_durable::file;

/// Hides the file of that name in the layers below.
const HIDES: &str = ".wh.";

/// Hides all that the layers below have in its folder.
const HIDES_ALL: &str = ".wh..wh..opq";

/// What is to be done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It only took something away.
    TakenAway,
    /// There is room for it now.
    Made,
}

/// Takes away what the entry `name` hides, or what is in its way.
pub(crate) fn make_room(root: &Path, name: &Path, is_folder: bool) -> io::Result<Room> {
    let inside: PathBuf = name.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let Some(file) = inside.file_name().map(|file| file.to_string_lossy().into_owned()) else { return Ok(Room::Made) };
    let folder = inside.parent().unwrap_or(Path::new(""));
    if file == HIDES_ALL {
        if let Some(folder) = Folder::open(root, folder)? {
            folder.empty()?;
        }
        return Ok(Room::TakenAway);
    }
    if let Some(hidden) = file.strip_prefix(HIDES) {
        if let Some(folder) = Folder::open(root, folder)?
            && !hidden.is_empty()
            && hidden != "."
            && hidden != ".."
        {
            folder.remove(hidden)?;
        }
        return Ok(Room::TakenAway);
    }
    if let Some(folder) = Folder::open(root, folder)? {
        match fs::symlink_metadata(folder.path().join(&file)) {
            Ok(there) if there.is_dir() != is_folder => folder.remove(&file)?,
            _ => {}
        }
    }
    Ok(Room::Made)
}

/// A folder of the root file system, by a descriptor.
struct Folder {
    descriptor: std::os::fd::OwnedFd,
}

impl Folder {
    fn open(root: &Path, path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            Ok(descriptor) => Ok(Some(Self { descriptor })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        file::remove(&self.path().join(name))
    }

    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            self.remove(&entry?.file_name().to_string_lossy())?;
        }
        Ok(())
    }
}
