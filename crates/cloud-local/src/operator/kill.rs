//! Killing a VM, as a power failure would: for tests and demos.

use rustix::process::Signal;
use windlass_contract::VmCid;
use windlass_contract::cpi::CpiError;

use crate::cloud::LocalCloud;
use crate::container::cgroup;
use crate::machine::{Machine, STOP};
use crate::process_tree;

impl LocalCloud {
    /// Ends all processes of a VM at once, its supervisor first. The VM and its disks stay; `reboot_vm` starts it again.
    pub fn kill(&self, vm: &VmCid) -> Result<(), CpiError> {
        let (Some(folder), Some(_)) = (self.vms.path(vm.as_str()), self.vms.read(vm.as_str())?) else {
            return Err(CpiError::vm_not_found(vm));
        };
        let machine = Machine::new(folder);
        let supervisor = machine.supervisor_record().map_or(Ok(()), |record| record.process.signal(Signal::KILL));
        supervisor
            .and_then(|()| process_tree::kill_marked(machine.folder(), STOP))
            .and_then(|()| cgroup::kill(vm.as_str(), STOP))
            .map_err(|error| CpiError::cloud(format!("cannot kill the VM '{vm}': {error}")))
    }
}
