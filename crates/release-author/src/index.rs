//! The indexes of a release directory: which archives and which versions there are.

use std::path::{Path, PathBuf};

use uuid::Uuid;
use windlass_release::Version;

use crate::error::AuthorError;
use crate::yaml::{self, scalar, text};

/// What an archive is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Job,
    Package,
    License,
}

impl Kind {
    /// As people are told.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Package => "package",
            Self::License => "license",
        }
    }
}

/// The archives of one job, package or licence.
#[derive(Debug)]
pub(crate) struct Builds {
    /// `.dev_builds` or `.final_builds`.
    root: PathBuf,
    path: PathBuf,
}

/// Refuses a folder that leads out of the release directory: otherwise its author would choose where files are written on this machine.
pub(crate) fn refuse_links(root: &Path, path: &Path) -> Result<(), AuthorError> {
    match path.ancestors().take_while(|at| at.starts_with(root)).find(|at| at.is_symlink()) {
        Some(link) => Err(AuthorError::Link(link.to_owned())),
        None => Ok(()),
    }
}

/// One archive in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Build {
    key: String,
    pub(crate) fingerprint: String,
    /// Its id in the store, once it is there.
    pub(crate) blob: Option<String>,
    pub(crate) digest: String,
}

impl Build {
    pub(crate) fn new(fingerprint: &str, digest: &str, blob: Option<String>) -> Self {
        Self { key: fingerprint.to_owned(), fingerprint: fingerprint.to_owned(), blob, digest: digest.to_owned() }
    }
}

impl Builds {
    /// In `.dev_builds` or `.final_builds`.
    pub(crate) fn of(builds: &Path, kind: Kind, name: &str) -> Self {
        let folder = match kind {
            Kind::Job => builds.join("jobs").join(name),
            Kind::Package => builds.join("packages").join(name),
            Kind::License => builds.join("license"),
        };
        Self { root: builds.to_owned(), path: folder.join("index.yml") }
    }

    pub(crate) fn find(&self, fingerprint: &str) -> Result<Option<Build>, AuthorError> {
        Ok(self.all()?.into_iter().find(|build| build.fingerprint == fingerprint))
    }

    /// Adds an archive, or replaces the one of its fingerprint.
    pub(crate) fn put(&self, build: Build) -> Result<(), AuthorError> {
        let mut all = self.all()?;
        all.retain(|known| known.fingerprint != build.fingerprint && known.key != build.key);
        all.push(build);
        all.sort_by(|one, other| one.key.cmp(&other.key));
        let entry = |build: &Build| {
            let blob = build.blob.as_ref().map(|blob| format!("    blobstore_id: {}\n", scalar(blob)));
            format!(
                "  {}:\n    version: {}\n{}    sha1: {}\n",
                scalar(&build.key),
                scalar(&build.fingerprint),
                blob.unwrap_or_default(),
                scalar(&build.digest)
            )
        };
        let entries: String = all.iter().map(entry).collect();
        yaml::save(&self.path, &format!("builds:\n{entries}format-version: \"2\"\n"))
    }

    fn all(&self) -> Result<Vec<Build>, AuthorError> {
        refuse_links(&self.root, &self.path)?;
        let read = yaml::load_if_there(&self.path, |root| {
            let builds = root.optional("builds")?.map_or(Ok(Vec::new()), |builds| builds.entries())?;
            let build = |(key, at): (&str, windlass_manifest::At<'_>)| {
                Ok(Build {
                    key: key.to_owned(),
                    fingerprint: text(&at.field("version")?)?,
                    blob: at.optional("blobstore_id")?.map(|id| text(&id)).transpose()?,
                    digest: text(&at.field("sha1")?)?,
                })
            };
            builds.into_iter().map(build).collect()
        })?;
        Ok(read.unwrap_or_default())
    }
}

/// The versions of a release, in `dev_releases` or `releases`.
#[derive(Debug)]
pub(crate) struct Versions {
    /// `dev` or `final`.
    pub(crate) word: &'static str,
    folder: PathBuf,
}

impl Versions {
    pub(crate) fn dev(release: &Path) -> Self {
        Self { word: "dev", folder: release.join("dev_releases") }
    }

    pub(crate) fn finished(release: &Path) -> Self {
        Self { word: "final", folder: release.join("releases") }
    }

    pub(crate) fn last(&self, name: &str) -> Result<Option<Version>, AuthorError> {
        let mut last: Option<Version> = None;
        for (_, version) in self.all(name)? {
            let version = Version::parse(&version)?;
            if last.as_ref().is_none_or(|last| version > *last) {
                last = Some(version);
            }
        }
        Ok(last)
    }

    pub(crate) fn has(&self, name: &str, version: &str) -> Result<bool, AuthorError> {
        Ok(self.all(name)?.iter().any(|(_, known)| known == version))
    }

    /// Where the manifest of a version is.
    pub(crate) fn manifest(&self, name: &str, version: &str) -> PathBuf {
        self.folder.join(name).join(format!("{name}-{version}.yml"))
    }

    /// Adds a version: first what it has, then that it is there.
    pub(crate) fn add(&self, name: &str, version: &str, manifest: &str) -> Result<(), AuthorError> {
        let mut all = self.all(name)?;
        yaml::save(&self.manifest(name, version), manifest)?;
        all.push((Uuid::new_v4().to_string(), version.to_owned()));
        all.sort();
        let entry =
            |(key, version): &(String, String)| format!("  {}:\n    version: {}\n", scalar(key), scalar(version));
        let entries: String = all.iter().map(entry).collect();
        yaml::save(&self.index(name), &format!("builds:\n{entries}format-version: \"2\"\n"))
    }

    fn index(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("index.yml")
    }

    fn all(&self, name: &str) -> Result<Vec<(String, String)>, AuthorError> {
        refuse_links(&self.folder, &self.index(name))?;
        let read = yaml::load_if_there(&self.index(name), |root| {
            let builds = root.optional("builds")?.map_or(Ok(Vec::new()), |builds| builds.entries())?;
            builds.into_iter().map(|(key, at)| Ok((key.to_owned(), text(&at.field("version")?)?))).collect()
        })?;
        Ok(read.unwrap_or_default())
    }
}
