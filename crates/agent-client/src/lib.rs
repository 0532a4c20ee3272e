//! The caller's side of an agent over HTTPS.
//!
//! One [`AgentClient`] holds the caller's certificates; [`AgentClient::agent`] gives a handle on one agent, cheap to keep
//! for thousands of them and cheap to clone:
//!
//! ```no_run
//! # async fn example(tls: windlass_agent_client::ClientTls, endpoint: windlass_agent_client::AgentEndpoint,
//! #     cid: windlass_contract::DiskCid, hint: windlass_contract::DiskHint) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! let agent = windlass_agent_client::AgentClient::new(tls)?.agent(endpoint);
//! agent.wait_until_ready(Duration::from_secs(600)).await?;
//! agent.add_and_mount_disk(&cid, &hint).await?;
//! # Ok(()) }
//! ```
//!
//! The certificate must name the agent (`AgentId::dns_name`) whatever address is dialled. Long actions are tasks of the
//! agent: a method returns when its task ended, and outlives a restart of the agent in between.
//!
//! - [`access`]: what a new agent is given so that it can be reached.
//! - [`methods`]: the actions, typed; [`Agent::call`] is any action, and [`Agent::begin`] does not wait for its end.
//! - [`blobs`]: files for the agent and from it. [`health`]: what agents say by themselves elsewhere, asked for.
//! - [`way_in`]: work for people in the VM, whose input and output travel for as long as it takes.
//! - [`ready`]: waiting for a new VM, with the last stage that was reached.
//! - [`error`]: what can go wrong and what to do about it.

pub mod access;
mod agent;
pub mod blobs;
mod connection;
pub mod error;
mod head;
pub mod health;
mod limits;
pub mod methods;
mod permission;
pub mod ready;
mod tls;
pub mod way_in;

pub use access::{AGENT_PORT, AgentAccess};
pub use agent::{Agent, AgentClient, AgentEndpoint, Begun, Cancellation, Deadlines, Task};
pub use error::{CallError, Stage};
pub use health::{Alert, Heartbeat, JobHealth};
pub use methods::{AgentState, CompiledBlob, Drain, Outcome};
pub use permission::Permission;
pub use ready::{NotReady, NotYetReady, WaitWatch};
pub use tls::{ClientTls, TlsError};
pub use way_in::{Conversation, NoWayIn};
