//! The words that director, CPI, agent and clients speak to each other.
//!
//! Pure types without I/O. Strict in what is sent (what today's originals accept), liberal in what is taken.
//!
//! - [`explain()`]: errors with their causes, as messages and logs carry them.
//! - [`has_more_values_than`]: a look at JSON of others before it is read.
//! - [`ids`]: one type per kind of id, so that a VM's cid never passes for a disk's.
//! - [`version`]: contract versions and the rule that decides whether the registry is needed.
//! - [`cpi`]: the envelope, the methods with their arguments and answers, and the error types of a CPI.
//! - [`director`]: what a director answers to its clients.
//! - [`disk_hint`]: where a disk is found inside the VM.
//! - [`network`]: the networks of a VM.
//! - [`settings`]: the document an agent boots from.
//! - [`agent`]: messages to an agent and its replies.
//! - [`registry`]: settings of VMs that still need a registry.
//! - [`size`]: sizes of disks and memory.
//! - [`stemcell`]: the manifest inside a stemcell.
//! - [`secret`]: a string that never prints itself.
//! - [`way_in`]: work in a VM through its agent, and the frames in which its input and output travel.

pub mod agent;
pub mod cpi;
pub mod director;
pub mod disk_hint;
mod explain;
pub mod ids;
pub mod network;
mod null;
pub mod registry;
pub mod secret;
pub mod settings;
pub mod size;
pub mod stemcell;
mod values;
pub mod version;
pub mod way_in;

/// A JSON object, as `cloud_properties`, metadata and other documents that only one side understands.
pub type Object = serde_json::Map<String, serde_json::Value>;

pub use disk_hint::DiskHint;
pub use explain::{explain, shortened};
pub use ids::{AgentId, DiskCid, NetworkCid, RequestId, SnapshotCid, StemcellCid, VmCid};
pub use network::{Network, Networks};
pub use secret::Secret;
pub use size::MiB;
pub use values::{has_more_values_than, values_in, zero_byte_in};
pub use version::ApiVersion;
