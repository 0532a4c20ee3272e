//! A release directory, and what its author does to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_durable::file;
use windlass_release::manifest::check_name;
use windlass_release::{ReleaseManifest, Version};

use crate::blobs::Blobs;
use crate::build::{ArchivePlaces, Wanted};
use crate::built::{BuiltJob, BuiltPackage, BuiltRelease, Part};
use crate::cache::Cache;
use crate::config::Config;
use crate::error::AuthorError;
use crate::index::{Kind, Versions, refuse_links};
use crate::sources::All;
use crate::store::Store;
use crate::{Said, Tell, git, yaml};

#[derive(Debug)]
pub struct ReleaseDirectory {
    folder: PathBuf,
    cache: Option<PathBuf>,
}

/// How a release is created.
#[derive(Debug, Default, Clone)]
pub struct Create {
    /// Its name, if not that of the directory.
    pub name: Option<String>,
    /// Its version, if not the next.
    pub version: Option<String>,
    /// Whether the next dev version tells the time.
    pub timestamp: bool,
    /// Whether it is final.
    pub is_final: bool,
    /// Whether changes without a commit are no obstacle.
    pub force: bool,
}

impl ReleaseDirectory {
    /// The directory at `folder`.
    pub fn at(folder: &Path) -> Result<Self, AuthorError> {
        let folder = std::path::absolute(folder).map_err(|error| AuthorError::Read(folder.to_owned(), error))?;
        Ok(Self { folder, cache: None })
    }

    /// The same with archives elsewhere than in `~/.bosh/cache`.
    pub fn with_cache(self, folder: &Path) -> Self {
        Self { cache: Some(folder.to_owned()), ..self }
    }

    /// Its large files.
    pub fn blobs(&self) -> Blobs {
        Blobs::of(&self.folder)
    }

    fn cache(&self) -> Result<Cache, AuthorError> {
        self.cache.as_deref().map_or_else(Cache::of_user, Cache::at)
    }

    /// Held while the directory changes, so that two commands at once do not undo each other's.
    pub(crate) fn lock(folder: &Path, tell: Tell<'_>) -> Result<File, AuthorError> {
        let failed = |error| AuthorError::Read(folder.to_owned(), error);
        let lock = File::open(folder).map_err(failed)?;
        if lock.try_lock().is_err() {
            tell(Said::Line(format!("Waiting for another command in '{}'", folder.display())));
            lock.lock().map_err(failed)?;
        }
        Ok(lock)
    }

    /// Makes a directory with nothing in it.
    pub fn init(&self, with_git: bool) -> Result<(), AuthorError> {
        for name in ["jobs", "packages", "src"] {
            let path = self.folder.join(name);
            fs::create_dir_all(&path).map_err(|error| AuthorError::Write(path, error))?;
        }
        let name = self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Config::save_name(&self.folder, name.strip_suffix("-release").unwrap_or(&name))?;
        yaml::save(&self.folder.join("config/blobs.yml"), "--- {}\n")?;
        if with_git { git::init(&self.folder) } else { Ok(()) }
    }

    /// Makes a job without anything.
    pub fn generate_job(&self, name: &str) -> Result<(), AuthorError> {
        let folder = self.new_folder("Job", "job", "jobs", name)?;
        let templates = folder.join("templates");
        fs::create_dir_all(&templates).map_err(|error| AuthorError::Write(templates, error))?;
        let spec = format!("---\nname: {name}\n\ntemplates: {{}}\n\npackages: []\n\nproperties: {{}}\n");
        yaml::save(&folder.join("monit"), "")?;
        yaml::save(&folder.join("spec"), &spec)
    }

    /// Makes a package without anything.
    pub fn generate_package(&self, name: &str) -> Result<(), AuthorError> {
        let folder = self.new_folder("Package", "package", "packages", name)?;
        yaml::save(&folder.join("packaging"), "set -e\n")?;
        yaml::save(&folder.join("spec"), &format!("---\nname: {name}\n\ndependencies: []\n\nfiles: []\n"))
    }

    /// Not there yet, and with a name that a release can have.
    fn new_folder(
        &self,
        kind: &'static str,
        word: &'static str,
        place: &str,
        name: &str,
    ) -> Result<PathBuf, AuthorError> {
        check_name(word, name)?;
        let path = self.folder.join(place).join(name);
        if path.exists() {
            return Err(AuthorError::Exists { kind, name: name.to_owned(), path });
        }
        Ok(path)
    }

    /// Forgets what can be made again.
    pub fn reset(&self, tell: Tell<'_>) -> Result<(), AuthorError> {
        let _lock = Self::lock(&self.folder, tell)?;
        for name in [".dev_builds", "dev_releases", ".blobs", "blobs"] {
            let path = self.folder.join(name);
            file::remove_tree(&path).map_err(|error| AuthorError::Write(path, error))?;
        }
        file::empty_trash(&self.folder).map_err(|error| AuthorError::Write(self.folder.clone(), error))
    }

    pub fn create(&self, options: &Create, tell: Tell<'_>) -> Result<BuiltRelease, AuthorError> {
        let config = Config::read(&self.folder)?;
        let name = options.name.as_deref().map_or_else(|| config.name(), Ok)?.to_owned();
        check_name("release", &name)?;
        let wanted = options.version.as_deref().map(Version::parse).transpose()?;
        let uncommitted_changes = git::is_dirty(&self.folder, options.force)?;
        let commit_hash = git::last_commit(&self.folder)?;
        let _lock = Self::lock(&self.folder, tell)?;
        let version = match &wanted {
            Some(version) => version.clone(),
            None => self.next_dev(&name, options.timestamp)?,
        };
        self.refuse_known(&name, &version, options, wanted.as_ref())?;
        let store = config.store();
        if options.is_final {
            store.must_exist()?;
        }
        self.blobs().sync_with(&store, tell)?;
        let all = All::read(&self.folder)?;
        let uncompressed = all.uncompressed.join(", ");
        let cache = self.cache()?;
        let mut release = self.build(all, &cache, &store, tell)?;
        (release.name, release.version) = (name, version.to_string());
        (release.commit_hash, release.uncommitted_changes) = (commit_hash, uncommitted_changes);
        release.no_compression = config.no_compression;
        self.add(&Versions::dev(&self.folder), &release, tell)?;
        if !uncompressed.is_empty() && !config.no_compression {
            tell(Said::Warning(format!(
                "Warning: The following packages have no_compression: true in their spec files, but final.yml does not have \
                 no_compression: true. Consider setting no_compression: true in final.yml to avoid compression on the outer \
                 release tarball: {uncompressed}"
            )));
        }
        if options.is_final {
            self.finish(&mut release, wanted.as_ref(), &cache, &store, tell)?;
        }
        Ok(release)
    }

    /// Before anything is made.
    fn refuse_known(
        &self,
        name: &str,
        version: &Version,
        options: &Create,
        wanted: Option<&Version>,
    ) -> Result<(), AuthorError> {
        let (dev, finished) = (Versions::dev(&self.folder), Versions::finished(&self.folder));
        if dev.has(name, &version.to_string())? {
            return Err(AuthorError::VersionExists(version.to_string()));
        }
        match wanted {
            Some(version) if options.is_final && finished.has(name, &version.to_string())? => {
                Err(AuthorError::FinalExists { name: name.to_owned(), version: version.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn build(&self, all: All, cache: &Cache, store: &Store, tell: Tell<'_>) -> Result<BuiltRelease, AuthorError> {
        let needs = |list: &[crate::sources::Sources]| list.iter().map(|it| it.needs.clone()).collect::<Vec<_>>();
        let (job_needs, package_needs) = (needs(&all.jobs), needs(&all.packages));
        let wanted: Vec<Wanted> =
            all.jobs.into_iter().chain(all.packages).chain(all.license).map(Wanted::from).collect();
        let places = ArchivePlaces { release: &self.folder, cache, store };
        let mut parts = places.fill(wanted, tell)?.into_iter();
        let jobs = parts.by_ref().zip(job_needs).map(|(part, packages)| BuiltJob { part, packages }).collect();
        Ok(assemble(jobs, parts, package_needs))
    }

    fn add(&self, versions: &Versions, release: &BuiltRelease, tell: Tell<'_>) -> Result<(), AuthorError> {
        versions.add(&release.name, &release.version, &release.manifest())?;
        tell(Said::Line(format!("Added {} release '{}/{}'", versions.word, release.name, release.version)));
        Ok(())
    }

    fn next_dev(&self, name: &str, timestamp: bool) -> Result<Version, AuthorError> {
        let last = match self.last(name)? {
            Some((version, _)) => version,
            None => Version::parse("0")?,
        };
        if timestamp {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            return Ok(last.dev_at(now));
        }
        Ok(last.next_dev()?)
    }

    /// The latest version, dev or final.
    fn last(&self, name: &str) -> Result<Option<(Version, Versions)>, AuthorError> {
        let (dev, finished) = (Versions::dev(&self.folder), Versions::finished(&self.folder));
        Ok(match (dev.last(name)?, finished.last(name)?) {
            (Some(dev_last), Some(final_last)) if final_last > dev_last => Some((final_last, finished)),
            (Some(last), _) => Some((last, dev)),
            (None, Some(last)) => Some((last, finished)),
            (None, None) => None,
        })
    }

    /// Makes a release final, in the next version if none is given.
    pub fn finalize(
        &self,
        release: &mut BuiltRelease,
        version: Option<&str>,
        force: bool,
        tell: Tell<'_>,
    ) -> Result<(), AuthorError> {
        let version = version.map(Version::parse).transpose()?;
        git::is_dirty(&self.folder, force)?;
        let _lock = Self::lock(&self.folder, tell)?;
        let store = Config::read(&self.folder)?.store();
        store.must_exist()?;
        self.finish(release, version.as_ref(), &self.cache()?, &store, tell)
    }

    fn finish(
        &self,
        release: &mut BuiltRelease,
        version: Option<&Version>,
        cache: &Cache,
        store: &Store,
        tell: Tell<'_>,
    ) -> Result<(), AuthorError> {
        let versions = Versions::finished(&self.folder);
        let version = match (version, versions.last(&release.name)?) {
            (Some(version), _) => version.clone(),
            (None, Some(last)) => last.next_final()?,
            (None, None) => Version::parse("1")?,
        };
        let (name, version) = (release.name.clone(), version.to_string());
        if versions.has(&name, &version)? {
            return Err(AuthorError::FinalExists { name, version });
        }
        release.version = version;
        let places = ArchivePlaces { release: &self.folder, cache, store };
        let jobs = release.jobs.iter_mut().map(|job| (Kind::Job, &mut job.part));
        let sources = release.packages.iter_mut().filter(|package| package.stemcell.is_none());
        let packages = sources.map(|package| (Kind::Package, &mut package.part));
        let license = release.license.iter_mut().map(|license| (Kind::License, license));
        for (kind, part) in jobs.chain(packages).chain(license) {
            let build = places.finish(kind, &part.name.clone(), part, tell)?;
            part.digest = build.digest;
        }
        self.add(&versions, release, tell)
    }

    /// A version that was created, the latest if none is named.
    pub fn find(&self, name: Option<&str>, version: Option<&str>, tell: Tell<'_>) -> Result<BuiltRelease, AuthorError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => Config::read(&self.folder)?.name()?.to_owned(),
        };
        check_name("release", &name)?;
        let manifest = match version {
            Some(version) => Versions::finished(&self.folder).manifest(&name, &Version::parse(version)?.to_string()),
            None => {
                let (last, versions) = self.last(&name)?.ok_or_else(|| AuthorError::NoReleases(name.clone()))?;
                versions.manifest(&name, &last.to_string())
            }
        };
        self.of_manifest(&manifest, tell)
    }

    /// The release that a manifest describes, with the archives of this directory.
    pub fn of_manifest(&self, path: &Path, tell: Tell<'_>) -> Result<BuiltRelease, AuthorError> {
        let text = fs::read_to_string(path).map_err(|error| AuthorError::Read(path.to_owned(), error))?;
        let manifest = ReleaseManifest::parse(&text)?;
        let wanted = |kind: Kind, name: &str, fingerprint: &str| Wanted {
            kind,
            name: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
            recipe: None,
        };
        let jobs = manifest.jobs.iter().map(|job| wanted(Kind::Job, &job.name, &job.fingerprint));
        let packages = manifest.packages.iter().map(|it| wanted(Kind::Package, &it.name, &it.fingerprint));
        let license = manifest.license.iter().map(|it| wanted(Kind::License, "license", &it.fingerprint));
        let cache = self.cache()?;
        let store = Config::read(&self.folder)?.store();
        let places = ArchivePlaces { release: &self.folder, cache: &cache, store: &store };
        let mut parts = places.fill(jobs.chain(packages).chain(license).collect(), tell)?.into_iter();
        let job_needs = manifest.jobs.into_iter().map(|job| job.packages);
        let jobs = parts.by_ref().zip(job_needs).map(|(part, packages)| BuiltJob { part, packages }).collect();
        let needs = manifest.packages.into_iter().map(|package| package.dependencies).collect();
        Ok(BuiltRelease {
            name: manifest.name,
            version: manifest.version,
            commit_hash: manifest.commit_hash.unwrap_or_default(),
            uncommitted_changes: manifest.uncommitted_changes,
            no_compression: manifest.no_compression,
            ..assemble(jobs, parts, needs)
        })
    }

    /// Takes a package of another directory's latest release, and all that it needs, as they are.
    pub fn vendor(&self, package: &str, from: &Self, prefix: &str, tell: Tell<'_>) -> Result<(), AuthorError> {
        let release = from.find(None, None, tell)?;
        let _lock = Self::lock(&self.folder, tell)?;
        let (cache, store) = (self.cache()?, Config::read(&self.folder)?.store());
        let places = ArchivePlaces { release: &self.folder, cache: &cache, store: &store };
        let missing =
            || AuthorError::NotVendored { package: package.to_owned(), release: from.folder.display().to_string() };
        let find = |name: &str| release.packages.iter().find(|it| it.part.name == name);
        let called = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") };
        let mut wanted = vec![find(package).ok_or_else(missing)?];
        let mut at = 0;
        while let Some(next) = wanted.get(at) {
            for needed in next.dependencies.iter().filter_map(|name| find(name)) {
                if !wanted.iter().any(|known| known.part.name == needed.part.name) {
                    wanted.push(needed);
                }
            }
            at += 1;
        }
        for package in &wanted {
            let name = called(&package.part.name);
            check_name("package", &name)?;
            refuse_links(&self.folder.join("packages"), &self.folder.join("packages").join(&name))?;
            places.finish(Kind::Package, &name, &package.part, tell)?;
        }
        for package in wanted {
            let name = called(&package.part.name);
            let needs: Vec<String> = package.dependencies.iter().map(|name| called(name)).collect();
            self.write_lock(&name, &package.part, &needs)?;
        }
        Ok(())
    }

    /// Replaces a package by the note that it was made elsewhere.
    fn write_lock(&self, name: &str, part: &Part, needs: &[String]) -> Result<(), AuthorError> {
        let folder = self.folder.join("packages").join(name);
        let mut text = format!("name: {}\nfingerprint: {}\n", yaml::scalar(name), yaml::scalar(&part.fingerprint));
        if !needs.is_empty() {
            let names: String = needs.iter().map(|name| format!("- {}\n", yaml::scalar(name))).collect();
            text.push_str(&format!("dependencies:\n{names}"));
        }
        // The note counts as soon as it is there; what was there before goes afterwards.
        yaml::save(&folder.join("spec.lock"), &text)?;
        let failed = |error| AuthorError::Write(folder.clone(), error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.file_name().is_some_and(|name| name != "spec.lock") {
                file::remove(&path).map_err(|error| AuthorError::Write(path, error))?;
            }
        }
        Ok(())
    }
}

/// A release of jobs, and of packages with what each needs, and perhaps a licence after them.
fn assemble(jobs: Vec<BuiltJob>, mut parts: impl Iterator<Item = Part>, needs: Vec<Vec<String>>) -> BuiltRelease {
    let package = |dependencies| {
        let part = parts.next()?;
        Some(BuiltPackage { part, dependencies, stemcell: None })
    };
    BuiltRelease {
        name: String::new(),
        version: String::new(),
        commit_hash: String::new(),
        uncommitted_changes: false,
        jobs,
        packages: needs.into_iter().map_while(package).collect(),
        license: parts.next(),
        no_compression: false,
        _laid_out: None,
    }
}
