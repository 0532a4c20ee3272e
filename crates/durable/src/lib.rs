//! Writes that survive a kill at any point, and the hook that proves it.
//!
//! - [`mod@file`]: replace a file or folder atomically and flush it; remove a tree so that no half of it is ever seen.
//! - [`core_files`]: what a process had in memory stays out of files when it crashes.
//! - [`host`]: the machine that a pid means something on.
//! - [`lock`]: locks between processes, released by the kernel when their holder dies.
//! - [`process`]: a process by pid and start time, so that a reused pid is never mistaken for it.
//! - [`state_dir`]: where state is kept unless something else is said.
//! - [`kill_point()`]: every durable write, rename, mount, spawn and remote call passes it. With the cargo feature
//!   `kill-points`, a sweep can kill the process at point 1, 2, … until a run ends unkilled.
//! - [`sweep`]: which points that is: all, or a sample that a seed chooses.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod core_files;
mod deep_trees;
pub mod file;
pub mod host;
pub mod kill_point;
pub mod lock;
pub mod process;
pub mod state_dir;
pub mod sweep;

pub use kill_point::{HAS_KILL_POINTS, kill_point};
