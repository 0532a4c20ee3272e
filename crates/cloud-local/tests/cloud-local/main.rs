//! The embedded cloud through its real process.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod cloud;
mod container_kills;
mod container_networks;
mod containers;
mod disks;
mod kill_points;
mod own_roots;
mod rig;
mod users;
