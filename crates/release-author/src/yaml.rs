//! Files of a release directory, read and written as BOSH's command line does.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use windlass_durable::file;
use windlass_manifest::{Content, Document, Problem};

use crate::error::AuthorError;

/// Reads a file; `read` says what it has.
pub(crate) fn load<T>(
    path: &Path,
    read: impl FnOnce(&windlass_manifest::At<'_>) -> Result<T, Problem>,
) -> Result<T, AuthorError> {
    let text = fs::read_to_string(path).map_err(|error| AuthorError::Read(path.to_owned(), error))?;
    // The tag that the oldest command line wrote is none.
    let text = text.replace(" !binary ", " !!binary ");
    let document = Document::parse(&text).map_err(|error| AuthorError::Yaml(path.to_owned(), error))?;
    read(&document.root()).map_err(|problem| AuthorError::Document(path.to_owned(), problem))
}

/// The same; nothing if there is no such file.
pub(crate) fn load_if_there<T>(
    path: &Path,
    read: impl FnOnce(&windlass_manifest::At<'_>) -> Result<T, Problem>,
) -> Result<Option<T>, AuthorError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => load(path, read).map(Some),
    }
}

/// Writes a file as a whole, and its folder before it.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), AuthorError> {
    let failed = |error| AuthorError::Write(path.to_owned(), error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    file::write(path, text.as_bytes(), 0o644).map_err(failed)
}

/// Text, also where somebody forgot the quotes around a number.
pub(crate) fn text(at: &windlass_manifest::At<'_>) -> Result<String, Problem> {
    match &at.node().content {
        Content::Number(number) => Ok(number.to_string()),
        Content::Boolean(boolean) => Ok(boolean.to_string()),
        _ => at.string().map(str::to_owned),
    }
}

/// A list of texts; none if there is no such field.
pub(crate) fn texts(at: &windlass_manifest::At<'_>, name: &str) -> Result<Vec<String>, Problem> {
    at.optional_list(name)?.iter().map(text).collect()
}

/// A text as it stands in a document.
pub(crate) fn scalar(text: &str) -> String {
    windlass_manifest::original::to_yaml(&Value::String(text.to_owned())).trim_end_matches('\n').to_owned()
}
