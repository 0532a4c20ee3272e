//! A whole CPI: a cloud whose VMs, disks and stemcells are folders. It runs nothing, and passes certification.
//! `directory_cloud cpi.json` with `{"cloud":{"plugin":"directory","properties":{"directory":{"folder":"/some/folder"}}}}`

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass_contract::cpi::{CpiError, CreatedVm, methods::*};
use windlass_contract::{DiskCid, DiskHint, Networks, Object, StemcellCid, VmCid};
use windlass_cpi::resources::{Kept, Resources};
use windlass_cpi::{Call, Cloud, Config, UserData};
use windlass_durable::file;

/// One folder per resource, with a record in it; a `Resources` makes and removes them so that no half-made one is ever seen.
macro_rules! resource {
    ($name:ident($record:ty), $folder:literal, $prefix:literal) => {
        #[derive(Serialize, Deserialize)]
        struct $name($record);
        impl Kept for $name {
            const FOLDER: &'static str = $folder;
            const PREFIX: &'static str = $prefix;
        }
    };
}
resource!(Stemcell(Option<Object>), "stemcells", "sc-");
resource!(Vm(Networks), "vms", "vm-");
resource!(Disk(Option<VmCid>), "disks", "disk-");

#[derive(Deserialize)]
struct Settings {
    folder: PathBuf,
}

struct Directory {
    memory: PathBuf,
    stemcells: Resources<Stemcell>,
    vms: Resources<Vm>,
    disks: Resources<Disk>,
}

impl Directory {
    /// Called for `info`, too: only looks at the configuration.
    fn new(config: &Config) -> Result<Self, CpiError> {
        let Settings { folder } = config.plugin()?;
        let (stemcells, vms, disks) = (Resources::new(&folder), Resources::new(&folder), Resources::new(&folder));
        Ok(Self { memory: folder.join("memory"), stemcells, vms, disks })
    }

    fn vm(&self, cid: &VmCid) -> Result<Vm, CpiError> {
        self.vms.read(cid.as_str())?.ok_or_else(|| CpiError::vm_not_found(cid))
    }

    /// The VM that has a disk. A VM that is gone has none.
    fn holder(&self, cid: &DiskCid) -> Result<Option<VmCid>, CpiError> {
        let Disk(holder) = self.disks.read(cid.as_str())?.ok_or_else(|| CpiError::disk_not_found(cid))?;
        Ok(holder.filter(|vm| self.vm(vm).is_ok()))
    }
}

/// What is made is named by the call's id, so that a repeated call finds what an interrupted one made. Before a method runs,
/// its arguments are decoded, and what it changes is locked.
impl Cloud for Directory {
    fn stemcell_formats(&self) -> Vec<String> {
        vec!["warden-tar".into(), "general-tar".into()]
    }

    fn memory(&self) -> Option<&std::path::Path> {
        Some(&self.memory)
    }

    async fn create_stemcell(&self, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
        let cid = self.stemcells.cid(call.id);
        self.stemcells.make(&cid, &Stemcell(stemcell.cloud_properties), |folder| {
            let copied = windlass_durable::file::copy(&stemcell.image_path, &folder.join("image"));
            copied.map_err(|error| CpiError::cloud(format!("cannot copy the image: {error}")))
        })?;
        StemcellCid::new(cid).map_err(|error| CpiError::cpi(error.to_string()))
    }

    async fn delete_stemcell(&self, _: &Call, stemcell: DeleteStemcell) -> Result<(), CpiError> {
        Ok(self.stemcells.remove(stemcell.stemcell_cid.as_str())?)
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        if vm.networks.is_empty() || self.stemcells.read(vm.stemcell_cid.as_str())?.is_none() {
            return Err(CpiError::cloud(format!("there is no network, or no stemcell '{}'", vm.stemcell_cid)));
        }
        let cid = VmCid::new(self.vms.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
        user_data.set_vm_name(cid.as_str());
        self.vms.make(cid.as_str(), &Vm(vm.networks.clone()), |folder| {
            let written = file::write_json(&folder.join("user-data.json"), user_data, file::PRIVATE);
            written.map_err(|error| CpiError::cloud(format!("cannot write the user data: {error}")))
        })?;
        Ok(CreatedVm { cid, networks: vm.networks, disks: None })
    }

    async fn delete_vm(&self, _: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        Ok(self.vms.remove(vm.vm_cid.as_str())?)
    }

    async fn has_vm(&self, _: &Call, vm: HasVm) -> Result<bool, CpiError> {
        Ok(self.vms.read(vm.vm_cid.as_str())?.is_some())
    }

    async fn reboot_vm(&self, _: &Call, vm: RebootVm) -> Result<(), CpiError> {
        self.vm(&vm.vm_cid).map(|_| ())
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        let cid = self.disks.cid(call.id);
        if disk.size.0 == 0 {
            return Err(CpiError::cloud("a disk needs a size"));
        }
        self.disks.make(&cid, &Disk(None), |_| Ok(()))?;
        DiskCid::new(cid).map_err(|error| CpiError::cpi(error.to_string()))
    }

    async fn delete_disk(&self, _: &Call, disk: DeleteDisk) -> Result<(), CpiError> {
        match self.holder(&disk.disk_cid) {
            Ok(Some(vm)) => Err(CpiError::cloud(format!("the disk is attached to '{vm}'; detach it first"))),
            _ => Ok(self.disks.remove(disk.disk_cid.as_str())?),
        }
    }

    async fn has_disk(&self, _: &Call, disk: HasDisk) -> Result<bool, CpiError> {
        Ok(self.disks.read(disk.disk_cid.as_str())?.is_some())
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        self.vm(&disk.vm_cid)?;
        if let Some(other) = self.holder(&disk.disk_cid)?.filter(|holder| *holder != disk.vm_cid) {
            return Err(CpiError::cloud(format!("the disk is attached to '{other}'; detach it there first")));
        }
        self.disks.write(disk.disk_cid.as_str(), &Disk(Some(disk.vm_cid)))?;
        let folder = self.disks.path(disk.disk_cid.as_str()).unwrap_or_default();
        Ok(DiskHint::path(folder.display().to_string()))
    }

    async fn detach_disk(&self, _: &Call, disk: DetachDisk) -> Result<(), CpiError> {
        self.vm(&disk.vm_cid)?;
        match self.holder(&disk.disk_cid) {
            Ok(Some(holder)) if holder == disk.vm_cid => Ok(self.disks.write(disk.disk_cid.as_str(), &Disk(None))?),
            _ => Ok(()),
        }
    }
}

fn main() -> std::process::ExitCode {
    let config = std::env::args_os().nth(1).unwrap_or_else(|| "cpi.json".into());
    windlass_cpi::serve(config.as_ref(), Directory::new)
}
