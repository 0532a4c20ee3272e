//! Unpacks the image of a stemcell, without letting it write anywhere else.

use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;
use windlass_archive::{Budget, GZIP, Refusal, Tarball, decompressed, first_bytes};

use crate::layers::{self, Room};

/// why an image could not be unpacked
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// the image cannot be read
    #[error("cannot read the image {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// not a tar, not gzip, or cut short
    #[error("the image {} is damaged; upload the stemcell again", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// it takes more than it may
    #[error("the image {} is refused", path.display())]
    Refused {
        path: PathBuf,
        #[source]
        source: Refusal,
    },
    /// there is nothing in it
    #[error("the image {} is empty", path.display())]
    Empty { path: PathBuf },
    /// an entry that would leave the folder
    #[error("the image has an entry '{}' that leads out of it", entry.display())]
    Escapes { entry: PathBuf },
    /// the entry could not be written
    #[error("cannot unpack the image's entry '{}'", entry.display())]
    Write {
        entry: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Unpacks the tar at `image`, gzipped or not, into `root`, which must be empty. Devices are left out: containers get their
/// own. As root, owners, permissions and attributes are kept; an ordinary user cannot, and keeps folders writable so
/// that they can be removed again.
pub(crate) fn unpack(image: &Path, root: &Path, budget: &Budget) -> Result<(), UnpackError> {
    match apply(image, root, budget, false)? {
        0 => Err(UnpackError::Empty { path: image.to_owned() }),
        _ => Ok(()),
    }
}

/// Unpacks a layer of an OCI image over those below it, and takes away what it says is gone.
pub(crate) fn unpack_layer(layer: &Path, root: &Path, budget: &Budget) -> Result<(), UnpackError> {
    apply(layer, root, budget, true).map(|_| ())
}

/// How many bytes the image has when it is unpacked, as far as it tells. Only good for an early refusal: what it really takes is
/// limited while it is unpacked.
pub(crate) fn unpacked_size(image: &Path) -> io::Result<u64> {
    let mut file = File::open(image)?;
    let stored = file.metadata()?.len();
    if stored < 18 || !first_bytes(&mut file)?.starts_with(GZIP) {
        return Ok(stored);
    }
    // The last four bytes of a gzip file are the length of its content, modulo 4 GiB.
    file.seek(SeekFrom::End(-4))?;
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    Ok(stored.max(u32::from_le_bytes(length).into()))
}

fn apply(image: &Path, root: &Path, budget: &Budget, is_layer: bool) -> Result<usize, UnpackError> {
    let opened = |source| UnpackError::Open { path: image.to_owned(), source };
    let damaged = |source| match Refusal::of(&source) {
        Some(refusal) => UnpackError::Refused { path: image.to_owned(), source: refusal },
        None => UnpackError::Damaged { path: image.to_owned(), source },
    };
    let mut file = File::open(image).map_err(opened)?;
    let start = first_bytes(&mut file).map_err(opened)?;
    let as_root = rustix::process::geteuid().is_root();
    let mut entries = 0;
    let tarball = Tarball::within(decompressed(&start, BufReader::new(file)), budget).preserving(as_root);
    tarball.each(damaged, |entry| {
        let name = entry.path().map_err(damaged)?.into_owned();
        if name.components().any(|part| matches!(part, Component::ParentDir)) {
            return Err(UnpackError::Escapes { entry: name });
        }
        entries += 1;
        let kind = entry.header().entry_type();
        if is_layer {
            let made_room = layers::make_room(root, &name, kind.is_dir());
            if made_room.map_err(|source| UnpackError::Write { entry: name.clone(), source })? == Room::TakenAway {
                return Ok(());
            }
        }
        match kind {
            EntryType::Char | EntryType::Block | EntryType::Fifo => Ok(()),
            EntryType::Directory if !as_root => {
                let mode = entry.header().mode().map_err(damaged)?;
                put(entry, &name, root)?;
                keep_writable(root, &name, mode).map_err(|source| UnpackError::Write { entry: name, source })
            }
            _ => put(entry, &name, root),
        }
    })?;
    Ok(entries)
}

/// `unpack_in` refuses whatever would be written outside `root`, also through links that the image made before.
fn put<R: Read>(entry: &mut tar::Entry<'_, R>, name: &Path, root: &Path) -> Result<(), UnpackError> {
    match entry.unpack_in(root) {
        Ok(true) => Ok(()),
        Ok(false) => Err(UnpackError::Escapes { entry: name.to_owned() }),
        Err(source) => Err(UnpackError::Write { entry: name.to_owned(), source }),
    }
}

fn keep_writable(root: &Path, name: &Path, mode: u32) -> io::Result<()> {
    let inside: PathBuf = name.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let path = root.join(inside);
    if fs::symlink_metadata(&path)?.is_dir() {
        fs::set_permissions(&path, Permissions::from_mode((mode & 0o777) | 0o700))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};
    use windlass_archive::Limits;

    use super::*;

    /// The builder refuses evil names, so they are written into the header by hand.
    pub(crate) fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> (Header, Vec<u8>) {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory { 0o555 } else { 0o644 });
        header.set_size(content.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        (header, content.to_owned())
    }

    pub(crate) fn image(folder: &Path, entries: &[(Header, Vec<u8>)]) -> PathBuf {
        let path = folder.join("image");
        let mut builder = Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
        for (header, content) in entries {
            builder.append(header, content.as_slice()).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap();
        path
    }

    fn unpacked(entries: &[(Header, Vec<u8>)]) -> (tempfile::TempDir, Result<(), UnpackError>) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("inside/root");
        fs::create_dir_all(&root).unwrap();
        let result = unpack(&image(folder.path(), entries), &root, &Budget::new(Limits::default()));
        (folder, result)
    }

    #[test]
    fn a_root_file_system_is_unpacked_and_stays_removable() {
        let (folder, result) = unpacked(&[
            entry(EntryType::Directory, "./etc/", "", b""),
            entry(EntryType::Regular, "./etc/hosts", "", b"127.0.0.1"),
            entry(EntryType::Symlink, "./etc/resolv.conf", "/run/resolv.conf", b""),
            entry(EntryType::Link, "./etc/hosts2", "./etc/hosts", b""),
            entry(EntryType::Char, "./dev-null", "", b""),
        ]);
        result.unwrap();
        let root = folder.path().join("inside/root");
        assert_eq!(fs::read(root.join("etc/hosts2")).unwrap(), b"127.0.0.1");
        assert_eq!(fs::read_link(root.join("etc/resolv.conf")).unwrap(), Path::new("/run/resolv.conf"));
        assert!(!root.join("dev-null").exists());
        // Root removes what it likes, and keeps what the image says.
        let expected = if rustix::process::geteuid().is_root() { 0o555 } else { 0o755 };
        assert_eq!(fs::metadata(root.join("etc")).unwrap().permissions().mode() & 0o777, expected);
    }

    #[test]
    fn no_entry_leaves_the_folder() {
        let outside = "../../escaped";
        for entries in [
            vec![entry(EntryType::Regular, outside, "", b"x")],
            vec![entry(EntryType::Regular, "a/../../../escaped", "", b"x")],
            vec![entry(EntryType::Symlink, "out", "../..", b""), entry(EntryType::Regular, "out/escaped", "", b"x")],
            vec![entry(EntryType::Link, "hard", "../../image", b"")],
        ] {
            let (folder, result) = unpacked(&entries);
            result.unwrap_err();
            assert!(!folder.path().join("escaped").exists() && !folder.path().join("inside/escaped").exists());
        }
        // An absolute name is taken relative to the root, as tar does.
        let (folder, result) = unpacked(&[entry(EntryType::Regular, "/escaped", "", b"x")]);
        result.unwrap();
        assert!(folder.path().join("inside/root/escaped").exists());
    }

    #[test]
    fn a_damaged_image_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let whole = fs::read(image(folder.path(), &[entry(EntryType::Regular, "a", "", &[7; 5000])])).unwrap();
        for bytes in [&whole[..whole.len() - 4], &whole[..20], b"not a tar at all", b""] {
            let path = folder.path().join("broken");
            fs::write(&path, bytes).unwrap();
            let root = tempfile::tempdir().unwrap();
            unpack(&path, root.path(), &Budget::new(Limits::default())).unwrap_err();
        }
    }

    /// A header whose content follows; names of any length.
    fn long_name(name: &[u8]) -> (Header, Vec<u8>) {
        let (mut header, _) = entry(EntryType::GNULongName, "././@LongLink", "", b"");
        header.set_size(name.len() as u64);
        header.set_cksum();
        (header, name.to_owned())
    }

    #[test]
    fn an_image_that_asks_for_too_much_is_refused() {
        let file = || entry(EntryType::Regular, "x", "", b"x");
        let deep = "a/".repeat(2000) + "x";
        let long = "a".repeat(5000);
        let huge = "a".repeat(5 << 20);
        let mut sparse = entry(EntryType::GNUSparse, "sparse", "", &[7; 512]);
        if let Some(header) = sparse.0.as_gnu_mut() {
            header.set_real_size(1 << 60);
            header.sparse[0].set_offset((1 << 60) - 512);
            header.sparse[0].set_length(512);
        }
        sparse.0.set_cksum();
        let many: Vec<_> = (0..11).map(|_| file()).collect();
        for (entries, words) in [
            (vec![long_name(deep.as_bytes()), file()], "2001 folders deep"),
            (vec![long_name(long.as_bytes()), file()], "has 5000 bytes"),
            (vec![long_name(huge.as_bytes()), file()], "more than 4 MiB"),
            (vec![entry(EntryType::Regular, "large", "", &[0; 3 << 20])], "more than the 2 MiB that are left"),
            (vec![sparse], "more than the 2 MiB that are left"),
            (many, "more than 10 entries"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("root");
            fs::create_dir(&root).unwrap();
            let limits = Limits { bytes: 2 << 20, entries: 10, ..Limits::default() };
            let error = unpack(&image(folder.path(), &entries), &root, &Budget::new(limits)).unwrap_err();
            assert!(windlass_contract::explain(&error).contains(words), "{}", windlass_contract::explain(&error));
        }
        let (folder, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let late = Budget::new(Limits { time: std::time::Duration::ZERO, ..Limits::default() });
        let error = unpack(&image(folder.path(), &[file()]), root.path(), &late).unwrap_err();
        assert!(windlass_contract::explain(&error).contains("longer than 0ns"), "{error:?}");
    }

    #[test]
    fn what_follows_an_archive_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = image(folder.path(), &[entry(EntryType::Regular, "x", "", b"x")]);
        let mut more = GzEncoder::new(File::options().append(true).open(&path).unwrap(), Compression::fast());
        io::copy(&mut io::repeat(0).take(3 << 20), &mut more).unwrap();
        more.finish().unwrap();
        let unpacked = |bytes| {
            let root = tempfile::tempdir().unwrap();
            unpack(&path, root.path(), &Budget::new(Limits { bytes, ..Limits::default() }))
        };
        unpacked(4 << 20).unwrap();
        assert!(matches!(unpacked(2 << 20), Err(UnpackError::Refused { source: Refusal::Bytes(_), .. })));
    }
}
