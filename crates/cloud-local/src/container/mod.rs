//! A VM as a container: namespaces, a root file system and interfaces of its own.
//!
//! - [`boot`]: what runs first in a VM of a stemcell, and where its agent looks for its settings.
//! - [`limits`]: how much of the machine it may use; [`confinement`], [`syscalls`]: how much of the kernel.
//! - [`spec`]: the container in the words of the OCI runtime specification.
//! - [`users`]: whose users its own are. [`sources`]: where what it is made from is found.
//! - [`root`]: its root file system.
//! - [`running`]: made, connected and started by its supervisor, and what goes when it ended.
//! - [`handover`]: its disks, for agents that would not take them as they are.
//! - [`init`]: its first process.
//! - [`cgroup`]: all its processes; [`group_tree`]: those in groups that it made.
//!
//! What a container has of this machine goes with its processes: the root file system is mounted where only they see it,
//! and its interfaces are in its network namespace. What does not (control groups, the machine's ends of interfaces, bridges, the
//! folder of its disks) has names that follow from the VM's record, so that any later call finds it.

pub(crate) mod boot;
pub(crate) mod cgroup;
pub(crate) mod confinement;
mod group_tree;
pub(crate) mod handover;
mod init;
pub(crate) mod limits;
pub(crate) mod root;
pub(crate) mod running;
mod sources;
mod spec;
pub(crate) mod syscalls;
pub(crate) mod users;
