//! `config/final.yml` and `config/private.yml`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_manifest::{Content, Object};

use crate::error::AuthorError;
use crate::store::Store;
use crate::yaml;

/// What a release directory says of itself.
#[derive(Debug)]
pub(crate) struct Config {
    folder: PathBuf,
    path: PathBuf,
    name: Option<String>,
    final_name: Option<String>,
    provider: Option<String>,
    options: Object,
    pub(crate) no_compression: bool,
}

impl Config {
    pub(crate) fn read(folder: &Path) -> Result<Self, AuthorError> {
        let path = folder.join("config/final.yml");
        let read = yaml::load_if_there(&path, |root| {
            if root.node().content == Content::Null {
                return Ok((None, None, None, Object::new(), false));
            }
            let word = |at: &windlass_manifest::At<'_>, name: &str| {
                let found = at.optional(name)?.map(|at| yaml::text(&at)).transpose()?;
                Ok(found.filter(|text| !text.is_empty()))
            };
            let store = root.optional("blobstore")?;
            let provider = store.as_ref().map_or(Ok(None), |store| word(store, "provider"))?;
            let options = store.map_or(Ok(None), |store| store.optional("options"))?;
            let options = options.map_or(Ok(Object::new()), |options| options.object())?;
            let no_compression = root.optional("no_compression")?.map_or(Ok(false), |flag| flag.boolean())?;
            Ok((word(root, "name")?, word(root, "final_name")?, provider, options, no_compression))
        })?;
        let (name, final_name, provider, mut options, no_compression) = read.unwrap_or_default();
        let private = yaml::load_if_there(&folder.join("config/private.yml"), |root| {
            if root.node().content == Content::Null {
                return Ok(Object::new());
            }
            let store = root.optional("blobstore")?;
            let options = store.map_or(Ok(None), |store| store.optional("options"))?;
            options.map_or(Ok(Object::new()), |options| options.object())
        })?;
        options.extend(private.unwrap_or_default());
        Ok(Self { folder: folder.to_owned(), path, name, final_name, provider, options, no_compression })
    }

    /// What the release is called.
    pub(crate) fn name(&self) -> Result<&str, AuthorError> {
        match (&self.name, &self.final_name) {
            (None, None) => Err(AuthorError::NoName(self.path.clone())),
            (Some(_), Some(_)) => Err(AuthorError::TwoNames(self.path.clone())),
            (Some(name), None) | (None, Some(name)) => Ok(name),
        }
    }

    /// Where its final archives and blobs are kept.
    pub(crate) fn store(&self) -> Store {
        let provider = self.provider.as_deref().ok_or("is missing".to_owned());
        let store = provider.and_then(|provider| Store::open(provider, &self.options, &self.folder));
        store.unwrap_or_else(|why| Store::Missing { config: self.path.clone(), why })
    }

    /// Writes the name, and leaves the store as it is.
    pub(crate) fn save_name(folder: &Path, name: &str) -> Result<(), AuthorError> {
        let known = Self::read(folder)?;
        // `private.yml` has secrets that do not belong here.
        let options = yaml::load_if_there(&known.path, |root| {
            let store = if root.node().content == Content::Null { None } else { root.optional("blobstore")? };
            let options = store.map_or(Ok(None), |store| store.optional("options"))?;
            options.map_or(Ok(Object::new()), |options| options.object())
        })?;
        let mut text = format!("name: {}\n", yaml::scalar(name));
        if let Some(provider) = &known.provider {
            text.push_str(&format!("blobstore:\n  provider: {}\n", yaml::scalar(provider)));
            let options = options.unwrap_or_default();
            if !options.is_empty() {
                let lines = windlass_manifest::original::to_yaml(&Value::Object(options));
                let indented: String = lines.lines().map(|line| format!("    {line}\n")).collect();
                text.push_str(&format!("  options:\n{indented}"));
            }
        }
        if known.no_compression {
            text.push_str("no_compression: true\n");
        }
        yaml::save(&known.path, &text)
    }
}
