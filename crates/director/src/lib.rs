//! The director: it knows what should be, what is, and brings the one to the other.
//!
//! [`start()`] opens the state directory, settles what an earlier run left open, and serves the API. Data flows one way:
//! a manifest becomes a plan ([`windlass_planning`]), a plan becomes steps and calls ([`windlass_operations`]); results
//! flow back into the `store`.
//!
//! - `api`: HTTPS, as BOSH's clients expect it.
//! - `tasks`: what the API queues and workers carry out.
//! - `store`: the records, in a database; a [`Ledger`](windlass_operations::ledger::Ledger) for the steps.
//! - `blobs`: archives of releases and what tasks made; which of them nobody needs.
//! - `driven_cpis`, `built_in`: which CPIs are driven, and how they are started.
//! - `known_answers`: lists that many ask for.
//! - `leadership`: one director leads a database. `standby`: the others.
//! - `limits`: what keeps one user from taking the director from the others.
//! - `resurrector`: recreates VMs that were lost.
//! - [`settings`]: what the operator set in `director.yml`.
//! - `variables`: values that manifests only name, and the key that they are encrypted with.
//! - `webhook`: tells somebody what to wake up for.
//! - `recovery`: what happens at the start after a kill.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod api;
mod blobs;
mod built_in;
mod certificates;
mod dns_border;
mod driven_cpis;
mod fencing;
mod filled_cpi;
mod known_answers;
mod known_health;
mod leadership;
mod limits;
mod local_dns;
mod metrics;
mod recovery;
mod resurrector;
mod schedules;
mod server_tls;
pub mod settings;
mod software;
mod standby;
mod start;
mod state_dir;
mod store;
mod tasks;
mod team_limits;
#[cfg(test)]
mod testing;
mod users;
mod variables;
mod webhook;

use std::sync::Arc;

pub use leadership::LeadershipError;
pub use standby::CannotStandBy;
pub use start::{DirectorOptions, Running, StartError, start};
pub use variables::vault::VaultError;

use crate::driven_cpis::Drivers;
use crate::known_answers::KnownAnswers;
use crate::limits::Limits;
use crate::local_dns::LocalDns;
use crate::metrics::Metrics;
use crate::resurrector::HealthRecord;
use crate::settings::Settings;
use crate::software::Library;
use crate::state_dir::StateDir;
use crate::store::Store;
use crate::tasks::Workers;
use crate::users::Users;
use crate::variables::Variables;
use crate::webhook::Webhook;
use windlass_blobs::Blobstore;
use windlass_database::Lead;
use windlass_operations::agents::Agents;
use windlass_operations::clouds::Clouds;

/// A director: everything that tasks and the API work with.
#[derive(Debug)]
pub(crate) struct Director {
    /// For people and for the clouds.
    pub(crate) name: String,
    /// Made at the first start.
    pub(crate) uuid: String,
    pub(crate) users: Users,
    pub(crate) store: Store,
    pub(crate) clouds: Clouds,
    /// Makes the CPIs of cpi configs ready; none where nothing but the default is driven.
    pub(crate) drivers: Option<Drivers>,
    pub(crate) agents: Arc<Agents>,
    /// Whether it still leads.
    pub(crate) lead: Arc<Lead>,
    /// Where everything is.
    pub(crate) folders: StateDir,
    pub(crate) workers: Workers,
    /// What the operator set.
    pub(crate) settings: Settings,
    /// How instances were when they were last asked.
    pub(crate) health: HealthRecord,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// How much is done at once.
    pub(crate) limits: Limits,
    /// Lists, until something is written.
    pub(crate) known_answers: KnownAnswers,
    /// The jobs of uploaded releases.
    pub(crate) library: Arc<Library>,
    /// Values that manifests only name.
    pub(crate) variables: Variables,
    /// Tells a server what somebody should wake up for.
    pub(crate) webhook: Webhook,
    /// Names of instances, and who knows them.
    pub(crate) dns: Arc<LocalDns>,
    /// Archives of releases, and what tasks made.
    pub(crate) blobs: Arc<Blobstore>,
    /// Held for reading while files of releases are put on record, for writing while those are removed that are not.
    pub(crate) release_files: tokio::sync::RwLock<()>,
}

impl Director {
    /// Whether the disk has more than half of its reserve. Uploads, outputs and logs leave all of it, so that none of them keeps anybody from
    /// deploying. Where that cannot be seen, it has.
    pub(crate) fn has_space(&self) -> bool {
        windlass_archive::has_half_of_reserve(&self.folders.temporary()).unwrap_or(true)
    }

    /// Drives the CPIs of the current cpi configs from now on.
    pub(crate) async fn refresh_clouds(&self) -> Result<(), RefreshError> {
        let Some(drivers) = &self.drivers else { return Ok(()) };
        Ok(drivers.configure(&self.clouds, &self.store.current_configs("cpi").await?)?)
    }
}

/// why the CPIs of the cpi config cannot be driven
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// a CPI's configuration cannot be used
    #[error(transparent)]
    BuiltIn(#[from] built_in::BuiltInError),
}
