//! Names of instances: the records that a director sends, what a query for a name gives, and who answers it.
//!
//! - [`records`]: `records.json`, read once and indexed.
//! - [`query`]: what a name asks for.
//! - [`hosts`]: the same names for machines that ask no DNS server.
//! - [`start`]: whether there is one, and how the VM comes to ask it.
//! - [`measured`]: the resolver alone.
//! - [`resolver`]: a DNS server of the agent's own, which reads and writes messages with [`wire`].

pub(crate) mod hosts;
pub(crate) mod measured;
pub(crate) mod query;
pub(crate) mod records;
pub(crate) mod resolver;
pub(crate) mod start;
pub(crate) mod wire;
