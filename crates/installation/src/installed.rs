//! CPIs that are installed under a name, for a director and for `certify`.
//!
//! ```text
//! STATE/cpis/NAME/cpi               what is started; replacing it puts a version in use
//!                /record.json       release, version, job, and where they are
//!                /properties.json   what the job was rendered with; only its owner reads it
//!                /packages/SET/     packages; SET stands for all of their fingerprints
//!                /jobs/NUMBER/      rendered jobs
//!                /logs, /sources    of compilations
//! ```
//!
//! An upgrade makes everything beside what is in use, and then replaces `cpi`. The version before stays until the next
//! upgrade, because calls that run may still read its files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use windlass_contract::Object;
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_render::Renderer;

use crate::error::{InstallError, file as failed, quoted};
use crate::packages::{Installed, PackageFolder};
use crate::plan::{CpiPlan, PlannedPackage};
use crate::{SecretFolder, jobs, launcher, tools};

/// The clouds that need no release.
const BUILT_IN: &[&str] = &["local", "incus", "sim"];
const LAUNCHER: &str = "cpi";
const RECORD: &str = "record.json";
const PROPERTIES: &str = "properties.json";

/// All CPIs that are installed for a director.
#[derive(Debug, Clone)]
pub struct InstalledCpis {
    root: PathBuf,
}

/// A CPI that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledCpi {
    pub name: String,
    pub release: String,
    pub version: String,
    pub job: String,
    /// Seconds since 1970.
    pub installed_at: u64,
    /// Folders below `packages` and `jobs`.
    packages: String,
    jobs: String,
    /// Jobs of the version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jobs_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packages_before: Option<String>,
}

/// Whether a name must be free or taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Install,
    Upgrade,
}

/// A CPI that is ready to be put in use, and goes away if it is not.
#[derive(Debug)]
pub struct Candidate {
    folder: PathBuf,
    jobs: SecretFolder,
    record: InstalledCpi,
    properties: Object,
    _lock: FileLock,
}

impl InstalledCpis {
    /// Those of the director with this state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        Self { root: state_dir.join("cpis") }
    }

    /// What is started for a CPI, if it is installed.
    pub fn launcher(&self, name: &str) -> Option<PathBuf> {
        windlass_manifest::names::check(name).ok()?;
        Some(self.root.join(name).join(LAUNCHER)).filter(|launcher| launcher.is_file())
    }

    /// All of them, by name. What somebody is just installing is not there yet.
    pub fn list(&self) -> Result<Vec<InstalledCpi>, InstallError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed(&self.root))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed(&self.root))?.file_name();
            if !file::is_leftover(&name) {
                found.extend(self.read(&name.to_string_lossy())?);
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    pub fn find(&self, name: &str) -> Result<InstalledCpi, InstallError> {
        let found = if windlass_manifest::names::check(name).is_ok() { self.read(name)? } else { None };
        found.map_or_else(|| Err(self.not_installed(name)?), Ok)
    }

    fn not_installed(&self, name: &str) -> Result<InstallError, InstallError> {
        let known = self.list()?;
        let have = if known.is_empty() {
            "is none".to_owned()
        } else {
            format!("is {}", quoted(known.iter().map(|cpi| cpi.name.as_str())))
        };
        Ok(InstallError::NotInstalled { name: name.to_owned(), have })
    }

    fn read(&self, name: &str) -> Result<Option<InstalledCpi>, InstallError> {
        let path = self.root.join(name).join(RECORD);
        let bytes = match fs::read(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            bytes => bytes.map_err(failed(&path))?,
        };
        // The record of a first installation comes before its launcher: without that, it was killed in between.
        if self.launcher(name).is_none() {
            return Ok(None);
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|source| InstallError::Damaged { path, source })
    }

    /// The file with what a CPI was rendered with.
    pub fn properties_file(&self, name: &str) -> PathBuf {
        self.root.join(name).join(PROPERTIES)
    }

    /// What a CPI was rendered with.
    pub fn properties(&self, name: &str) -> Result<Object, InstallError> {
        let path = self.properties_file(name);
        let bytes = fs::read(&path).map_err(failed(&path))?;
        serde_json::from_slice(&bytes).map_err(|source| InstallError::Damaged { path, source })
    }

    /// Where the logs of its packages are.
    pub fn logs(&self, name: &str) -> PathBuf {
        self.root.join(name).join("logs")
    }

    /// Whether something can be installed under this name.
    pub fn check_name(&self, name: &str, purpose: Purpose) -> Result<(), InstallError> {
        let refused = |why: String| InstallError::Name { name: name.to_owned(), why };
        windlass_manifest::names::check(name).map_err(|error| refused(error.to_string()))?;
        if BUILT_IN.contains(&name) {
            return Err(refused("that is a cloud that is built in".to_owned()));
        }
        if name.starts_with('.') || name.contains(char::is_whitespace) {
            return Err(refused("a name neither begins with a dot nor has spaces in it".to_owned()));
        }
        match (self.read(name)?, purpose) {
            (Some(_), Purpose::Install) => Err(InstallError::Exists { name: name.to_owned() }),
            (None, Purpose::Upgrade) => Err(self.not_installed(name)?),
            _ => Ok(()),
        }
    }

    /// Compiles and renders a CPI beside what is in use.
    #[expect(clippy::too_many_arguments, reason = "each is something else that an installation is made of")]
    pub fn prepare(
        &self,
        name: &str,
        purpose: Purpose,
        plan: &CpiPlan<'_>,
        properties: &Object,
        renderer: &dyn Renderer,
        stop: &AtomicBool,
        report: impl FnMut(&PlannedPackage, Option<Installed>),
    ) -> Result<Candidate, InstallError> {
        self.check_name(name, purpose)?;
        tools::check(plan, renderer)?;
        file::create_private_dir(&self.root).map_err(failed(&self.root))?;
        let root = self.root.canonicalize().map_err(failed(&self.root))?;
        let folder = root.join(name);
        let lock = lock(&root, name)?;
        for below in [&folder, &folder.join("jobs"), &folder.join("packages")] {
            file::create_private_dir(below).map_err(failed(below))?;
        }
        let before = self.read(name)?;
        // A run that was killed may have left some.
        tidy(&folder, before.as_ref())?;
        let set: String =
            Sha256::digest(plan.packages_key()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let packages = PackageFolder {
            packages: folder.join("packages").join(&set),
            sources: folder.join("sources"),
            logs: folder.join("logs"),
        };
        file::create_private_dir(&packages.packages).map_err(failed(&packages.packages))?;
        packages.install(&plan.packages, stop, report)?;
        let number = uuid::Uuid::new_v4().simple().to_string();
        let secret = folder.join("jobs").join(&number);
        let secret = SecretFolder::new(&secret).map_err(failed(&secret))?;
        let rendered = secret.path().join("rendered");
        jobs::install(plan, name, properties, renderer, &rendered)?;
        let cpi = plan.cpi_job();
        let job = cpi.job.spec.name.clone();
        let start = secret.path().join(LAUNCHER);
        launcher::write(&start, &packages.packages, &rendered, &job).map_err(failed(&start))?;
        let release = &cpi.release.manifest;
        let record = InstalledCpi {
            name: name.to_owned(),
            release: release.name.clone(),
            version: release.version.clone(),
            job,
            installed_at: std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
            packages: set,
            jobs: number,
            jobs_before: before.as_ref().map(|before| before.jobs.clone()),
            packages_before: before.map(|before| before.packages),
        };
        Ok(Candidate { folder, jobs: secret, record, properties: properties.clone(), _lock: lock })
    }

    /// Whether there is anything under this name, also of an installation that failed, or one whose record is damaged.
    pub fn has_files_of(&self, name: &str) -> bool {
        windlass_manifest::names::check(name).is_ok() && !name.starts_with('.') && self.root.join(name).is_dir()
    }

    /// Removes a CPI with everything that was compiled and rendered for it.
    pub fn remove(&self, name: &str) -> Result<(), InstallError> {
        if !self.has_files_of(name) {
            return Err(self.not_installed(name)?);
        }
        let _lock = lock(&self.root, name)?;
        let folder = self.root.join(name);
        // Without its launcher it is not installed. The rest goes in place, so that a removal that was killed is done again.
        file::remove_file(&folder.join(LAUNCHER)).and_then(|()| file::remove(&folder)).map_err(failed(&folder))?;
        let lock_file = lock_path(&self.root, name);
        file::remove_file(&lock_file).map_err(failed(&lock_file))
    }
}

fn lock_path(root: &Path, name: &str) -> PathBuf {
    root.join(format!(".{name}.lock"))
}

fn lock(root: &Path, name: &str) -> Result<FileLock, InstallError> {
    let path = lock_path(root, name);
    FileLock::acquire(&path, Duration::from_secs(1)).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => InstallError::InUse { folder: root.join(name) },
        _ => failed(&path)(error),
    })
}

/// Removes jobs and packages that neither the version in use nor the one before it has.
fn tidy(folder: &Path, record: Option<&InstalledCpi>) -> Result<(), InstallError> {
    let of_record = |pick: fn(&InstalledCpi) -> [Option<&String>; 2]| {
        record.map(pick).into_iter().flatten().flatten().cloned().collect::<Vec<_>>()
    };
    let kept = [
        ("jobs", of_record(|record| [Some(&record.jobs), record.jobs_before.as_ref()])),
        ("packages", of_record(|record| [Some(&record.packages), record.packages_before.as_ref()])),
    ];
    for (below, kept) in kept {
        // Packages of a try that was killed are gone on with, as long as nothing is in use.
        if record.is_none() && below == "packages" {
            continue;
        }
        let below = folder.join(below);
        for entry in fs::read_dir(&below).map_err(failed(&below))? {
            let path = entry.map_err(failed(&below))?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !kept.contains(&name) {
                file::remove_tree(&path).map_err(failed(&path))?;
            }
        }
    }
    Ok(())
}

impl Candidate {
    /// What to start, to find out whether it works.
    pub fn launcher(&self) -> PathBuf {
        self.jobs.path().join(LAUNCHER)
    }

    /// Puts it in use.
    pub fn commit(self) -> Result<InstalledCpi, InstallError> {
        let Self { folder, jobs, record, properties, _lock } = self;
        let path = jobs.keep().map_err(failed(&folder))?;
        let start = fs::read(path.join(LAUNCHER)).map_err(failed(&path))?;
        let at = |name: &str| folder.join(name);
        let written = file::write_json(&at(PROPERTIES), &properties, file::PRIVATE)
            .and_then(|()| file::write_json(&at(RECORD), &record, file::PRIVATE))
            .and_then(|()| file::write(&at(LAUNCHER), &start, 0o700));
        written.map_err(failed(&folder))?;
        tidy(&folder, Some(&record))?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::{Value, json};
    use windlass_render::Native;

    use super::*;
    use crate::plan::JobReference;
    use crate::testing::{TestRelease, cpi_job, mode};

    fn release(script: &str) -> TestRelease {
        TestRelease::new("clouds").package("lib", &[], script).job(&cpi_job("cloud_cpi", &["lib"]))
    }

    fn prepare(
        cpis: &InstalledCpis,
        purpose: Purpose,
        release: &TestRelease,
        properties: Value,
    ) -> Result<(Candidate, Vec<Installed>), InstallError> {
        let releases = [release.read()];
        let plan = CpiPlan::new(&releases, &[JobReference { release: "clouds".into(), job: "cloud_cpi".into() }])?;
        let mut told = Vec::new();
        let report = |_: &PlannedPackage, ended: Option<Installed>| told.extend(ended);
        let properties = properties.as_object().cloned().unwrap();
        let stop = AtomicBool::new(false);
        let candidate = cpis.prepare("cloud", purpose, &plan, &properties, &Native, &stop, report)?;
        Ok((candidate, told))
    }

    fn answer(launcher: &Path) -> String {
        String::from_utf8(Command::new(launcher).output().unwrap().stdout).unwrap()
    }

    /// All files below a folder that have this text.
    fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files_with(&path, text));
            } else if fs::read_to_string(&path).unwrap().contains(text) {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn a_cpi_is_installed_upgraded_and_removed_with_all_its_secrets() {
        let state = tempfile::tempdir().unwrap();
        let cpis = InstalledCpis::in_state_dir(state.path());
        assert!(cpis.list().unwrap().is_empty() && cpis.launcher("cloud").is_none());
        let (candidate, told) =
            prepare(&cpis, Purpose::Install, &release("true"), json!({"password": "first-secret"})).unwrap();
        assert_eq!(told, [Installed::Compiled]);
        assert_eq!(answer(&candidate.launcher()), "{\"password\": \"first-secret\"}\nlib\n");
        assert!(cpis.list().unwrap().is_empty(), "nothing is in use before it is committed");
        let record = candidate.commit().unwrap();
        assert_eq!(
            (record.release.as_str(), record.version.as_str(), record.job.as_str()),
            ("clouds", "1", "cloud_cpi")
        );
        let start = cpis.launcher("cloud").unwrap();
        assert!(answer(&start).contains("first-secret"));
        for file in files_with(state.path(), "first-secret") {
            assert_eq!(mode(&file) & 0o077, 0, "{}", file.display());
        }
        let taken = prepare(&cpis, Purpose::Install, &release("true"), json!({})).unwrap_err().to_string();
        assert!(taken.contains("'windlass cpi upgrade cloud RELEASE' replaces it"), "{taken}");

        let (candidate, told) =
            prepare(&cpis, Purpose::Upgrade, &release("true"), json!({"password": "second-secret"})).unwrap();
        assert_eq!(told, [Installed::Before], "the same packages are not compiled again");
        assert!(answer(&start).contains("first-secret"), "what is in use stays until the commit");
        candidate.commit().unwrap();
        assert!(answer(&start).contains("second-secret"));
        let (candidate, told) =
            prepare(&cpis, Purpose::Upgrade, &release("true # 2"), json!({"password": "third-secret"})).unwrap();
        assert_eq!(told, [Installed::Compiled]);
        candidate.commit().unwrap();
        assert!(files_with(state.path(), "first-secret").is_empty(), "only the version before stays");
        assert_eq!(cpis.properties("cloud").unwrap()["password"], "third-secret");

        cpis.remove("cloud").unwrap();
        assert!(files_with(state.path(), "secret").is_empty());
        assert_eq!(fs::read_dir(state.path().join("cpis")).unwrap().count(), 0);
        let gone = cpis.remove("cloud").unwrap_err().to_string();
        assert_eq!(gone, "no CPI 'cloud' is installed; there is none. Install it with 'windlass cpi install'");
    }

    #[test]
    fn what_is_not_put_in_use_leaves_no_secret_and_the_version_before() {
        let state = tempfile::tempdir().unwrap();
        let cpis = InstalledCpis::in_state_dir(state.path());
        let install =
            |password: &str, purpose| prepare(&cpis, purpose, &release("true"), json!({"password": password}));
        drop(install("first-secret", Purpose::Install).unwrap());
        assert!(files_with(state.path(), "secret").is_empty());
        install("first-secret", Purpose::Install).unwrap().0.commit().unwrap();
        drop(install("second-secret", Purpose::Upgrade).unwrap());
        assert!(files_with(state.path(), "second-secret").is_empty());
        assert!(answer(&cpis.launcher("cloud").unwrap()).contains("first-secret"));
    }

    #[test]
    fn what_failed_or_is_damaged_can_be_removed() {
        let state = tempfile::tempdir().unwrap();
        let cpis = InstalledCpis::in_state_dir(state.path());
        let install = |script: &str| prepare(&cpis, Purpose::Install, &release(script), json!({"password": "secret"}));
        assert!(matches!(install("exit 3"), Err(InstallError::Compile { .. })));
        assert!(cpis.logs("cloud").join("lib.log").exists() && cpis.list().unwrap().is_empty());
        cpis.remove("cloud").unwrap();
        assert!(!cpis.has_files_of("cloud"));

        install("true").unwrap().0.commit().unwrap();
        fs::write(state.path().join("cpis/cloud/record.json"), "{").unwrap();
        let damaged = cpis.find("cloud").unwrap_err().to_string();
        assert!(damaged.contains("remove the CPI and install it again"), "{damaged}");
        cpis.remove("cloud").unwrap();
        assert!(files_with(state.path(), "secret").is_empty());
        for name in ["..", ".cloud.lock", "a/b", ""] {
            assert!(matches!(cpis.remove(name), Err(InstallError::NotInstalled { .. })), "{name}");
        }
    }

    #[test]
    fn names_of_built_in_clouds_and_names_that_lead_elsewhere_are_refused() {
        let cpis = InstalledCpis::in_state_dir(Path::new("/nowhere"));
        for name in ["local", "incus", "sim", "", "..", "a/b", ".x", "a b"] {
            let refused = cpis.check_name(name, Purpose::Install).unwrap_err();
            assert!(matches!(refused, InstallError::Name { .. }), "{name}: {refused}");
        }
        assert!(cpis.launcher("../x").is_none());
    }
}
