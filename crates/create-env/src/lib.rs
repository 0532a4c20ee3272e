//! One VM without a director: `create-env` and its sisters.
//!
//! The steps are the director's ([`windlass_operations::steps`]); what they remember is in a state file instead of a database
//! ([`ledger`]), in the original's form ([`state`]), so that either command line goes on where the other ended.
//!
//! - [`manifest`], [`cloud_provider`]: what is wanted, and which CPI makes it.
//! - [`plan`]: what a run will do, with reasons.
//! - [`create()`], [`delete()`], [`stop()`], [`start()`]: the runs. [`run`]: what they have in common.
//! - [`stemcell`], [`releases`]: fetched and checked. [`cpi_release`]: the CPI's, compiled and rendered here. [`software`]: what runs
//!   on the VM. [`registry`]: for CPIs and stemcells that cannot do without one.
//! - [`report`]: what people see.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod cloud_provider;
mod cpi_release;
mod create;
mod delete;
pub mod ledger;
pub mod manifest;
pub mod plan;
pub mod registry;
pub mod releases;
pub mod report;
pub mod run;
pub mod software;
pub mod state;
pub mod stemcell;
mod stop_start;

pub use cloud_provider::OwnCpi;
pub use create::create;
pub use delete::delete;
pub use plan::Wishes;
pub use report::{End, Screen};
pub use run::{EnvError, EnvOptions};
pub use stop_start::{start, stop};
