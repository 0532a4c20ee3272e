//! `windlass registry`: runs a registry in the foreground.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use windlass_contract::Secret;
use windlass_durable::file;
use windlass_registry::Credentials;
use windlass_registry::server::{Config, Identity, Registry};

use super::read_file;
use crate::cli::{Global, LogFormat, RegistryArgs};
use crate::failure::Failure;
use crate::foreground::{Stop, log_to_stderr, raise_descriptor_limit, say};

/// The credentials for writing, instead of a file.
pub(super) const CREDENTIALS: &str = "WINDLASS_REGISTRY_CREDENTIALS";
/// What the line before all others begins with.
pub(super) const LISTENS_ON: &str = "The registry listens on ";
/// The user whose password is made up.
const USER: &str = "registry";

pub(crate) async fn run(flags: &Global, arguments: RegistryArgs) -> Result<(), Failure> {
    log_to_stderr(LogFormat::Text);
    raise_descriptor_limit(u64::MAX);
    let mut stop = Stop::listen()?;
    let home = Home::new(flags);
    let (writers, place) = writers(&home, arguments.credentials.as_deref())?;
    let writer = writers.first().map(|writer| writer.user.clone()).unwrap_or_default();
    let database = match arguments.db {
        Some(url) => url,
        None => Secret::new(format!("sqlite:{}", home.file("registry.db")?.display())),
    };
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Identity { certificate: read_file(certificate)?, private_key: Secret::new(read_file(key)?) })
        }
        _ => None,
    };
    let registry = Registry::start(Config {
        tls,
        read_by_address: arguments.read_by_address,
        trust_loopback: arguments.trust_loopback,
        ..Config::new(arguments.listen, database, writers)
    })
    .await
    .map_err(Failure::RegistryStart)?;
    let endpoint = registry.endpoint();
    let reachable = match registry.address().ip().is_unspecified() {
        true => endpoint.replace(&registry.address().ip().to_string(), "ADDRESS-OF-THIS-MACHINE"),
        false => endpoint.clone(),
    };
    let ca = arguments.tls_cert.map(|_| ", \"ca_cert\": \"PEM of its CA\"").unwrap_or_default();
    say(&format!(
        "{LISTENS_ON}{endpoint}\n\n\
         In the CPI's configuration, under cloud.properties:\n\
         \x20 \"registry\": {{\"endpoint\": \"{reachable}\", \"user\": \"{writer}\", \"password\": \"...\"{ca}}}\n\
         The password is in {place}.\n\n\
         Ctrl-C stops it; what is stored stays.",
    ));
    stop.wanted().await;
    say("Stopping: requests are finished first.");
    registry.stop().await;
    Ok(())
}

/// The registry's part of the state directory; made when something is kept there.
struct Home(Option<PathBuf>);

impl Home {
    fn new(flags: &Global) -> Self {
        let state = flags.state_dir.clone().or_else(windlass_durable::state_dir::default);
        Self(state.map(|state| state.join("registry")))
    }

    fn file(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.0.as_deref().ok_or(Failure::NoStateDir)?;
        file::create_private_dir(folder).map_err(|source| Failure::StateDir { path: folder.to_owned(), source })?;
        Ok(folder.join(name))
    }
}

/// The credentials for writing, and where they were found.
fn writers(home: &Home, file: Option<&Path>) -> Result<(Vec<Credentials>, String), Failure> {
    if let (None, Ok(text)) = (file, std::env::var(CREDENTIALS)) {
        let place = format!("the variable {CREDENTIALS}");
        return Ok((parse(&text, &place)?, place));
    }
    let path = match file {
        Some(path) => path.to_owned(),
        None => {
            let path = home.file("credentials")?;
            if !path.exists() {
                let line = format!("{USER}:{}\n", uuid::Uuid::new_v4().simple());
                file::write(&path, line.as_bytes(), file::PRIVATE)
                    .map_err(|source| Failure::StateDir { path: path.clone(), source })?;
            }
            path
        }
    };
    if std::fs::metadata(&path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0) {
        tracing::warn!("{} can be read by other users; 'chmod 600' keeps it to yourself", path.display());
    }
    let place = path.display().to_string();
    Ok((parse(&read_file(&path)?, &place)?, place))
}

/// Lines USER:PASSWORD; empty ones and those that begin with `#` say nothing.
fn parse(text: &str, place: &str) -> Result<Vec<Credentials>, Failure> {
    let unusable = || Failure::NoCredentials { place: place.to_owned() };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let credentials = lines
        .map(|line| match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(Credentials { user: user.to_owned(), password: Secret::new(password) })
            }
            _ => Err(unusable()),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if credentials.is_empty() { Err(unusable()) } else { Ok(credentials) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_lines_and_a_wrong_one_is_not_shown() {
        let read = parse("# new\n cpi:a:b \n\ncpi:old\n", "f").unwrap();
        let read: Vec<_> = read.iter().map(|it| (it.user.as_str(), it.password.reveal())).collect();
        assert_eq!(read, [("cpi", "a:b"), ("cpi", "old")]);
        for wrong in ["", "# a:b", "hunter2", ":hunter2", "cpi:", "a:b\nhunter2"] {
            let error = parse(wrong, "the file").unwrap_err().to_string();
            assert!(error.contains("USER:PASSWORD") && !error.contains("hunter2"), "{error}");
        }
    }
}
