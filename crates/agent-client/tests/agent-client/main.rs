//! The client against servers that answer what a test tells them: agents of other ages, and things that are no agents.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "in a test, a panic is the report")]

mod disks;
mod large_answers;
mod rig;
mod tasks;
mod waits;
mod way_in;
