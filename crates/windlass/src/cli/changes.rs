//! Flags of the verbs that plan and change deployments.

use std::path::PathBuf;

use clap::Args;
use windlass_manifest::interpolate::Strictness;

use super::slug::Selection;
use crate::interpolation::InterpolationArgs;

#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show secrets in the difference
    #[arg(long)]
    pub(crate) no_redact: bool,
    /// Upload the releases of the manifest again that have a URL, and replace what is broken of them
    #[arg(long)]
    pub(crate) fix_releases: bool,
    /// Upload no release, although the manifest has URLs
    #[arg(long)]
    pub(crate) skip_upload_releases: bool,
    /// Take the latest values of variables, whatever their update mode
    #[arg(long)]
    pub(crate) force_latest_variables: bool,
    /// Do not drain, on all instances or only on those of a group; may be repeated
    #[arg(long, value_name = "GROUP[/ID]", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub(crate) skip_drain: Vec<String>,
}

/// `plan`.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Exit with 2 if something would change, with 0 if nothing would, and with 1 if that cannot be told
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

/// What `plan` and `deploy` have in common.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Manifest; '-' is the standard input
    pub(crate) manifest: PathBuf,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
    /// A variable without a value is an error, before anything is sent
    #[arg(long)]
    pub(crate) var_errs: bool,
    /// A value that is not used is an error, before anything is sent
    #[arg(long)]
    pub(crate) var_errs_unused: bool,
    /// Recreate all VMs
    #[arg(long)]
    pub(crate) recreate: bool,
    /// Recreate all disks; what is on them is copied
    #[arg(long)]
    pub(crate) recreate_persistent_disks: bool,
    /// Recreate VMs that were made before this time, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) recreate_vms_created_before: Option<String>,
    /// Recreate VMs whose agent does not answer
    #[arg(long)]
    pub(crate) fix: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
}

impl PlanArgs {
    /// What is a mistake in the manifest.
    pub(crate) fn strictness(&self) -> Strictness {
        Strictness { missing: self.var_errs, unused: self.var_errs_unused }
    }

    /// What of it the director is told, with `deploy` and with `plan`.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        let switches = [
            ("recreate", self.recreate || self.recreate_vms_created_before.is_some()),
            ("recreate_persistent_disks", self.recreate_persistent_disks),
            ("fix", self.fix),
        ];
        query.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true".to_owned())));
        query.extend(self.recreate_vms_created_before.clone().map(|time| ("recreate_vms_created_before", time)));
        query.extend(self.pace.query());
        query
    }
}

/// How many at once, instead of what the manifest says.
#[derive(Debug, Args)]
pub(crate) struct PaceArgs {
    /// Instances to try first: a number or a percentage
    #[arg(long, value_name = "N")]
    pub(crate) canaries: Option<String>,
    /// Instances at once: a number or a percentage
    #[arg(long, value_name = "N")]
    pub(crate) max_in_flight: Option<String>,
}

impl PaceArgs {
    /// What of it the director is told.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let canaries = self.canaries.clone().map(|canaries| ("canaries", canaries));
        canaries.into_iter().chain(self.max_in_flight.clone().map(|most| ("max_in_flight", most))).collect()
    }
}

/// What `start`, `stop`, `restart` and `recreate` have in common.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// GROUP or GROUP/ID; everything if absent
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Option<Selection>,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// Bring the whole deployment to its manifest on the way; that is the default
    #[arg(long)]
    pub(crate) converge: bool,
    /// Touch nothing but the one instance
    #[arg(long, conflicts_with_all = ["converge", "canaries", "max_in_flight"])]
    pub(crate) no_converge: bool,
}

/// Whether to drain.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Do not drain
    #[arg(long)]
    pub(crate) skip_drain: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecreateArgs {
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) drain: DrainArgs,
    /// Also those whose agent does not answer
    #[arg(long)]
    pub(crate) fix: bool,
    /// Only VMs that were made before this time, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) vms_created_before: Option<String>,
    /// Only show what would happen
    #[arg(long, conflicts_with = "no_converge")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CloudCheckArgs {
    /// Take the default resolution of every problem; for VMs that do not answer it is to leave them, as with BOSH, and
    /// --resolution recreate_vm replaces them
    #[arg(short, long, conflicts_with_all = ["report", "resolutions"])]
    pub(crate) auto: bool,
    /// Repair in this way whatever can be, such as recreate_vm, and leave the rest; may be repeated
    #[arg(long = "resolution", value_name = "RESOLUTION")]
    pub(crate) resolutions: Vec<String>,
    /// Only list what is wrong
    #[arg(short, long, conflicts_with = "resolutions")]
    pub(crate) report: bool,
}
