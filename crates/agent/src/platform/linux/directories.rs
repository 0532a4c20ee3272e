//! Folders of the machine that live on the ephemeral disk, and what may be done in them.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use serde_json::Value;
use windlass_contract::settings::AgentSettings;
use windlass_durable::file;

use super::mounts::{self, MountError};
use super::{Linux, set_mode};
use crate::settings::has_jobs_in_memory;

/// why a folder is not as it should be
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// it cannot be mounted
    #[error(transparent)]
    Mount(#[from] MountError),
    /// it cannot be made or changed
    #[error("cannot set up {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { path, source }
}

/// Nothing there is a device, a program, or runs as somebody else.
const DATA_ONLY: MountFlags = MountFlags::NODEV.union(MountFlags::NOSUID).union(MountFlags::NOEXEC);

impl Linux {
    /// Shared memory, logs and optional software.
    pub(super) fn set_up_system_folders(&self) -> Result<(), DirectoryError> {
        for place in ["/dev/shm", "/run/shm"] {
            let place = self.root.at(place);
            // A link to the other one is that one.
            if !place.is_symlink() {
                restrict(&place, DATA_ONLY)?;
            }
        }
        self.set_up_logs()?;
        for (name, place) in [("root_var_opt", "/var/opt"), ("root_opt", "/opt")] {
            let folder = self.base.data().join(name);
            self.folder(&folder, 0o755, "root")?;
            // Programs are there.
            self.show_over(&folder, place, MountFlags::NODEV)?;
        }
        Ok(())
    }

    fn set_up_logs(&self) -> Result<(), DirectoryError> {
        let logs = self.base.data().join("root_log");
        self.folder(&logs, 0o771, "syslog")?;
        self.folder(&logs.join("audit"), 0o750, "root")?;
        self.folder(&logs.join("sysstat"), 0o755, "root")?;
        for (name, mode) in [("btmp", 0o600), ("wtmp", 0o664), ("lastlog", 0o664)] {
            let path = logs.join(name);
            let open = std::fs::OpenOptions::new().create(true).append(true).mode(mode).open(&path);
            open.and_then(|_| self.give_to_group(&path, "utmp")).map_err(io_failed(&path))?;
            set_mode(&path, mode).map_err(io_failed(&path))?;
        }
        if self.user("_chrony").is_some() {
            let path = logs.join("chrony");
            self.folder(&path, 0o700, "root")?;
            self.give(&path, "_chrony").map_err(|error| io_failed(&path)(io::Error::other(error)))?;
        }
        self.show_over(&logs, "/var/log", DATA_ONLY)
    }

    /// What the agent and jobs keep on the ephemeral disk.
    pub(super) fn set_up_data(&self, settings: &AgentSettings) -> Result<(), DirectoryError> {
        let data = self.base.data();
        let bosh = &settings.env.bosh.other;
        let size = |folder: &str, usual: &str| -> String {
            let size = bosh.get(folder).and_then(|options| options["tmpfs_size"].as_str()).unwrap_or_default();
            if size.is_empty() { usual.to_owned() } else { size.to_owned() }
        };
        self.folder(&data.join("sys"), 0o750, "vcap")?;
        self.folder(&data.join("sys/log"), 0o750, "vcap")?;
        let (jobs, secrets) = (data.join("jobs"), self.base.sensitive_blobs());
        self.folder(&jobs, 0o750, "vcap")?;
        self.folder(&secrets, 0o700, "vcap")?;
        if has_jobs_in_memory(settings) {
            for (folder, mode) in [(&jobs, 0o750), (&secrets, 0o700)] {
                mounts::tmpfs(folder, &size("job_dir", "100m"))?;
                self.folder(folder, mode, "vcap")?;
            }
        }
        self.folder(&self.base.dynamic_disks(), 0o700, "vcap")?;
        self.folder(&data.join("packages"), 0o755, "vcap")?;
        self.folder(&self.base.blobs(), 0o700, "vcap")?;
        let run = data.join("sys/run");
        self.folder(&run, 0o750, "vcap")?;
        mounts::tmpfs(&run, &size("run_dir", "16m"))?;
        // As the original has it: jobs of any user put things there.
        self.folder(&run, 0o1777, "vcap")?;
        // Jobs that run as vcap reach what is theirs through these.
        let instance = self.base.instance();
        for folder in [self.base.path().to_owned(), data.clone(), instance.clone(), instance.join("disks")] {
            set_mode(&folder, 0o755).map_err(io_failed(&folder))?;
        }
        // What is written there belongs to the group of the folder.
        self.folder(&instance.join("dns"), 0o2755, "vcap")
    }

    /// Folders for what nobody needs tomorrow.
    pub(super) fn set_up_temporary(&self) -> Result<(), DirectoryError> {
        self.folder(&self.base.tmp(), 0o755, "root")?;
        let system = ["/tmp", "/var/tmp"];
        for place in system {
            self.folder(&self.root.at(place), 0o1777, "vcap")?;
        }
        if self.options.use_default_tmp_dir {
            return Ok(());
        }
        let folder = self.base.data().join("root_tmp");
        self.folder(&folder, 0o1777, "vcap")?;
        system.iter().try_for_each(|place| self.show_over(&folder, place, DATA_ONLY))
    }

    pub(super) fn set_up_home(&self) -> Result<(), DirectoryError> {
        let home = self.root.at("/home");
        match home.is_dir() {
            true => self.show_over(&home, "/home", MountFlags::NODEV | MountFlags::NOSUID),
            false => Ok(()),
        }
    }

    /// A folder with this mode, for a group where the machine has it.
    fn folder(&self, path: &Path, mode: u32, group: &str) -> Result<(), DirectoryError> {
        std::fs::create_dir_all(path)
            .and_then(|()| self.give_to_group(path, group))
            .and_then(|()| set_mode(path, mode))
            .map_err(io_failed(path))
    }

    /// Shows a folder in the place of one of the machine's, unless something is mounted there.
    fn show_over(&self, folder: &Path, place: &str, flags: MountFlags) -> Result<(), DirectoryError> {
        let place = self.root.at(place);
        std::fs::create_dir_all(&place).map_err(io_failed(&place))?;
        if mounts::on(&place)?.is_none() {
            mounts::bind(folder, &place)?;
        }
        restrict(&place, flags)
    }

    /// Removes the files that a list names, one in each line.
    pub(super) fn remove_listed(&self, list: &str) -> Result<(), DirectoryError> {
        let path = self.base.bosh().join("etc").join(list);
        let Ok(listed) = std::fs::read_to_string(&path) else { return Ok(()) };
        for line in listed.lines().map(str::trim).filter(|line| line.starts_with('/') && line.len() > 1) {
            let path = self.root.at(line);
            file::remove(&path).map_err(io_failed(&path))?;
        }
        Ok(())
    }
}

/// Takes rights from a mount. Where a container may not do that, its maker decided so.
fn restrict(place: &Path, flags: MountFlags) -> Result<(), DirectoryError> {
    match mounts::add_flags(place, flags, Duration::ZERO) {
        Err(MountError::Remount { source, .. }) if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            tracing::warn!("{} keeps its mount options: {source}", place.display());
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Whether `env.bosh` asks for something.
pub(super) fn is_wanted(settings: &AgentSettings, key: &str) -> bool {
    settings.env.bosh.other.get(key).and_then(Value::as_bool).unwrap_or_default()
}
