//! What is mounted where, from the kernel's own table, and the calls that change it. No program is needed for it, so that it
//! works in a container with nothing but the agent.

#![expect(clippy::disallowed_methods, reason = "each mount stands between two kill points")]

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dev, makedev};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use windlass_durable::kill_point;

/// The kernel's table of this process's mounts.
const TABLE: &str = "/proc/self/mountinfo";
/// How often a busy mount is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// why something is not mounted, or still is
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    /// the kernel does not mount it
    #[error("cannot mount {source_path} on {target} with options '{options}'")]
    Mount {
        source_path: PathBuf,
        target: PathBuf,
        options: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot unmount {target}; end the processes that use it")]
    Unmount {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot change how {target} is mounted; end the processes that write there")]
    Remount {
        target: PathBuf,
        #[source]
        source: io::Error,
    },
    /// nobody knows what is mounted
    #[error("cannot read what is mounted from {TABLE}; mount /proc")]
    Table(#[source] io::Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The device of its file system.
    pub(super) device: Dev,
    /// Which folder of the file system it shows.
    pub(super) shows: PathBuf,
    pub(super) target: PathBuf,
    /// Its own flags.
    pub(super) flags: MountFlags,
    /// The device's path, as it was given.
    pub(super) source: PathBuf,
}

/// All mounts, the uppermost of several on one place last.
pub(super) fn all() -> Result<Vec<Mount>, MountError> {
    let table = std::fs::read(TABLE).map_err(MountError::Table)?;
    Ok(parse(&table))
}

/// What is mounted on a place.
pub(super) fn on(place: &Path) -> Result<Option<Mount>, MountError> {
    // The table has real paths, and a place may be reached through links.
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    Ok(all()?.into_iter().rfind(|mount| mount.target == place))
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let (shows, target) = (unescape(fields.next()?), unescape(fields.next()?));
    let flags = MountOptions::parse(std::str::from_utf8(fields.next()?).ok()?.split(',')).flags;
    fields.find(|field| *field == b"-")?;
    let source = unescape(fields.nth(1)?);
    Some(Mount { device: makedev(major.parse().ok()?, minor.parse().ok()?), shows, target, flags, source })
}

/// Blanks and the like are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Mount options as people write them: those that the kernel takes as flags, and those that only the file system knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) flags: MountFlags,
    pub(super) data: String,
}

impl MountOptions {
    pub(super) fn parse<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut parsed = Self { flags: MountFlags::empty(), data: String::new() };
        // One option may be a list, as after `mount -o`.
        for option in options.into_iter().flat_map(|list| list.split(',')).map(str::trim) {
            parsed.add(option);
        }
        parsed
    }

    fn add(&mut self, option: &str) {
        let (is_set, flag) = match option {
            "ro" => (true, MountFlags::RDONLY),
            "rw" => (false, MountFlags::RDONLY),
            "nosuid" => (true, MountFlags::NOSUID),
            "suid" => (false, MountFlags::NOSUID),
            "nodev" => (true, MountFlags::NODEV),
            "dev" => (false, MountFlags::NODEV),
            "noexec" => (true, MountFlags::NOEXEC),
            "exec" => (false, MountFlags::NOEXEC),
            "sync" => (true, MountFlags::SYNCHRONOUS),
            "async" => (false, MountFlags::SYNCHRONOUS),
            "dirsync" => (true, MountFlags::DIRSYNC),
            "noatime" => (true, MountFlags::NOATIME),
            "atime" => (false, MountFlags::NOATIME),
            "nodiratime" => (true, MountFlags::NODIRATIME),
            "diratime" => (false, MountFlags::NODIRATIME),
            "relatime" => (true, MountFlags::RELATIME),
            "norelatime" => (false, MountFlags::RELATIME),
            "strictatime" => (true, MountFlags::STRICTATIME),
            "nostrictatime" => (false, MountFlags::STRICTATIME),
            "lazytime" => (true, MountFlags::LAZYTIME),
            "nolazytime" => (false, MountFlags::LAZYTIME),
            "silent" => (true, MountFlags::SILENT),
            "loud" => (false, MountFlags::SILENT),
            // For the programs that read fstab, not for the kernel.
            "" | "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nofail" | "_netdev" | "bind" => return,
            option if option.starts_with("x-") => return,
            option => {
                if !self.data.is_empty() {
                    self.data.push(',');
                }
                return self.data.push_str(option);
            }
        };
        self.flags.set(flag, is_set);
    }
}

/// Mounts the file system `kind` of a device, or one that has none.
pub(super) fn mount(source: &Path, target: &Path, kind: &str, options: &[&str]) -> Result<(), MountError> {
    let parsed = MountOptions::parse(options.iter().copied());
    let failed = |source_error: io::Error| MountError::Mount {
        source_path: source.to_owned(),
        target: target.to_owned(),
        options: options.join(","),
        source: source_error,
    };
    let data = CString::new(parsed.data).map_err(|error| failed(error.into()))?;
    kill_point("before a mount");
    rustix::mount::mount(source, target, kind, parsed.flags, data.as_c_str()).map_err(|error| failed(error.into()))?;
    kill_point("after a mount");
    Ok(())
}

/// Shows a folder in another place.
pub(super) fn bind(source: &Path, target: &Path) -> Result<(), MountError> {
    kill_point("before a mount");
    rustix::mount::mount_bind(source, target).map_err(|error| MountError::Mount {
        source_path: source.to_owned(),
        target: target.to_owned(),
        options: "bind".to_owned(),
        source: error.into(),
    })?;
    kill_point("after a mount");
    Ok(())
}

/// Adds flags to a mount, as long as nobody in its way stops `patience` from ending. Only this mount changes, not the others
/// of its file system.
pub(super) fn add_flags(place: &Path, flags: MountFlags, patience: Duration) -> Result<(), MountError> {
    let Some(mount) = on(place)? else { return Ok(()) };
    change_flags(place, mount.flags | flags, patience)
}

/// Takes flags from a mount.
pub(super) fn remove_flags(place: &Path, flags: MountFlags) -> Result<(), MountError> {
    let Some(mount) = on(place)? else { return Ok(()) };
    change_flags(place, mount.flags - flags, Duration::ZERO)
}

fn change_flags(place: &Path, flags: MountFlags, patience: Duration) -> Result<(), MountError> {
    kill_point("before a remount");
    let remount = || rustix::mount::mount_remount(place, flags | MountFlags::BIND, "");
    until_not_busy(patience, remount)
        .map_err(|error| MountError::Remount { target: place.to_owned(), source: error.into() })?;
    kill_point("after a remount");
    Ok(())
}

/// Unmounts what is uppermost on a place, as soon as nobody uses it, or fails at the end of `patience`.
pub(super) fn unmount(place: &Path, patience: Duration) -> Result<(), MountError> {
    kill_point("before an unmount");
    until_not_busy(patience, || rustix::mount::unmount(place, UnmountFlags::NOFOLLOW))
        .map_err(|error| MountError::Unmount { target: place.to_owned(), source: error.into() })?;
    kill_point("after an unmount");
    Ok(())
}

fn until_not_busy(patience: Duration, change: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let deadline = Instant::now() + patience;
    loop {
        match change() {
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(RETRY),
            done => return done,
        }
    }
}

/// A tmpfs on a folder, unless something is mounted there.
pub(super) fn tmpfs(place: &Path, size: &str) -> Result<(), MountError> {
    match on(place)? {
        Some(_) => Ok(()),
        None => mount(Path::new("tmpfs"), place, "tmpfs", &[&format!("size={size}")]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_understood() {
        let table = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            37 35 0:5 / /proc ro,nosuid - proc proc rw\nnonsense\n";
        let [first, second] = parse(table).try_into().unwrap();
        assert_eq!((first.device, first.target.to_str()), (makedev(98, 0), Some("/mnt 2")));
        assert_eq!((first.shows.to_str(), first.flags), (Some("/mnt1"), MountFlags::NOATIME));
        assert_eq!((second.source.to_str(), second.flags), (Some("proc"), MountFlags::RDONLY | MountFlags::NOSUID));
        assert!(all().unwrap().iter().any(|mount| mount.target == Path::new("/")));
    }

    #[test]
    fn options_reach_the_kernel_or_the_file_system() {
        let options =
            MountOptions::parse(["noatime,data=ordered", "ro", "rw", "nodev", "discard", "defaults", "x-systemd.y"]);
        assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NODEV);
        assert_eq!(options.data, "data=ordered,discard");
    }
}
