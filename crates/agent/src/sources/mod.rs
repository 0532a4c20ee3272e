//! Where settings come from: one file per kind of source.
//!
//! A source has a document, which is the settings in full, or, for clouds and stemcells from before version 2 of the contract,
//! says in which [`registry`] they are.

mod cdrom;
mod config_drive;
mod drive;
mod http;
mod iso9660;
mod registry;

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use windlass_contract::explain;
use windlass_contract::registry::RegistryUserData;
use windlass_contract::settings::AgentSettings;

pub(crate) use cdrom::{CdRom, DRIVE as CDROM_DRIVE};
pub(crate) use config_drive::ConfigDrive;
pub(crate) use http::{HttpMetadata, InstanceMetadata};

use crate::config::Registry;
use crate::settings::without_values;

/// A source of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingsSource {
    /// A file that the CPI puts into the VM.
    File(PathBuf),
    /// A metadata service with user data.
    Http(HttpMetadata),
    /// A metadata service whose answer is the settings.
    InstanceMetadata(InstanceMetadata),
    /// A disk, or a folder, with files on it.
    ConfigDrive(ConfigDrive),
    /// A disc with a file on it.
    CdRom(CdRom),
}

/// Why a source has no settings. The words hold no value of the document, because it may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) said: String,
    /// Whether they may still come: somebody puts the file there, or is writing it.
    pub(crate) may_come: bool,
}

impl From<String> for Failure {
    fn from(said: String) -> Self {
        Self { said, may_come: false }
    }
}

impl SettingsSource {
    /// The settings; if there are none, why.
    pub(crate) fn fetch(&self, registry: Registry) -> Result<AgentSettings, Failure> {
        let (document, origin) = match self {
            Self::File(path) => (read(path)?, path.display().to_string()),
            Self::Http(service) => (service.user_data()?, service.user_data_url()),
            Self::InstanceMetadata(service) => (service.settings()?, service.settings_url()),
            Self::ConfigDrive(drive) => drive.user_data()?,
            Self::CdRom(cdrom) => (cdrom.settings()?, cdrom.origin()),
        };
        let invalid = |error: &serde_json::Error| Failure {
            said: format!("{origin} does not hold agent settings ({})", without_values(error)),
            may_come: error.is_eof() && matches!(self, Self::File(_)),
        };
        let parsed: Result<Value, _> = serde_json::from_slice(&document);
        let value = match (parsed, self) {
            (Ok(value), _) => value,
            (Err(error), Self::Http(_)) => decoded(&document)
                .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                .ok_or_else(|| invalid(&error))?,
            (Err(error), _) => return Err(invalid(&error)),
        };
        let is_full = value["agent_id"].as_str().is_some_and(|id| !id.is_empty());
        if is_full {
            return serde_json::from_value(value).map_err(|error| invalid(&error));
        }
        if registry == Registry::Unused || value.get("registry").is_none() {
            return Err(format!("{origin}: Metadata does not provide settings, because it has no agent_id").into());
        }
        let location: RegistryUserData = serde_json::from_value(value).map_err(|error| invalid(&error))?;
        let id = match (&location.server, registry) {
            (Some(server), Registry::ByServerName) => server.name.clone(),
            _ => self.instance_id()?,
        };
        registry::fetch(&location.registry, &id).map_err(|error| explain(&error).into())
    }

    /// The public key of the ssh user, if the cloud names one.
    pub(crate) fn public_key(&self) -> Result<Option<String>, String> {
        match self {
            Self::Http(service) => service.public_key(),
            Self::ConfigDrive(drive) => drive.public_key(),
            Self::File(_) | Self::InstanceMetadata(_) | Self::CdRom(_) => Ok(None),
        }
    }

    /// What the cloud calls this VM.
    fn instance_id(&self) -> Result<String, String> {
        match self {
            Self::Http(service) => service.instance_id(),
            Self::ConfigDrive(drive) => drive.instance_id(),
            Self::File(_) | Self::InstanceMetadata(_) | Self::CdRom(_) => {
                Err("the settings are in a registry, and the source says neither server.name nor an instance id"
                    .to_owned())
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure {
        said: format!("{} cannot be read ({error})", path.display()),
        may_come: error.kind() == std::io::ErrorKind::NotFound,
    })
}

/// User data that a cloud gives back in base64, sometimes quoted.
fn decoded(document: &[u8]) -> Option<Vec<u8>> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text = document.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != b'"');
    let text: Vec<u8> = text
        .map(|byte| match byte {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        })
        .collect();
    GeneralPurpose::new(&URL_SAFE, lenient).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_in_base64_is_understood_in_every_spelling() {
        for text in ["eyJhIjoiPz8_In0", "eyJhIjoiPz8/In0=", "\"eyJhIjoiPz8_In0\"\n"] {
            assert_eq!(decoded(text.as_bytes()).unwrap(), br#"{"a":"???"}"#, "{text}");
        }
        assert_eq!(decoded(b"{"), None);
    }

    #[test]
    fn a_document_without_an_agent_id_is_not_taken_for_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        let fetch = |text: &str, registry| {
            std::fs::write(&path, text).unwrap();
            let settings = SettingsSource::File(path.clone()).fetch(registry);
            settings.map(|settings| settings.agent_id.to_string()).map_err(|failure| failure.said)
        };
        assert_eq!(fetch(r#"{"agent_id": "a"}"#, Registry::Unused).unwrap(), "a");
        let located = r#"{"agent_id": "", "registry": {"endpoint": "http://u:hunter2@127.0.0.1:1"}}"#;
        let unused = fetch(located, Registry::Unused).unwrap_err();
        assert!(unused.contains("Metadata does not provide settings") && !unused.contains("hunter2"), "{unused}");
        assert!(fetch(located, Registry::ByInstanceId).unwrap_err().contains("neither server.name nor an instance id"));
        assert!(fetch("{}", Registry::ByServerName).unwrap_err().contains("Metadata does not provide settings"));
        let secret = fetch(r#"{"agent_id": "a", "vm": "hunter2"}"#, Registry::Unused).unwrap_err();
        assert!(secret.contains("does not hold agent settings") && !secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn a_file_that_is_not_there_or_half_written_may_still_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        let may_come = |text: Option<&str>| {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            SettingsSource::File(path.clone()).fetch(Registry::Unused).unwrap_err().may_come
        };
        assert!(may_come(None) && may_come(Some("")) && may_come(Some(r#"{"agent_id": "a", "vm": {"na"#)));
        assert!(
            !may_come(Some("{}")) && !may_come(Some("nonsense")) && !may_come(Some(r#"{"agent_id": "a", "vm": 1}"#))
        );
    }

    #[test]
    fn a_registry_may_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let [path, registry] = ["settings.json", "registry.json"].map(|name| folder.path().join(name));
        std::fs::write(&registry, r#"{"agent_id": "a"}"#).unwrap();
        let located = serde_json::json!({"registry": {"endpoint": registry}, "server": {"name": "vm-1"}});
        std::fs::write(&path, located.to_string()).unwrap();
        let settings = SettingsSource::File(path).fetch(Registry::ByServerName).unwrap();
        assert_eq!(settings.agent_id.as_str(), "a");
    }
}
