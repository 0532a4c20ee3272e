//! For tests of ledgers and of what uses them.
//!
//! - [`MemoryLedger`]: a ledger that forgets with its process.
//! - [`conformance`]: what every ledger must do, with one line per ledger that is tested.
//! - [`legal_facts`]: what can become true next, and records to begin with.

pub mod conformance;
mod legal_facts;
mod memory_ledger;

pub use legal_facts::{LegalFacts, new_instance_record, new_vm_record};
pub use memory_ledger::MemoryLedger;
