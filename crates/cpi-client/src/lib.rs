//! The caller's side of a CPI.
//!
//! A CPI is an executable: one process per call, one JSON object on its stdin, one on its stdout. [`Cpi`] starts it,
//! agrees on a contract version, enforces a deadline, validates the answer as strictly as the BOSH director does,
//! and explains what went wrong.
//!
//! For a caller that must survive a kill:
//!
//! 1. it stores what it is about to ask, with a [`RequestId`](windlass_contract::RequestId) of its own;
//! 2. [`Cpi::prepare`] makes the request with that id, in the version that both sides speak;
//! 3. [`Cpi::send`] starts the process, tells the [`CallObserver`] its pid and start time, which the caller stores, too, and
//!    only then writes the request.
//!
//! After a restart it asks the same again with the same id: a CPI that remembers requests answers as the first time. Where
//! nothing has to be stored, [`Cpi::call`] does all of it.
//!
//! What a CPI may take is limited: its time, its answer (by the method), its log and the message of its error.
//!
//! - [`client`]: [`Cpi`] and its calls.
//! - [`command`]: the executable and the environment it runs in. [`configuration`]: what it was given before, with credentials.
//! - [`negotiation`]: which version both sides speak; `origin`: when that is asked again.
//! - [`response`]: what a valid response is.
//! - `child`: one process, from its start to its end; `call_log`: what it says meanwhile.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod call_log;
mod child;
pub mod client;
pub mod command;
pub mod configuration;
pub mod error;
pub mod negotiation;
mod origin;
pub mod response;

pub use client::{CallMeter, CallObserver, Cpi, CpiOptions, PreparedCall, ReadAnswer};
pub use command::{CpiCommand, Environment};
pub use configuration::Configuration;
pub use error::CallError;
pub use negotiation::Negotiated;
