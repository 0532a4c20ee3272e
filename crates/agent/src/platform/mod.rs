//! What depends on the machine.
//!
//! - [`directory`]: a disk is a directory.
//! - [`dummy`]: the original's for tests of directors.
//! - [`linux`]: a machine of the VM's own, or a container.
//!
//! On the first two the machine belongs to somebody else, and nothing outside the base directory changes, also if the agent is root.

mod copy;
mod directory;
mod dummy;
mod jobs_folders;
mod linux;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_contract::Network;
use windlass_contract::settings::AgentSettings;

use crate::disks::DiskSettings;
use crate::layout::Base;

use copy::CopyError;
use linux::{CertificatesError, DeviceError, DiskSetupError, HostsError, SetupError, UserError};

pub(crate) use linux::LinuxOptions;

/// What the agent can do to its machine.
pub(crate) trait Platform: Send + Sync + std::fmt::Debug {
    /// Makes the machine what the settings say, at a boot: networks, disks that live as long as the VM, folders.
    fn set_up(&self, _: &AgentSettings) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Makes a folder for root alone whose files are in memory and end with the boot. False where the machine belongs to somebody
    /// else, and nothing was made.
    fn make_memory_folder(&self, _: &Path) -> Result<bool, PlatformError> {
        Ok(false)
    }

    /// Whether that was done since the boot.
    fn is_memory_folder(&self, _: &Path) -> bool {
        false
    }

    /// Mounts a disk on the store, or, if another one is mounted there, where data migrates to. Mounting twice changes nothing.
    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError>;

    /// Unmounts a disk; says whether it was mounted.
    fn unmount_persistent_disk(&self, disk: &DiskSettings) -> Result<bool, PlatformError>;

    /// Whether a disk is mounted.
    fn is_persistent_disk_mounted(&self, disk: &DiskSettings) -> Result<bool, PlatformError>;

    /// Gives a disk the name by which jobs find it.
    fn associate_disk(&self, name: &str, disk: &DiskSettings) -> Result<(), PlatformError>;

    /// Moves the data of the disk on the store to the one beside it, which takes its place. The old disk keeps its data. Doing it
    /// again after a kill completes it; doing it again after its end changes nothing.
    fn migrate_persistent_disk(&self) -> Result<(), PlatformError>;

    /// Lets jobs find a disk by its cid.
    fn add_dynamic_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError>;

    /// Ends that; a disk that was never added is a success.
    fn remove_dynamic_disk(&self, cid: &str) -> Result<(), PlatformError>;

    /// Where a path that a caller wants removed really is; none if there is nothing. Fails if it is not the agent's to remove.
    fn removable(&self, path: &Path) -> Result<Option<PathBuf>, PlatformError>;

    /// Makes a user who may come over ssh with this key.
    fn create_user(&self, name: &str, public_key: &str) -> Result<(), PlatformError>;

    /// Removes such users.
    fn delete_users(&self, chosen: &dyn Fn(&str) -> bool) -> Result<(), PlatformError>;

    /// Sets the password of one of the VM's own users.
    fn set_password(&self, user: &str, hash: &str) -> Result<(), PlatformError>;

    /// Lets those in as one of the VM's own users who have one of these keys, and nobody else.
    fn authorize_keys(&self, user: &str, public_keys: &[String]) -> Result<(), PlatformError>;

    /// Gives the machine its name.
    fn set_hostname(&self, hostname: &str) -> Result<(), PlatformError>;

    /// The key by which people know this machine over ssh; empty if it has none.
    fn host_public_key(&self) -> String;

    /// Whether jobs find what is theirs, whose paths are all below `/var/vcap`.
    fn runs_jobs(&self) -> bool;

    /// Gives a path to root and to the group of jobs, where those are the VM's own.
    fn give_to_jobs(&self, _: &Path) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Lets a user read a file.
    fn give_to_user(&self, path: &Path, user: &str) -> Result<(), PlatformError>;

    /// Whether ports and name servers of the machine are the VM's own, so that the agent can answer questions for names.
    fn can_answer_names(&self) -> bool {
        false
    }

    /// Whether the hosts file has to answer queries as well, because nothing else here can.
    fn hosts_have_queries(&self) -> bool {
        false
    }

    /// Writes addresses and names to the hosts file.
    fn write_hosts(&self, hostname: &str, records: &[(String, String)]) -> Result<(), PlatformError>;

    /// Has logs of jobs rotated when they are as large as `size` says.
    fn rotate_logs(&self, size: &str) -> Result<(), PlatformError>;

    /// Makes the VM trust exactly these certificates on top of its own, PEM one after the other.
    fn trust_certificates(&self, pem: &str) -> Result<(), PlatformError>;

    /// Forgets which machines had these addresses, where the tables are the VM's own.
    fn forget_neighbours(&self, _: &[String]) {}

    /// Powers the machine off, where it is the VM's own.
    fn power_off(&self) {}

    /// The network through which the machine reaches others, if it finds that out itself.
    fn default_network(&self) -> Option<Network>;

    /// The machine's own logs, if they are the VM's.
    fn system_logs(&self) -> Option<PathBuf>;

    /// The file systems whose use is told, by the names they have in vitals.
    fn file_systems(&self) -> Vec<(&'static str, PathBuf)>;

    /// Whether those are the VM's own, so that their sizes mean something.
    fn has_own_file_systems(&self) -> bool {
        false
    }
}

/// why the machine did not do it
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlatformError {
    /// the hint has no path
    #[error("the hint of disk '{cid}' has no path; on this platform a disk is a directory, and its hint says which")]
    NoPath { cid: String },
    /// the hint's path does not lead to a directory
    #[error("the directory {path} of disk '{cid}' is not there; check that the disk is attached to this VM")]
    NoDirectory { cid: String, path: PathBuf },
    /// both places for disks are taken
    #[error("disk '{cid}' cannot be mounted: {store} and {target} both hold other disks; unmount one of them first")]
    Occupied { cid: String, store: PathBuf, target: PathBuf },
    /// there is no disk whose data could be migrated
    #[error("no disk is mounted on {store}, so there is nothing to migrate; mount the old disk, then the new one")]
    NothingToMigrate { store: PathBuf },
    /// the data was not migrated
    #[error("the data was not migrated from {from} to {to}")]
    Copy {
        from: PathBuf,
        to: PathBuf,
        #[source]
        source: CopyError,
    },
    /// a disk is not as it should be
    #[error(transparent)]
    Disk(#[from] DiskSetupError),
    /// the machine is not as it should be
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// a user is not as wanted
    #[error(transparent)]
    User(#[from] UserError),
    /// names are not known
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// certificates are not trusted
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    /// a path that is not the agent's
    #[error("{path} is not inside of {base}, and nothing else is the agent's to remove")]
    NotOurs { path: PathBuf, base: PathBuf },
    /// a name that cannot be a file's
    #[error("'{0}' cannot name a disk, because it cannot name a file")]
    Name(String),
    /// a file operation failed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// why there is no platform
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// there is no such platform
    #[error("Platform {0} could not be found; this agent knows 'ubuntu', 'directory' and 'dummy'")]
    Unknown(String),
    /// agent.json describes it wrongly
    #[error(transparent)]
    Options(#[from] DeviceError),
}

/// The platform with this name.
pub(crate) fn find(name: &str, base: &Base, options: &LinuxOptions) -> Result<Arc<dyn Platform>, FindError> {
    match name {
        "directory" => Ok(Arc::new(directory::Directory::new(base.clone()))),
        "dummy" => Ok(Arc::new(dummy::Dummy::new(base.clone()))),
        // The others are of older stemcells, whose agents knew more than one kind of Linux.
        "ubuntu" | "centos" | "opensuse" => Ok(Arc::new(linux::Linux::new(base.clone(), options)?)),
        other => Err(FindError::Unknown(other.to_owned())),
    }
}

/// What `logrotate` is told about the logs of jobs, in the original's words.
fn logrotate(base: &Base, size: &str) -> String {
    let logs = base.data().join("sys/log");
    let below = ["", "*/", "*/*/"].map(|folder| format!("{0}/{folder}*.log {0}/{folder}.*.log", logs.display()));
    let all = below.join(" ");
    format!(
        "# Generated by bosh-agent\n\n{all} {{\n  missingok\n  rotate 7\n  compress\n  copytruncate\n  size={size}\n}}\n"
    )
}

/// Whether a base directory is where jobs look.
fn is_usual(base: &Base) -> bool {
    base.path() == Path::new("/var/vcap")
}

/// [`Platform::removable`] where the machine belongs to somebody else: only what is inside of the base directory, whatever
/// links lead there.
fn inside(base: &Base, path: &Path) -> Result<Option<PathBuf>, PlatformError> {
    let not_ours = || PlatformError::NotOurs { path: path.to_owned(), base: base.path().to_owned() };
    let (Some(folder), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
        return Err(not_ours());
    };
    let real_base = base.path().canonicalize().map_err(io_error(base.path()))?;
    match folder.canonicalize() {
        Ok(folder) if folder.starts_with(&real_base) => {
            let found = folder.join(name);
            Ok(found.symlink_metadata().is_ok().then_some(found))
        }
        Ok(_) => Err(not_ours()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PlatformError::Io { path: folder.to_owned(), source }),
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> PlatformError {
    let path = path.to_owned();
    move |source| PlatformError::Io { path, source }
}
