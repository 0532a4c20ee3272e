//! Flags of verbs about configs.

use std::path::PathBuf;

use clap::Args;

use crate::interpolation::InterpolationArgs;

/// A document that is sent.
#[derive(Debug, Args)]
pub(crate) struct DocumentArgs {
    /// YAML file; '-' is the standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
}

/// `update-cloud-config`, `update-runtime-config`.
#[derive(Debug, Args)]
pub(crate) struct UpdateNamedConfigArgs {
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    #[command(flatten)]
    pub(crate) name: NameArgs,
}

/// `cloud-config`, `runtime-config`.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// Name of the config [default: default]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigsArgs {
    /// Only of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only of this type, such as cloud
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Also older versions, N of each
    #[arg(short, long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", default_value_t = 1)]
    pub(crate) recent: u32,
}

/// `config`, `delete-config`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct OneConfigArgs {
    /// Number of the config
    #[arg(conflicts_with_all = ["kind", "name"])]
    pub(crate) id: Option<String>,
    /// Type of the config
    #[arg(long = "type", value_name = "TYPE", requires = "name")]
    pub(crate) kind: Option<String>,
    /// Name of the config
    #[arg(long, requires = "kind")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateConfigArgs {
    #[command(flatten)]
    pub(crate) document: DocumentArgs,
    /// Type of the config, such as cloud, runtime or cpi
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    /// Name of the config
    #[arg(long)]
    pub(crate) name: String,
    /// Only if this is the number of the current one; the one that was compared with if absent
    #[arg(long, value_name = "ID")]
    pub(crate) expected_latest_id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffConfigArgs {
    /// Number of the first config
    #[arg(long, value_name = "ID", required_unless_present = "from_content", conflicts_with = "from_content")]
    pub(crate) from_id: Option<String>,
    /// Number of the second config
    #[arg(long, value_name = "ID", required_unless_present = "to_content", conflicts_with = "to_content")]
    pub(crate) to_id: Option<String>,
    /// File with the first config
    #[arg(long, value_name = "PATH")]
    pub(crate) from_content: Option<PathBuf>,
    /// File with the second config
    #[arg(long, value_name = "PATH")]
    pub(crate) to_content: Option<PathBuf>,
}
