//! A Linux machine that is the VM's own: `ubuntu`, as stemcells name it.
//!
//! - [`setup`]: what happens at a boot, in order.
//! - [`devices`] finds the device of a hint; [`content`] says what is on it; [`partitions`] and [`persistent`] make it a disk with
//!   one partition and a file system, if it was blank; [`mounts`] mounts it; [`places`] remembers where it belongs;
//!   [`migration`] moves its data to the next one.
//! - [`ephemeral`]: disks that live as long as the VM. [`directories`]: folders on them.
//! - [`users`], [`hosts`], [`network`], [`ipv6`], [`certificates`]: the rest of the machine.
//! - [`command`] is the only place where a program is started, [`root`] is where the machine's files begin.

mod certificates;
mod command;
mod content;
mod devices;
mod directories;
mod disk_lock;
mod ephemeral;
mod hosts;
mod ipv6;
mod migration;
mod mounts;
mod network;
mod options;
mod partitions;
mod persistent;
mod places;
mod root;
mod setup;
mod users;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_contract::Network;
use windlass_contract::settings::AgentSettings;
use windlass_durable::file;

use super::{Platform, PlatformError, inside, io_error};
use crate::disks::DiskSettings;
use crate::layout::{Base, is_name};

use command::{exists, tool};
use devices::Devices;
use directories::DirectoryError;
use root::Root;

pub(crate) use certificates::CertificatesError;
pub(crate) use devices::DeviceError;
pub(crate) use hosts::HostsError;
pub(crate) use options::LinuxOptions;
pub(crate) use persistent::DiskSetupError;
pub(crate) use setup::SetupError;
pub(crate) use users::UserError;

#[derive(Debug)]
pub(super) struct Linux {
    base: Base,
    root: Root,
    options: LinuxOptions,
    devices: Devices,
}

impl Linux {
    pub(super) fn new(base: Base, options: &LinuxOptions) -> Result<Self, DeviceError> {
        let root = Root::new("/");
        Ok(Self { base, devices: Devices::new(root.clone(), options)?, root, options: options.clone() })
    }

    /// A link by which jobs find a disk's device.
    fn link_device(&self, disk: &DiskSettings, folder: &Path, name: &str) -> Result<(), PlatformError> {
        if !is_name(name) {
            return Err(PlatformError::Name(name.to_owned()));
        }
        let device = self.devices.wait_for(disk).map_err(DiskSetupError::from)?;
        std::fs::create_dir_all(folder).map_err(io_error(folder))?;
        let path = folder.join(name);
        file::symlink(&device, &path).map_err(io_error(&path))
    }
}

impl Platform for Linux {
    fn set_up(&self, settings: &AgentSettings) -> Result<(), PlatformError> {
        self.set_up_machine(settings)?;
        // A disk may have been mounted over the folders that were there.
        Base::prepare(self.base.path()).map(drop).map_err(io_error(self.base.path()))
    }

    fn make_memory_folder(&self, folder: &Path) -> Result<bool, PlatformError> {
        file::create_private_dir(folder).map_err(io_error(folder))?;
        mounts::tmpfs(folder, "16m").map_err(DirectoryError::from).map_err(SetupError::Folders)?;
        // A file system of its own has a mode of its own.
        set_mode(folder, 0o700).map_err(io_error(folder))?;
        Ok(true)
    }

    fn is_memory_folder(&self, folder: &Path) -> bool {
        matches!(mounts::on(folder), Ok(Some(_)))
    }

    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        Ok(self.mount_disk(disk)?)
    }

    fn unmount_persistent_disk(&self, disk: &DiskSettings) -> Result<bool, PlatformError> {
        Ok(self.unmount_disk(disk)?)
    }

    fn is_persistent_disk_mounted(&self, disk: &DiskSettings) -> Result<bool, PlatformError> {
        Ok(self.is_disk_mounted(disk)?)
    }

    fn associate_disk(&self, name: &str, disk: &DiskSettings) -> Result<(), PlatformError> {
        self.link_device(disk, &self.base.instance().join("disks"), name)
    }

    fn migrate_persistent_disk(&self) -> Result<(), PlatformError> {
        self.migrate()
    }

    fn add_dynamic_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        self.link_device(disk, &self.base.dynamic_disks(), &disk.id)
    }

    fn remove_dynamic_disk(&self, cid: &str) -> Result<(), PlatformError> {
        if !is_name(cid) {
            return Err(PlatformError::Name(cid.to_owned()));
        }
        let path = self.base.dynamic_disks().join(cid);
        match path.symlink_metadata() {
            Ok(_) => file::remove_file(&path).map_err(io_error(&path)),
            Err(_) => Ok(()),
        }
    }

    fn removable(&self, path: &Path) -> Result<Option<PathBuf>, PlatformError> {
        inside(&self.base, path)
    }

    fn create_user(&self, name: &str, public_key: &str) -> Result<(), PlatformError> {
        Ok(self.add_user(name, public_key)?)
    }

    fn delete_users(&self, chosen: &dyn Fn(&str) -> bool) -> Result<(), PlatformError> {
        Ok(self.remove_users(chosen)?)
    }

    fn set_password(&self, user: &str, hash: &str) -> Result<(), PlatformError> {
        Ok(self.change_password(user, hash)?)
    }

    /// A stemcell without the user, as containers may be, has nobody to let in.
    fn authorize_keys(&self, user: &str, public_keys: &[String]) -> Result<(), PlatformError> {
        match self.user(user) {
            Some(_) => Ok(self.authorize(user, &public_keys.join("\n"))?),
            None => Ok(()),
        }
    }

    fn set_hostname(&self, hostname: &str) -> Result<(), PlatformError> {
        Ok(self.call_machine(hostname)?)
    }

    fn host_public_key(&self) -> String {
        std::fs::read_to_string(self.root.at("/etc/ssh/ssh_host_rsa_key.pub")).unwrap_or_default()
    }

    fn runs_jobs(&self) -> bool {
        true
    }

    fn give_to_jobs(&self, path: &Path) -> Result<(), PlatformError> {
        self.give_to_group(path, "vcap").map_err(io_error(path))
    }

    fn give_to_user(&self, path: &Path, user: &str) -> Result<(), PlatformError> {
        Ok(self.give(path, user)?)
    }

    fn can_answer_names(&self) -> bool {
        true
    }

    fn write_hosts(&self, hostname: &str, records: &[(String, String)]) -> Result<(), PlatformError> {
        Ok(self.write_hosts_file(hostname, records)?)
    }

    fn rotate_logs(&self, size: &str) -> Result<(), PlatformError> {
        let path = self.root.at("/etc/logrotate.d/vcap");
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let text = super::logrotate(&self.base, size);
        folder.and_then(|()| file::write(&path, text.as_bytes(), 0o644)).map_err(io_error(&path))?;
        // Stemcells that have it decide there how often logs are looked at.
        let script = self.base.bosh().join("bin/setup-logrotate.sh");
        if script.exists()
            && let Err(error) = tool(&script.to_string_lossy(), [""; 0]).run()
        {
            tracing::warn!("{error}");
        }
        Ok(())
    }

    fn trust_certificates(&self, pem: &str) -> Result<(), PlatformError> {
        Ok(self.trust(pem)?)
    }

    fn forget_neighbours(&self, addresses: &[String]) {
        for address in addresses {
            if let Err(error) = tool("ip", ["neigh", "flush", "to", address]).run() {
                tracing::debug!("{error}");
            }
        }
    }

    fn power_off(&self) {
        // In a container, its runtime sees the agent's exit status.
        if exists("shutdown")
            && let Err(error) = tool("shutdown", ["-P", "0"]).run()
        {
            tracing::warn!("{error}");
        }
    }

    fn default_network(&self) -> Option<Network> {
        self.found_network()
    }

    fn system_logs(&self) -> Option<PathBuf> {
        Some(self.root.at("/var/log"))
    }

    fn has_own_file_systems(&self) -> bool {
        true
    }

    fn file_systems(&self) -> Vec<(&'static str, PathBuf)> {
        let mut found = vec![("system", self.root.at("/")), ("ephemeral", self.base.data())];
        if matches!(mounts::on(&self.base.store()), Ok(Some(_))) {
            found.push(("persistent", self.base.store()));
        }
        found
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
