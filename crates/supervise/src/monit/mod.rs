//! The `monit` files of jobs: what they may say, and what they mean.
//!
//! ```
//! let text = "check process web with pidfile /run/web.pid
//!   start program \"/jobs/web/bin/ctl start\" with timeout 60 seconds
//!   stop program \"/jobs/web/bin/ctl stop\"
//!   if totalmem > 200 MB for 3 cycles then restart
//!   group vcap";
//! let file = windlass_supervise::monit::parse("0000_web.monitrc", text)?;
//! assert_eq!(file.services[0].start.as_ref().unwrap().arguments, ["/jobs/web/bin/ctl", "start"]);
//! let error = windlass_supervise::monit::parse("x", "check process web\n  pidfile /p\n  if uptime > 3 days then alert").unwrap_err();
//! assert_eq!(error.line, 3);
//! # Ok::<(), windlass_supervise::monit::MonitError>(())
//! ```
//!
//! - [`lexer`]: text to tokens. Statements are not bound to lines; noise words may stand almost anywhere.
//! - [`parser`]: tokens to [`Service`]s. What it does not understand is an error with file, line and clause.
//! - [`fleet`]: the files of all jobs together, which share one space of names.

pub mod fleet;
mod lexer;
mod parser;

use std::time::Duration;

pub use fleet::{Fleet, FleetError};
pub use parser::parse;

/// How long a program may take to start or stop its process, unless the file says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq)]
pub struct MonitFile {
    /// In the file's order.
    pub services: Vec<Service>,
    /// Clauses that have no effect here, for the log.
    pub ignored: Vec<String>,
}

/// One `check`.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Unique over all files of a VM.
    pub name: String,
    /// Where it begins.
    pub line: usize,
    /// What is checked.
    pub kind: Kind,
    pub start: Option<Program>,
    /// What stops it. A service without it is never stopped.
    pub stop: Option<Program>,
    /// The agent drives group `vcap` alone.
    pub groups: Vec<String>,
    /// Started before it, and stopped after it.
    pub depends: Vec<String>,
    /// What is looked at in each cycle.
    pub tests: Vec<Test>,
    /// Whether it is started when it is down.
    pub mode: Mode,
    /// It is looked at in each of so many cycles.
    pub every: u32,
}

/// What a `check` looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A process that writes its pid to a file.
    Process {
        pidfile: String,
    },
    File {
        path: String,
    },
    Directory {
        path: String,
    },
    /// A remote machine.
    Host {
        /// Its name or address.
        address: String,
    },
    /// The VM itself.
    System,
}

/// A program that starts or stops a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments: never empty. No shell reads them.
    pub arguments: Vec<String>,
    /// The user that runs it, by name or number.
    pub uid: Option<String>,
    pub gid: Option<String>,
    /// How long its effect may take.
    pub timeout: Duration,
}

/// Whether a service is started when it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Active,
    /// It is not; alerts are raised all the same.
    Passive,
    /// Nobody looks until it is started by hand.
    Manual,
}

/// `if … then …`.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// Where it stands.
    pub line: usize,
    /// What is true when it matches.
    pub condition: Condition,
    /// How often it must match before something is done.
    pub rate: Rate,
    /// What is done.
    pub action: Reaction,
    /// What is done when it no longer matches.
    pub otherwise: Option<Reaction>,
}

/// So many matches in so many cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub matches: u32,
    /// At least as many as matches, and at most 64.
    pub cycles: u32,
}

/// What a test compares.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Something that is counted.
    Resource {
        resource: Resource,
        /// How it is compared.
        operator: Operator,
        /// In KiB, per cent or pieces, as the resource has it.
        limit: f64,
    },
    /// Nobody answers.
    Connection(Connection),
    /// It was started again so many times; the rate's cycles are the time.
    Restarts(u32),
    /// It is another one than in the cycle before.
    Changed(Property),
    /// The process or file is not there.
    Missing,
    /// A file's age in seconds.
    Age {
        /// How it is compared.
        operator: Operator,
        /// In seconds.
        limit: u64,
    },
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// KiB of the process.
    Memory,
    /// KiB of the process and all below it.
    TotalMemory,
    /// Per cent of the VM's memory that the process has.
    MemoryShare,
    /// Per cent of it that the process and all below it have.
    TotalMemoryShare,
    /// Per cent of all processors.
    Cpu,
    /// Per cent of all processors, with all processes below it.
    TotalCpu,
    /// Processes below it.
    Children,
    /// The VM's load over 1, 5 or 15 minutes.
    Load(u8),
}

/// What may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// When a file was last written.
    Timestamp,
    Checksum,
    Size,
    Pid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `>`
    Greater,
    /// `<`
    Less,
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Operator {
    /// Whether `left` compares so with `right`.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Greater => left > right,
            Self::Less => left < right,
            Self::AtLeast => left >= right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

/// Somebody who should answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub to: Endpoint,
    /// An HTTP request that must succeed, if this is more than a connection.
    pub http: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// Where somebody should answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Name or address.
        host: String,
        port: u16,
    },
    /// A UDP port: only a refusal is noticed.
    Udp {
        /// Name or address.
        host: String,
        port: u16,
    },
    /// A Unix socket.
    Unix(String),
}

/// What a test does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reaction {
    /// Tells the operator, as every other does.
    Alert,
    /// Stops and starts, with all that depend on it.
    Restart,
    Start,
    /// Stops, with all that depend on it.
    Stop,
    /// Leaves it alone from now on.
    Unmonitor,
    /// Runs a program.
    Exec(Program),
}

/// a `monit` file that is not understood
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {message}: {clause}")]
pub struct MonitError {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What stands there.
    pub clause: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}
