//! The registry with real connections and real databases.

mod access;
mod databases;
mod desk;
mod load;
mod wire;
