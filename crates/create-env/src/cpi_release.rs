//! The stage `installing CPI`: packages of CPI releases are compiled on this machine, and their jobs rendered for one run.
//!
//! Packages stay for the next run, in the folder that BOSH's command line has for the environment; so its `delete-env` removes ours
//! as well. Rendered jobs hold credentials and go with the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_contract::Object;
use windlass_installation::packages::{Installed, PackageFolder};
use windlass_installation::plan::PlannedPackage;
use windlass_installation::{CpiPlan, InstallError, JobReference, jobs, launcher, tools};

use crate::releases::ReadReleases;
use crate::report::{End, Report};
use crate::run::{EnvError, EnvOptions};

/// A CPI of releases whose packages are installed.
#[derive(Debug)]
pub(crate) struct CpiSoftware {
    releases: Arc<ReadReleases>,
    jobs: Vec<JobReference>,
    deployment: String,
    packages: PathBuf,
}

/// What we keep for an environment.
pub(crate) fn folder(options: &EnvOptions, installation_id: &str) -> PathBuf {
    options.installations.join(installation_id).join("windlass")
}

/// Whether the jobs are one CPI, and this machine has what it takes.
pub(crate) fn validate(
    options: &EnvOptions,
    releases: &ReadReleases,
    jobs: &[JobReference],
) -> Result<(), InstallError> {
    tools::check(&CpiPlan::new(&releases.releases, jobs)?, &*options.renderer)
}

impl CpiSoftware {
    /// Compiles and installs the packages.
    pub(crate) async fn install(
        options: &EnvOptions,
        report: &Report,
        installation_id: &str,
        deployment: &str,
        releases: &Arc<ReadReleases>,
        jobs: &[JobReference],
    ) -> Result<Self, EnvError> {
        let root = folder(options, installation_id);
        let packages = options.package_dir.clone().unwrap_or_else(|| root.join("packages"));
        let packages = std::path::absolute(&packages).map_err(|source| EnvError::File { path: packages, source })?;
        let place =
            PackageFolder { packages: packages.clone(), sources: root.join("sources"), logs: root.join("logs") };
        let software =
            Self { releases: releases.clone(), jobs: jobs.to_vec(), deployment: deployment.to_owned(), packages };
        let (read, wanted, stop, shown) = (releases.clone(), jobs.to_vec(), options.stop.clone(), report.clone());
        let installing = tokio::task::spawn_blocking(move || {
            let plan = CpiPlan::new(&read.releases, &wanted)?;
            let tell = |package: &PlannedPackage, ended: Option<Installed>| match ended {
                None => shown.begin_step(&format!("Compiling package '{}/{}'", package.name, package.version)),
                Some(Installed::Compiled) => shown.end_step(&End::Finished),
                Some(_) => shown.end_step(&End::Skipped("Package already compiled".to_owned())),
            };
            place.install(&plan.packages, &stop, tell)
        });
        installing.await.map_err(|error| EnvError::Access(error.to_string()))??;
        Ok(software)
    }

    /// Renders the jobs into `folder`; returns what is to be started.
    pub(crate) fn render(&self, options: &EnvOptions, properties: &Object, folder: &Path) -> Result<PathBuf, EnvError> {
        let plan = CpiPlan::new(&self.releases.releases, &self.jobs)?;
        let (rendered, start) = (folder.join("jobs"), folder.join("cpi"));
        jobs::install(&plan, &self.deployment, properties, &*options.renderer, &rendered)?;
        launcher::write(&start, &self.packages, &rendered, &plan.cpi_job().job.spec.name)
            .map_err(|source| EnvError::File { path: start.clone(), source })?;
        Ok(start)
    }
}
