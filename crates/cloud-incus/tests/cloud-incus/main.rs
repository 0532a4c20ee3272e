//! The CPI against a real daemon, judged from the daemon's own lists.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod bad_answers;
mod cluster;
mod daemon_killed;
mod kill_points;
mod lost_answers;
mod methods;
mod moving;
mod rig;
mod simulated;
