//! The processes that jobs describe in `monit` files, and a supervisor that keeps them as they should be.
//!
//! The supervisor is a process of its own. Agents are its clients: they come, restart and go, and no process is touched. A
//! supervisor that is killed finds at its next start what runs, what it waits for and what is wanted, and goes on.
//!
//! ```no_run
//! use std::path::Path;
//! use windlass_supervise::{Client, Command, Selection, Settings};
//!
//! // In a process of its own. Its program is also the launcher: `launch` is called with the arguments after these.
//! let settings = Settings::new("/var/vcap/monit/supervise", vec!["/proc/self/exe".into(), "launch".into()]);
//! windlass_supervise::run(&settings)?;
//!
//! // In the agent.
//! let client = Client::new("/var/vcap/monit/supervise");
//! client.load(&[("0000_web.monitrc", "check process web pidfile /run/web.pid …")])?;
//! client.command(Command::Start, Selection::Group("vcap".into()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`monit`]: what the files say. Everything that is not understood is refused with file, line and clause.
//! - [`machine`]: what is decided, and why nothing is ever started twice or lost. Pure: time is a number that it is told.
//! - [`protocol`]: what clients ask and are told: JSON, one line each, over a Unix socket. [`client`] is their side.
//! - [`monit_command`]: the command `monit`, for scripts that call it.
//! - [`edge`]: the process: pid files, `/proc`, programs behind gates, connections, the state file, the log.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod client;
pub mod edge;
pub mod machine;
pub mod monit;
pub mod monit_command;
pub mod protocol;

pub use client::{Client, ClientError};
pub use edge::groups::own_group;
pub use edge::processes::process_of;
pub use edge::programs::{launch, run_program};
pub use edge::{RunError, Settings, run};
pub use machine::commands::{Command, Selection};
pub use machine::status::{Health, ServiceStatus, Usage};
