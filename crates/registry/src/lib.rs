//! The registry keeps the settings of agents that cannot be given them in full: those of stemcells, and under callers,
//! older than version 2 of the CPI contract. CPIs write to it, agents read from it, over plain HTTP requests.
//!
//! - [`credentials`]: who may read what. Each VM reads its own settings and no others.
//! - [`client`] (feature `client`): for CPIs and agents.
//! - [`server`] (feature `server`): the registry itself, for `windlass registry` and for programs that need one for a while.

#[cfg(feature = "client")]
pub mod client;
pub mod credentials;
#[cfg(feature = "client")]
mod endpoint;
#[cfg(feature = "server")]
pub mod server;

#[cfg(feature = "client")]
pub use client::{Client, RegistryError};
pub use credentials::Credentials;
