//! VMs and disks on an Incus or LXD server, or on a cluster of them: VMs are system containers, persistent disks are volumes
//! of storage pools.
//!
//! The executable calls [`serve`] for one CPI call. Everything that is remembered is in the cluster, in one project per
//! director; a folder of this machine holds only which requests were answered, and what failed ones left.
//!
//! What keeps data safe:
//!
//! | danger | rule | where |
//! |---|---|---|
//! | two VMs with one disk: the daemon does not mind | the disk is claimed by compare-and-swap before it is attached; a claim is cleared only while it names this VM | `claim` |
//! | a half-made VM that looks whole | a `stage` tag is written after each step; without it, the VM is deleted and made again | `tags`, `methods/create_vm` |
//! | a copied disk that is taken for the whole one | the copy is `copying` until its source is `moved-to`; only `moved-to` is deleted | `moving` |
//! | a VM or disk that could be neither finished nor removed, and whose caller was told that it failed | it is noted, and removed by a later call, unless somebody has had it | `leftovers` |
//! | a lost answer | the call looks at what is there and goes on | `cloud`, [`client::ClientError::is_unknown_effect`] |
//! | a member that is down | lists are asked, which still name what is there; "gone" is said only of what no list has | `methods/has_vm`, `methods/delete_vm` |
//! | a project that is not there: its lists are empty | the project is asked for before any list is believed | `session` |
//!
//! - [`cloud`]: which method is served where; `methods`: one file per CPI method.
//! - [`client`]: the REST API.
//! - `image`: what a stemcell is; `inside`: what is put into a VM before its first start.
//! - `network_plan`, `placement`, `properties`: what a VM gets, and where.
//! - [`operator`], [`trust`]: what the operator sees and sets up, beside every call.
//! - `names`, `tags`: what things are called, and what they carry.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod claim;
pub mod client;
pub mod cloud;
mod config;
mod disks;
mod fault;
mod image;
mod inside;
mod leftovers;
mod methods;
mod moving;
mod names;
mod network_plan;
pub mod operator;
mod placement;
mod properties;
mod session;
mod tags;
pub mod trust;

pub use cloud::IncusCloud;
pub use config::IncusConfig;

/// Serves the one CPI call of this process, with the configuration at `config`.
pub fn serve(config: &std::path::Path) -> std::process::ExitCode {
    windlass_cpi::serve(config, |config| IncusCloud::new(config.plugin()?))
}
