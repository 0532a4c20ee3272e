//! The agents of simulated VMs.
//!
//! All agents of a state folder live in one process, the host ([`mod@host`]): each is the real agent with its own address,
//! certificate and folder, as its VM's record says ([`behaviour`] is what can be wrong with it). A CPI call that starts,
//! stops or changes a VM tells the host to look at its record ([`mod@line`]), and starts the host if there is none. The host
//! keeps nothing that is not in the state folder, so it may be killed at any time: the next call brings all agents back.

pub mod behaviour;
mod host;
mod hosted;
mod line;

pub use behaviour::AgentBehaviour;
pub use host::{HostError, Stay, host};
pub(crate) use line::Line;

/// Only the host holds it.
const LOCK: &str = "host.lock";
/// The process that is the host.
const PROCESS: &str = "host.json";
/// Where it is told which VM to look at.
const SOCKET: &str = "host.sock";
/// What it prints.
const LOG: &str = "host.log";
/// What it says when it has looked.
const DONE: &[u8] = b"done\n";
