//! A simulated cloud, for testing everything else: all methods of the contract with the refusals of a real cloud, as slow
//! and as faulty as its configuration says. Nothing runs in its VMs.
//!
//! The executable calls [`serve`] for one CPI call. Any number of processes share a state folder:
//!
//! ```text
//! stemcells/sc-…/    stemcell.json
//! vms/vm-…/          vm.json  user-data.json     what its agent would boot from
//! disks/disk-…/      disk.json  content          what is on the disk
//! snapshots/snap-…/  snapshot.json  content
//! networks/net-…/    network.json
//! addresses/         which VM has which address
//! calls/             how often a method with faults was called
//! requests/          what the SDK remembers
//! locks/             one per resource that is being changed
//! ```
//!
//! A person can read all of it, and [`status`] and [`settings`] show it. Every change is atomic and flushed, and is made
//! under the lock of its resource, so any process may be killed at any point. A disk's hint is the path of its content, so
//! that tests can write what a VM would write and look whether it is still there.
//!
//! - [`cloud`]: which method is served where; `methods`: one file per CPI method.
//! - [`config`], [`faults`], [`catalogue`]: what can be configured.
//! - [`records`]: what is kept of each resource.
//! - `network_plan`, `addresses`, `ranges`: which addresses a VM or network gets.

mod addresses;
pub mod catalogue;
pub mod cloud;
pub mod config;
pub mod faults;
mod inventory;
mod methods;
mod network_plan;
mod ranges;
pub mod records;

use std::path::Path;
use std::process::ExitCode;

pub use cloud::SimCloud;
pub use config::SimConfig;
pub use inventory::{Inventory, settings, status};

/// Serves the one CPI call of this process, with the configuration at `config` or without one.
pub fn serve(config: Option<&Path>) -> ExitCode {
    faults::keep_stdout();
    windlass_cpi::serve_with(|| config::load(config), |config| SimCloud::new(config.plugin()?))
}
