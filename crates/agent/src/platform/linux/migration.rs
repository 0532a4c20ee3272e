//! Moving the data of the disk on the store to the disk beside it, which then takes its place.

use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::Linux;
use super::mounts::{self, MountError};
use super::persistent::{DiskSetupError, UNMOUNT_PATIENCE};
use super::places::DiskPlaces;
use crate::disks::DiskSettings;
use crate::platform::{PlatformError, copy};

/// How long others may still write to the old disk.
const WRITERS_PATIENCE: Duration = Duration::from_secs(60);

impl Linux {
    /// Copies, then swaps. What a kill interrupts is completed by doing it again; what has ended is left alone.
    pub(super) fn migrate(&self) -> Result<(), PlatformError> {
        let [store, target] = self.mount_points();
        let mut places = DiskPlaces::read(&self.places_path());
        let (from, to) =
            (mounts::on(&store).map_err(DiskSetupError::from)?, mounts::on(&target).map_err(DiskSetupError::from)?);
        let is_copied = places.is_copied && places.target.is_some();
        let (from, to) = match (from, to) {
            (None, None) => return Err(PlatformError::NothingToMigrate { store }),
            (Some(_), None) => return Ok(()),
            // Killed between taking the old one away and putting the new one there.
            (None, Some(_)) if is_copied => return Ok(self.swap(&mut places)?),
            (None, Some(_)) => return Err(PlatformError::NothingToMigrate { store }),
            (Some(from), Some(to)) => (from, to),
        };
        let is_swapped = from.device == to.device && from.shows == to.shows;
        if !is_swapped && !is_copied {
            self.stop_writers()?;
            let copied = copy::copy(&store, &target);
            let copied = copied.map_err(|source| {
                // Jobs can go on with the old disk.
                if let Err(error) = mounts::remove_flags(&store, MountFlags::RDONLY) {
                    tracing::warn!("{}", windlass_contract::explain(&error));
                }
                PlatformError::Copy { from: store.clone(), to: target.clone(), source }
            })?;
            tracing::info!("{} files and folders, {} bytes migrated", copied.entries, copied.bytes);
            places.is_copied = places.target.is_some();
            places.write(&self.places_path()).map_err(DiskSetupError::from)?;
        }
        Ok(self.swap(&mut places)?)
    }

    /// From here on nobody changes the old disk.
    fn stop_writers(&self) -> Result<(), DiskSetupError> {
        let read_only = mounts::add_flags(&self.base.store(), MountFlags::RDONLY, WRITERS_PATIENCE);
        match read_only {
            // A container may not be allowed to change how its folders are mounted; that its jobs are stopped must do.
            Err(MountError::Remount { source, .. })
                if self.options.bind_mount_persistent_disk
                    && source.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
            {
                tracing::warn!("the old disk stays writable during the migration: {source}");
                Ok(())
            }
            done => Ok(done?),
        }
    }

    /// Puts the disk beside the store in its place. It is never without a mount: first it gets the new one, then it loses the
    /// old one.
    fn swap(&self, places: &mut DiskPlaces) -> Result<(), DiskSetupError> {
        let [store, target] = self.mount_points();
        if let Some(to) = mounts::on(&target)? {
            let is_new = |mount: &mounts::Mount| mount.device == to.device && mount.shows == to.shows;
            if mounts::on(&store)?.is_some_and(|mount| !is_new(&mount)) {
                mounts::unmount(&store, UNMOUNT_PATIENCE)?;
            }
            if mounts::on(&store)?.is_none() {
                mounts::bind(&target, &store)?;
            }
            mounts::unmount(&target, UNMOUNT_PATIENCE)?;
        }
        if let Some(new) = places.target.take() {
            *places = DiskPlaces { store: Some(new), ..DiskPlaces::default() };
            places.write(&self.places_path())?;
        }
        Ok(())
    }

    /// After a boot in the middle of a migration whose data was copied: the new disk takes the store.
    pub(super) fn take_place(&self, disk: &DiskSettings, places: &mut DiskPlaces) -> Result<(), DiskSetupError> {
        let target = self.base.migration_target();
        if mounts::on(&target)?.is_none() {
            self.mount_beside(disk)?;
        }
        self.swap(places)
    }
}
