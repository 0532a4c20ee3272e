//! Disks in both forms, with the CPI as a real process.
//!
//! Images need root, loop devices and mounts, so each test of theirs runs again in a mount and a network namespace of its
//! own: whatever it leaves mounted is gone with it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod bad_input;
mod data;
mod held;
mod kills;
mod namespace;
#[path = "../rig/mod.rs"]
mod rig;
mod site;
mod snapshots;
