//! The agent's settings: from the source, cached for the boot at which the source is silent, overlaid by `update_settings`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_contract::Secret;
use windlass_contract::agent::UpdateSettings;
use windlass_contract::settings::{AgentSettings, MbusCert};
use windlass_durable::file;

use crate::config::Registry;
use crate::layout::Base;
use crate::platform::{Platform, PlatformError};
use crate::sources::{Failure, SettingsSource};

/// How often settings that may still come are looked for.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// From the source, or from the cache.
    pub(crate) agent: AgentSettings,
    /// What `update_settings` laid over them.
    pub(crate) update: UpdateSettings,
}

impl Settings {
    /// Where the agent listens.
    pub(crate) fn mbus_url(&self) -> Option<&Secret> {
        let updated = self.update.mbus.as_ref().and_then(|mbus| mbus.urls.as_ref()?.first());
        updated.or_else(|| self.agent.mbus_url())
    }

    /// The agent's server certificate.
    pub(crate) fn mbus_cert(&self) -> Option<&MbusCert> {
        let updated = self.update.mbus.as_ref().and_then(|mbus| mbus.cert.as_ref());
        updated.filter(|cert| !cert.ca.is_empty()).or_else(|| self.agent.mbus_cert())
    }

    /// Where blobs are, if the settings say so.
    pub(crate) fn blobstore(&self) -> Option<&Value> {
        let stores = [&self.update.blobstores, &self.agent.env.bosh.blobstores];
        stores.into_iter().find_map(|stores| stores.as_ref()?.first()).or(self.agent.blobstore.as_ref())
    }

    /// Whether callers must show a certificate. Once demanded, an update cannot drop it.
    pub(crate) fn require_client_cert(&self) -> bool {
        [self.agent.env.bosh.mbus.as_ref(), self.update.mbus.as_ref()]
            .into_iter()
            .flatten()
            .any(|mbus| mbus.require_client_cert)
    }
}

/// why there are no settings
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// neither the source nor the cache has any
    #[error("no settings: {said}")]
    None {
        said: String,
        /// Whether they may still come.
        may_come: bool,
    },
    /// they are to be in memory, and cannot
    #[error("cannot keep settings in memory, in {path}")]
    Memory {
        path: PathBuf,
        #[source]
        source: Box<PlatformError>,
    },
    /// a settings file cannot be read or written
    #[error("cannot keep settings in {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Loads, caches and remembers settings.
#[derive(Debug)]
pub(crate) struct SettingsStore {
    loader: Loader,
    current: Mutex<Arc<Settings>>,
}

impl SettingsStore {
    /// Loads the settings for the first time. Some CPIs put them into a VM that runs already: they are waited for as long as
    /// `patience` lasts.
    pub(crate) fn open(
        base: Base,
        platform: Arc<dyn Platform>,
        sources: Vec<SettingsSource>,
        registry: Registry,
        patience: Duration,
    ) -> Result<Self, SettingsError> {
        let loader = Loader { base, platform, sources, registry, chosen: OnceLock::new() };
        if loader.platform.is_memory_folder(&loader.base.settings_in_memory()) {
            loader.move_to_memory()?;
        }
        let deadline = Instant::now() + patience;
        let mut has_said = false;
        let settings = loop {
            match loader.load() {
                Err(error @ SettingsError::None { may_come: true, .. }) if Instant::now() < deadline => {
                    if !std::mem::replace(&mut has_said, true) {
                        tracing::info!("waiting: {error}");
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
                loaded => break loaded?,
            }
        };
        Ok(Self { loader, current: Mutex::new(Arc::new(settings)) })
    }

    /// The settings loaded last.
    pub(crate) fn current(&self) -> Arc<Settings> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads the settings again, because a CPI may have changed them.
    pub(crate) fn reload(&self) -> Result<Arc<Settings>, SettingsError> {
        let settings = Arc::new(self.loader.load()?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = settings.clone();
        Ok(settings)
    }

    /// The public key of the ssh user, if the source of the settings names one.
    pub(crate) fn public_key(&self) -> Option<String> {
        let source = self.loader.sources.get(*self.loader.chosen.get()?)?;
        match source.public_key() {
            Ok(key) => key,
            Err(failure) => {
                tracing::warn!("no public key, because {failure}");
                None
            }
        }
    }

    /// Keeps what `update_settings` brought.
    pub(crate) fn update(&self, update: UpdateSettings) -> Result<(), SettingsError> {
        let path = self.loader.base.update_settings();
        file::write_json(&path, &update, file::PRIVATE).map_err(|source| SettingsError::Io { path, source })?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(Settings { agent: current.agent.clone(), update });
        Ok(())
    }
}

/// Asks the sources, and the cache when they are silent.
#[derive(Debug)]
struct Loader {
    base: Base,
    platform: Arc<dyn Platform>,
    sources: Vec<SettingsSource>,
    registry: Registry,
    /// The source that had settings first; no other is asked from then on.
    chosen: OnceLock<usize>,
}

impl Loader {
    fn load(&self) -> Result<Settings, SettingsError> {
        let agent = match self.fetch() {
            Ok(agent) => {
                if are_in_memory(&agent) {
                    self.keep_in_memory()?;
                }
                let cache = self.base.settings();
                // A cache that cannot be read or is another's is simply replaced.
                if read(&cache).ok().as_ref() != Some(&agent) {
                    file::write_json(&cache, &agent, file::PRIVATE)
                        .map_err(|source| SettingsError::Io { path: cache, source })?;
                }
                agent
            }
            Err(failures) => {
                let cache = self.base.settings();
                let said = failures.iter().map(|failure| failure.said.as_str()).collect::<Vec<_>>().join("; ");
                match read(&cache) {
                    Ok(agent) => {
                        tracing::warn!("using the settings of {}, because {said}", cache.display());
                        agent
                    }
                    Err(error) => {
                        let may_come = failures.iter().any(|failure| failure.may_come);
                        return Err(SettingsError::None { said: format!("{said}; {error}"), may_come });
                    }
                }
            }
        };
        Ok(Settings { agent, update: read_update(&self.base.update_settings())? })
    }

    /// Before anything of them is written.
    fn keep_in_memory(&self) -> Result<(), SettingsError> {
        let folder = self.base.settings_in_memory();
        let made = self.platform.make_memory_folder(&folder);
        match made.map_err(|error| SettingsError::Memory { path: folder, source: Box::new(error) })? {
            true => self.move_to_memory(),
            // Where a VM is a folder of another machine, that is where its settings come from, too.
            false => Ok(()),
        }
    }

    fn move_to_memory(&self) -> Result<(), SettingsError> {
        let path = self.base.settings_in_memory();
        self.base.keep_settings_in_memory().map_err(|source| SettingsError::Io { path, source })
    }

    fn fetch(&self) -> Result<AgentSettings, Vec<Failure>> {
        let chosen = self.chosen.get().copied();
        let mut failures = Vec::new();
        for (position, source) in self.sources.iter().enumerate() {
            if chosen.is_some_and(|chosen| chosen != position) {
                continue;
            }
            match source.fetch(self.registry) {
                Ok(agent) => {
                    let _ = self.chosen.set(position);
                    return Ok(agent);
                }
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures)
    }
}

/// Whether settings, which hold secrets, are to be on no disk.
pub(crate) fn are_in_memory(settings: &AgentSettings) -> bool {
    settings.env.bosh.other.get("agent").is_some_and(|agent| agent["settings"]["tmpfs"] == true)
}

/// The same for jobs.
pub(crate) fn has_jobs_in_memory(settings: &AgentSettings) -> bool {
    settings.env.bosh.other.get("job_dir").is_some_and(|jobs| jobs["tmpfs"] == true)
}

fn read(path: &Path) -> Result<AgentSettings, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{} cannot be read ({error})", path.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("{} does not hold agent settings ({})", path.display(), without_values(&error)))
}

fn read_update(path: &Path) -> Result<UpdateSettings, SettingsError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| SettingsError::Io {
            path: path.to_owned(),
            source: io::Error::other(without_values(&error)),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UpdateSettings::default()),
        Err(source) => Err(SettingsError::Io { path: path.to_owned(), source }),
    }
}

/// What is wrong with a document, without the strings of it that the parser quotes: they may be secrets.
pub(crate) fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match (text.find('"'), text.rfind('"')) {
        (Some(first), Some(last)) if first < last => format!("{}\"…{}", &text[..first], &text[last..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &Path, source: &Path) -> Result<SettingsStore, SettingsError> {
        let base = Base::prepare(folder).unwrap();
        let platform = crate::platform::find("directory", &base, &Default::default()).unwrap();
        SettingsStore::open(
            base,
            platform,
            vec![SettingsSource::File(source.to_owned())],
            Registry::Unused,
            Duration::ZERO,
        )
    }

    #[test]
    fn a_silent_source_is_replaced_by_the_cache_and_a_corrupt_cache_by_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source.json");
        let (base, cache) = (folder.path().join("base"), folder.path().join("base/bosh/settings.json"));
        assert!(store(&base, &source).unwrap_err().to_string().contains("source.json cannot be read"));

        std::fs::write(&source, r#"{"agent_id": "a"}"#).unwrap();
        std::fs::write(&cache, "{").unwrap();
        assert_eq!(store(&base, &source).unwrap().current().agent.agent_id.as_str(), "a");

        std::fs::write(&source, r#"{"agent_id": ""}"#).unwrap();
        assert_eq!(store(&base, &source).unwrap().current().agent.agent_id.as_str(), "a");
        std::fs::remove_file(&source).unwrap();
        assert_eq!(store(&base, &source).unwrap().current().agent.agent_id.as_str(), "a");
    }

    #[test]
    fn a_password_in_broken_settings_does_not_reach_the_log() {
        let error = serde_json::from_str::<AgentSettings>(r#"{"agent_id": "a", "vm": "hunter2"}"#).unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        assert!(!without_values(&error).contains("hunter2"));
    }

    #[test]
    fn an_update_wins_where_it_says_something_and_never_drops_the_demand_for_a_certificate() {
        let agent: AgentSettings = serde_json::from_value(serde_json::json!({"agent_id": "a", "env": {"bosh": {"mbus": {
            "urls": ["https://old"], "cert": {"ca": "old", "certificate": "", "private_key": ""}, "require_client_cert": true
        }}}}))
        .unwrap();
        let update: UpdateSettings =
            serde_json::from_value(serde_json::json!({"mbus": {"urls": null, "cert": {"ca": "new"}}})).unwrap();
        let settings = Settings { agent, update };
        assert_eq!(settings.mbus_url().unwrap().reveal(), "https://old");
        assert_eq!(settings.mbus_cert().unwrap().ca, "new");
        assert!(settings.require_client_cert());
    }
}
