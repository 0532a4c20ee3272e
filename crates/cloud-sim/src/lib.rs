//! A simulated cloud, for testing everything else: all methods of the contract with the refusals of a real cloud, as slow
//! and as faulty as its configuration says. What runs in its VMs are real agents, all of them in one process.
//!
//! The executable calls [`serve`] for one CPI call, and [`sim_host`] for the process that hosts the agents. Any number of
//! processes share a state folder:
//!
//! ```text
//! stemcells/sc-…/    stemcell.json
//! vms/vm-…/          vm.json  user-data.json     what its agent boots from
//!                    base/  disks/               what its agent owns; the disks that it sees
//! disks/disk-…/      disk.json  content/         what is on the disk
//! snapshots/snap-…/  snapshot.json  content/
//! networks/net-…/    network.json
//! addresses/         which VM has which address
//! calls/             how often a method with faults was called
//! calls.log          every call, if that is configured
//! requests/          what the SDK remembers
//! locks/             one per resource that is being changed
//! host.*             the process that hosts the agents
//! ```
//!
//! A person can read all of it, and [`status`] and [`settings`] show it. Every change is atomic and flushed, and is made
//! under the lock of its resource, so any process may be killed at any point. A disk is a folder, and its hint a path to it
//! that is there while the disk is attached, so that tests can write what a VM would write and look whether it is still
//! there.
//!
//! - [`cloud`]: which method is served where; `methods`: one file per CPI method.
//! - [`agents`]: what runs in the VMs.
//! - [`config`], [`faults`], [`catalogue`]: what can be configured.
//! - [`records`]: what is kept of each resource.
//! - `network_plan`, `addresses`, `ranges`: which addresses a VM or network gets.

mod addresses;
pub mod agents;
pub mod catalogue;
pub mod cloud;
pub mod config;
pub mod faults;
mod inventory;
mod methods;
mod network_plan;
mod ranges;
pub mod records;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use agents::{HostError, Stay};
pub use cloud::SimCloud;
pub use config::SimConfig;
pub use inventory::{Inventory, kill, settings, state_dir, status};
use windlass_durable::file;

/// Serves the one CPI call of this process, with the configuration at `config` or without one.
pub fn serve(config: Option<&Path>) -> ExitCode {
    file::leave_flushing_to_the_kernel();
    faults::keep_stdout();
    windlass_cpi::serve_with(|| config::load(config), |config| SimCloud::new(config.plugin()?))
}

/// Hosts the simulated agents in the folder `state` as long as there are VMs (`windlass sim-host DIR`, which CPI calls
/// start). Another host in its place is a success.
pub fn sim_host(state: &Path) -> ExitCode {
    file::leave_flushing_to_the_kernel();
    match agents::host(state, Stay::WhileNeeded, |_| ()) {
        Ok(()) | Err(HostError::AnotherHost { .. }) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{error}{cause}");
            ExitCode::FAILURE
        }
    }
}
