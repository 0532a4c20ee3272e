//! The programs that jobs of a VM find: those of the stemcell, or, for development, those of this machine.
//!
//! Of this machine a VM sees `/usr`, without what was added by hand in `/usr/local`, and the parts of `/etc` that programs there need
//! and everybody may know: no homes, no keys, no other configuration.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;

/// The key of a stemcell's cloud properties, and the only value that it has.
const PROPERTY: &str = "userland";
const HOST: &str = "host";

/// Whose programs a VM has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Userland {
    /// Those of its stemcell.
    #[default]
    Stemcell,
    /// Those of this machine.
    Host,
}

/// Folders that are links into `/usr` on most machines, and folders of their own on others.
const TOP: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What programs in `/usr` need of `/etc`, and everybody may read.
const CONFIGURATION: [&str; 11] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
    "/etc/protocols",
    "/etc/services",
];

/// What was added to this machine by hand; VMs find it empty.
pub(crate) const LOCAL: &str = "/usr/local";

impl Userland {
    /// What a stemcell says of itself.
    pub(crate) fn of(cloud_properties: &Object) -> Result<Self, CpiError> {
        match cloud_properties.get(PROPERTY) {
            None => Ok(Self::Stemcell),
            Some(value) if value == HOST => Ok(Self::Host),
            Some(other) => Err(CpiError::cloud(format!(
                "the stemcell's cloud property '{PROPERTY}' is {other}, and only \"{HOST}\" is known; leave it out for the \
                 programs of the stemcell itself"
            ))),
        }
    }

    pub(crate) fn is_of_stemcell(&self) -> bool {
        *self == Self::Stemcell
    }
}

/// Links of this machine that lead to its programs, and where they lead.
pub(crate) fn links() -> Vec<(&'static str, PathBuf)> {
    TOP.iter().filter_map(|path| Some((*path, fs::read_link(path).ok()?))).collect()
}

/// Files and folders of this machine that a VM sees at the same place and never changes. Links are not followed: they could lead
/// to anything.
pub(crate) fn shown() -> Vec<PathBuf> {
    let is_own = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink());
    let paths = ["/usr"].iter().chain(&TOP).chain(&CONFIGURATION).map(PathBuf::from);
    paths.chain(of_java()).filter(is_own).collect()
}

/// Java's own configuration, which has its version in its name.
fn of_java() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("java-"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The program of this machine that can be an agent: the small one beside `windlass`, or the one that is several programs.
pub(crate) fn agent(windlass: &Path) -> PathBuf {
    let beside = |name| Some(windlass.with_file_name(name)).filter(|path| path.is_file());
    beside("windlass-agent").or_else(|| beside("windlass")).unwrap_or_else(|| windlass.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_that_is_secret_is_shown() {
        for path in shown() {
            let path = path.to_str().unwrap();
            assert!(!["/etc", "/root", "/home", "/etc/ssl", "/etc/ssh", "/var"].contains(&path), "{path}");
            assert!(!path.contains("private") && !path.contains("shadow"), "{path}");
        }
        assert!(shown().contains(&PathBuf::from("/usr")));
    }

    #[test]
    fn a_userland_that_nobody_knows_is_refused() {
        let of = |value| Userland::of(&Object::from_iter([(PROPERTY.to_owned(), value)]));
        assert_eq!(of(json!("host")).unwrap(), Userland::Host);
        assert!(of(json!("debian")).unwrap_err().message.contains("only \"host\" is known"));
        assert_eq!(Userland::of(&Object::new()).unwrap(), Userland::Stemcell);
    }
}
