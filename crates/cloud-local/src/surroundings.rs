//! What the VMs of a cloud share: addresses and bridges. And giving back what a VM had of them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use windlass_contract::Networks;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_durable::lock::FileLock;

use crate::cloud::LocalCloud;
use crate::container::running;
use crate::disks;
use crate::isolation::{Isolation, IsolationChoice};
use crate::machine::{Machine, with_cause};
use crate::network::bridged::Surroundings;
use crate::network::netlink::Netlink;
use crate::network::{self, bridge, loopback};
use crate::state::VmRecord;

impl LocalCloud {
    /// How a VM with these networks is kept apart. One that asks for loopback addresses can only be a process.
    pub(crate) fn isolation_for(&self, networks: &Networks) -> Result<Isolation, CpiError> {
        if self.config.isolation == IsolationChoice::Auto && loopback::is_wanted(networks) {
            return Ok(Isolation::Process);
        }
        self.isolation()
    }

    /// Held while addresses are given or bridges made and removed.
    pub(crate) fn lock_networks(&self) -> Result<FileLock, CpiError> {
        network::lock(&self.config.state_dir)
            .map_err(|error| CpiError::cloud(format!("cannot lock the networks: {error}")))
    }

    /// What a new VM is planned into. The networks must be locked.
    pub(crate) fn surroundings(&self, seed: Uuid) -> Result<Surroundings<'_>, CpiError> {
        let mut holders = BTreeMap::new();
        let mut machines = BTreeSet::new();
        for vm in self.vms.all()? {
            holders.extend(vm.addresses.iter().map(|address| (*address, vm.cid.clone())));
            machines.extend(interfaces(&vm).map(|interface| interface.machine));
        }
        Ok(Surroundings {
            state: &self.config.state_dir,
            dynamic_range: self.config.dynamic_range,
            outbound: self.config.outbound,
            seed,
            holders,
            machines,
        })
    }

    /// Fails unless there is space for so many bytes.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<(), CpiError> {
        disks::space::ensure(&self.config.state_dir, bytes)
            .map_err(|error| CpiError::new(ErrorType::NoDiskSpace, with_cause(&error)))
    }

    /// Gives back what a VM that is locked and does not run has, but for its folder: afterwards nothing is mounted in that, and
    /// it may be removed. What is given back already is a success.
    pub(crate) fn release(&self, vm: &VmRecord, machine: &Machine) -> Result<(), CpiError> {
        let failed = |error: &dyn std::error::Error| CpiError::cloud(with_cause(error));
        if let Some(container) = &vm.container {
            running::clear(vm, container, machine).map_err(|error| failed(&error))?;
        }
        disks::release_all(self, vm, machine)?;
        let Some(container) = &vm.container else { return Ok(()) };
        let _networks = self.lock_networks()?;
        let mut used = BTreeSet::new();
        for other in self.vms.all()?.iter().filter(|other| other.cid != vm.cid) {
            used.extend(interfaces(other).map(|interface| interface.bridge.clone()));
        }
        let mut netlink = Netlink::open().map_err(|error| failed(&error))?;
        for interface in interfaces(vm).filter(|interface| !used.contains(&interface.bridge)) {
            bridge::remove(&mut netlink, &interface.bridge, container.wiring.outbound)?;
        }
        Ok(())
    }
}

fn interfaces(vm: &VmRecord) -> impl Iterator<Item = &network::Interface> {
    vm.container.iter().flat_map(|container| &container.wiring.interfaces)
}
