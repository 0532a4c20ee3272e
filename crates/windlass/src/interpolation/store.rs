//! The file in which made values are kept (`--vars-store`), readable by its owner only.

use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value};
use windlass_durable::file;
use windlass_manifest::interpolate::{Definition, SourceError};
use windlass_manifest::original;
use windlass_pki::generate::generate;

use super::values::read_variables;
use super::{InterpolationError, read};

/// Values that were made once and stay.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    values: Map<String, Value>,
    /// Whether what is missing is made.
    makes: bool,
}

impl Store {
    /// Reads the file; one that does not exist yet is empty.
    pub(super) fn open(path: PathBuf, makes: bool) -> Result<Self, InterpolationError> {
        // Through a link the file behind it is kept, not the link replaced.
        let path = path.canonicalize().unwrap_or(path);
        let values = match read(&path) {
            Ok(text) => read_variables(&path, &text)?,
            Err(InterpolationError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, values, makes })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The value that is kept, or a new one, which is kept before it is used. A CA may also be among `given`.
    pub(super) fn get(
        &mut self,
        definition: &Definition,
        given: &Map<String, Value>,
    ) -> Result<Option<Value>, SourceError> {
        if let Some(value) = self.values.get(&definition.name) {
            return Ok(Some(value.clone()));
        }
        let Some(kind) = definition.kind.as_ref().filter(|_| self.makes) else { return Ok(None) };
        let mut lookup = |name: &str| Ok(given.get(name).or_else(|| self.values.get(name)).cloned());
        let made = generate(kind, &definition.options, &mut lookup)?;
        self.values.insert(definition.name.clone(), made.clone());
        let yaml = original::to_yaml(&Value::Object(self.values.clone()));
        file::write(&self.path, yaml.as_bytes(), file::PRIVATE)
            .map_err(|source| InterpolationError::Store { path: self.path.clone(), source })?;
        Ok(Some(made))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_was_made_once_stays_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("creds.yml");
        std::fs::write(&path, "kept: as it is\n").unwrap();
        let password = Definition { name: "p".into(), kind: Some("password".into()), options: Value::Null };
        let kept = Definition { name: "kept".into(), ..password.clone() };
        let unknown = Definition { name: "u".into(), kind: None, options: Value::Null };
        let given = Map::new();
        let before = std::fs::read(&path).unwrap();
        assert_eq!(Store::open(path.clone(), false).unwrap().get(&password, &given).unwrap(), None, "who only looks");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let mut store = Store::open(path.clone(), true).unwrap();
        let made = store.get(&password, &given).unwrap().unwrap();
        assert_eq!(store.get(&kept, &given).unwrap().unwrap(), "as it is");
        assert_eq!(store.get(&unknown, &given).unwrap(), None);
        let mut again = Store::open(path.clone(), true).unwrap();
        assert_eq!(again.get(&password, &given).unwrap().unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
