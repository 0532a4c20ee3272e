//! CPI releases, installed on the machine that calls them: by `create-env` for one run, and by `windlass cpi install` for a
//! director, under a name.
//!
//! ```text
//! releases ── plan ──▶ jobs and packages ── packages ──▶ PACKAGES/NAME
//!                                        └─ jobs ──────▶ JOBS/NAME/bin/cpi ◀── launcher (with BOSH's variables)
//! ```
//!
//! - [`plan`]: which jobs and packages, in which order, and which job is the CPI. [`tools`]: what this machine needs for them.
//! - [`packages`]: compiled here as BOSH's command line does it, or unpacked where they come compiled. Each has a mark once it is
//!   whole, so that a run that was killed anywhere is completed by the next one.
//! - [`jobs`]: rendered for this machine. They hold credentials, so only their owner can read them, and [`secret_folder`] removes
//!   them with the process that needed them, however it ends.
//! - [`launcher`]: what callers start. [`installed`]: CPIs under names.
//! - [`own_programs`]: what is installed beside the program that runs.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod error;
pub mod installed;
pub mod jobs;
pub mod launcher;
pub mod own_programs;
pub mod packages;
pub mod plan;
pub mod secret_folder;
pub mod tools;

#[cfg(test)]
mod testing;

pub use error::InstallError;
pub use installed::{InstalledCpi, InstalledCpis};
pub use plan::{CpiPlan, JobReference};
pub use secret_folder::SecretFolder;
