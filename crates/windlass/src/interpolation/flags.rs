//! The flags that change a document before it is used.

use std::path::PathBuf;

use clap::Args;
use windlass_contract::Secret;

/// Operations files and variables, with the flags of the original.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct InterpolationArgs {
    /// Set a variable; may be repeated
    #[arg(short = 'v', long = "var", value_name = "VAR=VALUE", value_parser = crate::cli::secret, help_heading = HEADING)]
    pub(crate) vars: Vec<Secret>,
    /// Set a variable to what is in a file
    #[arg(long = "var-file", value_name = "VAR=PATH", help_heading = HEADING)]
    pub(crate) var_files: Vec<String>,
    /// Load variables from a YAML file
    #[arg(short = 'l', long = "vars-file", value_name = "PATH", help_heading = HEADING)]
    pub(crate) vars_files: Vec<PathBuf>,
    /// Load variables from the environment: MY_name for 'MY'
    #[arg(long = "vars-env", value_name = "PREFIX", help_heading = HEADING)]
    pub(crate) vars_envs: Vec<String>,
    /// Load variables from a YAML file, and keep in it what has to be made
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub(crate) vars_store: Option<PathBuf>,
    /// Change the document by the operations in a YAML file
    #[arg(short = 'o', long = "ops-file", value_name = "PATH", help_heading = HEADING)]
    pub(crate) ops_files: Vec<PathBuf>,
    /// Whether nothing is made: variables without a value stay as they are.
    #[arg(skip)]
    pub(crate) only_look: bool,
}

const HEADING: &str = "Variables and operations";

impl InterpolationArgs {
    /// The same for verbs that only look: nothing is made or kept.
    pub(crate) fn to_look(&self) -> Self {
        Self { only_look: true, ..self.clone() }
    }

    /// Whether there is nothing to change.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { vars, var_files, vars_files, vars_envs, vars_store, ops_files, only_look: _ } = self;
        vars.is_empty()
            && var_files.is_empty()
            && vars_files.is_empty()
            && vars_envs.is_empty()
            && vars_store.is_none()
            && ops_files.is_empty()
    }
}
