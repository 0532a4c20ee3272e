//! The director: it knows what should be, what is, and brings the one to the other.
//!
//! [`start`] opens the state directory, settles what an earlier run left open, and serves the API. Data flows one way:
//! a manifest ([`desired`]) becomes a [`plan`], a plan becomes [`steps`], steps become calls to [`clouds`] and
//! [`agents`]; results flow back into the [`store`]. Nothing else talks to a cloud, nothing else talks to an agent.
//!
//! - [`api`]: HTTPS, as the original's clients expect it.
//! - [`tasks`]: what the API queues and workers carry out.
//! - [`problems`]: what cloud-check finds and what can be done about it.
//! - [`ledger`]: the rule by which nothing is ever lost: intent, then action, then fact.
//! - [`resurrector`]: has VMs that were lost made anew.
//! - [`settings`]: what the operator set in `director.yml`.
//! - [`recovery`]: what happens at the start after a kill.

pub mod agents;
pub mod api;
pub mod built_in;
mod certificates;
pub mod clock;
pub mod clouds;
pub mod desired;
mod diff;
pub mod driven_cpis;
pub mod ledger;
pub mod metrics;
pub mod plan;
pub mod problems;
pub mod recovery;
pub mod resurrector;
mod schedules;
pub mod settings;
mod start;
pub mod state_dir;
pub mod steps;
pub mod store;
pub mod tasks;
pub mod users;

use std::sync::Arc;

pub use start::{DirectorOptions, Running, StartError, start};

use crate::agents::Agents;
use crate::clouds::Clouds;
use crate::metrics::Metrics;
use crate::resurrector::HealthRecord;
use crate::settings::Settings;
use crate::state_dir::StateDir;
use crate::store::Store;
use crate::tasks::Workers;
use crate::users::Users;

/// A director: everything that tasks and the API work with.
#[derive(Debug)]
pub struct Director {
    /// For people and for the clouds.
    pub name: String,
    /// Made at the first start.
    pub uuid: String,
    /// Who may use it.
    pub users: Users,
    /// The records.
    pub store: Store,
    /// The clouds.
    pub clouds: Clouds,
    /// The agents.
    pub agents: Arc<Agents>,
    /// Where everything is.
    pub folders: StateDir,
    /// Who carries out tasks.
    pub workers: Workers,
    /// What the operator set.
    pub settings: Settings,
    /// How instances were when they were last asked.
    pub health: HealthRecord,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Director {
    /// Drives the CPIs of the current cpi configs from now on.
    pub async fn refresh_clouds(&self) -> Result<(), RefreshError> {
        Ok(self.clouds.configure(&self.store.current_configs("cpi").await?)?)
    }
}

/// why the CPIs of the cpi config cannot be driven
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// the records failed
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// a CPI's configuration cannot be used
    #[error(transparent)]
    BuiltIn(#[from] built_in::BuiltInError),
}
