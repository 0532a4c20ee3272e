//! The simulated cloud: its CPI as a real process for each call, its agents, its faults, and what is left when it is killed.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::print_stdout, reason = "figures for people")]

mod agents;
mod cloud;
mod faults;
mod kill_points;
mod rig;
