//! A container's root file system: the stemcell's below, shared and never written, and what the VM writes above.
//!
//! Paths in it are looked up as the VM would look them up: a link in an image never leads to a file of this machine.

#![expect(
    clippy::disallowed_methods,
    reason = "the root of a VM that does not run: each start makes all of it, after a kill point"
)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use windlass_durable::file::PRIVATE;

/// Mounts an overlay at `root`.
pub(crate) fn mount_overlay(lower: &Path, upper: &Path, work: &Path, root: &Path) -> io::Result<()> {
    let mut options = b"lowerdir=".to_vec();
    options.extend(escaped(lower));
    options.extend(b",upperdir=");
    options.extend(escaped(upper));
    options.extend(b",workdir=");
    options.extend(escaped(work));
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(c"overlay", root, c"overlay", MountFlags::empty(), options.as_c_str())?)
}

/// Commas end an option and colons a layer.
fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    bytes
}

/// A root file system, mounted or not.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: rustix::fs::open(path, flags, Mode::empty())? })
    }

    fn open_inside(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        // The kernel asks for another try when somebody renames something at that moment.
        loop {
            let opened = rustix::fs::openat2(
                &self.folder,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            );
            match opened {
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// Where `path` leads: a path of this process without links.
    pub(crate) fn find(&self, path: &Path) -> io::Result<PathBuf> {
        name_of(&self.open_inside(path, OFlags::PATH)?)
    }

    /// The folder at `path`, as [`Self::find`] tells it. What is missing of it is made.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<PathBuf> {
        name_of(&self.folder_for(&normal(path))?)
    }

    /// Whether there is something at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.open_inside(Path::new(path), OFlags::PATH).is_ok()
    }

    /// The text of a file; none if there is no such file.
    pub(crate) fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.open_inside(Path::new(path), OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => {
                let mut text = String::new();
                File::from(file).take(1 << 20).read_to_string(&mut text)?;
                Ok(Some(text))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an executable file is at `path`.
    pub(crate) fn has_executable(&self, path: &str) -> bool {
        let metadata = |file: OwnedFd| rustix::fs::fstat(file).ok();
        self.open_inside(Path::new(path), OFlags::PATH).ok().and_then(metadata).is_some_and(|metadata| {
            rustix::fs::FileType::from_raw_mode(metadata.st_mode).is_file() && metadata.st_mode & 0o111 != 0
        })
    }

    /// Whether `path` itself is a link.
    pub(crate) fn is_link(&self, path: &str) -> bool {
        self.open_inside(Path::new(path), OFlags::PATH | OFlags::NOFOLLOW)
            .and_then(rustix::fs::fstat)
            .is_ok_and(|metadata| rustix::fs::FileType::from_raw_mode(metadata.st_mode).is_symlink())
    }

    /// Puts a file that only root may read at `path`, in place of what is there. Folders on the way are made.
    pub(crate) fn put_private(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes, Mode::from_raw_mode(PRIVATE))
    }

    /// Puts a program at `path`, in place of what is there.
    pub(crate) fn put_program(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes, Mode::from_raw_mode(0o755))
    }

    /// Puts a file that everybody may read at `path`, in place of what is there.
    pub(crate) fn put_public(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes, Mode::from_raw_mode(0o644))
    }

    /// Puts a link at `path`, in place of a file or link that is there.
    pub(crate) fn replace_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let inside = normal(path);
        let name = inside.file_name().ok_or(Errno::ISDIR)?;
        let folder = self.folder_for(inside.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(rustix::fs::symlinkat(target, folder, name)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts a link at `path`, unless something is there.
    pub(crate) fn put_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let inside = normal(path);
        let name = inside.file_name().ok_or(Errno::ISDIR)?;
        let folder = self.folder_for(inside.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::symlinkat(target, folder, name) {
            Err(Errno::EXIST) => Ok(()),
            other => Ok(other?),
        }
    }

    fn put(&self, path: &Path, bytes: &[u8], mode: Mode) -> io::Result<()> {
        let inside = normal(path);
        let name = inside.file_name().ok_or(Errno::ISDIR)?;
        let folder = self.folder_for(inside.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, name, flags, mode)?;
        // Whatever the umask is.
        rustix::fs::fchmod(&file, mode)?;
        File::from(file).write_all(bytes)
    }

    fn folder_for(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut folder = self.open_inside(Path::new("/"), flags)?;
        let mut so_far = PathBuf::from("/");
        for part in path.components() {
            so_far.push(part);
            folder = match self.open_inside(&so_far, flags) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(folder.as_fd(), part.as_os_str(), Mode::from_raw_mode(0o755)) {
                        Err(Errno::EXIST) => {
                            let why = format!("{} is a link that leads nowhere; remove it", so_far.display());
                            return Err(io::Error::new(io::ErrorKind::NotFound, why));
                        }
                        made => made?,
                    }
                    // Whatever the umask is.
                    rustix::fs::chmodat(
                        folder.as_fd(),
                        part.as_os_str(),
                        Mode::from_raw_mode(0o755),
                        AtFlags::empty(),
                    )?;
                    self.open_inside(&so_far, flags)?
                }
                other => other?,
            };
        }
        Ok(folder)
    }
}

fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn name_of(opened: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_of_an_image_lead_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("var/vcap/bosh")).unwrap();
        fs::write(folder.path().join("secret"), "of the machine").unwrap();
        symlink("../../../../secret", root.join("var/vcap/bosh/agent.json")).unwrap();
        symlink("/var/vcap", root.join("home")).unwrap();
        symlink(folder.path().join("secret"), root.join("var/vcap/settings.json")).unwrap();
        let inside = Root::open(&root).unwrap();
        assert_eq!(inside.read("var/vcap/bosh/agent.json").unwrap(), None);
        inside.put_private(Path::new("/home/settings.json"), b"new").unwrap();
        inside.put_public(Path::new("/home/deep/er/file"), b"x").unwrap();
        assert_eq!(fs::read(folder.path().join("secret")).unwrap(), b"of the machine");
        let settings = root.join("var/vcap/settings.json");
        assert_eq!(fs::read(&settings).unwrap(), b"new");
        assert_eq!(fs::symlink_metadata(&settings).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(root.join("var/vcap/deep/er/file").exists() && inside.has("/home/bosh") && !inside.has("/nothing"));
        assert!(!inside.has_executable("/home/settings.json"));
        symlink(folder.path(), root.join("out")).unwrap();
        assert_eq!(inside.find(Path::new("/home/deep/er")).unwrap(), root.join("var/vcap/deep/er"));
        assert_eq!(inside.make_folder(Path::new("/home/new/one")).unwrap(), root.join("var/vcap/new/one"));
        inside.make_folder(Path::new("/out/one")).unwrap_err();
        inside.replace_link(Path::new("/home/settings.json"), Path::new("elsewhere")).unwrap();
        assert_eq!(fs::read_link(settings).unwrap(), Path::new("elsewhere"));
        assert!(!folder.path().join("one").exists());
    }
}
