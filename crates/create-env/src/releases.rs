//! The releases that a manifest names, for the state file. Nothing of them is installed, but BOSH's client takes an environment
//! for changed whose releases are not on record.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use uuid::Uuid;
use windlass_archive::{Tarball, decompressed, first_bytes, inside};
use windlass_manifest::{At, Document, Problem, fields};

use crate::state::ReleaseEntry;
use crate::stemcell::{download_path, local_path};

/// More is no manifest of a release.
const LARGEST_MANIFEST: u64 = 4 << 20;

/// A release in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleasePlace {
    pub name: String,
    /// Where it is.
    pub url: Option<String>,
    /// A digest, or several.
    pub sha1: Option<String>,
    /// What the manifest says.
    pub version: Option<String>,
}

impl ReleasePlace {
    /// Reads one entry of `releases`.
    pub(crate) fn read(at: &At<'_>) -> Result<Self, Problem> {
        let optional = |key: &str| at.optional(key)?.map(|value| fields::text(&value)).transpose();
        Ok(Self {
            name: fields::text(&at.field("name")?)?,
            url: optional("url")?,
            sha1: optional("sha1")?,
            version: optional("version")?,
        })
    }

    /// The version of the tarball, where it is on this machine, and otherwise what the manifest says.
    fn version(&self, manifest_folder: &Path, downloads: &Path) -> Option<String> {
        let tarball = self.url.as_deref().map(|url| {
            let fetched = || download_path(url, self.sha1.as_deref().unwrap_or_default(), downloads);
            local_path(url, manifest_folder).unwrap_or_else(fetched)
        });
        tarball.and_then(|tarball| version_in(&tarball)).or_else(|| self.version.clone())
    }
}

/// What the state file says about releases; nothing about one whose version nobody can tell.
pub(crate) fn entries(releases: &[ReleasePlace], manifest_folder: &Path, downloads: &Path) -> Vec<ReleaseEntry> {
    let entry = |release: &ReleasePlace| {
        let version = release.version(manifest_folder, downloads)?;
        Some(ReleaseEntry { id: Uuid::new_v4().to_string(), name: release.name.clone(), version })
    };
    releases.iter().filter_map(entry).collect()
}

fn version_in(tarball: &Path) -> Option<String> {
    let mut file = File::open(tarball).ok()?;
    let start = first_bytes(&mut file).ok()?;
    // It stands at the beginning; what follows need not be read.
    let found = Tarball::new(decompressed(&start, BufReader::new(file))).each(
        |_| None,
        |entry| {
            if inside(&entry.path_bytes()).is_none_or(|path| path != Path::new("release.MF")) {
                return Ok(());
            }
            let mut text = String::new();
            let read = entry.take(LARGEST_MANIFEST).read_to_string(&mut text);
            Err(read.ok().map(|_| text))
        },
    );
    let document = Document::parse(&found.err()??).ok()?;
    fields::text(&document.root().field("version").ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn tarball(path: &Path, manifest: &str) {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in [("./release.MF", manifest), ("./jobs/x.tgz", "x")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let mut bytes = archive.into_inner().unwrap().finish().unwrap();
        // What follows the manifest is not read.
        bytes.truncate(bytes.len() - 8);
        File::create(path).unwrap().write_all(&bytes).unwrap();
    }

    #[test]
    fn versions_come_from_tarballs_that_are_here_and_otherwise_from_the_manifest() {
        let (folder, downloads) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tarball(&folder.path().join("local.tgz"), "name: local\nversion: '1.10'\n");
        let url = "https://releases.example/fetched.tgz";
        tarball(&download_path(url, "abc", downloads.path()), "name: fetched\nversion: 2+dev.1\n");
        let text = format!(
            "releases:\n- {{name: local, url: 'file://local.tgz', version: 1.9}}\n- {{name: fetched, url: '{url}', sha1: abc}}\n\
             - {{name: elsewhere, url: 'https://releases.example/x.tgz', version: 12}}\n- {{name: unknown, url: 'file://no.tgz'}}\n"
        );
        let document = Document::parse(&text).unwrap();
        let list = document.root().optional_list("releases").unwrap();
        let places: Vec<_> = list.iter().map(|at| ReleasePlace::read(at).unwrap()).collect();
        let found = entries(&places, folder.path(), downloads.path());
        let told: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.version.as_str())).collect();
        assert_eq!(told, [("local", "1.10"), ("fetched", "2+dev.1"), ("elsewhere", "12")]);
        assert!(found.iter().all(|it| it.id.parse::<Uuid>().is_ok()));
    }
}
