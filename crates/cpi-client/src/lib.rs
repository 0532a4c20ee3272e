//! The caller's side of a CPI.
//!
//! A CPI is an executable: one process per call, one JSON object on its stdin, one on its stdout. [`Cpi`] starts it,
//! agrees on a contract version, enforces a deadline, validates the answer as strictly as the original director does,
//! and explains what went wrong.
//!
//! A caller that must survive a kill makes its intent durable between the two phases:
//!
//! 1. [`Cpi::prepare`] gives the full request, which the caller stores;
//! 2. [`Cpi::send`] starts the process, tells the [`CallObserver`] its pid and start time (which the caller stores, too),
//!    and only then writes the request.
//!
//! After a restart, [`PreparedCall::from_request`] and [`Cpi::send`] repeat the stored request word for word.
//!
//! - [`client`]: [`Cpi`] and its calls.
//! - [`command`]: the executable and the environment it runs in.
//! - [`negotiation`]: which version both sides speak.
//! - [`response`]: what a valid response is.
//! - [`redaction`]: what never reaches a log.
//! - `child`: one process, from its start to its end.

mod child;
pub mod client;
pub mod command;
pub mod error;
pub mod negotiation;
pub mod redaction;
pub mod response;

pub use client::{CallMeter, CallObserver, Cpi, CpiOptions, PreparedCall, WrongMethod};
pub use command::{CpiCommand, Environment};
pub use error::CallError;
pub use negotiation::Negotiated;
pub use redaction::redact;
