//! A platform without privileges: a disk is a directory, mounting it is a symlink to it.

use std::io;
use std::path::{Component, Path, PathBuf};

use windlass_durable::file;

use super::{Platform, PlatformError};
use crate::disks::DiskSettings;
use crate::layout::Base;

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
    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError> {
        let path = path_of(disk)?;
        if !path.is_dir() {
            return Err(PlatformError::NoDirectory { cid: disk.id.clone(), path: path.to_owned() });
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
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(one)), None) if one == name) {
            return Err(PlatformError::Name(name.to_owned()));
        }
        link(path_of(disk)?, &self.base.instance().join("disks").join(name))
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

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> PlatformError {
    let path = path.to_owned();
    move |source| PlatformError::Io { path, source }
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
