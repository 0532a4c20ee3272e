//! Which director to talk to, and as whom.

use std::io;
use std::path::{Path, PathBuf};

use windlass_contract::Secret;

use crate::known_environments::{KnownEnvironments, KnownError};

/// A director and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `https://HOST:PORT`.
    pub url: String,
    /// PEM text; the machine's certificates if absent.
    pub ca: Option<String>,
    pub client: Option<String>,
    pub client_secret: Option<Secret>,
}

/// why no director can be named
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("no director is named: set BOSH_ENVIRONMENT or give -e, or start one on this machine with 'windlass up'")]
    Unnamed,
    #[error("no director keeps its state in '{}': start one with 'windlass --state-dir {} up'", folder.display(), folder.display())]
    NoDirectorIn { folder: PathBuf },
    #[error("cannot read '{}'", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("'{0}' is not the address of a director; it looks like https://10.0.0.6:25555")]
    BadUrl(String),
    #[error(transparent)]
    Known(#[from] KnownError),
    #[error("cannot read the director's CA certificate '{}'; give --ca-cert a file or the PEM text", path.display())]
    Ca { path: PathBuf, source: io::Error },
}

const DEFAULT_PORT: u16 = 25555;

/// What the command line says of the director.
#[derive(Debug, Clone, Default)]
pub struct DirectorFlags {
    /// A URL, an address or a name that `alias-env` gave.
    pub environment: Option<String>,
    /// A file or PEM text.
    pub ca_cert: Option<String>,
    pub client: Option<String>,
    pub client_secret: Option<Secret>,
    /// Of a director on this machine.
    pub state_dir: Option<PathBuf>,
}

/// What is said on the command line comes first, then what variables say, then the director of this machine.
/// `--state-dir` counts as naming a director: users who give it mean no other.
pub fn resolve(
    flags: &DirectorFlags,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Environment, EnvironmentError> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let named = flags.environment.clone();
    let named = if flags.state_dir.is_some() { named } else { named.or_else(|| variable("BOSH_ENVIRONMENT")) };
    let from_flags_or = |fallback: &dyn Fn(&str) -> Option<String>, url: String| {
        let ca = flags.ca_cert.clone().or_else(|| fallback("BOSH_CA_CERT"));
        Ok(Environment {
            url: normalise(&url)?,
            ca: ca.map(read_ca).transpose()?,
            client: flags.client.clone().or_else(|| fallback("BOSH_CLIENT")),
            client_secret: flags.client_secret.clone().or_else(|| fallback("BOSH_CLIENT_SECRET").map(Secret::new)),
        })
    };
    if let Some(name) = named {
        // Without a home directory there are no names.
        let known = match KnownEnvironments::open(variable) {
            Err(KnownError::NoHome) => None,
            known => Some(known?),
        };
        let Some(known) = known.and_then(|known| known.find(&name).or_else(|| known.find(&normalise(&name).ok()?)))
        else {
            return from_flags_or(&variable, name);
        };
        let mut environment = from_flags_or(&variable, known.url)?;
        environment.ca = environment.ca.or(known.ca);
        // A name from here and a secret from there would be no credentials.
        if environment.client.is_none() {
            (environment.client, environment.client_secret) = (known.client, known.client_secret);
        }
        return Ok(environment);
    }
    let folder =
        flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(EnvironmentError::Unnamed)?;
    let path = folder.join("env.sh");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && flags.state_dir.is_some() => {
            return Err(EnvironmentError::NoDirectorIn { folder });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(EnvironmentError::Unnamed),
        Err(source) => return Err(EnvironmentError::Unreadable { path, source }),
    };
    let url = exported(&text, "BOSH_ENVIRONMENT").ok_or(EnvironmentError::NoDirectorIn { folder })?;
    from_flags_or(&|name| exported(&text, name), url)
}

/// The director that keeps its state in a folder of this machine.
pub fn in_state_dir(folder: &Path) -> Result<Environment, EnvironmentError> {
    resolve(&DirectorFlags { state_dir: Some(folder.to_owned()), ..DirectorFlags::default() }, |_| None)
}

/// As the original reads it: HTTPS on port 25555 unless said otherwise.
fn normalise(text: &str) -> Result<String, EnvironmentError> {
    let bad = || EnvironmentError::BadUrl(text.to_owned());
    let rest = match text.split_once("://") {
        Some(("https", rest)) => rest,
        Some(_) => return Err(bad()),
        None => text,
    };
    let address = rest.trim_end_matches('/');
    // No path, and no credentials: they would end up in messages.
    if address.is_empty() || address.contains(['/', '@', ' ', '?']) {
        return Err(bad());
    }
    let host_end = address.rfind(']').unwrap_or(0);
    match address[host_end..].rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(format!("https://{address}")),
        Some(_) => Err(bad()),
        None => Ok(format!("https://{address}:{DEFAULT_PORT}")),
    }
}

/// A file with certificates, or their PEM text.
pub fn read_ca(text: String) -> Result<String, EnvironmentError> {
    if text.contains("-----BEGIN") {
        return Ok(text);
    }
    std::fs::read_to_string(Path::new(&text)).map_err(|source| EnvironmentError::Ca { path: text.into(), source })
}

/// The value of `export NAME='VALUE'` in a shell script of that form.
fn exported(script: &str, name: &str) -> Option<String> {
    let value = script.lines().find_map(|line| line.strip_prefix("export ")?.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(&str) -> Option<String> = |_| None;

    fn director_in(folder: &Path) -> DirectorFlags {
        let script = "export BOSH_ENVIRONMENT='https://127.0.0.1:4'\nexport BOSH_CLIENT='admin'\n\
                      export BOSH_CLIENT_SECRET='it'\\''s'\nexport BOSH_CA_CERT='-----BEGIN CERTIFICATE-----'\n";
        std::fs::write(folder.join("env.sh"), script).unwrap();
        DirectorFlags { state_dir: Some(folder.to_owned()), ..DirectorFlags::default() }
    }

    #[test]
    fn the_director_of_this_machine_needs_no_flags() {
        let folder = tempfile::tempdir().unwrap();
        let environment = resolve(&director_in(folder.path()), NONE).unwrap();
        assert_eq!(environment.url, "https://127.0.0.1:4");
        assert_eq!(environment.client.as_deref(), Some("admin"));
        assert_eq!(environment.client_secret.unwrap().reveal(), "it's");
    }

    #[test]
    fn a_variable_never_overrides_the_director_that_the_command_line_names() {
        let folder = tempfile::tempdir().unwrap();
        let production = |name: &str| (name == "BOSH_ENVIRONMENT").then(|| "10.0.0.6".to_owned());
        let flags = director_in(folder.path());
        assert_eq!(resolve(&flags, production).unwrap().url, "https://127.0.0.1:4");
        let flags = DirectorFlags { environment: Some("10.0.0.7".into()), ..flags };
        assert_eq!(resolve(&flags, production).unwrap().url, "https://10.0.0.7:25555");
        assert_eq!(resolve(&DirectorFlags::default(), production).unwrap().url, "https://10.0.0.6:25555");
    }

    #[test]
    fn a_director_is_found_by_the_name_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let text = "environments:\n- {url: \"https://10.0.0.6:25555\", alias: prod, username: admin, password: p, ca_cert: PEM}\n";
        std::fs::write(&config, text).unwrap();
        let named = |name: &str, client: Option<&str>| {
            let variable = |name: &str| (name == "BOSH_CONFIG").then(|| config.display().to_string());
            let client = client.map(str::to_owned);
            resolve(&DirectorFlags { environment: Some(name.into()), client, ..DirectorFlags::default() }, variable)
                .unwrap()
        };
        for name in ["prod", "https://10.0.0.6:25555", "10.0.0.6"] {
            let found = named(name, None);
            assert_eq!((found.url.as_str(), found.client.as_deref()), ("https://10.0.0.6:25555", Some("admin")));
            assert_eq!(found.ca.as_deref(), Some("PEM"));
        }
        assert_eq!(named("prod", Some("other")).client_secret, None, "not the secret of somebody else");
        assert_eq!(named("10.0.0.7", None).client, None);
    }

    #[test]
    fn a_missing_director_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let flags = DirectorFlags { state_dir: Some(folder.path().to_owned()), ..DirectorFlags::default() };
        let message = resolve(&flags, NONE).unwrap_err().to_string();
        assert!(message.contains("windlass --state-dir"), "{message}");
    }

    #[test]
    fn addresses_are_read_as_the_original_reads_them() {
        let ok = |text: &str| normalise(text).unwrap();
        assert_eq!(ok("10.0.0.6"), "https://10.0.0.6:25555");
        assert_eq!(ok("https://10.0.0.6:1234/"), "https://10.0.0.6:1234");
        assert_eq!(ok("[::1]"), "https://[::1]:25555");
        assert_eq!(ok("https://[::1]:7"), "https://[::1]:7");
        for bad in ["", "http://10.0.0.6", "https://a:b@10.0.0.6", "https://h/path", "host:port"] {
            assert!(normalise(bad).is_err(), "{bad}");
        }
    }
}
