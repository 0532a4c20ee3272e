//! `release.MF`: what a release has.

use std::collections::BTreeSet;

use windlass_manifest::{At, Content, Document, Problem};

use crate::error::ReleaseError;
use crate::graph::PackageGraph;
use crate::version::Version;

/// The file's name in the tarball.
pub const NAME: &str = "release.MF";

/// `release.MF`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseManifest {
    /// The release's name.
    pub name: String,
    pub version: String,
    /// Of which commit it was made, if its author says so.
    pub commit_hash: Option<String>,
    /// Whether there were changes that no commit has.
    pub uncommitted_changes: bool,
    pub jobs: Vec<JobEntry>,
    /// Its packages, as source.
    pub packages: Vec<Package>,
    /// Its packages, compiled for a stemcell; then there are none as source.
    pub compiled_packages: Vec<CompiledPackage>,
    /// Whether its packages are compiled. A release without packages says so as well, with an empty list.
    pub is_compiled: bool,
    /// What its author allows, if there is a file that says so.
    pub license: Option<License>,
    /// Whether its tarball is written without compression.
    pub no_compression: bool,
}

/// The licence in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct License {
    /// The digest of what it was made of.
    pub fingerprint: String,
    /// The digest of its archive.
    pub sha1: String,
}

/// A job in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEntry {
    pub name: String,
    /// Its version: today the fingerprint.
    pub version: String,
    /// The digest of what it was made of.
    pub fingerprint: String,
    /// The digest of its archive.
    pub sha1: String,
    /// The packages that it needs, where the list says so; `job.MF` counts.
    pub packages: Vec<String>,
}

/// A package in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Its version: today the fingerprint.
    pub version: String,
    /// The digest of what it was made of.
    pub fingerprint: String,
    /// The digest of its archive.
    pub sha1: String,
    /// The packages that it needs directly.
    pub dependencies: Vec<String>,
}

/// A compiled package in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPackage {
    /// What is compiled; the digest is that of the compiled archive.
    pub package: Package,
    pub stemcell: StemcellSlug,
}

/// What a package is compiled for: `os/version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellSlug {
    pub os: String,
    pub version: String,
}

impl std::fmt::Display for StemcellSlug {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.os, self.version)
    }
}

impl ReleaseManifest {
    /// Reads the text of a `release.MF`.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        let document = Document::parse(text).map_err(|error| ReleaseError::Yaml(NAME.to_owned(), error))?;
        let read = || -> Result<Self, Problem> {
            let root = document.root();
            Ok(Self {
                name: self::text(&root.field("name")?)?,
                version: self::text(&root.field("version")?)?,
                commit_hash: root.optional("commit_hash")?.map(|hash| self::text(&hash)).transpose()?,
                uncommitted_changes: root.optional("uncommitted_changes")?.map_or(Ok(false), |flag| flag.boolean())?,
                jobs: root.optional_list("jobs")?.iter().map(job).collect::<Result<_, _>>()?,
                packages: root.optional_list("packages")?.iter().map(package).collect::<Result<_, _>>()?,
                compiled_packages: root
                    .optional_list("compiled_packages")?
                    .iter()
                    .map(compiled)
                    .collect::<Result<_, _>>()?,
                is_compiled: root.optional("compiled_packages")?.is_some(),
                license: root.optional("license")?.map(|license| self::license(&license)).transpose()?,
                no_compression: root.optional("no_compression")?.map_or(Ok(false), |flag| flag.boolean())?,
            })
        };
        let manifest = read().map_err(|problem| ReleaseError::Document(NAME.to_owned(), problem))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// All packages, as source or compiled.
    pub fn all_packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().chain(self.compiled_packages.iter().map(|compiled| &compiled.package))
    }

    fn check(&self) -> Result<(), ReleaseError> {
        check_name("release", &self.name)?;
        Version::parse(&self.version)?;
        if !self.packages.is_empty() && self.is_compiled {
            return Err(ReleaseError::BothKinds);
        }
        check_names("job", self.jobs.iter().map(|job| &job.name))?;
        check_names("package", self.packages.iter().map(|package| &package.name))?;
        check_names("compiled package", self.compiled_packages.iter().map(|compiled| &compiled.package.name))?;
        PackageGraph::new(self.all_packages())?;
        Ok(())
    }
}

fn check_names<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), ReleaseError> {
    let mut seen = BTreeSet::new();
    for name in names {
        check_name(kind, name)?;
        if !seen.insert(name) {
            return Err(ReleaseError::Twice { kind, name: name.clone() });
        }
    }
    Ok(())
}

/// Names become names of files.
pub fn check_name(kind: &'static str, name: &str) -> Result<(), ReleaseError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte);
    let is_fine = (1..=255).contains(&name.len()) && name.bytes().all(is_allowed) && name != "." && name != "..";
    if is_fine { Ok(()) } else { Err(ReleaseError::Name { kind, name: name.to_owned() }) }
}

/// Text, also where somebody forgot the quotes around a number.
fn text(at: &At<'_>) -> Result<String, Problem> {
    match &at.node().content {
        Content::Number(number) => Ok(number.to_string()),
        _ => at.string().map(str::to_owned),
    }
}

/// The fingerprint of old releases is their version.
fn fingerprint(at: &At<'_>) -> Result<String, Problem> {
    at.optional("fingerprint")?.map_or_else(|| text(&at.field("version")?), |found| text(&found))
}

fn job(at: &At<'_>) -> Result<JobEntry, Problem> {
    Ok(JobEntry {
        name: text(&at.field("name")?)?,
        version: text(&at.field("version")?)?,
        fingerprint: fingerprint(at)?,
        sha1: text(&at.field("sha1")?)?,
        packages: at.optional_list("packages")?.iter().map(text).collect::<Result<_, _>>()?,
    })
}

fn license(at: &At<'_>) -> Result<License, Problem> {
    Ok(License { fingerprint: fingerprint(at)?, sha1: text(&at.field("sha1")?)? })
}

fn package(at: &At<'_>) -> Result<Package, Problem> {
    let dependencies = at.optional_list("dependencies")?;
    Ok(Package {
        name: text(&at.field("name")?)?,
        version: text(&at.field("version")?)?,
        fingerprint: fingerprint(at)?,
        sha1: text(&at.field("sha1")?)?,
        dependencies: dependencies.iter().map(text).collect::<Result<_, _>>()?,
    })
}

fn compiled(at: &At<'_>) -> Result<CompiledPackage, Problem> {
    Ok(CompiledPackage { package: package(at)?, stemcell: slug(&at.field("stemcell")?)? })
}

/// In BOSH's words.
fn slug(at: &At<'_>) -> Result<StemcellSlug, Problem> {
    let text = text(at)?;
    let parts = text.split_once('/').filter(|(os, version)| !os.is_empty() && !version.is_empty());
    let (os, version) = parts.ok_or_else(|| {
        let wanted = r#"Expected value to be in the format of "{os_name}/{stemcell_version}""#;
        at.problem(format!("{wanted}, but given \"{text}\"; export the release again"))
    })?;
    Ok(StemcellSlug { os: os.to_owned(), version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_without_quotes_and_fingerprints_is_understood() {
        let manifest = ReleaseManifest::parse(
            "name: old\nversion: 7\njobs:\n- {name: a, version: 12, sha1: 00}\npackages:\n- {name: p, version: 1, sha1: aa}\n",
        )
        .unwrap();
        assert_eq!((manifest.version.as_str(), manifest.jobs[0].fingerprint.as_str()), ("7", "12"));
        assert_eq!(manifest.packages[0].dependencies, Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            ("name: [", "release.MF is not valid YAML"),
            ("version: 1", "name: is required, but missing"),
            ("name: a/b\nversion: 1", "'a/b' has characters other than"),
            ("name: ..\nversion: 1", "'..' has characters"),
            ("name: a\nversion: 1 2", "Release version invalid: 1 2"),
            ("name: a\nversion: 1\njobs: [{name: x, version: 1}]", "jobs[0].sha1: is required"),
            (
                "name: a\nversion: 1\njobs: [{name: x, version: 1, sha1: 0}, {name: x, version: 1, sha1: 0}]",
                "two jobs 'x'",
            ),
            ("name: a\nversion: 1\npackages: [{name: x, version: 1, sha1: 0, dependencies: [y]}]", "needs 'y'"),
            (
                "name: a\nversion: 1\ncompiled_packages: [{name: x, version: 1, sha1: 0}]",
                "compiled_packages[0].stemcell: is required",
            ),
            (
                "name: a\nversion: 1\ncompiled_packages: [{name: x, version: 1, sha1: 0, stemcell: ubuntu}]",
                "compiled_packages[0].stemcell: Expected value to be in the format of \"{os_name}/{stemcell_version}\", but given \"ubuntu\"",
            ),
            (
                "name: a\nversion: 1\ncompiled_packages: [{name: x, version: 1, sha1: 0, stemcell: o/1, dependencies: [y]}]",
                "the package 'x' needs 'y', which the release does not have",
            ),
            (
                "name: a\nversion: 1\npackages: [{name: x, version: 1, sha1: 0}]\ncompiled_packages: []",
                "both 'packages' and 'compiled_packages'",
            ),
            ("name: a\nversion: 1\ncompiled_packages: {}", "compiled_packages"),
        ];
        for (text, words) in cases {
            let error = ReleaseManifest::parse(text).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let said = format!("{error}: {source}");
            assert!(said.contains(words), "{said}");
        }
    }
}
