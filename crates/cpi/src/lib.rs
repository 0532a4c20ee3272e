//! The SDK for authors of CPIs: implement [`Cloud`], hand it to [`serve()`], and the executable speaks the CPI contract.
//!
//! ```no_run
//! use windlass_contract::{DiskCid, cpi::{CpiError, methods::CreateDisk}};
//! use windlass_cpi::{Call, Cloud};
//!
//! struct Sky;
//!
//! impl Cloud for Sky {
//!     fn stemcell_formats(&self) -> Vec<String> {
//!         vec!["sky-raw".into()]
//!     }
//!
//!     async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
//!         let cid = format!("disk-{}", call.id);
//!         // … make a disk of disk.size MiB with that name, or find the one that an interrupted call made …
//!         DiskCid::new(cid).map_err(|error| CpiError::cloud(error.to_string()))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     windlass_cpi::serve(std::path::Path::new("cpi.json"), |_config| Ok(Sky))
//! }
//! ```
//!
//! An author writes version 2 only. What the SDK does around that:
//!
//! - [`mod@serve`]: the process: one request on stdin, exactly one answer on stdout, whatever happens in between, and not
//!   later than its deadline.
//! - [`mod@answer`]: a request's bytes to a response: decoding, versions, and which method serves what.
//! - [`cloud`]: the trait, and what each call knows about itself.
//! - [`config`]: `cpi.json`, with the properties of a cpi-config entry laid over it.
//! - [`user_data`]: what a new VM is given; for old callers and stemcells, the SDK keeps its settings in a registry.
//! - [`replay`]: a repeated request has one effect.
//! - [`resources`]: for clouds that keep what they made in a folder.
//! - Inside: one change of a resource at a time (`locks`), calls per second (`rate`). Which method changes what, what of it is
//!   secret and what a repeated request does is declared with the method ([`windlass_contract::cpi::declaration`]).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod answer;
mod asked;
pub mod cloud;
pub mod config;
mod decode;
mod digest;
mod locks;
mod rate;
mod registered_vms;
pub mod replay;
pub mod resources;
pub mod serve;
mod settings;
pub mod user_data;

pub use answer::answer;
pub use cloud::{Call, Cloud};
pub use config::Config;
pub use serve::{serve, serve_with};
pub use user_data::UserData;
