//! The machine that builds, as the userland of a stemcell: which packages it has.
//!
//! The stemcell itself holds no program. The embedded cloud shows its VMs those of the machine they run on, so that a release can be
//! tried in a second, without a download. What is compiled there fits that machine and no other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::digest::hex;

/// How many characters of the digest a version has.
const LENGTH: usize = 16;

/// Where packages are on record, of Debian's kind and of the other.
const DEBIAN: &str = "var/lib/dpkg/status";
const RPM: [&str; 5] = [
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/Packages.db",
    "var/lib/rpm/rpmdb.sqlite",
    "var/lib/rpm/Packages.db",
    "var/lib/rpm/Packages",
];

/// A version that changes with the packages that the system in `root` has: the same packages, the same version. Starts with a letter,
/// because YAML takes some digests for numbers.
pub(crate) fn version(root: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    if let Ok(status) = File::open(root.join(DEBIAN)) {
        for package in installed(BufReader::new(status))? {
            digest.update(package);
        }
    } else if let Some(database) = RPM.iter().map(|path| root.join(path)).find(|path| path.is_file()) {
        io::copy(&mut File::open(database)?, &mut digest)?;
    } else {
        for program in programs(&root.join("usr/bin"))? {
            digest.update(program);
        }
    }
    let text = hex(&digest.finalize());
    Ok(format!("p{}", &text[..LENGTH]))
}

/// Name, version and architecture of each package, sorted.
fn installed(status: impl BufRead) -> io::Result<Vec<String>> {
    let mut packages = Vec::new();
    let (mut package, mut is_installed) = (String::new(), false);
    // An empty line ends each package, the last one too.
    for line in status.split(b'\n').chain([Ok(Vec::new())]) {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if line.is_empty() {
            if is_installed && !package.is_empty() {
                packages.push(std::mem::take(&mut package));
            }
            (package, is_installed) = (String::new(), false);
        } else if let Some(status) = line.strip_prefix("Status: ") {
            is_installed = status.ends_with(" installed");
        } else if ["Package: ", "Version: ", "Architecture: "].iter().any(|key| line.starts_with(key)) {
            package.push_str(&line);
            package.push('\n');
        }
    }
    packages.sort();
    Ok(packages)
}

/// Names and sizes, where nobody keeps a record.
fn programs(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        found.push(format!("{} {}\n", entry.file_name().to_string_lossy(), entry.metadata()?.len()));
    }
    found.sort();
    Ok(found)
}

/// The shell of users.
pub(crate) fn shell() -> &'static str {
    if PathBuf::from("/usr/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: b\nStatus: install ok installed\nVersion: 2\nArchitecture: all\nDescription: x\n\n\
        Package: a\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n\
        Package: gone\nStatus: deinstall ok config-files\nVersion: 3\nArchitecture: all\n";

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_version_changes_with_the_packages_and_with_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        version(root).unwrap_err();
        put(root, "usr/bin/sh", "x");
        let by_programs = version(root).unwrap();
        put(root, RPM[2], "a database");
        let by_rpm = version(root).unwrap();
        put(root, DEBIAN, STATUS);
        let first = version(root).unwrap();
        assert!(by_programs != by_rpm && by_rpm != first);
        put(root, DEBIAN, &STATUS.replace("Description: x", "Description: y").replace("Version: 3", "Version: 4"));
        assert_eq!(version(root).unwrap(), first, "neither descriptions nor what was removed count");
        put(root, DEBIAN, &STATUS.replace("Version: 1", "Version: 1.1"));
        assert_ne!(version(root).unwrap(), first);
        assert!(first.starts_with('p') && first.len() == LENGTH + 1, "{first}");
    }
}
