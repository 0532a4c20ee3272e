//! Removing everything: the end of a director that kept its VMs on this machine.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::{DeleteDisk, DeleteNetwork, DeleteSnapshot, DeleteStemcell, DeleteVm};

use crate::cloud::LocalCloud;
use crate::methods;

impl LocalCloud {
    /// Deletes all VMs, snapshots, disks, networks and stemcells, and what killed calls left. Goes on after a failure, and
    /// gives all of them. Nobody else may use the cloud meanwhile.
    pub async fn destroy(&self) -> Result<Vec<String>, CpiError> {
        let mut failures = Vec::new();
        let mut note = |what: String, done: Result<(), CpiError>| {
            failures.extend(done.err().map(|error| format!("{what}: {}", error.message)));
        };
        for vm in self.vms.all()? {
            let what = format!("VM {}", vm.cid);
            note(what, methods::delete_vm::run(self, DeleteVm { vm_cid: vm.cid }).await);
        }
        for snapshot in self.snapshots.all()? {
            let what = format!("snapshot {}", snapshot.cid);
            note(what, methods::delete_snapshot::run(self, DeleteSnapshot { snapshot_cid: snapshot.cid }));
        }
        for disk in self.disks.all()? {
            let what = format!("disk {}", disk.cid);
            note(what, methods::delete_disk::run(self, DeleteDisk { disk_cid: disk.cid }));
        }
        for network in self.networks.all()? {
            let what = format!("network {}", network.cid);
            note(what, methods::delete_network::run(self, DeleteNetwork { network_cid: network.cid }));
        }
        for stemcell in self.stemcells.all()? {
            let what = format!("stemcell {}", stemcell.cid);
            note(what, methods::delete_stemcell::run(self, DeleteStemcell { stemcell_cid: stemcell.cid }));
        }
        for problem in self.status()?.problems {
            match problem.is_garbage() {
                true => note(problem.what.clone(), self.collect(&problem)),
                false => note(problem.what, Err(CpiError::cloud(problem.why))),
            }
        }
        Ok(failures)
    }
}
