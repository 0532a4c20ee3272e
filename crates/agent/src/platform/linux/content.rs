//! What is on a device. Only what is blank may ever be formatted, so everything that is not known to be blank is something.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Where signatures are: the backup of a LUKS header comes last, at four MiB.
const HEAD: u64 = 8 * MIB;
/// RAID and the backup of a partition table are at the end.
const TAIL: u64 = 2 * MIB;

/// What is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeros where anything that is known has its mark.
    Blank,
    /// A table of partitions.
    Partitions,
    /// A file system that this agent mounts.
    FileSystem(FileSystem),
    /// Anything else that has a mark.
    Other(&'static str),
    /// Data without any mark.
    Unknown,
}

/// What people call it.
impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blank => f.write_str("nothing"),
            Self::Partitions => f.write_str("a partition table"),
            Self::FileSystem(found) => write!(f, "an {} file system", found.kind.name()),
            Self::Other(found) => f.write_str(found),
            Self::Unknown => f.write_str("data of a kind that this agent does not know"),
        }
    }
}

/// A file system that this agent mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystem {
    pub(super) kind: FileSystemKind,
    /// How much of the device it uses.
    pub(super) size: u64,
}

/// The file systems that this agent makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystemKind {
    Ext4,
    Xfs,
}

impl FileSystemKind {
    /// The kernel's name for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// Marks that are in a fixed place, and whose they are.
const MARKS: &[(usize, &[u8], &str)] = &[
    (0, b"LUKS\xba\xbe", "an encrypted disk (LUKS)"),
    (0x4000, b"SKUL\xba\xbe", "an encrypted disk (LUKS)"),
    (0, b"-FVE-FS-", "an encrypted disk (BitLocker)"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x18, b"LVM2 001", "an LVM physical volume"),
    (0x418, b"LVM2 001", "an LVM physical volume"),
    (0x618, b"LVM2 001", "an LVM physical volume"),
    (0, b"\xfc\x4e\x2b\xa9", "a RAID member (md)"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a RAID member (md)"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0x410, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (0x10034, b"ReIsErFs", "a reiserfs file system"),
    (0x10034, b"ReIsEr2Fs", "a reiserfs file system"),
    (0x8000, b"JFS1", "a jfs file system"),
    (0x406, b"\x34\x34", "a nilfs2 file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0x8801, b"CD001", "an ISO 9660 file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
    (0, b"hsqs", "a squashfs file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an erofs file system"),
    (0x100000, b"\x0d\xd0\x01\xc0", "a VMFS volume"),
    (0, b"bluestore block device", "a Ceph disk"),
    (0x400, b"H+", "an HFS+ file system"),
    (0x400, b"HX", "an HFS+ file system"),
    (32, b"NXSB", "an APFS container"),
];

/// What swap is called.
pub(super) const SWAP: &str = "swap space";

/// Swap is marked at the end of a page, and pages differ.
const PAGES: &[usize] = &[0x1000, 0x2000, 0x4000, 0x8000, 0x10000];

/// Looks at a device.
pub(super) fn of(device: &Path) -> io::Result<Content> {
    let mut file = File::open(device)?;
    let size = file.seek(SeekFrom::End(0))?;
    let mut head = vec![0; HEAD.min(size) as usize];
    file.rewind()?;
    file.read_exact(&mut head)?;
    let mut tail = vec![0; TAIL.min(size) as usize];
    let behind = size - tail.len() as u64;
    file.read_exact_at(&mut tail, behind)?;
    Ok(judge(&head, &tail))
}

/// How large a device is.
pub(super) fn size_of(device: &Path) -> io::Result<u64> {
    File::open(device)?.seek(SeekFrom::End(0))
}

fn judge(head: &[u8], tail: &[u8]) -> Content {
    let has = |offset: usize, mark: &[u8]| head.get(offset..offset + mark.len()) == Some(mark);
    if has(0x200, b"EFI PART") || has(0x1000, b"EFI PART") {
        return Content::Partitions;
    }
    if let Some(found) = ext(head).or_else(|| xfs(head)) {
        return found;
    }
    if let Some((_, _, name)) = MARKS.iter().find(|(offset, mark, _)| has(*offset, mark)) {
        return Content::Other(name);
    }
    if PAGES.iter().any(|page| has(page - 10, b"SWAPSPACE2") || has(page - 10, b"SWAP-SPACE")) {
        return Content::Other(SWAP);
    }
    // Boot sectors of file systems have this, too, so it is asked last.
    if has(0x1fe, b"\x55\xaa") {
        return Content::Partitions;
    }
    match is_zero(head) && is_zero(tail) {
        true => Content::Blank,
        false => Content::Unknown,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

fn ext(head: &[u8]) -> Option<Content> {
    let superblock = head.get(0x400..0x800)?;
    let word = |offset: usize| u32::from_le_bytes(superblock[offset..offset + 4].try_into().unwrap_or_default());
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    // What ext3 can do, and what the newer one does on top: extents, large group descriptors, and the like.
    const EXT3: u32 = 0x2 | 0x4 | 0x10;
    const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    let (features, read_only) = (word(0x60), word(0x64));
    if features & JOURNAL_DEVICE != 0 {
        return Some(Content::Other("a journal of ext4"));
    }
    if features & !EXT3 == 0 && read_only & !EXT3_READ_ONLY == 0 {
        return Some(Content::Other("an ext2 or ext3 file system"));
    }
    let high = if features & 0x80 != 0 { word(0x150) } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(word(0x4));
    let size = blocks.checked_shl(10 + word(0x18)).unwrap_or(u64::MAX);
    Some(Content::FileSystem(FileSystem { kind: FileSystemKind::Ext4, size }))
}

fn xfs(head: &[u8]) -> Option<Content> {
    let superblock = head.get(..0x100)?;
    if &superblock[..4] != b"XFSB" {
        return None;
    }
    let block = u32::from_be_bytes(superblock[4..8].try_into().ok()?);
    let blocks = u64::from_be_bytes(superblock[8..16].try_into().ok()?);
    let size = blocks.saturating_mul(block.into());
    Some(Content::FileSystem(FileSystem { kind: FileSystemKind::Xfs, size }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zeros_are_blank() {
        let (head, tail) = (vec![0; HEAD as usize], vec![0; TAIL as usize]);
        assert_eq!(judge(&head, &tail), Content::Blank);
        for offset in [0, 1, 511, 4096, MIB as usize, 4 * MIB as usize + 7, HEAD as usize - 1] {
            let mut written = head.clone();
            written[offset] = 1;
            assert_eq!(judge(&written, &tail), Content::Unknown, "{offset}");
        }
        let mut written = tail.clone();
        written[TAIL as usize - 4096] = 1;
        assert_eq!(judge(&head, &written), Content::Unknown);
    }

    #[test]
    fn every_mark_is_recognised() {
        for (offset, mark, name) in MARKS {
            let mut head = vec![0; HEAD as usize];
            head[*offset..offset + mark.len()].copy_from_slice(mark);
            let found = judge(&head, &[]);
            assert!(matches!(found, Content::Other(found) if found == *name), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_device_of_any_size_can_be_looked_at() {
        for size in [0_u64, 1, 511, 4096, MIB, 3 * MIB, 20 * MIB] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(size).unwrap();
            assert_eq!(of(file.path()).unwrap(), Content::Blank, "{size}");
        }
    }
}
