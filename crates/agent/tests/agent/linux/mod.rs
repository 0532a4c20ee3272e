//! The platform `ubuntu`, with real block devices and file systems, in a root, in namespaces, of its own.
//!
//! The machine under the tests is out of reach: the agent runs in a root whose `/dev` has nothing but loop devices of the test,
//! and mounts, addresses, processes and the host's name are private.

mod bosh_cases;
mod container;
mod ephemeral;
mod formatting;
mod growth;
mod hints;
mod kills;
mod migration;
mod own_machine;
mod private;
mod setup;
mod signatures;
