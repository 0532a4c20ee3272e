//! What is done to a cloud and its agents, and remembered. Director and create-env share it.
//!
//! A planned action becomes an operation ([`steps`]); its steps ask [`clouds`] for changes and talk to [`agents`]; what
//! was meant and what came of it is in the [`ledger`], which a database or a state file keeps.
//!
//! - [`ledger`]: the rule by which nothing is ever lost: intent, then action, then fact.
//! - [`clouds`]: the way to CPIs; `send` turns a change into a call and its answer into a fact.
//! - [`agents`]: the way to agents, with their certificates and passwords.
//! - [`cpi_caller`], [`agent_caller`]: what the steps ask of a CPI and of an agent, for tests that have neither.
//! - [`software`]: jobs and packages on their way to a VM.
//! - [`steps`]: every operation as a table of steps.
//! - [`settle`]: what becomes of intents that an earlier run left open.
//! - [`full_disk`]: whether there is room for what VMs send.
//! - [`clock`]: times as the API and the records write them.
//! - `testing`: a ledger in memory, and what every ledger must do; with the feature of that name.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod agent_caller;
pub mod agents;
pub mod clock;
pub mod clouds;
pub mod cpi_caller;
pub mod full_disk;
mod late_values;
pub mod ledger;
mod send;
pub mod settle;
pub mod software;
pub mod steps;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
