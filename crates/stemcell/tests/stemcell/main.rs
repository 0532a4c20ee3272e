//! Stemcells that we build, those that others send, and those that we change.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod building;
mod reading;
mod repacking;
mod rig;
mod root_file_systems;
