//! The directors that a user gave names to, with their CAs and credentials: the original's `~/.bosh/config`, so that both
//! command lines know the same ones.

use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use windlass_contract::Secret;
use windlass_durable::file;
use windlass_manifest::{ParseError, original};

/// What the file holds. Keys that we do not know stay as they are.
#[derive(Debug)]
pub struct KnownEnvironments {
    path: PathBuf,
    entries: Vec<Map<String, Value>>,
    /// What is in the file besides them.
    rest: Map<String, Value>,
}

/// A director in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub url: String,
    pub alias: String,
    pub ca: Option<String>,
    pub client: Option<String>,
    pub client_secret: Option<Secret>,
}

/// why names of directors cannot be used
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    #[error("cannot read '{}'", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("'{}' is not valid", path.display())]
    Yaml { path: PathBuf, source: ParseError },
    #[error("cannot write '{}'", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("no director is called '{0}'; 'windlass environments' lists them")]
    NoAlias(String),
    #[error("there is no home directory for names of directors; set BOSH_CONFIG to a file")]
    NoHome,
}

const ENVIRONMENTS: &str = "environments";

impl KnownEnvironments {
    /// Reads the file that `BOSH_CONFIG` names, or the one in the home directory; one that does not exist is empty.
    pub fn open(variable: impl Fn(&str) -> Option<String>) -> Result<Self, KnownError> {
        let in_home = || variable("HOME").map(|home| PathBuf::from(home).join(".bosh/config"));
        let path = variable("BOSH_CONFIG").map(PathBuf::from).or_else(in_home).ok_or(KnownError::NoHome)?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(KnownError::Read { path, source }),
        };
        let mut rest = match original::parse(&text) {
            Ok(Value::Object(content)) => content,
            Ok(_) => Map::new(),
            Err(source) => return Err(KnownError::Yaml { path, source }),
        };
        let entries = match rest.shift_remove(ENVIRONMENTS) {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        };
        let entries = entries.into_iter().filter_map(|entry| entry.as_object().cloned()).collect();
        Ok(Self { path, entries, rest })
    }

    pub fn all(&self) -> Vec<Known> {
        self.entries.iter().map(read).collect()
    }

    /// A director by its URL or by the name that it was given.
    pub fn find(&self, url_or_alias: &str) -> Option<Known> {
        let is_it = |known: &Known| known.url == url_or_alias || known.alias == url_or_alias;
        self.all().into_iter().find(is_it).filter(|_| !url_or_alias.is_empty())
    }

    /// Gives a director a name. Its credentials stay, as long as it is the same one; a name that another had is taken from it.
    pub fn set_alias(&mut self, url: &str, alias: &str, ca: Option<&str>) {
        let at = self.position(|known| known.url == url || known.alias == alias, url);
        let entry = &mut self.entries[at];
        if entry.get("url") != Some(&json!(url)) {
            // They are another director's.
            entry.clear();
        }
        entry.insert("url".to_owned(), json!(url));
        entry.insert("alias".to_owned(), json!(alias));
        set(entry, "ca_cert", ca);
    }

    /// Forgets a director by its name.
    pub fn remove_alias(&mut self, alias: &str) -> Result<(), KnownError> {
        let found = self.all().iter().position(|known| known.alias == alias && !alias.is_empty());
        let at = found.ok_or_else(|| KnownError::NoAlias(alias.to_owned()))?;
        self.entries.remove(at);
        Ok(())
    }

    /// Keeps the credentials for a director, or forgets them.
    pub fn set_credentials(&mut self, url_or_alias: &str, credentials: Option<(&str, &Secret)>) {
        let is_it = |known: &Known| known.url == url_or_alias || known.alias == url_or_alias;
        let at = self.position(is_it, url_or_alias);
        let entry = &mut self.entries[at];
        set(entry, "username", credentials.map(|(user, _)| user));
        set(entry, "password", credentials.map(|(_, password)| password.reveal()));
    }

    /// Where a director stands; it is added if it does not yet.
    fn position(&mut self, is_it: impl Fn(&Known) -> bool, url: &str) -> usize {
        match self.all().iter().position(is_it) {
            Some(at) => at,
            None => {
                self.entries.push(Map::from_iter([("url".to_owned(), json!(url))]));
                self.entries.len() - 1
            }
        }
    }

    /// Writes the file, readable by its owner only.
    pub fn save(&self) -> Result<(), KnownError> {
        let failed = |source| KnownError::Write { path: self.path.clone(), source };
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            file::create_private_dir(folder).map_err(failed)?;
        }
        // Through a link the file behind it is kept, not the link replaced.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let mut content = self.rest.clone();
        content.insert(ENVIRONMENTS.to_owned(), json!(self.entries));
        let yaml = original::to_yaml(&Value::Object(content));
        file::write(&path, yaml.as_bytes(), file::PRIVATE).map_err(failed)
    }
}

fn set(entry: &mut Map<String, Value>, key: &str, value: Option<&str>) {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => entry.insert(key.to_owned(), json!(value)),
        None => entry.shift_remove(key),
    };
}

fn read(entry: &Map<String, Value>) -> Known {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    Known {
        url: text("url").unwrap_or_default(),
        alias: text("alias").unwrap_or_default(),
        ca: text("ca_cert"),
        client: text("username"),
        client_secret: text("password").map(Secret::new),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn names_and_credentials_are_kept_beside_what_the_original_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config");
        let config = path.display().to_string();
        let open = || KnownEnvironments::open(|name| (name == "BOSH_CONFIG").then(|| config.clone())).unwrap();
        let mut known = open();
        known.set_alias("https://10.0.0.6:25555", "prod", Some("PEM"));
        known.set_credentials("prod", Some(("admin", &Secret::new("it's: secret"))));
        known.save().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let found = open().find("prod").unwrap();
        assert_eq!((found.url.as_str(), found.ca.as_deref()), ("https://10.0.0.6:25555", Some("PEM")));
        assert_eq!(found.client_secret.unwrap().reveal(), "it's: secret");

        let text = std::fs::read_to_string(&path).unwrap() + "  access_token: theirs\n";
        std::fs::write(&path, text).unwrap();
        let mut known = open();
        known.set_credentials("https://10.0.0.6:25555", None);
        known.set_alias("https://10.0.0.6:25555", "live", None);
        known.save().unwrap();
        assert_eq!(
            open().find("live").unwrap(),
            Known { alias: "live".into(), url: "https://10.0.0.6:25555".into(), ..Known::default() }
        );
        assert!(std::fs::read_to_string(&path).unwrap().contains("access_token: theirs"));
        assert!(open().find("prod").is_none());
        let mut known = open();
        assert!(known.remove_alias("prod").is_err());
        known.remove_alias("live").unwrap();
        assert!(known.all().is_empty());
    }
}
