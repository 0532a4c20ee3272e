//! What does not fit together: half-done things of killed calls, and mounts, bridges and processes that no record explains.

use std::path::{Path, PathBuf};

use windlass_contract::DiskCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::explain;
use windlass_cpi::resources::{Kept, Resources};
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::cloud::LocalCloud;
use crate::container::cgroup;
use crate::disks::{self, mounts};
use crate::machine::Machine;
use crate::network::bridge;
use crate::network::netlink::Netlink;
use crate::state::{DiskForm, DiskRecord, VmRecord};

/// Something that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A path or a cid.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    pub(super) cure: Cure,
}

/// How it is put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cure {
    /// Half of a resource, whose maker is gone, goes.
    RemoveLeftover(PathBuf),
    /// The lock of a resource that is gone goes.
    RemoveLock(PathBuf),
    /// The next call that locks the disk finishes it.
    Settle(DiskCid),
    /// A bridge of this cloud that no VM is on goes.
    RemoveBridge(String),
    /// Only a person can.
    ByHand(&'static str),
}

impl Problem {
    fn new(what: impl Into<String>, why: impl Into<String>, cure: Cure) -> Self {
        Self { what: what.into(), why: why.into(), cure }
    }

    /// Whether it is something that nobody owns, and that can be removed or finished without a loss.
    pub fn is_garbage(&self) -> bool {
        !matches!(self.cure, Cure::ByHand(_))
    }

    /// What to do, in words.
    pub fn remedy(&self) -> &'static str {
        match self.cure {
            Cure::ByHand(words) => words,
            _ => "'windlass local gc', or the next call for it",
        }
    }
}

/// All problems. What another process is just doing is none.
pub(super) fn find(cloud: &LocalCloud) -> Result<Vec<Problem>, CpiError> {
    let mut problems = Vec::new();
    halves(&cloud.stemcells, &mut problems)?;
    halves(&cloud.vms, &mut problems)?;
    halves(&cloud.disks, &mut problems)?;
    halves(&cloud.snapshots, &mut problems)?;
    halves(&cloud.networks, &mut problems)?;
    for vm in cloud.vms.all()? {
        problems.extend(of_vm(cloud, &vm));
    }
    for disk in cloud.disks.all()? {
        if let Some(folder) = cloud.disks.path(disk.cid.as_str())
            && !cloud.disks.is_locked(disk.cid.as_str())
        {
            let found = of_disk(cloud, &disk, &folder);
            // One that went while we looked has none.
            if cloud.disks.read(disk.cid.as_str())?.is_some() {
                problems.extend(found?);
            }
        }
    }
    mounts(cloud, &mut problems)?;
    bridges(cloud, &mut problems)?;
    Ok(problems)
}

/// Halves of resources, and locks of resources that are gone.
fn halves<R: Kept>(resources: &Resources<R>, problems: &mut Vec<Problem>) -> Result<(), CpiError> {
    for path in resources.leftovers()? {
        let what = path.display().to_string();
        problems.push(Problem::new(what, "half of a resource; its call was killed", Cure::RemoveLeftover(path)));
    }
    for lock in resources.stale_locks()? {
        let what = lock.display().to_string();
        problems.push(Problem::new(what, "lock of a resource that is gone", Cure::RemoveLock(lock)));
    }
    Ok(())
}

/// A supervisor that ends in order takes its record and the VM's processes with it.
fn of_vm(cloud: &LocalCloud, vm: &VmRecord) -> Option<Problem> {
    let machine = Machine::new(cloud.vms.path(vm.cid.as_str())?);
    let runs = FileLock::is_held(&machine.lock()).unwrap_or(true) || cloud.vms.is_locked(vm.cid.as_str());
    let why = match runs {
        true => return None,
        false if machine.supervisor().exists() => "its supervisor was killed",
        false if vm.container.is_some() && cgroup::has_processes(vm.cid.as_str()) => {
            "it is off, and processes of it are left in its control group"
        }
        false => return None,
    };
    let cure = Cure::ByHand("repeat the call that was killed, 'reboot_vm' or 'delete_vm'");
    Some(Problem::new(vm.cid.as_str(), why, cure))
}

/// Nobody works on the disk.
fn of_disk(cloud: &LocalCloud, disk: &DiskRecord, folder: &Path) -> Result<Vec<Problem>, CpiError> {
    let cid = disk.cid.as_str();
    let mut problems = Vec::new();
    let mut settle = |why: &str| problems.push(Problem::new(cid, why, Cure::Settle(disk.cid.clone())));
    let holder = disk.attached_to.as_ref().map(|attachment| &attachment.vm);
    let vm = holder.map(|vm| cloud.vms.read(vm.as_str())).transpose()?.flatten();
    if holder.is_some() && vm.is_none() {
        settle("attached to a VM that is gone");
    }
    if disks::freeze::is_marked(folder) {
        settle("perhaps still frozen by a snapshot that was killed");
    }
    let is_half = |entry: &std::fs::DirEntry| file::is_leftover(&entry.file_name());
    if std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| is_half(&entry)) {
        settle("half of a copy is left in its folder");
    }
    let data = folder.join(disk.form.file());
    if !data.exists() {
        let cure = Cure::ByHand("restore it from a backup or a snapshot, or delete the disk");
        problems.push(Problem::new(data.display().to_string(), "the disk's data is gone", cure));
        return Ok(problems);
    }
    if disk.form == DiskForm::Directory {
        return Ok(problems);
    }
    let image = disks::image::DiskImage::new(&data);
    if disks::locked::own_point(folder).exists() {
        settle("still mounted for a change that was killed");
    }
    if image.size_mib()? > disk.size_mib && holder.is_none() {
        settle("its growth was interrupted");
    }
    match (vm, holder) {
        (Some(vm), Some(holder)) => {
            let machine = cloud.vms.path(holder.as_str()).map(Machine::new);
            let is_shown = machine.is_some_and(|machine| {
                image.is_mounted_at(&disks::locked::point(&machine, &disk.cid)).unwrap_or(false)
            });
            if !is_shown {
                let why = format!("attached to '{}', but not mounted for it", vm.cid);
                problems.push(Problem::new(cid, why, Cure::ByHand("'attach_disk' again, or 'reboot_vm'")));
            }
        }
        (None, None) if !disks::locked::own_point(folder).exists() => {
            if let Err(error) = image.ensure_free() {
                problems.push(Problem::new(cid, error.to_string(), Cure::ByHand("end what holds it")));
            }
        }
        _ => {}
    }
    Ok(problems)
}

/// Mounts in the state folder that are neither a VM's folder of disks nor a disk that is attached there.
fn mounts(cloud: &LocalCloud, problems: &mut Vec<Problem>) -> Result<(), CpiError> {
    let Ok(state) = cloud.state().canonicalize() else { return Ok(()) };
    let mounted = mounts::of_this_process()
        .map_err(|error| CpiError::cloud(format!("cannot read /proc/self/mountinfo: {error}")))?;
    for mount in mounted {
        let Ok(below) = mount.point.strip_prefix(&state) else { continue };
        let words: Vec<&str> = below.iter().filter_map(|word| word.to_str()).collect();
        let is_explained = match words.as_slice() {
            // The file system that the state is on.
            [] => true,
            ["vms", vm, "disks"] => cloud.vms.read(vm)?.is_some(),
            ["vms", vm, "disks", disk] => {
                cloud.disks.read(disk)?.and_then(|disk| disk.attached_to).is_some_and(|it| it.vm.as_str() == *vm)
            }
            ["disks", disk, "mount"] => cloud.disks.read(disk)?.is_some(),
            _ => false,
        };
        if !is_explained {
            let cure = Cure::ByHand("look what it is, and unmount it");
            problems.push(Problem::new(mount.point.display().to_string(), "mounted, and nothing explains it", cure));
        }
    }
    Ok(())
}

/// Bridges of this cloud that no VM is on, and VMs that run without theirs.
fn bridges(cloud: &LocalCloud, problems: &mut Vec<Problem>) -> Result<(), CpiError> {
    let wired = cloud.wired()?;
    let failed = |error: std::io::Error| CpiError::cloud(format!("cannot list the machine's interfaces: {error}"));
    let mut netlink = Netlink::open().map_err(failed)?;
    let ours = bridge::of_state(&mut netlink, cloud.state()).map_err(|error| CpiError::cloud(explain(&error)))?;
    for (name, subnet) in &ours {
        if !wired.iter().any(|(_, bridge)| bridge == name) {
            let why = format!("the bridge of {subnet}, and no VM is on it");
            problems.push(Problem::new(name.as_str(), why, Cure::RemoveBridge(name.clone())));
        }
    }
    for (vm, bridge) in wired {
        let machine = cloud.vms.path(vm.as_str()).map(Machine::new);
        let runs = machine.is_some_and(|machine| FileLock::is_held(&machine.lock()).unwrap_or(false));
        if runs && !cloud.vms.is_locked(vm.as_str()) && !ours.iter().any(|(name, _)| *name == bridge) {
            let why = format!("it runs, and its bridge {bridge} is gone or has lost its address");
            problems.push(Problem::new(vm.as_str(), why, Cure::ByHand("'reboot_vm'")));
        }
    }
    Ok(())
}
