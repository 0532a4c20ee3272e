//! Where things are under the base directory.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_durable::file;

const SETTINGS: &str = "settings.json";
const UPDATE: &str = "update_settings.json";
const DISK_HINTS: &str = "persistent_disk_hints.json";

/// The base directory, `/var/vcap` in a VM of its own.
#[derive(Debug, Clone)]
pub(crate) struct Base(PathBuf, SettingsInMemory);

/// Whether files with settings are in a folder that a reboot empties; the same for all copies of a [`Base`].
type SettingsInMemory = Arc<AtomicBool>;

impl Base {
    /// The base directory, made absolute because links point into it, with the folders that the agent needs.
    pub(crate) fn prepare(path: &Path) -> io::Result<Self> {
        let base = Self::at(&std::path::absolute(path)?);
        let folders = [
            base.bosh(),
            base.blobs(),
            base.sensitive_blobs(),
            base.tmp(),
            base.data().join("sys/log"),
            base.0.join("monit"),
            base.instance().join("disks"),
            base.instance().join("dns"),
        ];
        for folder in folders {
            file::create_private_dir(&folder)?;
        }
        if std::fs::symlink_metadata(base.sys()).is_err() {
            // Nothing to flush: a link that a power cut takes is made again by the next start.
            #[expect(clippy::disallowed_methods, reason = "every start makes it if it is not there")]
            std::os::unix::fs::symlink(base.data().join("sys"), base.sys())?;
        }
        Ok(base)
    }

    /// A base directory that is there already.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned(), SettingsInMemory::default())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn bosh(&self) -> PathBuf {
        self.0.join("bosh")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.bosh().join("agent.lock")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.of_settings(SETTINGS)
    }

    pub(crate) fn update_settings(&self) -> PathBuf {
        self.of_settings(UPDATE)
    }

    fn of_settings(&self, name: &str) -> PathBuf {
        match self.1.load(Ordering::SeqCst) {
            true => self.settings_in_memory().join(name),
            false => self.bosh().join(name),
        }
    }

    /// Where settings are that nobody wants on a disk.
    pub(crate) fn settings_in_memory(&self) -> PathBuf {
        self.bosh().join("settings")
    }

    /// From now on settings are there; those that are on the disk move.
    pub(crate) fn keep_settings_in_memory(&self) -> io::Result<()> {
        for name in [SETTINGS, UPDATE, DISK_HINTS] {
            let (disk, memory) = (self.bosh().join(name), self.settings_in_memory().join(name));
            if disk.exists() {
                if !memory.exists() {
                    file::write(&memory, &std::fs::read(&disk)?, file::PRIVATE)?;
                }
                file::remove_file(&disk)?;
            }
        }
        self.1.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Emptied by a reboot, unlike [`Self::has_started`].
    pub(crate) fn until_reboot(&self) -> PathBuf {
        self.bosh().join("canrestart")
    }

    /// Exists once an agent has started that keeps things in memory.
    pub(crate) fn has_started(&self) -> PathBuf {
        self.bosh().join("bootonce")
    }

    /// The certificate that the agent made for itself.
    pub(crate) fn own_certificate(&self) -> PathBuf {
        self.bosh().join("own_certificate.json")
    }

    pub(crate) fn disk_hints(&self) -> PathBuf {
        self.of_settings(DISK_HINTS)
    }

    /// Despite the name that the original gave it, the bare cid of the disk mounted last.
    pub(crate) fn mounted_disk(&self) -> PathBuf {
        self.bosh().join("managed_disk_settings.json")
    }

    /// The bare cid of the disk unmounted last: its hint is gone, and a caller that asks for the unmount again does not know that it
    /// was done.
    pub(crate) fn unmounted_disk(&self) -> PathBuf {
        self.bosh().join("unmounted_disk")
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.bosh().join("spec.json")
    }

    pub(crate) fn tasks(&self) -> PathBuf {
        self.bosh().join("tasks.json")
    }

    /// Notes about scripts that run.
    pub(crate) fn scripts(&self) -> PathBuf {
        self.bosh().join("scripts")
    }

    /// Exists while the jobs are stopped.
    pub(crate) fn stopped(&self) -> PathBuf {
        self.0.join("monit/stopped")
    }

    /// The monit files of the jobs that were started.
    pub(crate) fn monit_files(&self) -> PathBuf {
        self.0.join("monit/job")
    }

    /// The state of the jobs, for scripts of jobs.
    pub(crate) fn health(&self) -> PathBuf {
        self.instance().join("health.json")
    }

    pub(crate) fn instance(&self) -> PathBuf {
        self.0.join("instance")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.0.join("data/blobs")
    }

    /// Blobs that came inside of messages, because they hold secrets.
    pub(crate) fn sensitive_blobs(&self) -> PathBuf {
        self.0.join("data/sensitive_blobs")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.0.join("data/tmp")
    }

    /// Links to the disks that come and go while jobs run.
    pub(crate) fn dynamic_disks(&self) -> PathBuf {
        self.0.join("data/dynamic_disks")
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.0.join("jobs")
    }

    fn sys(&self) -> PathBuf {
        self.0.join("sys")
    }

    /// What jobs log, a folder for each.
    pub(crate) fn job_logs(&self) -> PathBuf {
        self.sys().join("log")
    }

    /// What jobs keep while they run, pid files above all, a folder for each.
    pub(crate) fn job_runs(&self) -> PathBuf {
        self.sys().join("run")
    }

    pub(crate) fn agent_logs(&self) -> PathBuf {
        self.bosh().join("log")
    }

    /// The names of other instances, as the director sent them.
    pub(crate) fn dns_records(&self) -> PathBuf {
        self.instance().join("dns/records.json")
    }

    /// Those names as a hosts file, on machines whose own hosts file belongs to somebody else.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.bosh().join("etc_hosts")
    }

    /// How logs are rotated, on machines whose own rotation belongs to somebody else.
    pub(crate) fn logrotate(&self) -> PathBuf {
        self.bosh().join("etc_logrotate")
    }

    /// The machine's name, on machines whose own name belongs to somebody else.
    pub(crate) fn hostname(&self) -> PathBuf {
        self.bosh().join("etc_hostname")
    }

    /// The certificates that a director wants trusted, on machines whose own list belongs to somebody else.
    pub(crate) fn trusted_certs(&self) -> PathBuf {
        self.bosh().join("trusted_certs")
    }

    /// The homes of users who come over ssh.
    pub(crate) fn ssh_homes(&self) -> PathBuf {
        self.0.join("bosh_ssh")
    }

    /// Where the persistent disk is mounted.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Where the next persistent disk is mounted until the data has moved to it.
    pub(crate) fn migration_target(&self) -> PathBuf {
        self.0.join("store_migration_target")
    }
}

/// Whether `name` can name a file in a folder and nothing else.
pub(crate) fn is_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(one)), None) if one == name)
        && !name.contains('\0')
        && !file::is_leftover(name.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_its_folder() {
        assert!(is_name("disk-1") && is_name("a b") && is_name("..."));
        for name in ["", ".", "..", "../x", "/etc", "a/b", "a/", "a\0", ".new-x-1-1"] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
