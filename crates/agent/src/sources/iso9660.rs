//! Files on an ISO 9660 image, which is what CD-ROMs and most config drives hold.
//!
//! Read here and not by the kernel: nothing is mounted, so nothing can be left mounted, it takes no privilege, and a kernel
//! without this file system will do. Names are those of Rock Ridge or Joliet where an image has them, else the short ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const SECTOR: u64 = 2048;
/// The sector of the first volume descriptor.
const FIRST_DESCRIPTOR: u64 = 16;
/// More descriptors than any image has.
const DESCRIPTORS: u64 = 32;
/// Where the mark of the format is in a descriptor.
const MARK: std::ops::Range<usize> = 1..6;
/// Where the record of the root folder is in a descriptor.
const ROOT: std::ops::Range<usize> = 156..190;
const PRIMARY: u8 = 1;
const SUPPLEMENTARY: u8 = 2;
const TERMINATOR: u8 = 255;
/// Flags of a record.
const FOLDER: u8 = 0b10;
const SEVERAL_EXTENTS: u8 = 0b1000_0000;
/// A folder larger than this is none of ours.
const LARGEST_FOLDER: u64 = 1024 * 1024;

/// How the names of a volume are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Short ones, beside which Rock Ridge may have the real ones.
    Plain,
    /// Two bytes a letter.
    Joliet,
}

/// A file or a folder.
#[derive(Debug, Clone, Copy)]
struct DirectoryRecord {
    start: u64,
    length: u64,
    flags: u8,
}

/// Whether the image is of this format.
pub(super) fn is_iso9660(image: &File) -> bool {
    descriptor(image, FIRST_DESCRIPTOR).is_ok_and(|found| found.get(MARK) == Some(b"CD001"))
}

/// The content of the file at `path`, at most `limit` bytes; none if there is no such file.
pub(super) fn read_file(image: &File, path: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    for (root, names) in volumes(image)? {
        if let Some(found) = find(image, root, names, path)? {
            if found.flags & (FOLDER | SEVERAL_EXTENTS) != 0 {
                return Err(io::Error::other("it is no plain file"));
            }
            return content(image, found, limit).map(Some);
        }
    }
    Ok(None)
}

/// The root folders of all volumes. They show the same files by other names.
fn volumes(image: &File) -> io::Result<Vec<(DirectoryRecord, Names)>> {
    let mut volumes = Vec::new();
    for sector in FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + DESCRIPTORS {
        let found = descriptor(image, sector)?;
        let names = match found.first() {
            _ if found.get(MARK) != Some(b"CD001") => break,
            Some(&PRIMARY) => Names::Plain,
            Some(&SUPPLEMENTARY) if found.get(88..90) == Some(b"%/") => Names::Joliet,
            Some(&TERMINATOR) | None => break,
            Some(_) => continue,
        };
        volumes.extend(found.get(ROOT).and_then(record).map(|root| (root, names)));
    }
    Ok(volumes)
}

fn descriptor(image: &File, sector: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; SECTOR as usize];
    image.read_exact_at(&mut bytes, sector * SECTOR)?;
    Ok(bytes)
}

fn find(image: &File, root: DirectoryRecord, names: Names, path: &str) -> io::Result<Option<DirectoryRecord>> {
    let mut at = root;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if at.flags & FOLDER == 0 {
            return Ok(None);
        }
        let folder = content(image, at, LARGEST_FOLDER)?;
        match records(&folder).find(|bytes| is_named(bytes, names, name)).and_then(record) {
            Some(found) => at = found,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn content(image: &File, record: DirectoryRecord, limit: u64) -> io::Result<Vec<u8>> {
    if record.length > limit {
        return Err(io::Error::other(format!("it has {} bytes, more than the {limit} that are read", record.length)));
    }
    let mut bytes = vec![0; usize::try_from(record.length).map_err(io::Error::other)?];
    image.read_exact_at(&mut bytes, record.start * SECTOR)?;
    Ok(bytes)
}

/// The records of a folder. None crosses the end of a sector; a length of zero fills the rest of one.
fn records(folder: &[u8]) -> impl Iterator<Item = &[u8]> {
    folder.chunks(SECTOR as usize).flat_map(|sector| {
        let mut rest = sector;
        std::iter::from_fn(move || {
            let length = usize::from(*rest.first()?);
            let (record, after) = rest.split_at_checked(length).filter(|_| length > 0)?;
            rest = after;
            Some(record)
        })
    })
}

fn record(bytes: &[u8]) -> Option<DirectoryRecord> {
    let number = |at: usize| Some(u64::from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)));
    // An extended attribute record, which nobody writes any more, stands before the content.
    let start = number(2)? + u64::from(*bytes.get(1)?);
    Some(DirectoryRecord { start, length: number(10)?, flags: *bytes.get(25)? })
}

fn is_named(bytes: &[u8], names: Names, wanted: &str) -> bool {
    let Some(length) = bytes.get(32).map(|length| usize::from(*length)) else { return false };
    let Some(name) = bytes.get(33..33 + length) else { return false };
    if names == Names::Joliet {
        let units = name.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        return without_version(&String::from_utf16_lossy(&units.collect::<Vec<_>>())) == wanted;
    }
    // The system's own area comes at an even distance.
    let own = bytes.get(33 + length + usize::from(length % 2 == 0)..).unwrap_or_default();
    match rock_ridge_name(own) {
        Some(name) => name == wanted.as_bytes(),
        None => without_version(&String::from_utf8_lossy(name)).eq_ignore_ascii_case(wanted),
    }
}

/// `ENV.;1` is `ENV`.
fn without_version(name: &str) -> &str {
    let name = name.split_once(';').map_or(name, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

/// The name in the entries of a record's own area: two letters, a length, a version, and for names flags and a part of it.
fn rock_ridge_name(mut entries: &[u8]) -> Option<Vec<u8>> {
    let mut name: Option<Vec<u8>> = None;
    while let [a, b, length, _, rest @ ..] = entries {
        let (body, after) = rest.split_at_checked(usize::from(*length).checked_sub(4)?)?;
        if (a, b) == (&b'N', &b'M') {
            name.get_or_insert_default().extend_from_slice(body.get(1..)?);
        }
        entries = after;
    }
    name
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// An image of a folder, made as CPIs make them.
    fn image(folder: &Path, options: &[&str]) -> std::path::PathBuf {
        let path = folder.with_extension("iso");
        let made = Command::new("genisoimage").args(["-quiet", "-o"]).arg(&path).args(options).arg(folder).status();
        assert!(made.expect("genisoimage, of the package of that name").success());
        path
    }

    fn folder(temporary: &tempfile::TempDir) -> std::path::PathBuf {
        let folder = temporary.path().join("drive");
        std::fs::create_dir_all(folder.join("openstack/latest")).unwrap();
        std::fs::write(folder.join("env"), r#"{"agent_id": "a"}"#).unwrap();
        std::fs::write(folder.join("openstack/latest/user-data.json"), "x".repeat(5000)).unwrap();
        // More names than one sector holds.
        for number in 0..100 {
            std::fs::write(folder.join(format!("file-number-{number:03}")), number.to_string()).unwrap();
        }
        folder
    }

    #[test]
    fn files_are_found_by_the_names_that_they_had() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(&temporary);
        for options in [&["-r"][..], &["-J"], &["-J", "-r"]] {
            let image = File::open(image(&folder, options)).unwrap();
            assert!(is_iso9660(&image));
            let read = |path| read_file(&image, path, 10_000).unwrap();
            assert_eq!(read("env").unwrap(), br#"{"agent_id": "a"}"#, "{options:?}");
            assert_eq!(read("/openstack/latest/user-data.json").unwrap(), "x".repeat(5000).into_bytes());
            assert_eq!(read("file-number-099").unwrap(), b"99");
            assert_eq!(read("nope"), None);
            assert_eq!(read("env/below"), None);
            assert!(read_file(&image, "openstack", 10_000).is_err(), "a folder is no file");
            assert!(read_file(&image, "openstack/latest/user-data.json", 100).is_err(), "too long");
        }
        let short = File::open(image(&folder, &[])).unwrap();
        assert_eq!(read_file(&short, "env", 10_000).unwrap().unwrap(), br#"{"agent_id": "a"}"#);
    }

    #[test]
    fn a_damaged_image_is_an_error_and_no_crash() {
        let temporary = tempfile::tempdir().unwrap();
        let path = image(&folder(&temporary), &["-J", "-r"]);
        let whole = std::fs::read(&path).unwrap();
        let damaged = temporary.path().join("damaged.iso");
        let damage = proptest::collection::vec((FIRST_DESCRIPTOR * SECTOR..40 * SECTOR, any::<u8>()), 1..200);
        proptest!(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() },
        |(damage in damage, length in 0..whole.len())| {
            let mut bytes = whole.clone();
            for (at, byte) in damage {
                bytes[at as usize] = byte;
            }
            bytes.truncate(length.max(20 * SECTOR as usize));
            std::fs::write(&damaged, bytes).unwrap();
            let image = File::open(&damaged).unwrap();
            is_iso9660(&image);
            for path in ["env", "openstack/latest/user-data.json"] {
                let _ = read_file(&image, path, 10_000);
            }
        });
        std::fs::write(&damaged, "short").unwrap();
        assert!(!is_iso9660(&File::open(&damaged).unwrap()));
    }
}
