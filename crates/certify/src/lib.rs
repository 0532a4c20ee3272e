//! Certification of any CPI: an executable in any language, run against what directors and command lines rely on.
//!
//! A [`Plan`] names the CPI's command line; [`certify()`] starts it several hundred times, once per call as a director
//! does, and gives a [`Report`] with one [`Row`] per [`Check`]. What the checks make is removed after each of them, and
//! at the end, also when the run is stopped.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use windlass_certify::{Observers, Plan, Profile, certify};
//!
//! let plan = Plan {
//!     cpi: "windlass cpi sim".parse()?,
//!     profile: Profile::default(),
//!     stemcell: None,
//!     agent: std::env::current_exe()?,
//!     observers: Observers::default(),
//!     only: Vec::new(),
//!     registry: None,
//!     until: None,
//! };
//! let report = certify(&plan, &AtomicBool::new(false), |_| {})?;
//! print!("{}", report.to_table());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A check passes only when its promise was seen to be kept. Whatever could not be looked at is
//! [`Outcome::NotObserved`]; what the CPI says it does not have is [`Outcome::NotSupported`]. [`Level`] says which of
//! them stand in the way of a certificate.
//!
//! - [`checks`]: the tables, one file per section of the contract.
//! - [`profile`]: what a cloud needs to be told.
//! - [`run`]: the order of things. `scene`: what a check works with. `caller`: one process, from its start to its end.
//! - `made`, `clean_up`: what exists because of a run, and how it is removed. `shared_vm`: the VM that checks share.
//! - `patience`: how long a CPI that hangs is waited for.
//! - `settings`: what agents refuse to read.
//! - [`matrix`]: the table of versions, lived through.
//! - [`report`]: what came of it, for people, scripts and CI servers. `junit`: in CI servers' form. `cause`: what is told once.

#![expect(clippy::disallowed_methods, reason = "it writes to folders that go with the certification")]

mod answer;
mod ask;
mod caller;
mod cause;
mod check;
pub mod checks;
mod clean_up;
pub mod command_line;
mod junit;
mod made;
pub mod matrix;
mod patience;
pub mod profile;
pub mod report;
pub mod run;
mod scene;
mod seen;
mod settings;
mod shared_vm;

pub use answer::ShownCall;
pub use check::{Check, Level, Outcome};
pub use clean_up::Leftover;
pub use command_line::{CommandLine, CommandLineError};
pub use profile::{Profile, ProfileError};
pub use report::{Report, Row};
pub use run::{CertifyError, Plan, Progress, certify};
pub use scene::Observers;
