//! What is installed for a CPI: the jobs that somebody names, and their packages in the order in which they are compiled. Pure.

use std::path::PathBuf;

use windlass_release::{Job, PackageGraph, Release};

use crate::InstallError;
use crate::error::quoted;

/// What callers of a CPI start in its job.
pub(crate) const CPI: &str = "bin/cpi";

/// A job of a release, by names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReference {
    pub release: String,
    pub job: String,
}

/// What is installed.
#[derive(Debug)]
pub struct CpiPlan<'a> {
    pub jobs: Vec<PlannedJob<'a>>,
    /// Each after what it needs.
    pub packages: Vec<PlannedPackage>,
    cpi: usize,
}

/// A job with its release.
#[derive(Debug, Clone, Copy)]
pub struct PlannedJob<'a> {
    pub release: &'a Release,
    pub job: &'a Job,
}

/// A package with all that its content depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPackage {
    pub name: String,
    pub release: String,
    /// Its fingerprint.
    pub version: String,
    /// Its fingerprint and those of all that it is compiled with.
    pub key: String,
    pub archive: PathBuf,
    pub is_compiled: bool,
}

impl<'a> CpiPlan<'a> {
    /// Exactly one of the jobs must be a CPI.
    pub fn new(releases: &'a [Release], wanted: &[JobReference]) -> Result<Self, InstallError> {
        let mut jobs: Vec<PlannedJob<'a>> = Vec::new();
        for reference in wanted {
            let planned = find(releases, reference)?;
            if jobs.iter().any(|known| known.job.spec.name == planned.job.spec.name) {
                return Err(InstallError::Twice(reference.job.clone()));
            }
            jobs.push(planned);
        }
        let cpi = the_cpi(&jobs)?;
        let mut packages = Vec::new();
        for planned in &jobs {
            add_packages(&mut packages, planned)?;
        }
        Ok(Self { jobs, packages, cpi })
    }

    /// The job that is started.
    pub fn cpi_job(&self) -> &PlannedJob<'a> {
        &self.jobs[self.cpi]
    }

    /// Stands for all packages: the same ones are never compiled twice in one place.
    pub fn packages_key(&self) -> String {
        let keys: Vec<_> = self.packages.iter().map(|package| package.key.as_str()).collect();
        keys.join("\n")
    }
}

fn find<'a>(releases: &'a [Release], reference: &JobReference) -> Result<PlannedJob<'a>, InstallError> {
    let JobReference { release: release_name, job: name } = reference;
    let named = releases.iter().find(|release| release.manifest.name == *release_name);
    let release = named.ok_or_else(|| InstallError::NoRelease {
        job: name.clone(),
        release: release_name.clone(),
        has: quoted(releases.iter().map(|release| release.manifest.name.as_str())),
    })?;
    let job = release.jobs.iter().map(|archive| &archive.job).find(|job| job.spec.name == *name);
    let job = job.ok_or_else(|| InstallError::NoJob {
        release: release_name.clone(),
        job: name.clone(),
        has: quoted(release.jobs.iter().map(|archive| archive.job.spec.name.as_str())),
    })?;
    Ok(PlannedJob { release, job })
}

fn the_cpi(jobs: &[PlannedJob<'_>]) -> Result<usize, InstallError> {
    let is_cpi = |planned: &PlannedJob<'_>| planned.job.spec.templates.values().any(|target| target == CPI);
    let cpis: Vec<usize> = (0..jobs.len()).filter(|index| is_cpi(&jobs[*index])).collect();
    let names = |among: &[usize]| quoted(among.iter().map(|index| jobs[*index].job.spec.name.as_str()));
    match cpis[..] {
        [one] => Ok(one),
        [] => Err(InstallError::NoCpi { jobs: names(&(0..jobs.len()).collect::<Vec<_>>()) }),
        _ => Err(InstallError::SeveralCpis { jobs: names(&cpis) }),
    }
}

fn add_packages(packages: &mut Vec<PlannedPackage>, planned: &PlannedJob<'_>) -> Result<(), InstallError> {
    let release = &planned.release.manifest;
    let failed = |source| InstallError::Graph { release: release.name.clone(), source };
    let graph = PackageGraph::new(release.all_packages()).map_err(failed)?;
    for name in graph.order(planned.job.spec.packages.iter().map(String::as_str)).map_err(failed)? {
        let Some(listed) = release.all_packages().find(|package| package.name == name) else { continue };
        let key = format!("{name} {} {}", listed.version, graph.dependency_key(name).map_err(failed)?);
        if let Some(known) = packages.iter().find(|known| known.name == name) {
            if known.key == key {
                continue;
            }
            return Err(InstallError::Collision {
                package: name.to_owned(),
                first: known.release.clone(),
                second: release.name.clone(),
            });
        }
        let missing = || InstallError::NoPackage { release: release.name.clone(), package: name.to_owned() };
        packages.push(PlannedPackage {
            name: name.to_owned(),
            release: release.name.clone(),
            version: listed.version.clone(),
            key,
            archive: planned.release.packages.get(name).cloned().ok_or_else(missing)?,
            is_compiled: release.is_compiled,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestRelease, cpi_job};

    fn reference(release: &str, job: &str) -> JobReference {
        JobReference { release: release.to_owned(), job: job.to_owned() }
    }

    #[test]
    fn packages_come_after_what_they_need_and_one_job_is_the_cpi() {
        let made = TestRelease::new("clouds")
            .package("app", &["lib"], "true")
            .package("lib", &[], "true")
            .job(&cpi_job("cloud_cpi", &["app"]))
            .job("name: helper\ntemplates: {}\npackages: [lib]\n");
        let releases = [made.read()];
        let plan = CpiPlan::new(&releases, &[reference("clouds", "helper"), reference("clouds", "cloud_cpi")]).unwrap();
        assert_eq!(plan.packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["lib", "app"]);
        assert_eq!(plan.cpi_job().job.spec.name, "cloud_cpi");
    }

    #[test]
    fn what_is_no_cpi_or_more_than_one_is_refused_by_name() {
        let made = TestRelease::new("clouds")
            .job(&cpi_job("one_cpi", &[]))
            .job(&cpi_job("two_cpi", &[]))
            .job("name: helper\ntemplates: {}\n");
        let releases = [made.read()];
        let refused = |wanted: &[JobReference]| CpiPlan::new(&releases, wanted).unwrap_err().to_string();
        let both = refused(&[reference("clouds", "one_cpi"), reference("clouds", "two_cpi")]);
        assert!(both.starts_with("the jobs 'one_cpi', 'two_cpi' are rendered to 'bin/cpi' each"), "{both}");
        let none = refused(&[reference("clouds", "helper")]);
        assert!(none.starts_with("none of the jobs 'helper' has a template"), "{none}");
        let unknown = refused(&[reference("clouds", "three_cpi")]);
        assert_eq!(unknown, "the release 'clouds' has no job 'three_cpi'; it has 'one_cpi', 'two_cpi', 'helper'");
        let elsewhere = refused(&[reference("skies", "one_cpi")]);
        assert!(elsewhere.ends_with("the releases are 'clouds'"), "{elsewhere}");
        let twice = refused(&[reference("clouds", "one_cpi"), reference("clouds", "one_cpi")]);
        assert!(twice.contains("is there twice"), "{twice}");
    }

    #[test]
    fn packages_of_one_name_must_be_the_same() {
        let first = TestRelease::new("clouds").package("lib", &[], "true").job(&cpi_job("cloud_cpi", &["lib"]));
        let second = TestRelease::new("skies")
            .package("lib", &[], "false")
            .job("name: helper\ntemplates: {}\npackages: [lib]\n");
        let releases = [first.read(), second.read()];
        let wanted = [reference("clouds", "cloud_cpi"), reference("skies", "helper")];
        let refused = CpiPlan::new(&releases, &wanted).unwrap_err().to_string();
        assert!(refused.contains("'lib' is in the releases 'clouds' and 'skies' with different content"), "{refused}");
    }
}
