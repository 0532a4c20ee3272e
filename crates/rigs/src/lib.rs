//! What tests of several crates share. Nothing that people run depends on it.
//!
//! - [`documented`]: the examples of the contract's documents.
//! - [`earlier_states`]: what earlier versions stored.
//! - [`lxd`]: a real LXD daemon, on a machine of the test's own.
//! - [`object_store`]: a simulator of S3.
//! - [`ordinary_user`]: a test run by somebody without privileges.
//! - [`own_machine`]: namespaces in which a test may change networks and mounts.
//! - [`recording_registry`]: a registry that remembers what it was asked.
//! - [`small_disk`]: a file system that is soon full.
//! - [`vm_root`]: files of VMs, as their root makes them.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

pub mod documented;
pub mod earlier_states;
pub mod lxd;
pub mod object_store;
pub mod ordinary_user;
pub mod own_machine;
pub mod recording_registry;
pub mod small_disk;
pub mod vm_root;
