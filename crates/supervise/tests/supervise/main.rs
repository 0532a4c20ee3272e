//! The supervisor as a process, with real programs.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod kills;
mod life;
mod many;
mod rig;
