//! Disks in both forms, with the CPI as a real process.
//!
//! Images need root, loop devices and mounts, so each test of theirs runs on a machine of its own.

mod bad_input;
mod data;
mod held;
mod in_containers;
mod kills;
mod site;
mod snapshots;
