//! Users of the machine and their keys. The lists of users are read here and changed by the tools that lock them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use windlass_durable::{file, kill_point};

use super::command::{CommandError, tool};
use super::{Linux, set_mode};
use crate::log_file;

/// The groups whose members may look at everything; those that the stemcell has.
const GROUPS: [&str; 4] = ["vcap", "admin", "bosh_sudoers", "bosh_sshers"];

/// why a user is not as wanted
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserError {
    #[error("there is no user '{name}' in {list}")]
    Unknown { name: String, list: PathBuf },
    #[error(transparent)]
    Tool(#[from] CommandError),
    /// a file cannot be changed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> UserError {
    let path = path.to_owned();
    move |source| UserError::Io { path, source }
}

/// A line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

fn parse_user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
    let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(User { name, uid, gid, home: fields.nth(1)?.into() })
}

impl Linux {
    fn users(&self) -> Vec<User> {
        let list = std::fs::read_to_string(self.root.at("/etc/passwd")).unwrap_or_default();
        list.lines().filter_map(parse_user).collect()
    }

    pub(super) fn user(&self, name: &str) -> Option<User> {
        self.users().into_iter().find(|user| user.name == name)
    }

    /// The number of a group; none if the machine does not have it.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        let list = std::fs::read_to_string(self.root.at("/etc/group")).unwrap_or_default();
        list.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
        })
    }

    fn known_user(&self, name: &str) -> Result<User, UserError> {
        self.user(name).ok_or_else(|| UserError::Unknown { name: name.to_owned(), list: self.root.at("/etc/passwd") })
    }

    /// A user who comes over ssh.
    pub(super) fn add_user(&self, name: &str, public_key: &str) -> Result<(), UserError> {
        let homes = self.base.ssh_homes();
        std::fs::create_dir_all(&homes).and_then(|()| set_mode(&homes, 0o755)).map_err(io_failed(&homes))?;
        if self.user(name).is_none() {
            tool(
                "useradd",
                ["-m".as_ref(), "-b".as_ref(), homes.as_os_str(), "-s".as_ref(), "/bin/bash".as_ref(), name.as_ref()],
            )
            .run()?;
        }
        let home = self.root.at(&self.known_user(name)?.home);
        set_mode(&home, 0o700).map_err(io_failed(&home))?;
        let groups: Vec<&str> = GROUPS.into_iter().filter(|group| self.group(group).is_some()).collect();
        if !groups.is_empty() {
            tool("usermod", ["-G", &groups.join(","), name]).run()?;
        }
        self.authorize(name, public_key)
    }

    pub(super) fn remove_users(&self, chosen: &dyn Fn(&str) -> bool) -> Result<(), UserError> {
        for user in self.users().into_iter().filter(|user| chosen(&user.name)) {
            tool("userdel", ["-rf", &user.name]).run()?;
        }
        Ok(())
    }

    /// Lets a user in with these keys, one in each line, and no others.
    pub(super) fn authorize(&self, name: &str, keys: &str) -> Result<(), UserError> {
        let user = self.known_user(name)?;
        let home = self.root.at(&user.home);
        std::fs::create_dir_all(&home).map_err(io_failed(&home))?;
        write_keys(&home, keys, (user.uid, user.gid)).map_err(io_failed(&home.join(".ssh/authorized_keys")))
    }

    /// An empty hash lets nobody in. A stemcell without the user, as containers may be, has nobody to let in.
    pub(super) fn change_password(&self, name: &str, hash: &str) -> Result<(), UserError> {
        if self.user(name).is_none() {
            tracing::debug!("there is no user {name} whose password could be set");
            return Ok(());
        }
        let hash = if hash.is_empty() { "*" } else { hash };
        // What is so already needs no tool, which minimal stemcells do not have.
        let passwords = std::fs::read_to_string(self.root.at("/etc/shadow")).unwrap_or_default();
        if passwords.lines().any(|line| line.starts_with(&format!("{name}:{hash}:"))) {
            return Ok(());
        }
        // Over stdin, because everybody can read the arguments of a process.
        tool("chpasswd", ["-e"]).reading(format!("{name}:{hash}\n")).run()?;
        Ok(())
    }

    /// Makes a file a user's.
    pub(super) fn give(&self, path: &Path, name: &str) -> Result<(), UserError> {
        let user = self.known_user(name)?;
        chown(path, Some(user.uid), Some(user.gid)).map_err(io_failed(path))
    }

    /// Lets a group in, where the machine has it.
    pub(super) fn give_to_group(&self, path: &Path, group: &str) -> io::Result<()> {
        match self.group(group) {
            Some(group) => chown(path, Some(0), Some(group)),
            None => Ok(()),
        }
    }
}

/// Writes the keys of a home's owner, who may put a link in the place of anything there while we do it: nothing is reached by
/// its name twice, and links are not followed.
#[expect(
    clippy::disallowed_methods,
    reason = "the folder is the user's, so it is reached by its handle alone; the rename passes the hook"
)]
fn write_keys(home: &Path, keys: &str, (user, group): (u32, u32)) -> io::Result<()> {
    let folder = own_folder(&home.join(".ssh"))?;
    folder.set_permissions(std::fs::Permissions::from_mode(0o700))?;
    let temporary = ".authorized_keys.new";
    match rustix::fs::unlinkat(&folder, temporary, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut written: File = rustix::fs::openat(&folder, temporary, flags, Mode::RUSR | Mode::WUSR)?.into();
    written.write_all(keys.as_bytes())?;
    written.sync_all()?;
    fchown(&written, Some(user), Some(group))?;
    kill_point("before rename");
    rustix::fs::renameat(&folder, temporary, &folder, "authorized_keys")?;
    fchown(&folder, Some(user), Some(group))?;
    folder.sync_all()
}

/// The folder at `path`, opened; what stands there and is none is removed.
fn own_folder(path: &Path) -> io::Result<File> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    let there = made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    if there && !path.symlink_metadata()?.is_dir() {
        tracing::warn!("{} is not a folder, so it is replaced by one", path.display());
        file::remove_file(path)?;
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
    } else if !there {
        made?;
    }
    log_file::open_folder(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_in_the_place_of_keys_give_nothing_away() {
        let folder = tempfile::tempdir().unwrap();
        let (home, etc) = (folder.path().join("home"), folder.path().join("etc"));
        for folder in [&home, &etc] {
            fs::create_dir(folder).unwrap();
        }
        fs::set_permissions(&etc, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(etc.join("authorized_keys"), "root's").unwrap();
        let me = fs::metadata(&home).unwrap();
        symlink(&etc, home.join(".ssh")).unwrap();
        write_keys(&home, "key\n", (me.uid(), me.gid())).unwrap();
        assert_eq!(fs::metadata(&etc).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(etc.join("authorized_keys")).unwrap(), "root's");
        assert_eq!(fs::read_to_string(home.join(".ssh/authorized_keys")).unwrap(), "key\n");
        for name in ["authorized_keys", ".authorized_keys.new"] {
            let path = home.join(".ssh").join(name);
            let _ = fs::remove_file(&path);
            symlink(etc.join("authorized_keys"), &path).unwrap();
        }
        write_keys(&home, "other\n", (me.uid(), me.gid())).unwrap();
        assert_eq!(fs::read_to_string(etc.join("authorized_keys")).unwrap(), "root's");
        assert_eq!(fs::read_to_string(home.join(".ssh/authorized_keys")).unwrap(), "other\n");
        let written = fs::symlink_metadata(home.join(".ssh/authorized_keys")).unwrap();
        assert!(written.is_file() && written.mode() & 0o777 == 0o600);
        assert_eq!(fs::read_dir(home.join(".ssh")).unwrap().count(), 1);
    }

    #[test]
    fn the_list_of_users_is_understood() {
        let vcap = parse_user("vcap:x:1000:1001:BOSH System User:/home/vcap:/bin/bash").unwrap();
        assert_eq!(vcap, User { name: "vcap".into(), uid: 1000, gid: 1001, home: "/home/vcap".into() });
        assert_eq!(parse_user(""), None);
        assert_eq!(parse_user("vcap:x"), None);
    }
}
