//! Which compiled package a group gets, and what cannot be had: BOSH's rules.
//!
//! - A release that says `exported_from` gives packages that were compiled for one of those stemcells, of the line of the group's.
//! - Otherwise a package that was compiled for exactly the group's stemcell is taken.
//! - One without source that was not is taken from the newest stemcell of the same line.
//! - Everything else is compiled.

use std::collections::{BTreeMap, BTreeSet};

use windlass_release::{StemcellLine, Version};

use super::StemcellChoice;
use super::findings::Findings;
use super::resolve::DesiredGroup;
use super::software::Releases;
use crate::records::CompilationKey;
use crate::software::{CompiledFor, PackageOfGroup};

/// The numbers that BOSH has for what cannot be had.
const NEITHER_SOURCE_NOR_COMPILED: u32 = 60001;
const NOT_COMPILED_FOR_EXPORTED_FROM: u32 = 60003;
const EXPORTED_FROM_ELSEWHERE: u32 = 80015;

/// What a package lacks.
enum Lack {
    /// It has no source, and is not compiled for the group's stemcell or one of its line.
    Source,
    /// It was not compiled for any of these.
    ExportedFrom(Vec<CompiledFor>),
}

/// Finds the compiled packages of all groups. What cannot be had is told per release, for all groups together.
pub(super) fn choose(
    groups: &mut [DesiredGroup],
    releases: &Releases<'_>,
    compiled: &BTreeSet<CompilationKey>,
    findings: &mut Findings,
) {
    let mut faults = Faults::default();
    for group in groups {
        let Some(stemcell) = group.stemcells.first().cloned() else { continue };
        let Some(software) = &mut group.software else { continue };
        let line = StemcellLine::of(&stemcell.version);
        let fits = |from: &&CompiledFor| from.os == stemcell.os && line.has(&from.version);
        let of_jobs = software.jobs.iter().map(|job| &job.release);
        for name in of_jobs.chain(software.packages.iter().map(|package| &package.release)) {
            let exported_from = releases.release(name).map(|(_, exported_from)| exported_from).unwrap_or_default();
            if !exported_from.is_empty() && !exported_from.iter().any(|from| fits(&from)) {
                faults.elsewhere.insert(elsewhere(&group.name, &stemcell, name, exported_from));
            }
        }
        for package in &mut software.packages {
            let Some((release, exported_from)) = releases.release(&package.release) else { continue };
            let fitting: Vec<CompiledFor> = exported_from.iter().filter(fits).cloned().collect();
            if fitting.is_empty() && !exported_from.is_empty() {
                continue;
            }
            let record = release.packages.iter().find(|record| record.name == package.name);
            let has_source = record.is_some_and(|record| record.source.is_some());
            match find(package, &stemcell, (has_source, &fitting), compiled) {
                Ok(found) => package.compiled_for = found,
                Err(lack) => {
                    let label = format!("{}/{}", package.name, package.version);
                    faults.add(format!("{}/{}", release.name, release.version), label, &stemcell, lack);
                }
            }
        }
    }
    faults.tell(findings);
}

/// The stemcell that a package comes compiled for, if that is another one than the group's.
fn find(
    package: &PackageOfGroup,
    stemcell: &StemcellChoice,
    (has_source, exported_from): (bool, &[CompiledFor]),
    compiled: &BTreeSet<CompilationKey>,
) -> Result<Option<CompiledFor>, Lack> {
    let is_compiled = |from: &&CompiledFor| compiled.contains(&package.exact_key(&from.os, &from.version));
    let own = CompiledFor { os: stemcell.os.clone(), version: stemcell.version.clone() };
    if !exported_from.is_empty() {
        let found = exported_from.iter().find(is_compiled).ok_or_else(|| Lack::ExportedFrom(exported_from.to_vec()))?;
        return Ok((*found != own).then(|| found.clone()));
    }
    if has_source || is_compiled(&&own) {
        return Ok(None);
    }
    let line = StemcellLine::of(&own.version);
    let is_it = |key: &&CompilationKey| {
        (&key.release, &key.package, &key.version) == (&package.release, &package.name, &package.version)
            && (&key.os, &key.dependency_key) == (&own.os, &package.dependency_key)
    };
    let of_line = compiled.iter().filter(is_it).filter(|key| line.has(&key.stemcell));
    let newest = Version::newest_of_line(of_line, |key| &key.stemcell).ok_or(Lack::Source)?;
    Ok(Some(CompiledFor { os: newest.os.clone(), version: newest.stemcell.clone() }))
}

fn elsewhere(group: &str, stemcell: &StemcellChoice, release: &str, exported_from: &[CompiledFor]) -> String {
    let own = format!("{}/{}", stemcell.name, stemcell.version);
    let others: Vec<_> = exported_from.iter().map(|from| format!("'{}/{}'", from.os, from.version)).collect();
    format!(
        "Invalid release detected in instance group '{group}' using stemcell '{own}': release '{release}' must be exported from \
         stemcell '{own}'. Release '{release}' is exported from: {}.",
        others.join(", ")
    )
}

/// All that cannot be had, in BOSH's words.
#[derive(Default)]
struct Faults {
    elsewhere: BTreeSet<String>,
    /// By release: packages, and the name and slug of the stemcell that they are not compiled for.
    no_source: BTreeMap<String, BTreeSet<(String, String, String)>>,
    /// By release and stemcell.
    not_exported: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Faults {
    fn add(&mut self, release: String, package: String, stemcell: &StemcellChoice, lack: Lack) {
        match lack {
            Lack::Source => {
                let name = format!("{}/{}", stemcell.name, stemcell.version);
                let slug = format!("{}/{}", stemcell.os, stemcell.version);
                self.no_source.entry(release).or_default().insert((package, name, slug));
            }
            Lack::ExportedFrom(stemcells) => {
                for CompiledFor { os, version } in stemcells {
                    let place = (release.clone(), format!("{os}/{version}"));
                    self.not_exported.entry(place).or_default().insert(package.clone());
                }
            }
        }
    }

    fn tell(self, findings: &mut Findings) {
        for message in self.elsewhere {
            findings.refuse(EXPORTED_FROM_ELSEWHERE, None, message);
        }
        for (release, faults) in self.no_source {
            let stemcells: BTreeSet<&str> = faults.iter().map(|(_, name, _)| name.as_str()).collect();
            let slugs: BTreeSet<&str> = faults.iter().map(|(_, _, slug)| slug.as_str()).collect();
            let only = if stemcells.len() == 1 { stemcells.first() } else { None };
            let against = only.map_or("intended stemcells".to_owned(), |name| format!("stemcell '{name}'"));
            let listed: Vec<String> = faults
                .iter()
                .map(|(package, name, _)| match only {
                    Some(_) => format!(" - '{package}'"),
                    None => format!(" - '{package}' against stemcell '{name}'"),
                })
                .collect();
            findings.refuse(
                NEITHER_SOURCE_NOR_COMPILED,
                None,
                format!(
                    "Can't use release '{release}'. It references packages without source code and are not compiled against \
                     {against}:\n{}\nupload the release with its sources, or compiled for {}",
                    listed.join("\n"),
                    slugs.into_iter().collect::<Vec<_>>().join(" and ")
                ),
            );
        }
        for ((release, stemcell), packages) in self.not_exported {
            let listed: Vec<String> = packages.iter().map(|package| format!(" - '{package}'")).collect();
            findings.refuse(
                NOT_COMPILED_FOR_EXPORTED_FROM,
                None,
                format!(
                    "Can't use release '{release}':\nPackages must be exported from stemcell '{stemcell}', but some packages are \
                     not compiled for this stemcell:\n{}\nupload the release compiled for it",
                    listed.join("\n")
                ),
            );
        }
    }
}
