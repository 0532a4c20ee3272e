//! agent.json: how the stemcell says where settings come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::platform::LinuxOptions;
use crate::sources::{CDROM_DRIVE, CdRom, ConfigDrive, HttpMetadata, InstanceMetadata, SettingsSource};

/// agent.json. Keys of other agents are tolerated.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct File {
    platform: PlatformOptions,
    infrastructure: Infrastructure,
    /// Ours: the newest version of the contract that the agent knows, for stemcells that stand for old ones.
    api_version: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct PlatformOptions {
    linux: LinuxOptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Infrastructure {
    settings: SettingsOptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SettingsOptions {
    sources: Vec<SourceOptions>,
    use_registry: bool,
    use_server_name: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct SourceOptions {
    #[serde(rename = "Type")]
    kind: String,
    settings_path: String,
    #[serde(rename = "URI")]
    uri: String,
    headers: BTreeMap<String, String>,
    user_data_path: String,
    #[serde(rename = "InstanceIDPath")]
    instance_id_path: String,
    #[serde(rename = "SSHKeysPath")]
    ssh_keys_path: String,
    token_path: String,
    disk_paths: Vec<PathBuf>,
    meta_data_path: String,
    file_name: String,
    /// Ours: the drive of a CD-ROM that is not the first one.
    device_path: String,
}

/// What agent.json says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Where settings come from, in the order in which they are tried.
    pub(crate) sources: Vec<SettingsSource>,
    /// Whether a source may say that the settings are in a registry.
    pub(crate) registry: Registry,
    /// Whether the agent can be told where disks are. Agents from before version 2 of the contract cannot.
    pub(crate) takes_hints: bool,
    /// What the machine is like, if it is a Linux machine of the VM's own.
    pub(crate) linux: LinuxOptions,
}

/// How a registry is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registry {
    /// Not at all.
    Unused,
    /// The VM's settings are there under the name that the source gives.
    ByServerName,
    /// The VM's settings are there under the instance id that the cloud gives.
    ByInstanceId,
}

/// why agent.json cannot be used
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// no agent.json was named
    #[error("no settings source: start the agent with -C and the path of an agent.json")]
    Missing,
    /// agent.json cannot be read
    #[error("cannot read {path}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// agent.json is no such document
    #[error("{path} is not a valid agent.json")]
    Invalid {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// agent.json names no source
    #[error("{path} names no source in Infrastructure.Settings.Sources")]
    NoSource { path: PathBuf },
    /// a source has no type
    #[error("Missing source type in {path}")]
    NoType { path: PathBuf },
    /// a source has a type that this agent does not know
    #[error(
        "Unknown source type '{kind}' in {path}; this agent reads settings from sources of type 'File', 'HTTP', \
         'InstanceMetadata', 'ConfigDrive' and 'CDROM'"
    )]
    UnknownType { path: PathBuf, kind: String },
    /// a source without a key that it needs
    #[error("the source of type '{kind}' in {path} has no {key}")]
    NoKey { path: PathBuf, kind: String, key: &'static str },
    /// a metadata service over TLS
    #[error("the URI of the source of type '{kind}' in {path} does not start with http://, as metadata services do")]
    Uri { path: PathBuf, kind: String },
}

/// Reads agent.json.
pub(crate) fn read(path: Option<&Path>) -> Result<Config, ConfigError> {
    let path = path.ok_or(ConfigError::Missing)?;
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let file: File =
        serde_json::from_slice(&bytes).map_err(|source| ConfigError::Invalid { path: path.to_owned(), source })?;
    let SettingsOptions { sources, use_registry, use_server_name } = file.infrastructure.settings;
    if sources.is_empty() {
        return Err(ConfigError::NoSource { path: path.to_owned() });
    }
    Ok(Config {
        sources: sources.into_iter().map(|options| options.source(path)).collect::<Result<_, _>>()?,
        registry: match (use_registry, use_server_name) {
            (false, _) => Registry::Unused,
            (true, true) => Registry::ByServerName,
            (true, false) => Registry::ByInstanceId,
        },
        takes_hints: file.api_version.is_none_or(|version| version >= 2),
        linux: file.platform.linux,
    })
}

impl SourceOptions {
    fn source(self, path: &Path) -> Result<SettingsSource, ConfigError> {
        let missing = |key| ConfigError::NoKey { path: path.to_owned(), kind: self.kind.clone(), key };
        let required = |value: &String, key| if value.is_empty() { Err(missing(key)) } else { Ok(value.clone()) };
        let optional = |value: &String| Some(value.clone()).filter(|value| !value.is_empty());
        let uri = || match required(&self.uri, "URI")? {
            uri if uri.starts_with("http://") => Ok(uri),
            _ => Err(ConfigError::Uri { path: path.to_owned(), kind: self.kind.clone() }),
        };
        match self.kind.as_str() {
            "File" => Ok(SettingsSource::File(required(&self.settings_path, "SettingsPath")?.into())),
            "HTTP" => Ok(SettingsSource::Http(HttpMetadata {
                uri: uri()?,
                headers: self.headers.clone(),
                user_data_path: required(&self.user_data_path, "UserDataPath")?,
                instance_id_path: optional(&self.instance_id_path),
                ssh_keys_path: optional(&self.ssh_keys_path),
                token_path: optional(&self.token_path),
            })),
            "InstanceMetadata" => Ok(SettingsSource::InstanceMetadata(InstanceMetadata {
                uri: uri()?,
                headers: self.headers.clone(),
                settings_path: required(&self.settings_path, "SettingsPath")?,
            })),
            "ConfigDrive" if self.disk_paths.is_empty() => Err(missing("DiskPaths")),
            "ConfigDrive" => Ok(SettingsSource::ConfigDrive(ConfigDrive {
                disk_paths: self.disk_paths.clone(),
                meta_data_path: optional(&self.meta_data_path),
                user_data_path: required(&self.user_data_path, "UserDataPath")?,
            })),
            "CDROM" => Ok(SettingsSource::CdRom(CdRom {
                device_path: optional(&self.device_path).unwrap_or_else(|| CDROM_DRIVE.to_owned()).into(),
                file_name: required(&self.file_name, "FileName")?,
            })),
            "" => Err(ConfigError::NoType { path: path.to_owned() }),
            _ => Err(ConfigError::UnknownType { path: path.to_owned(), kind: self.kind }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let clean = |error: ConfigError| error.to_string().replace(file.path().to_str().unwrap(), "FILE");
        read(Some(file.path())).map_err(clean)
    }

    #[test]
    fn the_agent_json_of_a_container_stemcell_is_understood() {
        let container = r#"{"Platform": {"Linux": {"UsePreformattedPersistentDisk": true}}, "Infrastructure": {"Settings":
            {"Sources": [{"Type": "File", "SettingsPath": "/env.json", "MetaDataPath": ""}], "UseRegistry": true}}}"#;
        let config = read_text(container).unwrap();
        assert_eq!(config.sources, [SettingsSource::File("/env.json".into())]);
        assert_eq!((config.registry, config.takes_hints), (Registry::ByInstanceId, true));
    }

    #[test]
    fn the_agent_json_of_an_openstack_stemcell_is_understood() {
        let openstack = r#"{"Platform": {"Linux": {"DevicePathResolutionType": "virtio"}}, "ApiVersion": 1,
            "Infrastructure": {"Settings": {"Sources": [
                {"Type": "ConfigDrive", "DiskPaths": ["/dev/disk/by-label/CONFIG-2"],
                 "MetaDataPath": "ec2/latest/meta-data.json", "UserDataPath": "ec2/latest/user-data"},
                {"Type": "HTTP", "URI": "http://169.254.169.254", "UserDataPath": "/latest/user-data",
                 "InstanceIDPath": "/latest/meta-data/instance-id", "SSHKeysPath": "/latest/meta-data/public-keys/0/openssh-key",
                 "TokenPath": "/latest/api/token"},
                {"Type": "InstanceMetadata", "URI": "http://169.254.169.254", "SettingsPath": "/x", "Headers": {"a": "b"}}
            ], "UseServerName": true, "UseRegistry": true}}}"#;
        let config = read_text(openstack).unwrap();
        assert_eq!((config.registry, config.takes_hints), (Registry::ByServerName, false));
        let [
            SettingsSource::ConfigDrive(drive),
            SettingsSource::Http(http),
            SettingsSource::InstanceMetadata(metadata),
        ] = &config.sources[..]
        else {
            panic!("{:?}", config.sources)
        };
        assert_eq!(drive.user_data_path, "ec2/latest/user-data");
        assert_eq!(http.token_path.as_deref(), Some("/latest/api/token"));
        assert_eq!(http.ssh_keys_path.as_deref(), Some("/latest/meta-data/public-keys/0/openssh-key"));
        assert_eq!(metadata.headers["a"], "b");
    }

    #[test]
    fn the_agent_json_of_a_vsphere_stemcell_is_understood() {
        let vsphere = r#"{"Platform": {"Linux": {"DevicePathResolutionType": "scsi"}},
            "Infrastructure": {"Settings": {"Sources": [{"Type": "CDROM", "FileName": "env"}]}}}"#;
        let cdrom = CdRom { device_path: "/dev/sr0".into(), file_name: "env".into() };
        assert_eq!(read_text(vsphere).unwrap().sources, [SettingsSource::CdRom(cdrom)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with_source = |source: &str| {
            read_text(&format!(r#"{{"Infrastructure": {{"Settings": {{"Sources": [{source}]}}}}}}"#)).unwrap_err()
        };
        assert!(with_source(r#"{"Type": "Floppy"}"#).starts_with("Unknown source type 'Floppy' in FILE"));
        assert_eq!(with_source(r#"{"Type": "CDROM"}"#), "the source of type 'CDROM' in FILE has no FileName");
        assert_eq!(with_source("{}"), "Missing source type in FILE");
        assert_eq!(with_source(r#"{"Type": "File"}"#), "the source of type 'File' in FILE has no SettingsPath");
        assert_eq!(
            with_source(r#"{"Type": "ConfigDrive"}"#),
            "the source of type 'ConfigDrive' in FILE has no DiskPaths"
        );
        assert!(with_source(r#"{"Type": "HTTP", "URI": "https://x"}"#).contains("does not start with http://"));
        assert_eq!(read_text("{}").unwrap_err(), "FILE names no source in Infrastructure.Settings.Sources");
    }
}
