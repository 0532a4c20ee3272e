//! What is mounted, as the kernel tells it in `mountinfo`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A block device by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// The device in the form that the kernel prints: `7:0`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The device in the form that `/proc/PID/maps` has: `07:00`.
    pub(super) fn parse_hex(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: u32::from_str_radix(major, 16).ok()?, minor: u32::from_str_radix(minor, 16).ok()? })
    }

    /// The device that a file is on.
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        let number = std::os::unix::fs::MetadataExt::dev(metadata);
        Self { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }
}

/// How long a list of mounts may be that a process in a VM, or any user of this machine, can make longer: folders in folders make lines of
/// megabytes.
const LONGEST: u64 = 8 << 20;

/// One mount of one mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) device: Device,
    pub(crate) point: PathBuf,
    /// The group of mounts that what happens here is passed on to.
    pub(super) peers: Option<u64>,
}

/// What this process sees mounted, in the order in which it was.
pub(crate) fn of_this_process() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// What `file`, the list of another process, says; with the error [`io::ErrorKind::FileTooLarge`] if that is very much.
pub(super) fn read(file: File) -> io::Result<Vec<Mount>> {
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        let message = format!("its list of mounts is longer than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(parse(&text))
}

/// The uppermost mount at exactly `point`.
pub(super) fn at<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    mounts.iter().rfind(|mount| mount.point == point)
}

/// Something that is mounted in the folder or below it.
pub(crate) fn below<'a>(mounts: &'a [Mount], folder: &Path) -> Option<&'a Path> {
    let folder = folder.canonicalize().ok()?;
    mounts.iter().map(|mount| mount.point.as_path()).find(|point| point.starts_with(&folder))
}

/// Lines that are not understood are no mounts that matter here.
fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let id = text()?.parse().ok()?;
    let parent = text()?.parse().ok()?;
    let device = Device::parse(text()?)?;
    text()?;
    let point = unescape(fields.next()?);
    fields.next()?;
    let peers = fields
        .take_while(|field| *field != b"-")
        .find_map(|field| std::str::from_utf8(field).ok()?.strip_prefix("shared:")?.parse().ok());
    Some(Mount { id, parent, device, point, peers })
}

/// Blanks, tabs, line ends and backslashes come as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let text = b"27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            63 27 7:0 / /state/a\\040b\\134c rw,relatime shared:9 master:2 - ext4 /dev/loop0 rw\n\
            64 27 0:30 / /tmp rw - tmpfs tmpfs rw\nnonsense\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].point, Path::new("/state/a b\\c"));
        assert_eq!((mounts[1].id, mounts[1].parent, mounts[1].peers), (63, 27, Some(9)));
        assert_eq!(Some(mounts[1].device), Device::parse_hex("07:00"));
        assert_eq!(mounts[2].peers, None);
        assert_eq!(at(&mounts, Path::new("/tmp")), Some(&mounts[2]));
    }

    #[test]
    fn the_root_is_always_mounted() {
        assert!(at(&of_this_process().unwrap(), Path::new("/")).is_some());
    }
}
