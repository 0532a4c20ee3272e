//! Flags of `create-env` and its sisters.

use std::path::PathBuf;

use clap::Args;

use crate::interpolation::InterpolationArgs;

pub(super) const ENV_HELP: &str = "cloud_provider.template names the CPI's job and release, as for BOSH's client; cloud_provider.cpi \
names one without a release: 'local' for the embedded cloud, or {exec: '/path/to/cpi -configPath {config}'} for any CPI executable. \
The state file is BOSH's; an environment made by one client can be updated and deleted by the other.";

/// What all runs on an environment take; all that `start-env` does.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Manifest
    pub(crate) manifest: PathBuf,
    /// State file [default: MANIFEST-state.json beside the manifest]
    #[arg(long, value_name = "PATH")]
    pub(crate) state: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
}

/// `delete-env` and `stop-env`.
#[derive(Debug, Args)]
pub(crate) struct StopEnvArgs {
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    /// Stop without draining
    #[arg(long)]
    pub(crate) skip_drain: bool,
    /// Where packages of the CPI are installed [default: a folder of the environment below ~/.bosh/installations]
    #[arg(long, value_name = "DIR")]
    pub(crate) package_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CreateEnvArgs {
    #[command(flatten)]
    pub(crate) stop: StopEnvArgs,
    /// Make a new VM even if nothing changed
    #[arg(long)]
    pub(crate) recreate: bool,
    /// Move the data to a new disk even if nothing changed
    #[arg(long)]
    pub(crate) recreate_persistent_disks: bool,
}
