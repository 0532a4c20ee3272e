//! The caller's side of a director: which one to talk to, the calls over HTTPS, and what its answers mean. It prints nothing.
//!
//! ```text
//! flags, variables ── environment ──▶ Environment ── DirectorClient::new ──▶ get, post_json, begin ──▶ answers
//!                                                                            └▶ a task: TaskOutput ──▶ event_log
//! ```
//!
//! - [`environment`]: which director, and as whom. [`known_environments`]: the names that users gave to directors.
//! - [`client`]: calls, uploads and downloads; what is sent again after an interruption.
//! - [`answers`]: what the director says, as types, which its API writes. [`event_log`]: the events of a task.
//! - [`known_names`]: the names of everything that a director has.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod client;
pub mod environment;
pub mod event_log;
pub mod known_environments;
pub mod known_names;
mod task;

/// What a director says, as types.
pub use windlass_contract::director as answers;

pub use client::{ClientError, DirectorClient, RawAnswer, escape, query};
pub use environment::{DirectorFlags, Environment, EnvironmentError};
pub use task::TaskOutput;
