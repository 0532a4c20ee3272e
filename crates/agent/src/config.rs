//! agent.json: how the stemcell says where settings come from.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// agent.json. `Platform` and keys of other agents are tolerated.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    #[serde(rename = "Infrastructure")]
    infrastructure: Infrastructure,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Infrastructure {
    #[serde(rename = "Settings")]
    settings: Settings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(rename = "Sources")]
    sources: Vec<SourceOptions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SourceOptions {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "SettingsPath")]
    settings_path: PathBuf,
}

/// Where settings come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file that the CPI puts into the VM.
    File(PathBuf),
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
    #[error("Unknown source type '{kind}' in {path}; this agent reads settings from sources of type 'File'")]
    UnknownType { path: PathBuf, kind: String },
    /// a file source without a path
    #[error("the source of type 'File' in {path} has no SettingsPath")]
    NoPath { path: PathBuf },
}

/// Reads the sources, in the order in which they are tried.
pub(crate) fn read_sources(path: Option<&Path>) -> Result<Vec<Source>, ConfigError> {
    let path = path.ok_or(ConfigError::Missing)?.to_owned();
    let bytes = std::fs::read(&path).map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
    let file: File =
        serde_json::from_slice(&bytes).map_err(|source| ConfigError::Invalid { path: path.clone(), source })?;
    let sources = file.infrastructure.settings.sources;
    if sources.is_empty() {
        return Err(ConfigError::NoSource { path });
    }
    let known = |options: SourceOptions| match options.kind.as_str() {
        "File" if options.settings_path.as_os_str().is_empty() => Err(ConfigError::NoPath { path: path.clone() }),
        "File" => Ok(Source::File(options.settings_path)),
        "" => Err(ConfigError::NoType { path: path.clone() }),
        _ => Err(ConfigError::UnknownType { path: path.clone(), kind: options.kind }),
    };
    sources.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Source>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let clean = |error: ConfigError| error.to_string().replace(file.path().to_str().unwrap(), "FILE");
        read_sources(Some(file.path())).map_err(clean)
    }

    #[test]
    fn a_shipped_agent_json_is_understood_and_an_unknown_source_is_named() {
        let container = r#"{"Platform": {"Linux": {"UsePreformattedPersistentDisk": true}}, "Infrastructure": {"Settings":
            {"Sources": [{"Type": "File", "SettingsPath": "/env.json", "UseServerName": false}], "UseRegistry": true}}}"#;
        assert_eq!(read(container).unwrap(), [Source::File("/env.json".into())]);
        let unknown = r#"{"Infrastructure": {"Settings": {"Sources": [{"Type": "CDROM", "FileName": "env"}]}}}"#;
        assert!(read(unknown).unwrap_err().starts_with("Unknown source type 'CDROM' in FILE"));
        assert_eq!(read("{}").unwrap_err(), "FILE names no source in Infrastructure.Settings.Sources");
    }
}
