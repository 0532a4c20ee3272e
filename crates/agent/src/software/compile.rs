//! `compile_package`: a package is made from its source, on a machine that has nothing but what it depends on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use windlass_durable::{file, kill_point};

use super::bundle::{self, Bundle, Collection};
use super::unpack::{self, UnpackError};
use super::{SoftwareError, WantedPackage, check, io_error};
use crate::agent::Agent;
use crate::blobs::{Blob, Blobs};
use crate::scripts::process::Runner;
use crate::spec::PackageOfSpec;

/// How much of each stream a failure quotes.
const QUOTED: u64 = 10 * 1024;

/// why there is no compiled package
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    /// what it depends on, or its place, is not there
    #[error(transparent)]
    Software(#[from] SoftwareError),
    /// the source is not what it should be
    #[error("Compiling package {package}: Unpacking the source")]
    Source {
        package: String,
        #[source]
        source: UnpackError,
    },
    #[error("Compiling package {package}: Running packaging script: Running packaging script: {said}")]
    Script { package: String, said: String },
    /// a caller cancelled the task
    #[error("Compiling package {0}: cancelled by user request")]
    Cancelled(String),
    /// the script cannot be run, or its result not packed
    #[error("Compiling package {package}")]
    Io {
        package: String,
        #[source]
        source: io::Error,
    },
}

/// A package to compile.
#[derive(Debug)]
pub(crate) struct Compilation {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) dependencies: BTreeMap<String, PackageOfSpec>,
}

impl Compilation {
    /// Compiles it; returns an archive of the result, which is the caller's to remove.
    pub(crate) fn run(&self, agent: &Agent, source: &Blob) -> Result<PathBuf, CompileError> {
        check(&self.name, &self.version, "package")?;
        let wanted = self.dependencies.values().map(|package| WantedPackage::of(agent, package));
        let wanted: Vec<WantedPackage> = wanted.collect::<Result<_, _>>()?;
        // What an earlier compilation left would be found by this one.
        bundle::remove_others(&agent.base, Collection::Packages, &[])?;
        let settings = agent.settings.current();
        let blobs = Blobs::new(&agent.base, &settings);
        for package in &wanted {
            package.install(agent, &blobs)?;
            package.bundle.enable(agent.platform.as_ref())?;
        }
        let target = Bundle::new(&agent.base, Collection::Packages, &self.name, &self.version);
        target.install(agent.platform.as_ref(), |folder| Ok(folder.to_owned()))?;
        target.enable(agent.platform.as_ref())?;
        let folder = agent.base.data().join("compile").join(&self.name);
        let made = self.unpack(source, &folder).and_then(|()| self.make(agent, &folder, &target));
        // Sources are large, and a worker compiles one package after the other, whatever became of the last.
        let removed = file::remove_all(&folder).map_err(io_error(&folder));
        let archive = made?;
        removed?;
        bundle::remove_others(&agent.base, Collection::Packages, &[])?;
        Ok(archive)
    }

    /// An archive of what the sources become.
    fn make(&self, agent: &Agent, folder: &Path, target: &Bundle) -> Result<PathBuf, CompileError> {
        if folder.join("packaging").is_file() {
            self.run_script(agent, folder, target)?;
        }
        let archive = agent.base.tmp().join(format!("package-{}.tgz", uuid::Uuid::new_v4()));
        unpack::pack(&target.installed, &archive).map_err(self.failed())?;
        Ok(archive)
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> CompileError {
        let package = self.name.clone();
        move |source| CompileError::Io { package, source }
    }

    fn unpack(&self, source: &Blob, folder: &Path) -> Result<(), CompileError> {
        file::remove_all(folder).and_then(|()| fs::create_dir_all(folder)).map_err(io_error(folder))?;
        unpack::package(source.path(), folder)
            .map_err(|source| CompileError::Source { package: self.name.clone(), source })
    }

    /// Runs `packaging` where the source is.
    fn run_script(&self, agent: &Agent, folder: &Path, target: &Bundle) -> Result<(), CompileError> {
        let logs = agent.base.job_logs().join("compilation");
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&logs).map_err(io_error(&logs))?;
        let log = |stream: &str| logs.join(format!("packaging.{stream}.log"));
        let (stdout, stderr) = (log("stdout"), log("stderr"));
        let mut command = Runner::command(shell());
        command.args(["-x", "packaging"]).current_dir(folder);
        command.env("BOSH_COMPILE_TARGET", folder).env("BOSH_INSTALL_TARGET", &target.enabled);
        command.env("BOSH_PACKAGE_NAME", &self.name).env("BOSH_PACKAGE_VERSION", &self.version);
        #[expect(clippy::disallowed_methods, reason = "a log of the last run, which nothing depends on")]
        let create = |path| File::options().create(true).write(true).truncate(true).mode(0o640).open(path);
        command.stdout(create(&stdout).map_err(io_error(&stdout))?);
        command.stderr(create(&stderr).map_err(io_error(&stderr))?);
        let running = agent.runner().start(&mut command, |_| ()).map_err(self.failed())?;
        let ended = running.wait().map_err(self.failed())?;
        kill_point("after a package was compiled");
        match ended.was_cancelled {
            true => Err(CompileError::Cancelled(self.name.clone())),
            false if ended.status.success() => Ok(()),
            false => Err(self.script_failed(ended.status, &stdout, &stderr)),
        }
    }

    fn script_failed(&self, status: ExitStatus, stdout: &Path, stderr: &Path) -> CompileError {
        let code = status.code().map_or_else(|| status.to_string(), |code| code.to_string());
        let (stdout, stderr) = (end_of(stdout, "Stdout"), end_of(stderr, "Stderr"));
        let said = format!("Command exited with {code}; {stdout}, {stderr}");
        CompileError::Script { package: self.name.clone(), said }
    }
}

/// Packaging scripts are for bash. A system as small as our minimal one has only `sh`, which will do for the plain ones.
fn shell() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("bash").exists()) { "bash" } else { "sh" }
}

/// The end of what was written, and whether that is all of it.
fn end_of(log: &Path, stream: &str) -> String {
    let read = || -> io::Result<(bool, Vec<u8>)> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(QUOTED)))?;
        let mut end = Vec::new();
        file.take(QUOTED).read_to_end(&mut end)?;
        Ok((length > QUOTED, end))
    };
    match read() {
        Ok((true, end)) => format!("Truncated {}: {}", stream.to_lowercase(), String::from_utf8_lossy(&end)),
        Ok((false, end)) => format!("{stream}: {}", String::from_utf8_lossy(&end)),
        Err(error) => format!("{stream}: {error}"),
    }
}
