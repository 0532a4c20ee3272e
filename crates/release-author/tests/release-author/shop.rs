//! A release directory made from a tarball that the original's command line made, and whose fingerprints are therefore known.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use windlass_release::ReleaseManifest;
use windlass_release_author::{AuthorError, BuiltRelease, Create, ReleaseDirectory, Said};

/// A release directory with a cache of its own.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
}

impl Site {
    /// With nothing in it.
    pub(crate) fn empty() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(site.path()).unwrap();
        site
    }

    /// The recorded release, laid out as its author had it.
    pub(crate) fn shop() -> Self {
        let site = Self::empty();
        site.directory().init(false).unwrap();
        let manifest = recorded();
        for job in &manifest.jobs {
            for (name, content) in inner(&format!("jobs/{}.tgz", job.name)) {
                let name = if name == "job.MF" { "spec".to_owned() } else { name };
                site.write(&format!("jobs/{}/{name}", job.name), &content);
            }
        }
        for package in &manifest.packages {
            let mut files = inner(&format!("packages/{}.tgz", package.name));
            site.write(&format!("packages/{}/packaging", package.name), &files.remove("packaging").unwrap());
            let list: Vec<&String> = files.keys().collect();
            let spec = format!("name: {}\ndependencies: {:?}\nfiles: {list:?}\n", package.name, package.dependencies);
            site.write(&format!("packages/{}/spec", package.name), spec.as_bytes());
            for (name, content) in &files {
                site.write(&format!("src/{name}"), content);
            }
        }
        site
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop-release")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    pub(crate) fn directory(&self) -> ReleaseDirectory {
        ReleaseDirectory::at(&self.path()).unwrap().with_cache(&self.cache())
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// Creates a release; what its author was told.
    pub(crate) fn create(&self, options: &Create) -> Result<(BuiltRelease, Vec<String>), AuthorError> {
        let mut lines = Vec::new();
        let release = self.directory().create(options, &mut |said| lines.push(text(said)))?;
        Ok((release, lines))
    }
}

pub(crate) fn text(said: Said) -> String {
    match said {
        Said::Step(text) | Said::Line(text) | Said::Warning(text) => text,
    }
}

pub(crate) fn tarball() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../release/tests/release/data/shop-1.tgz")
}

/// The original's `release.MF`.
pub(crate) fn recorded() -> ReleaseManifest {
    let files = files(fs::read(tarball()).unwrap());
    ReleaseManifest::parse(std::str::from_utf8(&files["release.MF"]).unwrap()).unwrap()
}

/// The files of an archive in the recorded tarball.
fn inner(name: &str) -> BTreeMap<String, Vec<u8>> {
    files(files(fs::read(tarball()).unwrap())[name].clone())
}

/// The files of a compressed archive.
pub(crate) fn files(archive: Vec<u8>) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_file() {
            let name = entry
                .path()
                .unwrap()
                .strip_prefix("./")
                .map_or_else(|_| entry.path().unwrap().display().to_string(), |path| path.display().to_string());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
    }
    files
}
