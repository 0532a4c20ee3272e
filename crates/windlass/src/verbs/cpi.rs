//! `windlass cpi install` and its sisters: CPI releases on this machine, by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_contract::cpi::CpiInfo;
use windlass_contract::{ApiVersion, Object};
use windlass_cpi_client::{CallError, Configuration, Cpi, CpiCommand, CpiOptions, Environment};
use windlass_download::Download;
use windlass_installation::installed::{Candidate, Purpose};
use windlass_installation::packages::Installed;
use windlass_installation::plan::PlannedPackage;
use windlass_installation::{CpiPlan, InstallError, InstalledCpi, InstalledCpis, JobReference, SecretFolder};
use windlass_manifest::Document;
use windlass_render::{Backends, Ruby, RubySetup};

use super::read_document;
use crate::cli::{CpiInstallArgs, CpiUpgradeArgs, Global};
use crate::failure::Failure;
use crate::foreground::Stop;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

/// How long a CPI may think about `info`.
const DEADLINE: Duration = Duration::from_secs(60);
/// Here no setting lets Ruby out of its cage.
const INSTEAD_OF_CAGE: &str = " for the user who runs this";

impl From<InstallError> for Failure {
    fn from(error: InstallError) -> Self {
        Self::Install(Box::new(error))
    }
}

/// The CPIs of the director on this machine.
pub(crate) fn installed_cpis(flags: &Global) -> Result<InstalledCpis, Failure> {
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    Ok(InstalledCpis::in_state_dir(&state_dir))
}

/// Renders natively, and with the Ruby of this machine where a template needs it.
pub(crate) fn renderer() -> Result<Backends, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    Ok(Backends::new(Some(Ruby::new(RubySetup { instead_of_cage: INSTEAD_OF_CAGE, ..RubySetup::caged(program) }))))
}

pub(crate) async fn install(screen: &mut Screen, flags: &Global, arguments: CpiInstallArgs) -> Result<(), Failure> {
    let properties = properties(arguments.properties.as_deref())?.unwrap_or_default();
    let name = arguments.name.unwrap_or_else(|| arguments.job.clone());
    let wanted = WantedCpi { name, purpose: Purpose::Install, job: arguments.job, properties };
    wanted.carry_out(screen, flags, &arguments.release, arguments.sha1.as_deref()).await
}

pub(crate) async fn upgrade(screen: &mut Screen, flags: &Global, arguments: CpiUpgradeArgs) -> Result<(), Failure> {
    let cpis = installed_cpis(flags)?;
    let known = cpis.find(&arguments.name)?;
    let properties = match properties(arguments.properties.as_deref())? {
        Some(properties) => properties,
        None => cpis.properties(&known.name)?,
    };
    let job = arguments.job.unwrap_or(known.job);
    let wanted = WantedCpi { name: known.name, purpose: Purpose::Upgrade, job, properties };
    wanted.carry_out(screen, flags, &arguments.release, arguments.sha1.as_deref()).await
}

pub(crate) fn list(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let row = |cpi: InstalledCpi| {
        vec![
            cpi.name,
            format!("{}/{}", cpi.release, cpi.version),
            cpi.job,
            formats::date(cpi.installed_at.cast_signed()),
        ]
    };
    screen.table(&Table {
        content: "cpis",
        header: vec!["Name", "Release", "Job", "Installed At"],
        rows: installed_cpis(flags)?.list()?.into_iter().map(row).collect(),
        ..Table::default()
    });
    Ok(())
}

pub(crate) async fn show(screen: &mut Screen, flags: &Global, name: &str) -> Result<(), Failure> {
    let cpis = installed_cpis(flags)?;
    let cpi = cpis.find(name)?;
    let launcher = cpis.launcher(name).unwrap_or_default();
    let set: Vec<String> = cpis.properties(name)?.keys().cloned().collect();
    let configuration = Configuration::InFile(cpis.properties_file(name));
    let (version, formats) = match ask(launcher.clone(), configuration).await {
        Ok(info) => (
            info.api_version.map_or_else(|| "1".to_owned(), |version| version.to_string()),
            info.stemcell_formats.join("\n"),
        ),
        Err(error) => (format!("does not answer: {}", windlass_contract::explain(&error)), String::new()),
    };
    let row = vec![
        cpi.name,
        format!("{}/{}", cpi.release, cpi.version),
        cpi.job,
        formats::date(cpi.installed_at.cast_signed()),
        launcher.display().to_string(),
        set.join(", "),
        version,
        formats,
    ];
    screen.table(&Table {
        header: vec!["Name", "Release", "Job", "Installed At", "Started As", "Properties", "API Version", "Formats"],
        rows: vec![row],
        transpose: true,
        ..Table::default()
    });
    Ok(())
}

pub(crate) fn remove(screen: &mut Screen, flags: &Global, name: &str) -> Result<(), Failure> {
    let cpis = installed_cpis(flags)?;
    let what = match cpis.find(name) {
        Ok(cpi) => format!("CPI '{name}' of release '{}/{}'", cpi.release, cpi.version),
        Err(_) if cpis.has_files_of(name) => {
            format!("what is left of CPI '{name}', which was never put in use or is damaged")
        }
        Err(error) => return Err(error.into()),
    };
    screen.line(&format!("Removing {what}"));
    screen.confirm()?;
    Ok(cpis.remove(name)?)
}

/// What to install.
struct WantedCpi {
    name: String,
    purpose: Purpose,
    job: String,
    properties: Object,
}

impl WantedCpi {
    async fn carry_out(
        self,
        screen: &mut Screen,
        flags: &Global,
        release: &str,
        sha1: Option<&str>,
    ) -> Result<(), Failure> {
        let cpis = installed_cpis(flags)?;
        // Before anything is fetched or compiled.
        cpis.check_name(&self.name, self.purpose)?;
        let mut signals = Stop::listen()?;
        let tarball = unless_stopped(&mut signals, fetched(release, sha1)).await??;
        let (name, stop) = (self.name.clone(), Arc::new(AtomicBool::new(false)));
        let configuration = Configuration::Given(self.properties.clone());
        let stopped = stop.clone();
        let prepared = until_stopped(&mut signals, &stop, move || self.prepare(&cpis, &tarball, &stopped)).await?;
        let (candidate, lines) = prepared?;
        if stop.load(Ordering::SeqCst) {
            return Err(InstallError::Stopped.into());
        }
        lines.iter().for_each(|line| screen.line(line));
        let asked = unless_stopped(&mut signals, ask(candidate.launcher(), configuration)).await?;
        let info = asked.map_err(|error| Failure::CpiDoesNotAnswer(Box::new(error)))?;
        let cpi = candidate.commit()?;
        let version = info.api_version.map_or_else(|| "1".to_owned(), |version| version.to_string());
        screen.line(&format!(
            "CPI '{name}' of release '{}/{}' answers, with API version {version}. Use it with 'cpi: {{installed: {name}}}' in \
             director.yml, as the type of an entry in a cpi config, or in 'windlass certify --cpi {name}'",
            cpi.release, cpi.version
        ));
        Ok(())
    }

    fn prepare(
        &self,
        cpis: &InstalledCpis,
        tarball: &Path,
        stop: &AtomicBool,
    ) -> Result<(Candidate, Vec<String>), Failure> {
        let path = std::env::temp_dir().join(format!("windlass-release-{}", uuid::Uuid::new_v4().simple()));
        let folder = SecretFolder::new(&path).map_err(|source| Failure::Write { path, source })?;
        let releases = [windlass_release::read(tarball, folder.path()).map_err(Box::new)?];
        let reference = JobReference { release: releases[0].manifest.name.clone(), job: self.job.clone() };
        let plan = CpiPlan::new(&releases, &[reference])?;
        let mut lines = Vec::new();
        let report = |package: &PlannedPackage, ended: Option<Installed>| {
            let done = match ended {
                None => return,
                Some(Installed::Compiled) => "compiled",
                Some(Installed::Unpacked) => "unpacked, as the release has it compiled",
                Some(Installed::Before) => "compiled already",
            };
            lines.push(format!("Package '{}/{}' {done}", package.name, package.version));
        };
        let candidate = cpis.prepare(&self.name, self.purpose, &plan, &self.properties, &renderer()?, stop, report)?;
        Ok((candidate, lines))
    }
}

/// The tarball, fetched if it is elsewhere.
async fn fetched(release: &str, sha1: Option<&str>) -> Result<PathBuf, Failure> {
    let failed = |error| Failure::FetchRelease(Box::new(error));
    if !release.starts_with("http://") && !release.starts_with("https://") {
        let path = PathBuf::from(release.strip_prefix("file://").unwrap_or(release));
        sha1.map_or(Ok(()), |digest| Download::of("release").check(&path, digest)).map_err(failed)?;
        return Ok(path);
    }
    let digest = sha1.ok_or(Failure::ReleaseWithoutDigest)?;
    let downloads = std::env::home_dir().unwrap_or_else(std::env::temp_dir).join(".bosh/downloads");
    let download = Download::of("release").through_bosh_proxy();
    download.fetch_once(release, digest, &downloads).await.map_err(failed)
}

fn properties(path: Option<&Path>) -> Result<Option<Object>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let yaml = |source| Failure::Yaml { path: path.to_owned(), source };
    let document = Document::parse(&read_document(path)?).map_err(|error| yaml(error.into()))?;
    if document.root().node().to_json().is_null() {
        return Ok(Some(Object::new()));
    }
    document.root().object().map(Some).map_err(|problem| yaml(problem.into()))
}

/// Waits for what leaves nothing behind when it is not waited for any more.
async fn unless_stopped<T>(signals: &mut Stop, work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        () = signals.wanted() => Err(InstallError::Stopped.into()),
    }
}

/// Runs what blocks; Ctrl-C ends the script that runs.
async fn until_stopped<T: Send + 'static>(
    signals: &mut Stop,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let mut working = tokio::task::spawn_blocking(work);
    loop {
        tokio::select! {
            done = &mut working => return done.map_err(|error| Failure::Process("the installation broke", std::io::Error::other(error))),
            () = signals.wanted() => stop.store(true, Ordering::SeqCst),
        }
    }
}

/// What a CPI says of itself, under a director's environment.
async fn ask(executable: PathBuf, configuration: Configuration) -> Result<CpiInfo, CallError> {
    let command = CpiCommand { executable, arguments: Vec::new(), environment: Environment::Director };
    let options = CpiOptions {
        director_uuid: uuid::Uuid::new_v4().to_string(),
        properties: Object::new(),
        preferred_version: ApiVersion::HIGHEST,
        deadline: DEADLINE,
    };
    Cpi::new(command, options).configured_with(configuration).info().await
}
