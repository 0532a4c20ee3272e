//! The real agent in a process of its own, driven over real TLS by the real client and by hand-made requests.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "in a test, a panic is the report")]

mod blobs;
mod bpm;
mod conformance;
mod disks;
mod documented;
mod fuzz;
mod health;
mod host;
mod job_lives;
mod kills;
mod limits;
mod linux;
mod machine;
mod replay;
mod restarts;
mod scripts;
mod services;
mod side_by_side;
mod software;
mod sources;
mod transport;
mod trust;
