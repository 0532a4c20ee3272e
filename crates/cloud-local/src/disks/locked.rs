//! A disk that nobody else changes, with what a killed call left half done put right.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use windlass_contract::cpi::CpiError;
use windlass_contract::{DiskCid, DiskHint, VmCid};
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use super::error::{DiskError, io_error};
use super::image::DiskImage;
use super::{copy, copy_tree, folder, freeze, space};
use crate::cloud::LocalCloud;
use crate::isolation::Isolation;
use crate::machine::{DISKS_IN_VM, Machine};
use crate::own_root::{self, Visibility};
use crate::state::{Attachment, DiskForm, DiskRecord, VmRecord};

const MIB: u64 = 1024 * 1024;

/// A disk whose lock is held, also by the programs that work on it: none of them outlives the lock.
#[derive(Debug)]
pub(crate) struct LockedDisk<'a> {
    cloud: &'a LocalCloud,
    _lock: FileLock,
    folder: PathBuf,
    /// What `disk.json` says.
    pub(crate) record: DiskRecord,
}

impl<'a> LockedDisk<'a> {
    /// Locks a disk; none if there is no such disk.
    pub(crate) fn lock(cloud: &'a LocalCloud, cid: &DiskCid) -> Result<Option<Self>, CpiError> {
        Self::settled(cloud, cid, cloud.disks.lock_existing(cid.as_str())?)
    }

    /// Locks a disk for its removal; none if there is no such disk, and then nothing of it is left, either.
    pub(crate) fn lock_to_remove(cloud: &'a LocalCloud, cid: &DiskCid) -> Result<Option<Self>, CpiError> {
        Self::settled(cloud, cid, cloud.disks.lock_to_remove(cid.as_str())?)
    }

    fn settled(
        cloud: &'a LocalCloud,
        cid: &DiskCid,
        locked: Option<(FileLock, DiskRecord)>,
    ) -> Result<Option<Self>, CpiError> {
        let (Some((lock, record)), Some(folder)) = (locked, cloud.disks.path(cid.as_str())) else { return Ok(None) };
        lock.share_with_children().map_err(io_error("lock", &folder))?;
        let mut disk = Self { cloud, _lock: lock, folder, record };
        disk.settle()?;
        Ok(Some(disk))
    }

    /// The VM that the disk is attached to.
    pub(crate) fn holder(&self) -> Option<&VmCid> {
        self.record.attached_to.as_ref().map(|attachment| &attachment.vm)
    }

    /// Where the data is: a folder or an image.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join(self.record.form.file())
    }

    /// Replaces the record.
    pub(crate) fn save(&self) -> Result<(), DiskError> {
        Ok(self.cloud.disks.write(self.record.cid.as_str(), &self.record)?)
    }

    /// Fails if something holds the disk beyond what is recorded; for disks that are attached to no VM.
    pub(crate) fn ensure_free(&self) -> Result<(), DiskError> {
        match self.record.form {
            DiskForm::Directory => Ok(()),
            DiskForm::Image => self.image().ensure_free(),
        }
    }

    /// Where a VM finds the disk: in a container, as text, as container stemcells know it.
    pub(crate) fn hint(&self, isolation: Isolation, machine: &Machine) -> DiskHint {
        let place = match (self.record.form, isolation) {
            (DiskForm::Directory, _) => self.data(),
            (DiskForm::Image, Isolation::Process) => point(machine, &self.record.cid),
            (DiskForm::Image, Isolation::Container) => Path::new(DISKS_IN_VM).join(self.record.cid.as_str()),
        };
        let place = place.display().to_string();
        match isolation {
            Isolation::Container => DiskHint::text(&place).unwrap_or_else(|_| DiskHint::path(place)),
            Isolation::Process => DiskHint::path(place),
        }
    }

    /// Records that the disk is attached, and shows it to the VM. Done already, it is done again where something is missing.
    pub(crate) fn attach(&mut self, vm: &VmRecord, hint: &DiskHint, machine: &Machine) -> Result<(), DiskError> {
        let attachment = Some(Attachment { vm: vm.cid.clone(), hint: hint.clone() });
        if self.record.attached_to != attachment {
            self.record.attached_to = attachment;
            self.save()?;
        }
        self.show(vm, machine)
    }

    /// Mounts the image of an attached disk in the VM's folder of disks, and a folder where the VM sees only its own.
    pub(crate) fn show(&self, vm: &VmRecord, machine: &Machine) -> Result<(), DiskError> {
        match self.record.form {
            DiskForm::Directory => self.set_visibility(machine, Visibility::Shown),
            DiskForm::Image => {
                folder::open(&machine.disks())?;
                let point = point(machine, &self.record.cid);
                let (image, ids) = (self.image(), self.namespace(vm, &point)?);
                let ids = ids.as_ref().map(AsFd::as_fd);
                image.mount(&point, ids)?;
                // An agent, or a call that was killed or refused half-way, may have unmounted it in the VM alone. Agents would take the bare folder
                // that is there for the disk.
                let inside = Path::new(DISKS_IN_VM).join(self.record.cid.as_str());
                match machine.first_process().filter(|_| vm.isolation == Isolation::Container) {
                    Some(first) if !image.is_seen_at(&inside, first)? => {
                        image.pass_on(&point, &inside, first)?;
                        if image.is_seen_at(&inside, first)? {
                            Ok(())
                        } else {
                            Err(DiskError::Unseen { point: inside })
                        }
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// The user namespace of a VM whose users are its own.
    fn namespace(&self, vm: &VmRecord, point: &Path) -> Result<Option<OwnedFd>, DiskError> {
        let Some(ids) = vm.ids() else { return Ok(None) };
        let namespace = ids.namespace(&self.windlass(point)?);
        namespace.map(Some).map_err(io_error("make a user namespace for", point))
    }

    /// Takes the disk from its VM: once this succeeded, the kernel has nothing of it in hand, and the record says so.
    pub(crate) fn detach(&mut self) -> Result<(), DiskError> {
        self.release()?;
        if let Some(vm) = self.record.attached_to.take() {
            if let Some(machine) = self.cloud.vms.path(vm.vm.as_str()).map(Machine::new) {
                match self.record.form {
                    DiskForm::Directory => self.set_visibility(&machine, Visibility::Hidden)?,
                    DiskForm::Image => remove_point(&point(&machine, &self.record.cid))?,
                }
            }
            self.save()?;
        }
        Ok(())
    }

    /// Only a VM that runs in a root of its own sees a difference.
    fn set_visibility(&self, machine: &Machine, wanted: Visibility) -> Result<(), DiskError> {
        let windlass = self.windlass(&self.data())?;
        own_root::set_visibility(machine, &windlass, &self.record.cid, wanted)
            .map_err(io_error("show or hide", &self.data()))
    }

    fn windlass(&self, path: &Path) -> Result<PathBuf, DiskError> {
        let found = self.cloud.windlass();
        found.map_err(|error| io_error("show or hide", path)(io::Error::other(error.message)))
    }

    fn release(&self) -> Result<(), DiskError> {
        match self.record.form {
            DiskForm::Directory => Ok(()),
            DiskForm::Image => self.image().release(self.holder()),
        }
    }

    /// Makes the disk larger, in use or not.
    pub(crate) fn grow(&mut self, size_mib: u64) -> Result<(), DiskError> {
        if self.record.form == DiskForm::Image {
            let image = self.image();
            space::ensure(&self.folder, size_mib.saturating_sub(self.record.size_mib).saturating_mul(MIB))?;
            if self.record.attached_to.is_some() {
                ensure_may_grow_in_use()?;
                image.lengthen(size_mib)?;
                image.fill_mounted()?;
            } else {
                image.lengthen(size_mib)?;
                self.fill()?;
            }
        }
        self.record.size_mib = size_mib;
        self.save()
    }

    fn fill(&self) -> Result<(), DiskError> {
        let point = own_point(&self.folder);
        self.image().fill(&point)?;
        remove_point(&point)
    }

    /// Fails unless there is space for a snapshot in the folder of snapshots.
    pub(crate) fn ensure_space_for_snapshot(&self, snapshots: &Path) -> Result<(), DiskError> {
        file::create_private_dir(snapshots).map_err(io_error("make", snapshots))?;
        if copy::shares_blocks(snapshots).map_err(io_error("try to copy in", snapshots))? {
            return Ok(());
        }
        space::ensure(snapshots, allocated(self.record.form, &self.data())?)
    }

    /// Copies the data to `to`: of an image in use, as it is at one moment.
    pub(crate) fn copy_to(&self, to: &Path) -> Result<(), DiskError> {
        let data = self.data();
        match self.record.form {
            DiskForm::Directory => copy_tree::copy_tree(&data, to).map_err(io_error("copy", &data)),
            DiskForm::Image => {
                let frozen = match self.shown_at()? {
                    Some(point) => Some(freeze::freeze(&self.folder, &point)?),
                    None => None,
                };
                let copied = self.image().copy_to(to).map(|_| ());
                let thawed = frozen.map_or(Ok(()), freeze::Frozen::thaw);
                copied.and(thawed)
            }
        }
    }

    /// The place where the image is mounted for its VM, if it is: what is frozen there is the disk and nothing else.
    fn shown_at(&self) -> Result<Option<PathBuf>, DiskError> {
        let vm = self.holder().and_then(|vm| self.cloud.vms.path(vm.as_str()));
        let Some(point) = vm.map(|vm| point(&Machine::new(vm), &self.record.cid)) else { return Ok(None) };
        Ok(self.image().is_mounted_at(&point)?.then_some(point))
    }

    /// What a killed call left: a frozen file system, half a copy, a mount of its own, a growth that was begun; or a VM that
    /// is gone without having let go.
    fn settle(&mut self) -> Result<(), CpiError> {
        freeze::thaw_leftover(&self.folder)?;
        self.remove_leftovers()?;
        if let Some(vm) = self.holder().cloned()
            && self.cloud.vms.read(vm.as_str())?.is_none()
        {
            self.detach()?;
        }
        if self.record.form == DiskForm::Image && self.record.attached_to.is_none() {
            if own_point(&self.folder).exists() {
                self.release()?;
                remove_point(&own_point(&self.folder))?;
            }
            let size_mib = self.image().size_mib()?;
            if size_mib > self.record.size_mib {
                self.fill()?;
                self.record.size_mib = size_mib;
                self.save()?;
            }
        }
        Ok(())
    }

    fn remove_leftovers(&self) -> Result<(), DiskError> {
        let entries = fs::read_dir(&self.folder).map_err(io_error("list", &self.folder))?;
        for entry in entries.flatten().filter(|entry| file::is_leftover(&entry.file_name())) {
            file::remove_file(&entry.path()).map_err(io_error("remove", &entry.path()))?;
        }
        Ok(())
    }

    fn image(&self) -> DiskImage {
        DiskImage::new(self.data())
    }
}

/// Where a disk is mounted for a VM.
pub(crate) fn point(machine: &Machine, disk: &DiskCid) -> PathBuf {
    machine.disks().join(disk.as_str())
}

/// Where the disk in `folder` is mounted for nobody but us.
pub(crate) fn own_point(folder: &Path) -> PathBuf {
    folder.join("mount")
}

/// Makes the data of a new disk or of a copy of a snapshot at `to`, which nobody sees yet.
pub(crate) fn fill_new(form: DiskForm, to: &Path, size_mib: u64, from: Option<&Path>) -> Result<(), DiskError> {
    let folder = to.parent().unwrap_or(Path::new("/"));
    match (form, from) {
        (DiskForm::Directory, None) => file::create_private_dir(to).map_err(io_error("make", to)),
        (DiskForm::Directory, Some(from)) => {
            if !copy::shares_blocks(folder).map_err(io_error("try to copy in", folder))? {
                space::ensure(folder, allocated(form, from)?)?;
            }
            copy_tree::copy_tree(from, to).map_err(io_error("copy", from))
        }
        (DiskForm::Image, None) => {
            space::ensure(folder, size_mib.saturating_mul(MIB))?;
            DiskImage::new(to).make(size_mib)
        }
        (DiskForm::Image, Some(from)) => {
            space::ensure(folder, size_mib.saturating_mul(MIB))?;
            let image = DiskImage::new(from).copy_to(to)?;
            if image.size_mib()? < size_mib {
                image.lengthen(size_mib)?;
                image.fill_unseen()?;
            }
            Ok(())
        }
    }
}

fn allocated(form: DiskForm, data: &Path) -> Result<u64, DiskError> {
    match form {
        DiskForm::Directory => copy_tree::allocated(data).map_err(io_error("look at", data)),
        DiskForm::Image => DiskImage::new(data).allocated(),
    }
}

/// The kernel lets only those with this right grow a mounted file system; asked before anything changes.
fn ensure_may_grow_in_use() -> Result<(), DiskError> {
    let rights = rustix::thread::capabilities(None)
        .map_err(|error| io_error("ask for the rights of", Path::new("/proc/self"))(error.into()))?;
    if rights.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        Ok(())
    } else {
        Err(DiskError::CannotGrowInUse)
    }
}

/// An empty folder at which something was mounted. Anything in it was written past the mount and stays.
fn remove_point(point: &Path) -> Result<(), DiskError> {
    match fs::remove_dir(point) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(io_error("remove", point)),
    }
}
