//! The registry with real connections and real databases.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod access;
mod databases;
mod desk;
mod load;
mod wire;
