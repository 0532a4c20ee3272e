//! The folders that a process is given: made where they are missing, and owned by the user of jobs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::log_file::name_of;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Makes a volume, if nothing is there, and gives it to `owner`: a folder for nobody else to look into.
pub(super) fn give(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let opened = open(path)?;
    let found = opened.metadata()?;
    let name = name_of(&opened);
    if found.is_dir() {
        fs::set_permissions(&name, fs::Permissions::from_mode(0o700))?;
    } else if found.nlink() > 1 {
        return Err(io::Error::other("it is a file with a second name; remove it"));
    }
    match owner {
        Some((user, group)) => chown(&name, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// Opens what is at `path`, step by step: a job that can write to a folder on the way could put a link there and have root give away what
/// it leads to. So only our own links are followed, such as those to the folders of jobs.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || openat(CWD, "/", flags, Mode::empty());
    let mut reached = root()?;
    let mut steps: VecDeque<OsString> = steps(path).collect();
    let mut links = 0;
    while let Some(step) = steps.pop_front() {
        let next = match openat(&reached, &step, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(&reached, &step, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(&reached, &step, flags, Mode::empty())?
            }
            opened => opened?,
        };
        let next = File::from(next);
        let found = next.metadata()?;
        if !found.is_symlink() {
            reached = next.into();
            continue;
        }
        links += 1;
        if found.uid() != rustix::process::geteuid().as_raw() {
            let reason = format!("'{}' is a link of user {}; remove it", step.display(), found.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
        if Path::new(&target).is_absolute() {
            reached = root()?;
        }
        for step in self::steps(Path::new(&target)).collect::<Vec<_>>().into_iter().rev() {
            steps.push_front(step);
        }
    }
    Ok(reached.into())
}

fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter(|part| *part != Component::RootDir).map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_volume_is_made_and_one_that_is_there_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("data/jobs/web")).unwrap();
        // As jobs are found, and /var/vcap/sys.
        symlink(at("data/jobs"), at("jobs")).unwrap();
        symlink("../jobs/web", at("data/same")).unwrap();
        for name in ["jobs/web/config/ssl", "data/same/deep/er", "data/jobs/web"] {
            give(&at(name), None).unwrap();
            assert_eq!(mode(&at(name)), 0o700, "{name}");
        }
        assert!(at("data/jobs/web/config/ssl").is_dir() && at("data/jobs/web/deep/er").is_dir());
        assert_eq!(mode(&at("data/jobs/web/deep")), 0o755, "the owner of what is below has to get there");
        fs::write(at("data/socket"), "a file").unwrap();
        fs::set_permissions(at("data/socket"), fs::Permissions::from_mode(0o644)).unwrap();
        give(&at("data/socket"), None).unwrap();
        assert_eq!(mode(&at("data/socket")), 0o644);
    }

    #[test]
    fn what_a_job_puts_on_the_way_to_a_volume_gives_it_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("etc/ssh")).unwrap();
        fs::create_dir_all(at("data")).unwrap();
        fs::write(at("etc/shadow"), "precious").unwrap();
        fs::hard_link(at("etc/shadow"), at("data/second")).unwrap();
        assert!(give(&at("data/second"), None).unwrap_err().to_string().contains("second name"));
        symlink(at("data/round"), at("data/round")).unwrap();
        give(&at("data/round"), None).unwrap_err();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        symlink(at("etc"), at("data/link")).unwrap();
        std::os::unix::fs::lchown(at("data/link"), Some(65534), None).unwrap();
        for name in ["data/link", "data/link/ssh", "data/link/new"] {
            let error = give(&at(name), Some((65534, 65534))).unwrap_err().to_string();
            assert!(error.contains("'link' is a link of user 65534; remove it"), "{name}: {error}");
        }
        assert_eq!(fs::metadata(at("etc/ssh")).unwrap().uid(), 0);
        assert!(!at("etc/new").exists());
        give(&at("data/own"), Some((65534, 65534))).unwrap();
        assert_eq!(fs::metadata(at("data/own")).unwrap().uid(), 65534);
    }
}
