//! VMs whose settings are in a registry, and how the SDK remembers which those are.
//!
//! How a VM gets its settings is decided once, at `create_vm`. Later calls carry other versions or none, so the decision is
//! kept in a file per VM, and `attach_disk`, `detach_disk` and `delete_vm` follow that. The file is there before the
//! registry is first written to, and goes after the registry forgot the VM: what is in a registry is never unknown.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType};
use windlass_contract::settings::AgentSettings;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{DiskCid, DiskHint, VmCid};
use windlass_durable::file;
use windlass_registry::{Client, RegistryError};

use crate::config::Config;
use crate::digest::digest;
use crate::user_data::UserData;

/// How a VM gets its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct VmRegistration {
    cid: VmCid,
    settings_from: SettingsFrom,
    /// The VM's name in the registry.
    registry_key: Option<String>,
}

/// The SDK's view of registries in one call.
#[derive(Debug)]
pub(crate) struct RegisteredVms<'a> {
    memory: Option<&'a Path>,
    config: &'a Config,
}

impl<'a> RegisteredVms<'a> {
    /// Touches nothing.
    pub(crate) fn new(memory: Option<&'a Path>, config: &'a Config) -> Self {
        Self { memory, config }
    }

    /// Notes how a VM that was just made gets its settings, and stores them if that is in `registry`.
    pub(crate) async fn add(
        &self,
        vm: &CreatedVm,
        user_data: &UserData,
        registry: Option<&Client>,
    ) -> Result<(), CpiError> {
        let key = &user_data.settings.vm.name;
        if let Some(path) = self.path(&vm.cid) {
            let record = VmRegistration {
                cid: vm.cid.clone(),
                settings_from: user_data.settings_from(),
                registry_key: registry.map(|_| key.clone()),
            };
            let ready = path.parent().map_or(Ok(()), file::create_private_dir);
            ready
                .and_then(|()| purge(&path))
                .and_then(|()| file::write_json(&path, &record, file::PRIVATE))
                .map_err(|error| cannot("note how the VM gets its settings in", &path, &error))?;
        }
        match registry {
            None => Ok(()),
            Some(registry) => registry.put(key, &user_data.settings).await.map_err(|error| {
                let ok_to_retry = error.is_transient();
                CpiError {
                    ok_to_retry,
                    ..CpiError::new(ErrorType::VmCreationFailed, windlass_contract::explain(&error))
                }
            }),
        }
    }

    /// Tells a VM's agent where a disk is, if it looks into a registry.
    pub(crate) async fn add_disk(&self, vm: &VmCid, disk: &DiskCid, hint: &DiskHint) -> Result<(), CpiError> {
        self.change(vm, |settings| {
            settings.disks.persistent.insert(disk.clone(), hint.clone()).as_ref() != Some(hint)
        })
        .await
        .and_then(|known| match known {
            true => Ok(()),
            false => Err(CpiError::cloud(format!(
                "the registry has no settings of the VM '{vm}', so its agent will not find the disk '{disk}'; recreate the VM"
            ))),
        })
    }

    /// Takes a disk away from what a VM's agent finds in a registry.
    pub(crate) async fn remove_disk(&self, vm: &VmCid, disk: &DiskCid) -> Result<(), CpiError> {
        self.change(vm, |settings| settings.disks.persistent.remove(disk).is_some()).await.map(|_| ())
    }

    /// Forgets a VM that is gone.
    pub(crate) async fn remove(&self, vm: &VmCid) -> Result<(), CpiError> {
        let (Some(path), Some(record)) = (self.path(vm), self.read(vm)?) else { return Ok(()) };
        match (record.registry_key, self.config.registry()?) {
            (Some(key), Some(registry)) => registry.delete(&key).await.map_err(failed)?,
            // The VM is gone. Operators who removed the registry must be able to delete old VMs.
            (Some(key), None) => {
                crate::serve::log(&format!(
                    "no registry is configured any more, so the settings of '{key}' may remain in the old one"
                ));
            }
            (None, _) => {}
        }
        purge(&path).and_then(|()| file::remove_file(&path)).map_err(|error| cannot("forget the VM in", &path, &error))
    }

    /// Changes the settings of a VM in its registry; `false` if they are not there. The VM must be locked.
    async fn change(&self, vm: &VmCid, edit: impl FnOnce(&mut AgentSettings) -> bool) -> Result<bool, CpiError> {
        let Some(key) = self.read(vm)?.and_then(|record| record.registry_key) else { return Ok(true) };
        let Some(registry) = self.config.registry()? else {
            return Err(CpiError::cloud(format!(
                "the VM '{vm}' gets its settings from a registry, and none is configured ('cloud.properties.registry'); \
                 configure it, or recreate the VM from a stemcell with api_version 2 or higher"
            )));
        };
        let Some(mut settings) = registry.get(&key).await.map_err(failed)? else { return Ok(false) };
        if edit(&mut settings) {
            registry.put(&key, &settings).await.map_err(failed)?;
        }
        Ok(true)
    }

    fn path(&self, vm: &VmCid) -> Option<PathBuf> {
        Some(self.memory?.join("vms").join(format!("{}.json", digest(&["vm", vm.as_str()]))))
    }

    /// None for a VM that was made when nothing was noted: such have no registry.
    fn read(&self, vm: &VmCid) -> Result<Option<VmRegistration>, CpiError> {
        let Some(path) = self.path(vm) else { return Ok(None) };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| cannot("use", &path, &error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }
}

/// Removes what a killed process left of the file. Nobody else may be writing it.
fn purge(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if file::is_leftover(&entry.file_name()) && entry.file_name().to_str().is_some_and(|it| it.contains(name)) {
            file::remove_file(&entry.path())?;
        }
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &dyn Error) -> CpiError {
    CpiError::cloud(format!("cannot {what} {}: {error}", path.display()))
}

fn failed(error: RegistryError) -> CpiError {
    CpiError::cloud(windlass_contract::explain(&error))
}
