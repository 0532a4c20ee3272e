//! The original's platform for tests of directors: everything succeeds, nothing of the machine changes, and what was asked for
//! can be read in files under `bosh`. Every disk that the agent knows counts as mounted.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use windlass_contract::Network;
use windlass_durable::file;

use super::{Platform, PlatformError, inside, io_error};
use crate::disks::DiskSettings;
use crate::layout::{Base, is_name};

/// Others read these files to see what happened.
const READABLE: u32 = 0o644;

#[derive(Debug)]
pub(super) struct Dummy {
    base: Base,
}

/// An entry of `mounts.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DummyMount {
    mount_dir: PathBuf,
    mount_options: Option<Vec<String>>,
    disk_cid: String,
}

/// An entry of `formatted_disks.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Formatted {
    disk_cid: String,
}

/// An entry of `disk_migrations.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Migration {
    from_disk_cid: String,
    to_disk_cid: String,
}

impl Dummy {
    pub(super) fn new(base: Base) -> Self {
        Self { base }
    }

    /// The list in a file; one that is not there yet, or nobody can read, is empty.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let bytes = std::fs::read(self.base.bosh().join(name)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    fn write<T: Serialize>(&self, name: &str, list: &[T]) -> Result<(), PlatformError> {
        let path = self.base.bosh().join(name);
        let bytes = serde_json::to_vec(list).map_err(|error| io_error(&path)(error.into()))?;
        file::write(&path, &bytes, READABLE).map_err(io_error(&path))
    }
}

impl Platform for Dummy {
    fn runs_jobs(&self) -> bool {
        super::is_usual(&self.base)
    }

    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        let mut mounts: Vec<DummyMount> = self.read("mounts.json");
        if mounts.iter().any(|mount| mount.disk_cid == disk.id) {
            return Ok(());
        }
        if !self.read::<Formatted>("formatted_disks.json").iter().any(|formatted| formatted.disk_cid == disk.id) {
            self.write("formatted_disks.json", &[Formatted { disk_cid: disk.id.clone() }])?;
        }
        let store = self.base.store();
        let is_taken = mounts.iter().any(|mount| mount.mount_dir == store);
        mounts.push(DummyMount {
            mount_dir: if is_taken { self.base.migration_target() } else { store },
            mount_options: disk.mount_options.clone(),
            disk_cid: disk.id.clone(),
        });
        self.write("mounts.json", &mounts)
    }

    fn unmount_persistent_disk(&self, disk: &DiskSettings) -> Result<bool, PlatformError> {
        let mut mounts: Vec<DummyMount> = self.read("mounts.json");
        mounts.retain(|mount| mount.disk_cid != disk.id);
        self.write("mounts.json", &mounts)?;
        Ok(true)
    }

    fn is_persistent_disk_mounted(&self, _: &DiskSettings) -> Result<bool, PlatformError> {
        Ok(true)
    }

    fn associate_disk(&self, name: &str, _: &DiskSettings) -> Result<(), PlatformError> {
        let mut names: Vec<String> = self.read("disk_associations.json");
        names.push(name.to_owned());
        self.write("disk_associations.json", &names)
    }

    /// The disks stay where they are; only that it was asked for is kept.
    fn migrate_persistent_disk(&self) -> Result<(), PlatformError> {
        let mounts: Vec<DummyMount> = self.read("mounts.json");
        let on = |folder: PathBuf| {
            let found = mounts.iter().find(|mount| mount.mount_dir == folder);
            found.map(|mount| mount.disk_cid.clone()).unwrap_or_default()
        };
        let migration =
            Migration { from_disk_cid: on(self.base.store()), to_disk_cid: on(self.base.migration_target()) };
        let mut migrations: Vec<Migration> = self.read("disk_migrations.json");
        migrations.push(migration);
        self.write("disk_migrations.json", &migrations)
    }

    fn add_dynamic_disk(&self, _: &DiskSettings) -> Result<(), PlatformError> {
        Ok(())
    }

    fn remove_dynamic_disk(&self, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn removable(&self, path: &Path) -> Result<Option<PathBuf>, PlatformError> {
        inside(&self.base, path)
    }

    fn create_user(&self, _: &str, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn delete_users(&self, _: &dyn Fn(&str) -> bool) -> Result<(), PlatformError> {
        Ok(())
    }

    fn set_password(&self, user: &str, hash: &str) -> Result<(), PlatformError> {
        if !is_name(user) {
            return Err(PlatformError::Name(user.to_owned()));
        }
        let folder = self.base.bosh().join(user);
        file::create_private_dir(&folder).map_err(io_error(&folder))?;
        let path = folder.join("password");
        // Nothing to flush: every start writes it again.
        let mut options = std::fs::OpenOptions::new();
        #[expect(clippy::disallowed_methods, reason = "every start writes it again")]
        let opened = options.write(true).create(true).truncate(true).mode(file::PRIVATE).open(&path);
        opened.and_then(|mut file| file.write_all(hash.as_bytes())).map_err(io_error(&path))
    }

    fn authorize_keys(&self, _: &str, _: &[String]) -> Result<(), PlatformError> {
        Ok(())
    }

    fn set_hostname(&self, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn host_public_key(&self) -> String {
        "dummy-public-key".to_owned()
    }

    fn give_to_user(&self, _: &Path, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    fn write_hosts(&self, _: &str, records: &[(String, String)]) -> Result<(), PlatformError> {
        let hosts: String = records.iter().map(|(address, name)| format!("{address} {name}\n")).collect();
        let path = self.base.hosts();
        file::write(&path, hosts.as_bytes(), READABLE).map_err(io_error(&path))
    }

    fn rotate_logs(&self, size: &str) -> Result<(), PlatformError> {
        let path = self.base.logrotate();
        file::write(&path, super::logrotate(&self.base, size).as_bytes(), READABLE).map_err(io_error(&path))
    }

    fn trust_certificates(&self, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    /// A test may say in a file what the machine's default network is.
    fn default_network(&self) -> Option<Network> {
        let path = self.base.bosh().join("dummy-default-network-settings.json");
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    fn system_logs(&self) -> Option<PathBuf> {
        None
    }

    fn file_systems(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("system", PathBuf::from("/")), ("ephemeral", self.base.data())]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_was_asked_for_can_be_read_in_the_originals_files() {
        let folder = tempfile::tempdir().unwrap();
        let dummy = Dummy::new(Base::prepare(folder.path()).unwrap());
        let read = |name: &str| -> Value {
            serde_json::from_slice(&std::fs::read(folder.path().join("bosh").join(name)).unwrap()).unwrap()
        };
        let disk = |cid: &str| DiskSettings { id: cid.into(), ..Default::default() };
        let with_options = DiskSettings { mount_options: Some(vec!["noatime".into()]), ..disk("one") };
        for _ in 0..2 {
            dummy.mount_persistent_disk(&with_options).unwrap();
            dummy.mount_persistent_disk(&disk("two")).unwrap();
        }
        let store = json!({"MountDir": folder.path().join("store"), "MountOptions": ["noatime"], "DiskCid": "one"});
        let target =
            json!({"MountDir": folder.path().join("store_migration_target"), "MountOptions": null, "DiskCid": "two"});
        assert_eq!(read("mounts.json"), json!([store, target]));
        assert_eq!(read("formatted_disks.json"), json!([{"DiskCid": "two"}]));
        dummy.migrate_persistent_disk().unwrap();
        assert_eq!(read("disk_migrations.json"), json!([{"FromDiskCid": "one", "ToDiskCid": "two"}]));
        assert_eq!(read("mounts.json"), json!([store, target]));
        for _ in 0..2 {
            assert!(dummy.unmount_persistent_disk(&with_options).unwrap());
        }
        assert_eq!(read("mounts.json"), json!([target]));
        for name in ["a", "a", "b"] {
            dummy.associate_disk(name, &with_options).unwrap();
        }
        assert_eq!(read("disk_associations.json"), json!(["a", "a", "b"]));
        dummy.set_password("vcap", "$6$x").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("bosh/vcap/password")).unwrap(), "$6$x");
        dummy.write_hosts("agent", &[("10.0.0.1".into(), "a.b".into())]).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("bosh/etc_hosts")).unwrap(), "10.0.0.1 a.b\n");
    }
}
