//! Documents that are changed by operations files and variables before they are used.

mod flags;
mod store;
mod values;

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use windlass_manifest::interpolate::{InterpolateError, Strictness, interpolate};
use windlass_manifest::patch::{self, OperationFailed, Operations, OperationsError, PatchError};
use windlass_manifest::{ParseError, original};

pub(crate) use flags::InterpolationArgs;
use values::Values;

/// Everything that the flags name, read once.
#[derive(Debug)]
pub(crate) struct Interpolation {
    operations: Vec<(PathBuf, Operations)>,
    values: Values,
}

/// why a document cannot be changed as asked
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterpolationError {
    #[error("cannot read '{}'", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot keep variables in '{}'", path.display())]
    Store { path: PathBuf, source: io::Error },
    #[error("the document is not valid")]
    Document(#[source] ParseError),
    #[error("'{}' is not valid", path.display())]
    Yaml { path: PathBuf, source: ParseError },
    #[error("'{}' must hold variables: NAME: VALUE", path.display())]
    NoVariables { path: PathBuf },
    #[error("'{}' holds no operations", path.display())]
    Operations { path: PathBuf, source: OperationsError },
    #[error("'{}' cannot be applied", path.display())]
    Operation { path: PathBuf, source: OperationFailed },
    #[error("'{flag}' takes NAME={value}, both not empty")]
    Pair { flag: &'static str, value: &'static str },
    #[error("the value of the variable '{name}' is not valid")]
    Value { name: String, source: ParseError },
    #[error("'--vars-env' takes what the names of variables start with, and it cannot be empty")]
    EmptyPrefix,
    #[error("the variable '{outer}' has a value, so '{name}' cannot be a part of it")]
    PartOfScalar { outer: String, name: String },
    #[error(transparent)]
    Interpolate(#[from] InterpolateError),
    #[error("the path does not fit the document")]
    Path(#[source] PatchError),
}

impl Interpolation {
    /// Reads what the flags name.
    pub(crate) fn read(flags: &InterpolationArgs) -> Result<Self, InterpolationError> {
        let mut operations = Vec::new();
        for path in &flags.ops_files {
            let text = read(path)?;
            let parsed = Operations::parse(&text);
            let parsed = parsed.map_err(|source| InterpolationError::Operations { path: path.clone(), source })?;
            operations.push((path.clone(), parsed));
        }
        Ok(Self { operations, values: Values::read(flags)? })
    }

    /// The document after operations and with values for its variables.
    pub(crate) fn apply(&mut self, text: &str, strictness: Strictness) -> Result<Value, InterpolationError> {
        let mut document = original::parse(text).map_err(InterpolationError::Document)?;
        for (path, operations) in &self.operations {
            let changed = operations.apply(document);
            document = changed.map_err(|source| InterpolationError::Operation { path: path.clone(), source })?;
        }
        Ok(interpolate(document, &mut self.values, strictness)?)
    }
}

/// A document as text: exactly as it was written if the flags change nothing, so that the director can name lines of it.
pub(crate) fn text_of(
    text: String,
    flags: &InterpolationArgs,
    strictness: Strictness,
) -> Result<String, InterpolationError> {
    if flags.is_empty() && !strictness.missing && !strictness.unused {
        return Ok(text);
    }
    Ok(original::to_yaml(&Interpolation::read(flags)?.apply(&text, strictness)?))
}

/// A value as `interpolate` prints it: text that a path leads to as it is.
pub(crate) fn printed(document: &Value, path: Option<&patch::Path>) -> Result<String, InterpolationError> {
    let Some(path) = path else { return Ok(original::to_yaml(document)) };
    match patch::find(document, path).map_err(InterpolationError::Path)? {
        Value::String(text) => Ok(format!("{text}\n")),
        other => Ok(original::to_yaml(&other)),
    }
}

/// The variables in a file, as `--vars-file` and `--vars-store` read it.
pub(crate) fn variables_in(path: &Path) -> Result<Map<String, Value>, InterpolationError> {
    values::read_variables(path, &read(path)?)
}

/// The text of a file; `~/` is the home directory also where no shell saw it.
fn read(path: &Path) -> Result<String, InterpolationError> {
    let path = expand_home(path);
    std::fs::read_to_string(&path).map_err(|source| InterpolationError::File { path, source })
}

fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}
