//! The embedded cloud: VMs on this machine.
//!
//! In `container` isolation a VM has namespaces, a root file system and interfaces of its own, and a disk is an image. In
//! `process` isolation, which needs no privileges, a VM is a folder and an agent on a loopback address of its own, and a disk is
//! a folder. The executable calls [`serve`] for one CPI call, and [`vm_run`] for the supervisor that each VM has;
//! everything between the two is the state folder:
//!
//! ```text
//! stemcells/sc-…/  stemcell.json  root/          an unpacked image
//! vms/vm-…/        vm.json  settings.json  console.log  lock  supervisor.json
//!                  agent.json  base/                         of a process
//!                  root/  disks/                             of a process with a root of its own: where things are mounted
//!                  upper/  work/  root/  disks/  container/  of a container: what it wrote, its disks, what it was made from
//! disks/disk-…/    disk.json  data/ or image
//! snapshots/snap-…/  snapshot.json  data/ or image
//! networks/net-…/  network.json                  a range that was set aside
//! attempt/         where it is tried whether this machine allows containers
//! requests/        the SDK's memory: answered requests, how each VM gets its settings, locks
//! locks/           one per resource that is being changed, one for all networks
//! ```
//!
//! A person can read all of it. Every change is atomic and flushed, and is made under the lock of its resource, so any
//! process may be killed at any point: what it left half done is invisible (its name starts with a dot) or is finished by
//! the next call.
//!
//! - [`cloud`]: which method is served where; `methods`: one file per CPI method.
//! - `state`: the folders and what is recorded in them.
//! - `isolation`: what this machine allows. `machine`: starting and stopping a VM from the outside; `supervisor`: the VM from
//!   the inside; `container`: what a supervisor makes a container from; `own_root`: a root file system for a VM that is none;
//!   `userland`: whose programs a VM has.
//! - `network`, `address`: which addresses a VM gets, and how no two VMs ever use the same; `surroundings`: what VMs share, and
//!   giving it back.
//! - `disks`: what disks are made of, and showing them to VMs; [`operator`]: looking at all of this, and tidying up.
//! - [`own_machine`]: where containers can be tried without touching anything. [`LoopbackNet`]: addresses for VMs that are processes.
//! - `unpack`, `oci`, `layers`: images, without letting them write anywhere else.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod address;
pub mod cloud;
mod config;
mod container;
mod disks;
mod isolation;
mod layers;
mod limits;
mod loopback_net;
mod machine;
mod methods;
mod network;
mod oci;
pub mod operator;
pub mod own_machine;
mod own_root;
mod process_tree;
mod state;
mod supervisor;
mod surroundings;
mod unpack;
mod userland;

pub use cloud::LocalCloud;
pub use config::LocalConfig;
pub use isolation::{Isolation, IsolationChoice, try_containers};
pub use loopback_net::LoopbackNet;
pub use own_root::{Refusal, try_own_root, vm_root};
pub use supervisor::vm_run;

/// Serves the one CPI call of this process, with the configuration at `config`.
pub fn serve(config: &std::path::Path) -> std::process::ExitCode {
    windlass_cpi::serve(config, |config| LocalCloud::new(config.plugin()?))
}
