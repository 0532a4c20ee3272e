//! What the VMs of a cloud share: addresses and bridges. And giving back what a VM had of them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::explain;
use windlass_contract::{Networks, VmCid};
use windlass_durable::lock::FileLock;

use crate::cloud::LocalCloud;
use crate::container::running;
use crate::disks;
use crate::isolation::{Isolation, IsolationChoice};
use crate::machine::Machine;
use crate::network::bridged::Surroundings;
use crate::network::netlink::Netlink;
use crate::network::{self, Interface, bridge, loopback};
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
            .map_err(|error| CpiError::new(ErrorType::NoDiskSpace, explain(&error)))
    }

    /// Gives back what a VM that is locked and does not run has, but for its folder: afterwards nothing is mounted in that, and
    /// it may be removed. What is given back already is a success.
    pub(crate) fn release(&self, vm: &VmRecord, machine: &Machine) -> Result<(), CpiError> {
        let failed = |error: &dyn std::error::Error| CpiError::cloud(explain(error));
        if let Some(container) = &vm.container {
            running::clear(vm, container, machine).map_err(|error| failed(&error))?;
        }
        disks::release_all(self, vm, machine)?;
        let Some(container) = &vm.container else { return Ok(()) };
        let _networks = self.lock_networks()?;
        let wired = self.wired()?;
        let mut netlink = Netlink::open().map_err(|error| failed(&error))?;
        for Interface { bridge, .. } in interfaces(vm) {
            if !wired.iter().any(|(other, used)| *other != vm.cid && used == bridge) {
                bridge::remove(&mut netlink, bridge, container.wiring.outbound)?;
            }
        }
        Ok(())
    }

    /// Which VM is on which bridges, running or not.
    pub(crate) fn wired(&self) -> Result<Vec<(VmCid, String)>, CpiError> {
        let vms = self.vms.all()?;
        Ok(vms.iter().flat_map(|vm| interfaces(vm).map(|it| (vm.cid.clone(), it.bridge.clone()))).collect())
    }

    /// Removes a bridge, unless a VM is on it in the meantime.
    pub(crate) fn remove_unused_bridge(&self, name: &str) -> Result<(), CpiError> {
        let _networks = self.lock_networks()?;
        if self.wired()?.iter().any(|(_, used)| used == name) {
            return Ok(());
        }
        let mut netlink = Netlink::open().map_err(|error| CpiError::cloud(explain(&error)))?;
        Ok(bridge::remove(&mut netlink, name, self.config.outbound)?)
    }
}

fn interfaces(vm: &VmRecord) -> impl Iterator<Item = &Interface> {
    vm.container.iter().flat_map(|container| &container.wiring.interfaces)
}
