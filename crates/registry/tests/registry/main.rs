//! The registry's client and its server, with real connections and real databases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod client;
mod server;
