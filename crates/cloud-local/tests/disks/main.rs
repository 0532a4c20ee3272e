//! Disks in both forms, with the CPI as a real process.
//!
//! Images need root, loop devices and mounts, so each test of theirs runs on a machine of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod bad_input;
mod data;
mod held;
mod in_containers;
mod kills;
#[path = "../rig/mod.rs"]
mod rig;
mod site;
mod snapshots;
