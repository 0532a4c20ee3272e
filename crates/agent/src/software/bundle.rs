//! One job or package on the machine.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha1::{Digest as _, Sha1};
use windlass_durable::{file, kill_point};

use super::unpack::UnpackError;
use super::{SoftwareError, io_error};
use crate::agent::Agent;
use crate::layout::Base;
use crate::log_file;
use crate::platform::Platform;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collection {
    Jobs,
    Packages,
}

impl Collection {
    fn installed(self, base: &Base) -> PathBuf {
        base.data().join(self.folder())
    }

    fn enabled(self, base: &Base) -> PathBuf {
        base.path().join(self.folder())
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Packages => "packages",
        }
    }

    fn one(self) -> &'static str {
        match self {
            Self::Jobs => "job",
            Self::Packages => "package",
        }
    }
}

/// A job or package of one version and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    pub(super) name: String,
    collection: Collection,
    /// `data/packages/<name>/<hash>`: there as a whole or not at all.
    pub(super) installed: PathBuf,
    /// `packages/<name>`, a link.
    pub(super) enabled: PathBuf,
}

impl Bundle {
    /// `key` tells versions and contents apart.
    pub(super) fn new(base: &Base, collection: Collection, name: &str, key: &str) -> Self {
        let hash: String = Sha1::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        let installed = collection.installed(base).join(name).join(hash);
        Self { name: name.to_owned(), collection, installed, enabled: collection.enabled(base).join(name) }
    }

    pub(super) fn is_installed(&self) -> bool {
        self.installed.is_dir()
    }

    pub(super) fn not_unpacked(&self, source: UnpackError) -> SoftwareError {
        SoftwareError::Unpack { name: self.name.clone(), kind: self.collection.one(), source }
    }

    /// `fill` makes the tree in an empty folder and says where in it the tree begins.
    pub(super) fn install(
        &self,
        platform: &dyn Platform,
        fill: impl FnOnce(&Path) -> Result<PathBuf, SoftwareError>,
    ) -> Result<(), SoftwareError> {
        let Some(versions) = self.installed.parent() else { return Ok(()) };
        let (failed, all) = (|| io_error(versions), versions.parent().unwrap_or(versions));
        fs::create_dir_all(versions).map_err(failed())?;
        set_mode(all, self.folder_mode()).map_err(io_error(all))?;
        hand_over(platform, versions, self.folder_mode())?;
        let staging = file::beside(&self.installed).map_err(failed())?;
        fs::create_dir(&staging).map_err(failed())?;
        kill_point("before a bundle is unpacked");
        let installed = fill(&staging).and_then(|tree| file::rename_tree(&tree, &self.installed).map_err(failed()));
        let _ = file::remove_all(&staging);
        installed
    }

    fn folder_mode(&self) -> u32 {
        match self.collection {
            Collection::Jobs => 0o750,
            Collection::Packages => 0o755,
        }
    }

    pub(super) fn enable(&self, platform: &dyn Platform) -> Result<(), SoftwareError> {
        self.link(platform, &self.enabled)
    }

    /// The way on which a job finds a package: `jobs/<job>/packages/<package>`.
    pub(super) fn link_package(&self, platform: &dyn Platform, package: &Bundle) -> Result<(), SoftwareError> {
        package.link(platform, &self.installed.join("packages").join(&package.name))
    }

    /// Leads from `path` to what is installed, in a folder for links to its kind.
    fn link(&self, platform: &dyn Platform, path: &Path) -> Result<(), SoftwareError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io_error(folder))?;
            hand_over(platform, folder, self.folder_mode())?;
        }
        if fs::read_link(path).is_ok_and(|found| found == self.installed) {
            return Ok(());
        }
        file::symlink(&self.installed, path).map_err(io_error(path))
    }
}

/// Removes links to other bundles than these, and then their trees, and what an interrupted installation left.
pub(super) fn remove_others(base: &Base, collection: Collection, keep: &[Bundle]) -> Result<(), SoftwareError> {
    let enabled: HashSet<&Path> = keep.iter().map(|bundle| bundle.enabled.as_path()).collect();
    for path in entries(&collection.enabled(base))? {
        if !enabled.contains(path.as_path()) {
            file::remove_file(&path).map_err(io_error(&path))?;
        }
    }
    remove_installed(base, collection, keep.iter().map(|bundle| bundle.installed.clone()).collect())
}

/// Removes trees that no link leads to and that are none of these.
pub(super) fn remove_unused(base: &Base, collection: Collection, keep: &[Bundle]) -> Result<(), SoftwareError> {
    let linked = entries(&collection.enabled(base))?.into_iter().filter_map(|path| fs::read_link(path).ok());
    remove_installed(base, collection, linked.chain(keep.iter().map(|bundle| bundle.installed.clone())).collect())
}

fn remove_installed(base: &Base, collection: Collection, installed: HashSet<PathBuf>) -> Result<(), SoftwareError> {
    for versions in entries(&collection.installed(base))? {
        for path in entries(&versions)?.iter().filter(|path| !installed.contains(path.as_path())) {
            kill_point("before a bundle is removed");
            file::remove_tree(path).map_err(io_error(path))?;
        }
        if !installed.iter().any(|kept| kept.starts_with(&versions)) {
            fs::remove_dir(&versions).map_err(io_error(&versions))?;
        }
    }
    Ok(())
}

/// What is in a folder; nothing if there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, SoftwareError> {
    let listed = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => Err(error),
    };
    listed.map_err(io_error(folder))
}

/// The folders that a job has from its first day, and keeps: logs, pid files, data.
pub(super) fn make_folders(agent: &Agent, job: &str) -> Result<(), SoftwareError> {
    let base = &agent.base;
    for folder in [base.job_logs().join(job), base.job_runs().join(job), base.data().join(job)] {
        if !folder.is_dir() {
            // Those above are made by the platform, except on one that has no jobs to run.
            let above = folder.parent().map_or(Ok(()), fs::create_dir_all);
            let made = above.and_then(|()| fs::DirBuilder::new().mode(0o750).create(&folder));
            // Jobs can write to the folder above, and put a link here before this one is handed over.
            let opened = made.and_then(|()| log_file::open_folder(&folder)).map_err(io_error(&folder))?;
            hand_over(agent.platform.as_ref(), &log_file::name_of(&opened), 0o770)?;
        }
    }
    Ok(())
}

/// Jobs are root's, and may be read by the group of jobs; programs are in `bin`.
pub(super) fn hand_over_job(platform: &dyn Platform, tree: &Path) -> Result<(), SoftwareError> {
    hand_over_tree(platform, tree, tree)
}

fn hand_over_tree(platform: &dyn Platform, job: &Path, path: &Path) -> Result<(), SoftwareError> {
    let metadata = path.symlink_metadata().map_err(io_error(path))?;
    let is_program = path.strip_prefix(job).is_ok_and(|inside| inside.starts_with("bin"));
    if metadata.is_dir() {
        for entry in entries(path)? {
            hand_over_tree(platform, job, &entry)?;
        }
    }
    match metadata.is_symlink() {
        true => Ok(()),
        false => hand_over(platform, path, if metadata.is_dir() || is_program { 0o750 } else { 0o640 }),
    }
}

/// What is in a package has the modes of its archive.
pub(super) fn hand_over_package(platform: &dyn Platform, tree: &Path) -> Result<(), SoftwareError> {
    hand_over(platform, tree, 0o755)
}

fn hand_over(platform: &dyn Platform, path: &Path, mode: u32) -> Result<(), SoftwareError> {
    platform.give_to_jobs(path).map_err(|source| SoftwareError::Owner { path: path.to_owned(), source })?;
    set_mode(path, mode).map_err(io_error(path))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
