//! Copies of files and folders from one machine to another, as a tar archive between them. Neither side lets the other decide
//! where it writes: names stay below what was asked for, links are neither made nor followed, and limits hold.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::{Budget, Limits, Tarball, inside};

/// How long a copy may take.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// How deep folders are gone into.
const DEEPEST: usize = 200;

/// why a copy is not whole
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// there is nothing to copy
    #[error("cannot read {path}")]
    Read {
        /// What was to be copied.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: io::Error,
    },
    #[error("{0} is a folder; -r copies folders with all that is in them")]
    Folder(PathBuf),
    /// it has no name that a copy could have
    #[error("{0} has no name that its copy could have; name a file or a folder")]
    NoName(PathBuf),
    /// the other side is gone
    #[error("the copy was broken off")]
    Sending(#[source] io::Error),
    /// the archive is damaged, or asks for too much
    #[error("what came is no copy that can be taken")]
    Archive(#[source] io::Error),
    /// an entry would be somewhere else
    #[error("the other side sent '{0}', which was not asked for; nothing of it was written")]
    Elsewhere(String),
    /// an entry is neither a file nor a folder
    #[error("the other side sent '{0}', which is neither a file nor a folder")]
    Kind(String),
    /// something is in the way
    #[error("{0} is a link, or no folder, and is not written through; remove it or copy elsewhere")]
    InTheWay(PathBuf),
    /// several things under one name
    #[error("{0} is no folder, so only one file or folder can be copied there")]
    Several(PathBuf),
    #[error("nothing came")]
    Nothing,
    /// a file cannot be written
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Packs files and folders under their own names, as an archive. What cannot be copied is told to `leave_out` and left out:
/// links to folders, devices, and what cannot be read.
pub fn pack(
    paths: &[PathBuf],
    recursive: bool,
    to: impl Write,
    leave_out: &mut dyn FnMut(&Path, &str),
) -> Result<(), CopyError> {
    let mut archive = tar::Builder::new(to);
    for path in paths {
        let unreadable = |source| CopyError::Read { path: path.clone(), source };
        let found = fs::metadata(path).map_err(unreadable)?;
        let name = name_of(path).ok_or_else(|| CopyError::NoName(path.clone()))?;
        if found.is_dir() && !recursive {
            return Err(CopyError::Folder(path.clone()));
        }
        if !found.is_dir() {
            // One file that was asked for and cannot be had is no copy.
            drop(open(path).map_err(unreadable)?);
        }
        add(&mut archive, path, Path::new(&name), 0, leave_out)?;
    }
    let mut to = archive.into_inner().map_err(CopyError::Sending)?;
    to.flush().map_err(CopyError::Sending)
}

/// The name of what a path leads to, also where the path ends in `.` or `..`.
fn name_of(path: &Path) -> Option<OsString> {
    match path.file_name() {
        Some(name) if !path.as_os_str().as_encoded_bytes().ends_with(b"/.") => Some(name.to_owned()),
        _ => path.canonicalize().ok()?.file_name().map(OsStr::to_owned),
    }
}

/// Opens a file; opening a pipe or a device could block.
fn open(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::other("it is neither a file nor a folder")),
    }
}

fn add<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &Path,
    name: &Path,
    depth: usize,
    leave_out: &mut dyn FnMut(&Path, &str),
) -> Result<(), CopyError> {
    let own = fs::symlink_metadata(path);
    let is_folder = match &own {
        // A link to a folder may lead back up; the first one was asked for by its name.
        Ok(own) if own.is_symlink() && depth == 0 => path.is_dir(),
        Ok(own) => own.is_dir(),
        Err(_) => false,
    };
    if is_folder {
        if depth > DEEPEST {
            leave_out(path, "it is too deep");
            return Ok(());
        }
        let mode = own.map_or(0o755, |own| own.mode());
        header(archive, name, tar::EntryType::Directory, mode, 0, io::empty())?;
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => {
                leave_out(path, &error.to_string());
                return Ok(());
            }
        };
        for entry in entries.flatten() {
            add(archive, &entry.path(), &name.join(entry.file_name()), depth + 1, leave_out)?;
        }
        return Ok(());
    }
    if path.is_dir() {
        leave_out(path, "it is a link to a folder");
        return Ok(());
    }
    match open(path).and_then(|file| Ok((file.metadata()?, file))) {
        Ok((found, file)) => {
            // Logs grow while they are read, and shrink.
            let content = file.chain(io::repeat(0)).take(found.len());
            header(archive, name, tar::EntryType::Regular, found.mode(), found.len(), content)
        }
        Err(error) => {
            leave_out(path, &error.to_string());
            Ok(())
        }
    }
}

fn header<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &Path,
    kind: tar::EntryType,
    mode: u32,
    size: u64,
    content: impl Read,
) -> Result<(), CopyError> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode & 0o777);
    header.set_size(size);
    archive.append_data(&mut header, name, content).map_err(CopyError::Sending)
}

/// Unpacks what [`pack`] made: into `target` if that is a folder, and under that name otherwise. Only the names in
/// `expected`, and, if whole folders are wanted, what is below them, are taken; with none, any name.
pub fn unpack(from: impl Read, target: &Path, expected: &[OsString], recursive: bool) -> Result<(), CopyError> {
    let is_folder = target.is_dir();
    let parent = match target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => parent,
        None => Path::new("."),
    };
    let space = if is_folder { target } else { parent };
    let unwritable = |source| CopyError::Write { path: space.to_owned(), source };
    let limits = Limits { time: PATIENCE, ..Limits::of_space(space).map_err(unwritable)? };
    let opened = File::open(space).map_err(unwritable)?;
    let own_name = match target.file_name() {
        None if !is_folder => return Err(CopyError::NoName(target.to_owned())),
        name => name.unwrap_or_default().to_owned(),
    };
    let mut only: Option<OsString> = None;
    Tarball::within(from, &Budget::new(limits)).each(CopyError::Archive, |entry| {
        let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let path = inside(&entry.path_bytes()).filter(|path| !path.as_os_str().is_empty());
        let Some(path) = path else { return Err(CopyError::Elsewhere(shown)) };
        let mut parts = path.components();
        let top = parts.next().map(|top| top.as_os_str().to_owned()).unwrap_or_default();
        if !expected.is_empty() && !expected.contains(&top) {
            return Err(CopyError::Elsewhere(shown));
        }
        // Asked for a file, it gives no folder, which would be put into one of the same name.
        let is_below = path.components().nth(1).is_some();
        if !recursive && (is_below || entry.header().entry_type() == tar::EntryType::Directory) {
            return Err(CopyError::Elsewhere(shown));
        }
        if !is_folder && only.get_or_insert_with(|| top.clone()) != &top {
            return Err(CopyError::Several(target.to_owned()));
        }
        only.get_or_insert_with(|| top.clone());
        let name = if is_folder { top } else { own_name.clone() };
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        let names: Vec<&OsStr> = [name.as_os_str()].into_iter().chain(parts.map(|part| part.as_os_str())).collect();
        let place = Place::below(&opened, space, &names)?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => place.make_folder(mode),
            tar::EntryType::Regular | tar::EntryType::Continuous => place.write(mode, entry),
            _ => Err(CopyError::Kind(shown)),
        }
    })?;
    only.map(|_| ()).ok_or(CopyError::Nothing)
}

/// Where an entry goes: a name in a folder that is open. Others may write there, too, and put links in the place of what was just
/// looked at; so nothing is reached by a path of several names.
struct Place<'n> {
    folder: OwnedFd,
    name: &'n OsStr,
    /// For people.
    path: PathBuf,
}

impl<'n> Place<'n> {
    /// Goes down from `top`, which `path` names. Folders whose entry did not come are made; links lead elsewhere.
    fn below(top: &File, path: &Path, names: &[&'n OsStr]) -> Result<Self, CopyError> {
        let (name, folders) = names.split_last().ok_or_else(|| CopyError::NoName(path.to_owned()))?;
        let unwritable = |source| CopyError::Write { path: path.to_owned(), source };
        let mut place = Self { folder: top.try_clone().map_err(unwritable)?.into(), name, path: path.to_owned() };
        for folder in folders {
            (place.name, place.path) = (folder, place.path.join(folder));
            place.make_folder(0o755)?;
            place.folder = place.open_folder()?;
        }
        (place.name, place.path) = (name, place.path.join(name));
        Ok(place)
    }

    fn failed(&self, error: Errno) -> CopyError {
        match error {
            Errno::LOOP | Errno::NOTDIR => CopyError::InTheWay(self.path.clone()),
            error => CopyError::Write { path: self.path.clone(), source: error.into() },
        }
    }

    fn open_folder(&self) -> Result<OwnedFd, CopyError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.folder, self.name, flags, Mode::empty()).map_err(|error| self.failed(error))
    }

    fn make_folder(&self, mode: u32) -> Result<(), CopyError> {
        match rustix::fs::mkdirat(&self.folder, self.name, Mode::from_raw_mode(mode | 0o700)) {
            Err(Errno::EXIST) => match self.kind() {
                Some(FileType::Directory) => Ok(()),
                _ => Err(CopyError::InTheWay(self.path.clone())),
            },
            made => made.map_err(|error| self.failed(error)),
        }
    }

    fn kind(&self) -> Option<FileType> {
        let found = rustix::fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// A file is there as a whole, or as it was.
    #[expect(
        clippy::disallowed_methods,
        reason = "a copy for a user, whole or not at all; nothing goes on with it after a kill"
    )]
    fn write(&self, mode: u32, content: &mut impl Read) -> Result<(), CopyError> {
        if self.kind().is_some_and(|kind| kind != FileType::RegularFile) {
            return Err(CopyError::InTheWay(self.path.clone()));
        }
        let partial = OsString::from(format!(".{}.{}.part", self.name.to_string_lossy(), std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = (|| -> io::Result<()> {
            let file = rustix::fs::openat(&self.folder, &partial, flags, Mode::from_raw_mode(mode | 0o600))?;
            io::copy(content, &mut File::from(file))?;
            Ok(rustix::fs::renameat(&self.folder, &partial, &self.folder, self.name)?)
        })();
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.folder, &partial, AtFlags::empty());
        }
        written.map_err(|source| CopyError::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn packed(paths: &[PathBuf], recursive: bool) -> Result<(Vec<u8>, Vec<String>), CopyError> {
        let (mut bytes, mut left_out) = (Vec::new(), Vec::new());
        pack(paths, recursive, &mut bytes, &mut |path, why| left_out.push(format!("{}: {why}", path.display())))?;
        Ok((bytes, left_out))
    }

    #[test]
    fn files_and_folders_come_as_they_are_under_the_name_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("from/deep/er")).unwrap();
        fs::write(at("from/deep/er/run"), "#!").unwrap();
        fs::set_permissions(at("from/deep/er/run"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("from/plain"), vec![7; 100_000]).unwrap();
        symlink("plain", at("from/link")).unwrap();
        symlink("..", at("from/up")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("from/pipe"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(packed(&[at("from")], false), Err(CopyError::Folder(_))));
        let (bytes, mut left_out) = packed(&[at("from")], true).unwrap();
        left_out.sort();
        assert_eq!(left_out.len(), 2, "{left_out:?}");
        assert!(
            left_out[0].contains("pipe: it is neither") && left_out[1].contains("up: it is a link"),
            "{left_out:?}"
        );

        unpack(&bytes[..], &at("new"), &["from".into()], true).unwrap();
        assert_eq!(fs::read(at("new/plain")).unwrap(), vec![7; 100_000]);
        assert_eq!(fs::read(at("new/link")).unwrap().len(), 100_000);
        assert_eq!(fs::metadata(at("new/deep/er/run")).unwrap().mode() & 0o100, 0o100);
        fs::create_dir(at("into")).unwrap();
        unpack(&bytes[..], &at("into"), &["from".into()], true).unwrap();
        assert!(at("into/from/deep/er/run").is_file());

        let (bytes, _) = packed(&[at("from/plain"), at("from/deep/er/run")], false).unwrap();
        assert!(matches!(unpack(&bytes[..], &at("one"), &[], true), Err(CopyError::Several(_))));
        unpack(&bytes[..], &at("into"), &[], true).unwrap();
        assert!(at("into/plain").is_file() && at("into/run").is_file());
        assert!(fs::read_dir(folder.path()).unwrap().flatten().all(|entry| entry.path().extension().is_none()));
    }

    /// An entry with any name, as a VM may send it.
    fn sent(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o6777);
            if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
                header.set_link_name(content).unwrap();
                header.set_size(0);
                header.set_cksum();
                archive.append(&header, io::empty()).unwrap();
                continue;
            }
            header.set_size(content.len() as u64);
            header.set_cksum();
            archive.append(&header, content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    /// A VM could have the operator's files overwritten, or new ones run.
    #[test]
    fn what_a_vm_sends_decides_neither_where_it_is_written_nor_what_it_is() {
        use tar::EntryType::{Char, Directory, Fifo, Link, Regular, Symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("here/log")).unwrap();
        fs::write(at("precious"), "mine").unwrap();
        let refused = |entries: &[(&str, tar::EntryType, &str)]| {
            unpack(&sent(entries)[..], &at("here"), &["log".into()], true).unwrap_err().to_string()
        };
        for name in ["../precious", "log/../../precious", ".bashrc", "other", ".", "/", "..", "log/.."] {
            assert!(refused(&[(name, Regular, "x")]).contains("not asked for"), "{name}");
        }
        // Asked for one file, it leaves a folder of that name, such as `bin`, alone.
        for (name, kind) in [("log/tool", Regular), ("log", Directory)] {
            let told = unpack(&sent(&[(name, kind, "")])[..], &at("here"), &["log".into()], false).unwrap_err();
            assert!(told.to_string().contains("not asked for"), "{told}");
        }
        for kind in [Symlink, Link, Fifo, Char] {
            assert!(refused(&[("log/x", kind, "../../precious")]).contains("neither a file nor a folder"));
        }
        // Of links that are the operator's own nobody knows what for.
        symlink(folder.path(), at("here/log/out")).unwrap();
        symlink(at("precious"), at("here/log/file")).unwrap();
        for entry in [("log/out/precious", Regular), ("log/file", Regular), ("log/out", Directory)] {
            assert!(refused(&[(entry.0, entry.1, "")]).contains("not written through"), "{entry:?}");
        }
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "mine");
        unpack(&sent(&[("log/tool", Regular, "x")])[..], &at("here"), &["log".into()], true).unwrap();
        assert_eq!(fs::metadata(at("here/log/tool")).unwrap().mode() & 0o7000, 0, "nothing is set-user-id");
        for garbage in [&b"garbage"[..], &[0xff; 4096], &[]] {
            unpack(garbage, &at("here"), &["log".into()], true).unwrap_err();
        }
    }

    /// Somebody who may write where root copies to could have root write anywhere.
    #[test]
    fn what_becomes_a_link_while_a_copy_comes_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("here/conf/deep")).unwrap();
        fs::create_dir(at("etc")).unwrap();
        let opened = File::open(at("here")).unwrap();
        let names = ["conf", "deep", "file"].map(OsStr::new);
        let place = Place::below(&opened, &at("here"), &names).unwrap();
        fs::rename(at("here/conf"), at("here/before")).unwrap();
        symlink(at("etc"), at("here/conf")).unwrap();
        fs::create_dir(at("etc/deep")).unwrap();
        place.write(0o644, &mut &b"x"[..]).unwrap();
        assert_eq!(fs::read_dir(at("etc/deep")).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(at("here/before/deep/file")).unwrap(), "x");
        assert!(matches!(Place::below(&opened, &at("here"), &names), Err(CopyError::InTheWay(_))));
    }

    #[test]
    fn a_file_that_announces_more_than_the_disk_has_is_refused_before_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_path("log").unwrap();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(1 << 50);
        header.set_cksum();
        let bytes = header.as_bytes().to_vec();
        let refused = unpack(&bytes[..], folder.path(), &["log".into()], true).unwrap_err();
        assert!(matches!(refused, CopyError::Archive(_)), "{refused:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
