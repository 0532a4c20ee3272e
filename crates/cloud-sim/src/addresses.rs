//! No two VMs have the same address in the same network.
//!
//! A file per address names the VM that has it, so that making a VM need not look at all others. The VM's record decides: a
//! file that names a VM which is gone, or has another address now, means nothing. Every reader and writer holds
//! [`SimCloud::making_vms`].
//!
//! [`SimCloud::making_vms`]: crate::SimCloud::making_vms

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use uuid::Uuid;
use windlass_contract::VmCid;
use windlass_contract::cpi::CpiError;
use windlass_cpi::resources::Resources;
use windlass_durable::file;

use crate::records::{Address, VmRecord};

/// Which VM has which address.
#[derive(Debug)]
pub(crate) struct Addresses {
    folder: PathBuf,
}

impl Addresses {
    pub(crate) fn new(state: &Path) -> Self {
        Self { folder: state.join("addresses") }
    }

    /// The VM that has `address`.
    pub(crate) fn holder(&self, address: &Address, vms: &Resources<VmRecord>) -> Result<Option<VmCid>, CpiError> {
        let path = self.path(address);
        let cid = match fs::read_to_string(&path) {
            Ok(cid) => cid,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let vm = vms.read(cid.trim())?;
        Ok(vm.filter(|vm| vm.addresses.contains(address)).map(|vm| vm.cid))
    }

    /// Notes that `vm`, which is about to be made, has `addresses`.
    pub(crate) fn note(&self, addresses: &[Address], vm: &VmCid) -> Result<(), CpiError> {
        file::create_private_dir(&self.folder)
            .and_then(|()| self.sweep())
            .map_err(|error| failed("prepare", &self.folder, &error))?;
        for address in addresses {
            let path = self.path(address);
            file::write(&path, format!("{vm}\n").as_bytes(), file::PRIVATE)
                .map_err(|error| failed("write", &path, &error))?;
        }
        Ok(())
    }

    /// Forgets the addresses of `vm`, which is gone.
    pub(crate) fn forget(&self, addresses: &[Address], vm: &VmCid) -> Result<(), CpiError> {
        for address in addresses {
            let path = self.path(address);
            if fs::read_to_string(&path).is_ok_and(|holder| holder.trim() == vm.as_str()) {
                file::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Removes what killed processes left half written.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if file::is_leftover(&entry.file_name()) {
                file::remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The name of a network may be anything, so it is not made a path.
    fn path(&self, Address { network, ip }: &Address) -> PathBuf {
        self.folder.join(Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{ip} in {network}").as_bytes()).to_string())
    }
}

/// `::ffff:10.0.0.5` is 10.0.0.5.
pub(crate) fn parse(ip: &str) -> Option<IpAddr> {
    ip.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> CpiError {
    CpiError::cloud(format!("cannot {doing} {}: {error}", path.display()))
}
