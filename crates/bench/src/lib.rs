//! `windlass bench`: what every part costs, each beside something that is run in the same breath, and sweeps that kill.
//!
//! It is linked into the program that it measures: the director, the CPIs and the agents that it starts are this program and
//! those installed beside it.
//!
//! - [`arguments`]: the measurements and their flags. One file or folder per measurement. `all`: one after the other.
//! - `figures`: what they find, as tables and as figures worth quoting.
//! - `scratch_cloud`, `scratch_director`, `scratch_release`: what is measured, in folders of its own that go with it.
//! - `load`: many requests at once. `stop`: Ctrl-C, after which everything is still cleared away.
//! - `kills`: no measurement, but the proof that nothing is lost when a process is killed at any of its steps.

#![expect(clippy::disallowed_methods, reason = "it writes to folders that go with the measurement")]

mod agent;
mod all;
mod api;
pub mod arguments;
mod cpi_call;
mod deploy;
mod deploy_job;
mod dns;
mod error;
mod figures;
mod health;
mod incus;
mod kills;
mod load;
mod local;
mod registry;
mod release;
mod render;
mod scratch_cloud;
mod scratch_director;
mod scratch_release;
mod stop;
mod supervise;

pub use all::{All, measure_all};
pub use arguments::BenchVerb;
pub use error::BenchError;
pub use figures::{Figure, Report, Table};

/// Hears, line by line, how a measurement goes on.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Does one measurement. `bench all` has a function of its own, [`measure_all`], and measures nothing here.
pub async fn measure(verb: BenchVerb, progress: Progress<'_>) -> Result<Report, BenchError> {
    match verb {
        BenchVerb::Agent(arguments) => agent::measure(&arguments).await,
        BenchVerb::Api(arguments) => api::measure(&arguments).await,
        BenchVerb::CpiCall(arguments) => cpi_call::measure(&arguments),
        BenchVerb::Deploy(arguments) => deploy::measure(&arguments).await,
        BenchVerb::Dns(arguments) => dns::measure(&arguments),
        BenchVerb::Health(arguments) => health::measure(&arguments).await,
        BenchVerb::Incus(arguments) => incus::measure(&arguments).await,
        BenchVerb::Kills(arguments) => kills::measure(progress, &arguments).await,
        BenchVerb::Local(arguments) => local::measure(progress, &arguments).await,
        BenchVerb::Render(arguments) => render::measure(&arguments),
        BenchVerb::Release(arguments) => release::measure(&arguments).await,
        BenchVerb::Registry(arguments) => registry::measure(&arguments).await,
        BenchVerb::Supervise(arguments) => supervise::measure(&arguments).await,
        BenchVerb::All(_) => Ok(Report::default()),
    }
}
