//! The key that values are encrypted with. The operator's key encrypts another one, which encrypts the values: with a new key of
//! the operator's, one record is written, and a kill leaves the old one or the new one.

use windlass_variables::{Cipher, Key, KeyError, KeySource, Unsealed};

use crate::settings::VariableSettings;
use crate::state_dir::StateDir;
use crate::store::{KeyOnRecord, Store, StoreError};

/// why the key cannot be used
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// there is no key
    #[error(
        "the values of variables in the database need the key with the fingerprint {fingerprint}; put it back, or name it with variables.key in director.yml"
    )]
    Missing {
        fingerprint: String,
        #[source]
        source: KeyError,
    },
    /// it is another one
    #[error(
        "{source_of_key} has a key with the fingerprint {found}, and the values of variables in the database need {expected}; \
         put that one back, or name it with variables.previous_key in director.yml to change to the new one"
    )]
    Wrong { source_of_key: KeySource, found: String, expected: String },
    /// a key cannot be had
    #[error(transparent)]
    Key(#[from] KeyError),
    /// the record is damaged
    #[error("the record of the key of variables is damaged; restore the database")]
    Damaged(#[from] Unsealed),
}

/// Where the key comes from.
pub(crate) fn source(settings: &VariableSettings, folders: &StateDir) -> KeySource {
    settings.key.clone().unwrap_or_else(|| KeySource::File(folders.variables_key()))
}

/// Makes a key at the first start, checks it at every other one, and changes to a new one where the settings name the one before.
pub(crate) async fn open(store: &Store, settings: &VariableSettings, folders: &StateDir) -> Result<Cipher, VaultError> {
    let source = source(settings, folders);
    let Some(known) = store.variables_key().await? else {
        let key = source.read_or_make().await?;
        let (data, data_key) = key.new_data_key()?;
        store.set_variables_key(&KeyOnRecord { fingerprint: key.fingerprint(), data_key }).await?;
        return Ok(Cipher::new(&data));
    };
    let expected = known.fingerprint.clone();
    let read = source.read().await;
    let key = read.map_err(|source| VaultError::Missing { fingerprint: expected.clone(), source })?;
    if key.fingerprint() == expected {
        return Ok(Cipher::new(&Cipher::new(&key).unwrap_key(&known.data_key)?));
    }
    let wrong =
        || VaultError::Wrong { source_of_key: source.clone(), found: key.fingerprint(), expected: expected.clone() };
    let previous = settings.previous_key.as_ref().ok_or_else(wrong)?.read().await?;
    if previous.fingerprint() != expected {
        return Err(wrong());
    }
    let data = Cipher::new(&previous).unwrap_key(&known.data_key)?;
    let data_key = Cipher::new(&key).wrap_key(&data)?;
    store.set_variables_key(&KeyOnRecord { fingerprint: key.fingerprint(), data_key }).await?;
    tracing::warn!(
        fingerprint = key.fingerprint(),
        "the key of variables was changed; the one before is of no use any more"
    );
    Ok(Cipher::new(&data))
}

/// Whether a director that stands by has the key that it would need.
pub(crate) async fn has_key(settings: &VariableSettings, folders: &StateDir, fingerprint: &str) -> bool {
    let is_it = |key: &Key| key.fingerprint() == fingerprint;
    if source(settings, folders).read().await.is_ok_and(|key| is_it(&key)) {
        return true;
    }
    match &settings.previous_key {
        Some(previous) => previous.read().await.is_ok_and(|key| is_it(&key)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_contract::explain;

    struct Place {
        folders: StateDir,
        store: Store,
        _folder: tempfile::TempDir,
    }

    impl Place {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let folders = StateDir::open(&folder.path().join("state")).unwrap();
            let store = Store::open(&format!("sqlite:{}", folders.database().display())).await.unwrap();
            Self { folders, store, _folder: folder }
        }

        async fn open(&self, settings: &VariableSettings) -> Result<Cipher, VaultError> {
            open(&self.store, settings, &self.folders).await
        }

        fn key(&self, name: &str) -> KeySource {
            let path = self.folders.variables_key().with_file_name(name);
            let text = Key::random().unwrap().to_text();
            windlass_durable::file::write(&path, text.as_bytes(), 0o600).unwrap();
            KeySource::File(path)
        }
    }

    #[tokio::test]
    async fn a_director_without_its_key_or_with_another_one_does_not_start_and_says_which() {
        let place = Place::new().await;
        let usual = VariableSettings::default();
        let sealed = place.open(&usual).await.unwrap().seal(&["a"], b"value").unwrap();
        assert_eq!(place.open(&usual).await.unwrap().open(&["a"], &sealed).unwrap(), b"value");
        let fingerprint = place.store.variables_key().await.unwrap().unwrap().fingerprint;

        let path = place.folders.variables_key();
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        let said = explain(&place.open(&usual).await.unwrap_err());
        assert!(said.contains(&fingerprint) && said.contains("variables.key"), "{said}");
        assert!(!path.exists(), "no other key is made");

        place.key("variables.key");
        let said = explain(&place.open(&usual).await.unwrap_err());
        assert!(said.contains(&fingerprint) && said.contains("previous_key"), "{said}");

        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(place.open(&usual).await.unwrap().open(&["a"], &sealed).unwrap(), b"value");
    }

    #[tokio::test]
    async fn a_new_key_opens_what_the_one_before_encrypted_and_that_one_opens_nothing_any_more() {
        let place = Place::new().await;
        let old = VariableSettings { key: Some(place.key("old")), ..VariableSettings::default() };
        let sealed = place.open(&old).await.unwrap().seal(&["a"], b"value").unwrap();
        let new = VariableSettings { key: Some(place.key("new")), previous_key: old.key.clone() };
        let fingerprint = place.store.variables_key().await.unwrap().unwrap().fingerprint;
        assert!(has_key(&new, &place.folders, &fingerprint).await);
        // As often as one likes: a director that is killed at any point starts with either.
        for _ in 0..2 {
            assert_eq!(place.open(&new).await.unwrap().open(&["a"], &sealed).unwrap(), b"value");
        }
        assert!(matches!(place.open(&old).await, Err(VaultError::Wrong { .. })));
        let alone = VariableSettings { previous_key: None, ..new };
        assert_eq!(place.open(&alone).await.unwrap().open(&["a"], &sealed).unwrap(), b"value");
        assert!(!has_key(&old, &place.folders, &place.store.variables_key().await.unwrap().unwrap().fingerprint).await);
    }
}
