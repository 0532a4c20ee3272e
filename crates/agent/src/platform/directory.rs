//! A platform without privileges: a disk is a directory, mounting it is a symlink to it.

use std::io;
use std::path::{Path, PathBuf};

use windlass_contract::Network;
use windlass_contract::settings::AgentSettings;
use windlass_durable::file;

use super::{Platform, PlatformError, copy, inside, io_error, jobs_folders};
use crate::disks::DiskSettings;
use crate::layout::{Base, is_name};

#[derive(Debug)]
pub(super) struct Directory {
    base: Base,
}

impl Directory {
    pub(super) fn new(base: Base) -> Self {
        Self { base }
    }

    fn mount_points(&self) -> [PathBuf; 2] {
        [self.base.store(), self.base.migration_target()]
    }
}

impl Platform for Directory {
    fn set_up(&self, _: &AgentSettings) -> Result<(), PlatformError> {
        if self.runs_jobs() { jobs_folders::set_up(&self.base).map_err(io_error(self.base.path())) } else { Ok(()) }
    }

    fn runs_jobs(&self) -> bool {
        super::is_usual(&self.base)
    }

    fn give_to_jobs(&self, path: &Path) -> Result<(), PlatformError> {
        if self.runs_jobs() { jobs_folders::give(path).map_err(io_error(path)) } else { Ok(()) }
    }

    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        let path = path_of(disk)?;
        if !path.is_dir() {
            return Err(PlatformError::NoDirectory { cid: disk.id.clone(), path: path.to_owned() });
        }
        if self.runs_jobs() {
            jobs_folders::open(path).map_err(io_error(path))?;
        }
        for mount_point in self.mount_points() {
            match mounted_on(&mount_point)? {
                Some(mounted) if mounted == path => return Ok(()),
                Some(_) => {}
                None => return link(path, &mount_point),
            }
        }
        let [store, target] = self.mount_points();
        Err(PlatformError::Occupied { cid: disk.id.clone(), store, target })
    }

    fn unmount_persistent_disk(&self, disk: &DiskSettings) -> Result<bool, PlatformError> {
        let path = path_of(disk)?;
        let mut was_mounted = false;
        for mount_point in self.mount_points() {
            // A link whose directory is gone is removed too: nothing may be left of an unmounted disk.
            if link_target(&mount_point)?.as_deref() == Some(path) {
                file::remove_file(&mount_point).map_err(io_error(&mount_point))?;
                was_mounted = true;
            }
        }
        Ok(was_mounted)
    }

    fn is_persistent_disk_mounted(&self, disk: &DiskSettings) -> Result<bool, PlatformError> {
        for mount_point in self.mount_points() {
            if mounted_on(&mount_point)?.is_some_and(|mounted| mounted == Path::new(&disk.path)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn associate_disk(&self, name: &str, disk: &DiskSettings) -> Result<(), PlatformError> {
        link(path_of(disk)?, &named(&self.base.instance().join("disks"), name)?)
    }

    fn migrate_persistent_disk(&self) -> Result<(), PlatformError> {
        let [store, target] = self.mount_points();
        let from = mounted_on(&store)?.ok_or_else(|| PlatformError::NothingToMigrate { store: store.clone() })?;
        let Some(to) = mounted_on(&target)? else { return Ok(()) };
        if from != to {
            let copied = copy::copy(&from, &to);
            let copied = copied.map_err(|source| PlatformError::Copy { from: from.clone(), to: to.clone(), source })?;
            tracing::info!("{} files and folders, {} bytes migrated", copied.entries, copied.bytes);
            link(&to, &store)?;
        }
        file::remove_file(&target).map_err(io_error(&target))
    }

    fn add_dynamic_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        let folder = self.base.dynamic_disks();
        file::create_private_dir(&folder).map_err(io_error(&folder))?;
        link(path_of(disk)?, &named(&folder, &disk.id)?)
    }

    fn remove_dynamic_disk(&self, cid: &str) -> Result<(), PlatformError> {
        let folder = self.base.dynamic_disks();
        let path = named(&folder, cid)?;
        if !folder.is_dir() {
            return Ok(());
        }
        file::remove_file(&path).map_err(io_error(&path))
    }

    fn removable(&self, path: &Path) -> Result<Option<PathBuf>, PlatformError> {
        inside(&self.base, path)
    }

    /// A home with the key in it, and no entry in the machine's list of users.
    fn create_user(&self, name: &str, public_key: &str) -> Result<(), PlatformError> {
        let folder = named(&self.base.ssh_homes(), name)?.join(".ssh");
        file::create_private_dir(&folder).map_err(io_error(&folder))?;
        let keys = folder.join("authorized_keys");
        file::write(&keys, public_key.as_bytes(), file::PRIVATE).map_err(io_error(&keys))
    }

    fn delete_users(&self, chosen: &dyn Fn(&str) -> bool) -> Result<(), PlatformError> {
        let homes = self.base.ssh_homes();
        let entries = match std::fs::read_dir(&homes) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(PlatformError::Io { path: homes, source }),
        };
        for entry in entries {
            let path = entry.map_err(io_error(&homes))?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(chosen) {
                file::remove_tree(&path).map_err(io_error(&path))?;
            }
        }
        Ok(())
    }

    /// Nobody logs in here with a password.
    fn set_password(&self, _: &str, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    /// The keys are in a home under the base directory, as those of users who come over ssh.
    fn authorize_keys(&self, user: &str, public_keys: &[String]) -> Result<(), PlatformError> {
        self.create_user(user, &public_keys.join("\n"))
    }

    fn set_hostname(&self, hostname: &str) -> Result<(), PlatformError> {
        let path = self.base.hostname();
        if std::fs::read(&path).is_ok_and(|known| known == hostname.as_bytes()) {
            return Ok(());
        }
        file::write(&path, hostname.as_bytes(), 0o644).map_err(io_error(&path))
    }

    fn host_public_key(&self) -> String {
        String::new()
    }

    /// Everything here runs as the agent's own user.
    fn give_to_user(&self, _: &Path, _: &str) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Its processes share a network with the whole machine, whose DNS servers know nothing of instances.
    fn hosts_have_queries(&self) -> bool {
        true
    }

    fn write_hosts(&self, hostname: &str, records: &[(String, String)]) -> Result<(), PlatformError> {
        let mut hosts = format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n\n");
        hosts.extend(records.iter().map(|(address, name)| format!("{address} {name}\n")));
        let path = self.base.hosts();
        file::write(&path, hosts.as_bytes(), 0o644).map_err(io_error(&path))
    }

    fn rotate_logs(&self, size: &str) -> Result<(), PlatformError> {
        let path = self.base.logrotate();
        file::write(&path, super::logrotate(&self.base, size).as_bytes(), 0o644).map_err(io_error(&path))
    }

    fn trust_certificates(&self, pem: &str) -> Result<(), PlatformError> {
        const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
        let folder = self.base.trusted_certs();
        file::create_private_dir(&folder).map_err(io_error(&folder))?;
        let mut kept = Vec::new();
        for (number, certificate) in pem.split(BEGIN).skip(1).enumerate() {
            let path = folder.join(format!("bosh-trusted-cert-{}.crt", number + 1));
            file::write(&path, format!("{BEGIN}{certificate}").as_bytes(), 0o644).map_err(io_error(&path))?;
            kept.push(path);
        }
        for entry in std::fs::read_dir(&folder).map_err(io_error(&folder))? {
            let path = entry.map_err(io_error(&folder))?.path();
            if !kept.contains(&path) {
                file::remove_file(&path).map_err(io_error(&path))?;
            }
        }
        Ok(())
    }

    /// The settings have the addresses.
    fn default_network(&self) -> Option<Network> {
        None
    }

    fn system_logs(&self) -> Option<PathBuf> {
        None
    }

    fn file_systems(&self) -> Vec<(&'static str, PathBuf)> {
        let mut found = vec![("system", PathBuf::from("/")), ("ephemeral", self.base.data())];
        if matches!(mounted_on(&self.base.store()), Ok(Some(_))) {
            found.push(("persistent", self.base.store()));
        }
        found
    }
}

fn path_of(disk: &DiskSettings) -> Result<&Path, PlatformError> {
    let path = Path::new(&disk.path);
    if path.is_absolute() { Ok(path) } else { Err(PlatformError::NoPath { cid: disk.id.clone() }) }
}

fn named(folder: &Path, name: &str) -> Result<PathBuf, PlatformError> {
    if is_name(name) { Ok(folder.join(name)) } else { Err(PlatformError::Name(name.to_owned())) }
}

/// The disk on a mount point. A link to a directory that is gone mounts nothing.
fn mounted_on(mount_point: &Path) -> Result<Option<PathBuf>, PlatformError> {
    Ok(link_target(mount_point)?.filter(|target| target.is_dir()))
}

fn link_target(mount_point: &Path) -> Result<Option<PathBuf>, PlatformError> {
    match std::fs::read_link(mount_point) {
        Ok(target) => Ok(Some(target)),
        // Nothing there, or a plain directory as some images have it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Ok(None),
        Err(source) => Err(PlatformError::Io { path: mount_point.to_owned(), source }),
    }
}

fn link(target: &Path, path: &Path) -> Result<(), PlatformError> {
    match std::fs::symlink_metadata(path) {
        // Only an empty one goes: data in it would be lost from sight.
        Ok(found) if found.is_dir() => std::fs::remove_dir(path).map_err(io_error(path))?,
        _ => {}
    }
    file::symlink(target, path).map_err(io_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        folder: tempfile::TempDir,
        platform: Directory,
    }

    impl Machine {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let platform = Directory::new(Base::prepare(&folder.path().join("base")).unwrap());
            Self { folder, platform }
        }

        fn disk(&self, cid: &str) -> DiskSettings {
            let path = self.folder.path().join(cid);
            std::fs::create_dir_all(&path).unwrap();
            DiskSettings { id: cid.into(), path: path.to_str().unwrap().into(), ..Default::default() }
        }

        fn at(&self, mount_point: &str) -> Option<PathBuf> {
            std::fs::read_link(self.folder.path().join("base").join(mount_point)).ok()
        }
    }

    #[test]
    fn the_second_disk_goes_to_the_migration_target_and_a_third_nowhere() {
        let machine = Machine::new();
        let [one, two, three] = ["one", "two", "three"].map(|cid| machine.disk(cid));
        for _ in 0..2 {
            machine.platform.mount_persistent_disk(&one).unwrap();
            machine.platform.mount_persistent_disk(&two).unwrap();
        }
        assert_eq!(machine.at("store"), Some(PathBuf::from(&one.path)));
        assert_eq!(machine.at("store_migration_target"), Some(PathBuf::from(&two.path)));
        let error = machine.platform.mount_persistent_disk(&three).unwrap_err();
        assert!(matches!(error, PlatformError::Occupied { .. }), "{error}");
        assert!(machine.platform.unmount_persistent_disk(&one).unwrap());
        assert!(!machine.platform.unmount_persistent_disk(&one).unwrap());
        assert!(!machine.platform.is_persistent_disk_mounted(&one).unwrap());
        assert!(machine.platform.is_persistent_disk_mounted(&two).unwrap());
    }

    #[test]
    fn a_missing_directory_is_named_and_data_in_the_way_is_not_hidden() {
        let machine = Machine::new();
        let disk = machine.disk("one");
        let gone = DiskSettings { path: "/nonexistent/disk".into(), ..disk.clone() };
        let error = machine.platform.mount_persistent_disk(&gone).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/disk of disk 'one' is not there"), "{error}");
        let relative = DiskSettings { path: "disk".into(), ..disk.clone() };
        assert!(matches!(machine.platform.mount_persistent_disk(&relative), Err(PlatformError::NoPath { .. })));

        let store = machine.folder.path().join("base/store");
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join("data"), "precious").unwrap();
        assert!(matches!(machine.platform.mount_persistent_disk(&disk), Err(PlatformError::Io { .. })));
        std::fs::remove_file(store.join("data")).unwrap();
        machine.platform.mount_persistent_disk(&disk).unwrap();
    }

    #[test]
    fn a_migration_ends_with_the_data_on_the_new_disk_wherever_it_was_killed() {
        let machine = Machine::new();
        let [one, two] = ["one", "two"].map(|cid| machine.disk(cid));
        assert!(matches!(machine.platform.migrate_persistent_disk(), Err(PlatformError::NothingToMigrate { .. })));
        for disk in [&one, &two] {
            machine.platform.mount_persistent_disk(disk).unwrap();
        }
        std::fs::write(Path::new(&one.path).join("data"), "precious").unwrap();
        let migrated = || {
            machine.platform.migrate_persistent_disk().unwrap();
            assert_eq!(machine.at("store"), Some(PathBuf::from(&two.path)));
            assert_eq!(machine.at("store_migration_target"), None);
            for disk in [&one, &two] {
                assert_eq!(std::fs::read(Path::new(&disk.path).join("data")).unwrap(), b"precious");
            }
        };
        migrated();
        migrated();
        // As a kill between the last two steps leaves it.
        link(Path::new(&two.path), &machine.platform.base.migration_target()).unwrap();
        migrated();
    }

    #[test]
    fn only_what_is_inside_of_the_base_directory_can_be_removed() {
        let machine = Machine::new();
        let disk = machine.disk("one");
        machine.platform.mount_persistent_disk(&disk).unwrap();
        let base = machine.folder.path().join("base");
        std::fs::write(base.join("data/tmp/x"), "").unwrap();
        let removable = |path: &Path| machine.platform.removable(path);
        assert!(removable(&base.join("data/tmp/x")).unwrap().is_some());
        assert!(removable(&base.join("data/../data/tmp/x")).unwrap().is_some());
        assert_eq!(removable(&base.join("data/tmp/nope")).unwrap(), None);
        assert_eq!(removable(Path::new("/nonexistent/folder/file")).unwrap(), None);
        for path in [
            base.clone(),
            base.join("store/data"),
            base.join("../one"),
            base.join("data/.."),
            "/etc/passwd".into(),
            "x".into(),
        ] {
            assert!(matches!(removable(&path), Err(PlatformError::NotOurs { .. })), "{path:?}");
        }
    }

    #[test]
    fn certificates_that_are_no_longer_trusted_go_away() {
        let machine = Machine::new();
        let certificate = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let folder = machine.folder.path().join("base/bosh/trusted_certs");
        let read = |number: u8| std::fs::read_to_string(folder.join(format!("bosh-trusted-cert-{number}.crt"))).ok();
        let two = format!("a comment\n{}{}", certificate("A"), certificate("B"));
        machine.platform.trust_certificates(&two).unwrap();
        assert_eq!((read(1), read(2)), (Some(certificate("A")), Some(certificate("B"))));
        machine.platform.trust_certificates(&certificate("C")).unwrap();
        assert_eq!((read(1), read(2)), (Some(certificate("C")), None));
        machine.platform.trust_certificates("").unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn users_are_homes_under_the_base_directory() {
        let machine = Machine::new();
        for user in ["bosh_1", "bosh_2", "other"] {
            machine.platform.create_user(user, "ssh-rsa A").unwrap();
        }
        let homes = machine.folder.path().join("base/bosh_ssh");
        assert_eq!(std::fs::read_to_string(homes.join("bosh_1/.ssh/authorized_keys")).unwrap(), "ssh-rsa A");
        machine.platform.delete_users(&|user| user == "bosh_1").unwrap();
        let mut left: Vec<_> = std::fs::read_dir(&homes).unwrap().map(|home| home.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["bosh_2", "other"]);
    }

    #[test]
    fn a_disk_name_cannot_lead_out_of_its_folder() {
        let machine = Machine::new();
        let disk = machine.disk("one");
        machine.platform.associate_disk("data", &disk).unwrap();
        assert_eq!(machine.at("instance/disks/data"), Some(PathBuf::from(&disk.path)));
        for name in ["", ".", "..", "../data", "/etc", "a/b"] {
            assert!(matches!(machine.platform.associate_disk(name, &disk), Err(PlatformError::Name(_))), "{name}");
        }
    }
}
