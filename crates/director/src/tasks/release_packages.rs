//! The packages of a release that is being taken: which are new, whose archives are kept, and which of other releases are the same.
//!
//! A source release brings sources, also for packages that were known only compiled. A compiled release brings compiled packages
//! and leaves the sources as they are.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use windlass_planning::records::{CompilationKey, CompiledPackage, PackageRecord, PackageSource, ReleaseRecord};
use windlass_release::{Package, PackageGraph, Release};

use super::update_release::{Here, ReleaseUpload, is_used, keep_blob, tell_of_existing};
use super::{TaskError, TaskLog};
use crate::Director;

/// What is put on record.
pub(super) struct TakenPackages {
    pub(super) packages: Vec<PackageRecord>,
    /// Also those of other releases that are mended with this one.
    pub(super) compiled: Vec<CompiledPackage>,
}

/// A package that is listed, and what is known of it in its release.
struct Listed<'a> {
    package: &'a Package,
    kept: Option<&'a PackageRecord>,
    /// Whether this version of the release has it already.
    is_joined: bool,
    /// Whether a deployment uses a version of the release that has it.
    is_used: bool,
}

/// Keeps the archives that are needed. `series` are the versions of the release that are there.
pub(super) async fn keep(
    director: &Director,
    log: &TaskLog,
    release: &Release,
    series: &[&ReleaseRecord],
    how: ReleaseUpload,
) -> Result<TakenPackages, TaskError> {
    let manifest = &release.manifest;
    let all: Vec<&PackageRecord> = series.iter().flat_map(|release| &release.packages).collect();
    let same = series.iter().find(|release| release.version == manifest.version);
    let listed: Vec<Listed<'_>> = manifest
        .all_packages()
        .map(|package| {
            let is_it = |kept: &&PackageRecord| kept.name == package.name && kept.version == package.version;
            let kept = all.iter().copied().find(is_it);
            let is_joined = same.is_some_and(|same| same.packages.iter().any(|joined| is_it(&joined)));
            let is_used = kept.is_some_and(|kept| {
                is_used(series, |release| release.packages.iter().any(|package| package.id == kept.id))
            });
            Listed { package, kept, is_joined, is_used }
        })
        .collect();
    if manifest.is_compiled {
        let keys = compilation_keys(release, same, &listed)?;
        let packages = keep_without_sources(log, &listed).await?;
        let compiled = keep_compiled(director, log, release, (&listed, keys), how).await?;
        return Ok(TakenPackages { packages, compiled });
    }
    let packages = keep_sources(director, log, release, &listed, how).await?;
    Ok(TakenPackages { packages, compiled: Vec::new() })
}

fn record(package: &Package, source: Option<PackageSource>) -> PackageRecord {
    let Package { name, version, fingerprint, dependencies, .. } = package.clone();
    PackageRecord { id: 0, name, version, fingerprint, source, dependencies }
}

fn has_same_needs(kept: &PackageRecord, package: &Package) -> bool {
    let names = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    names(&kept.dependencies) == names(&package.dependencies)
}

/// One step for those that this version gets, and one for those that it has.
async fn tell_of_kept(log: &TaskLog, listed: &[Listed<'_>], is_compiled: bool) -> Result<(), TaskError> {
    let count = |is_joined: bool| listed.iter().filter(|it| it.kept.is_some() && it.is_joined == is_joined).count();
    tell_of_existing(log, "package", count(false)).await?;
    if is_compiled {
        return Ok(());
    }
    tell_of_existing(log, "package", count(true)).await
}

async fn keep_sources(
    director: &Director,
    log: &TaskLog,
    release: &Release,
    listed: &[Listed<'_>],
    how: ReleaseUpload,
) -> Result<Vec<PackageRecord>, TaskError> {
    let fingerprints: HashSet<String> = listed.iter().map(|it| it.package.fingerprint.clone()).collect();
    let lenders = director.store.packages_like(&fingerprints).await?;
    let new = listed.iter().filter(|it| it.kept.is_none()).count();
    let stage = (new > 0).then(|| log.stage("Creating new packages", &[], new));
    let mut packages = Vec::new();
    for Listed { package, kept, is_used, .. } in listed {
        let archive = release.packages.get(&package.name);
        let own = kept.and_then(|kept| kept.source.clone());
        if kept.is_some() && own.is_none() && !how.replaces {
            tell_of_source_left_out(log, package);
            packages.push(record(package, None));
            continue;
        }
        // The same bytes with other needs are others' as well: the list says what a package needs, and not its archive.
        let needs_others = how.replaces && !is_used && kept.is_some_and(|kept| !has_same_needs(kept, package));
        let is_replaced = match own.as_ref().filter(|own| own.sha1 != package.sha1 || needs_others) {
            Some(own) => {
                let here = Here { what: format!("package '{}/{}'", package.name, package.version), sha1: &own.sha1 };
                here.makes_room(log, how, *is_used)?
            }
            None => false,
        };
        // Any release may say of its packages that they have this fingerprint; their bytes are what the manifest wants, or not.
        let same = lenders.iter().filter(|lender| lender.fingerprint == package.fingerprint);
        let lent = || same.filter_map(|lender| lender.source.clone()).find(|lent| lent.sha1 == package.sha1);
        let is_mended = match &own {
            Some(own) => is_replaced || how.mends(director, (&own.blob, &own.sha1)).await?,
            None => false,
        };
        let keeping = async {
            match (archive, own) {
                (Some(archive), own) if own.is_none() || is_mended => {
                    Ok(PackageSource { blob: keep_blob(director, archive).await?, sha1: package.sha1.clone() })
                }
                (_, Some(own)) => Ok(own),
                (_, None) => lent().ok_or_else(|| missing(package, "packages")),
            }
        };
        let source = match (&stage, kept) {
            (Some(stage), None) => stage.part(&format!("{}/{}", package.name, package.version)).run(keeping).await?,
            _ => keeping.await?,
        };
        let mut taken = record(package, Some(source));
        // The list says what a package needs, and not its archive.
        if let Some(kept) = kept.filter(|kept| kept.source.is_some() && !how.replaces) {
            taken.dependencies.clone_from(&kept.dependencies);
        }
        packages.push(taken);
    }
    tell_of_kept(log, listed, false).await?;
    if how.replaces {
        tell_of_compiled(log, listed);
    }
    Ok(packages)
}

/// Of what was uploaded compiled, nobody can see what it was compiled from, but a source that is here is compiled for all who deploy the
/// release on other stemcells: only an admin may say that it is the same.
fn tell_of_source_left_out(log: &TaskLog, Package { name, version, .. }: &Package) {
    log.warning(&format!(
        "the source of package '{name}/{version}' is not taken: the package is here compiled, and others may run it; an admin can upload it"
    ));
}

/// Whoever may upload can bring a compiled release before its sources are here, and nobody sees what it was compiled from.
fn tell_of_compiled(log: &TaskLog, listed: &[Listed<'_>]) {
    const MOST: usize = 5;
    let only_compiled = listed.iter().filter(|it| it.kept.is_some_and(|kept| kept.source.is_none()));
    let names: Vec<&str> = only_compiled.map(|it| it.package.name.as_str()).collect();
    if !names.is_empty() {
        let some = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
        log.warning(&format!(
            "{} packages ({some}{}) were here without sources; what was uploaded compiled stays: if that came from others, delete the \
             release and upload it again",
            names.len(),
            if names.len() > MOST { ", ..." } else { "" }
        ));
    }
}

fn missing(Package { name, version, .. }: &Package, place: &str) -> TaskError {
    let reason = format!(
        "the release lists the package '{name}/{version}', but its tarball has no {place}/{name}.tgz, and no release here has \
         it; upload the whole release"
    );
    TaskError::refused(30011, reason)
}

/// Packages that are new are known without a source; others keep theirs.
async fn keep_without_sources(log: &TaskLog, listed: &[Listed<'_>]) -> Result<Vec<PackageRecord>, TaskError> {
    let new: Vec<_> = listed.iter().filter(|it| it.kept.is_none()).collect();
    if !new.is_empty() {
        let stage = log.stage("Creating new packages", &[], new.len());
        for Listed { package, .. } in new {
            let part = stage.part(&format!("{}/{}", package.name, package.version));
            part.run(async { Ok::<_, TaskError>(()) }).await?;
        }
    }
    tell_of_kept(log, listed, true).await?;
    Ok(listed.iter().map(|it| record(it.package, it.kept.and_then(|kept| kept.source.clone()))).collect())
}

/// By which each compiled package is found. It was compiled with the packages of its release; those on record must be the same.
fn compilation_keys<'a>(
    release: &'a Release,
    same: Option<&&ReleaseRecord>,
    listed: &[Listed<'_>],
) -> Result<Vec<(&'a Package, CompilationKey)>, TaskError> {
    let as_kept = |kept: &PackageRecord| Package {
        name: kept.name.clone(),
        version: kept.version.clone(),
        fingerprint: kept.fingerprint.clone(),
        sha1: String::new(),
        dependencies: kept.dependencies.clone(),
    };
    let is_listed = |kept: &&PackageRecord| listed.iter().any(|it| it.package.name == kept.name);
    let others = same.iter().flat_map(|same| &same.packages).filter(|kept| !is_listed(kept)).map(as_kept);
    let on_record = listed.iter().map(|it| it.kept.map_or_else(|| it.package.clone(), as_kept));
    let on_record: Vec<Package> = on_record.chain(others).collect();
    let manifest = PackageGraph::new(release.manifest.all_packages()).map_err(windlass_release::ReleaseError::from)?;
    let on_record = PackageGraph::new(&on_record);
    let mut keys = Vec::new();
    for compiled in &release.manifest.compiled_packages {
        let package = &compiled.package;
        let dependency_key = manifest.dependency_key(&package.name).map_err(windlass_release::ReleaseError::from)?;
        let known = on_record.as_ref().ok().and_then(|graph| graph.dependency_key(&package.name).ok());
        if known.as_ref() != Some(&dependency_key) {
            let reason = format!(
                "The uploaded release contains package dependencies in '{}' that do not match database records.",
                package.name
            );
            return Err(TaskError::refused(30016, reason));
        }
        let key = CompilationKey {
            release: release.manifest.name.clone(),
            package: package.name.clone(),
            version: package.version.clone(),
            os: compiled.stemcell.os.clone(),
            stemcell: compiled.stemcell.version.clone(),
            dependency_key,
        };
        keys.push((package, key));
    }
    Ok(keys)
}

/// Keeps the archives of compiled packages that no release has yet, or of all of them to mend what is there.
async fn keep_compiled(
    director: &Director,
    log: &TaskLog,
    release: &Release,
    (listed, keys): (&[Listed<'_>], Vec<(&Package, CompilationKey)>),
    how: ReleaseUpload,
) -> Result<Vec<CompiledPackage>, TaskError> {
    let known = director.store.compiled_packages().await?;
    let stage = log.stage("Creating new compiled packages", &[], keys.len());
    let mut taken = Vec::new();
    for (package, key) in keys {
        let archive = release.packages.get(&package.name);
        let is_like_it = |(fingerprint, other): &&(String, CompiledPackage)| {
            let same =
                CompilationKey { release: key.release.clone(), version: key.version.clone(), ..other.key.clone() };
            *fingerprint == package.fingerprint && same == key
        };
        let like_it: Vec<&CompiledPackage> = known.iter().filter(is_like_it).map(|(_, other)| other).collect();
        let here = like_it.iter().find(|other| other.key == key);
        let is_here = here.is_some();
        let own = listed.iter().find(|it| it.package.name == package.name);
        let is_replaced = match here.filter(|here| here.sha1 != package.sha1) {
            Some(here) => {
                let what = format!("compiled package '{}/{}'", package.name, package.version);
                Here { what, sha1: &here.sha1 }.makes_room(log, how, own.is_none_or(|own| own.is_used))?
            }
            None => false,
        };
        let is_kept = match here {
            Some(here) => !is_replaced && !how.mends(director, (&here.blob, &here.sha1)).await?,
            None => false,
        };
        if is_kept {
            continue;
        }
        let known = own.and_then(|own| own.kept);
        if !is_here && !how.replaces && is_left_out(log, known, &key)? {
            continue;
        }
        // The uploader says what was compiled from what, so only the same bytes count as the same.
        let lender = like_it.iter().find(|other| !how.fix && other.sha1 == package.sha1).copied();
        let bytes = bytes_of(director, package, archive, lender);
        let (sha1, blob) = match is_here {
            true => bytes.await?,
            false => {
                let label = format!("{}/{} for {}/{}", package.name, package.version, key.os, key.stemcell);
                stage.part(&label).run(bytes).await?
            }
        };
        // To mend one is to mend all that have the same bytes. Others keep theirs: who may upload one release has no say over what
        // those run.
        let has_its_bytes = |other: &&&CompiledPackage| how.fix && other.key != key && other.sha1 == sha1;
        let mended = like_it.iter().filter(has_its_bytes).map(|other| other.key.clone());
        for key in std::iter::once(key.clone()).chain(mended) {
            taken.push(CompiledPackage { key, build: 0, sha1: sha1.clone(), blob: blob.clone() });
        }
    }
    Ok(taken)
}

/// Whether a compiled package is left out that would stand for one that is here. Deployments which name the release run what is compiled
/// of it, on stemcells that come later as well, and nobody can see what it was compiled from: only an admin may say so.
fn is_left_out(log: &TaskLog, known: Option<&PackageRecord>, key: &CompilationKey) -> Result<bool, TaskError> {
    let Some(known) = known else { return Ok(false) };
    let label = format!("package '{}/{}' for {}/{}", key.package, key.version, key.os, key.stemcell);
    if known.source.is_some() {
        log.warning(&format!(
            "the compiled {label} is not taken: its source is here, and is compiled where it is needed; an admin can upload it"
        ));
        return Ok(true);
    }
    let reason = format!(
        "the compiled {label} would stand for what release '{}' has here, which others may run; only an admin may upload it",
        key.release
    );
    Err(TaskError::refused(600000, reason))
}

/// The digest and the blob of a compiled package: of another release that has it, or of the archive that came.
async fn bytes_of(
    director: &Director,
    package: &Package,
    archive: Option<&PathBuf>,
    lender: Option<&CompiledPackage>,
) -> Result<(String, String), TaskError> {
    if let Some(lender) = lender {
        return Ok((lender.sha1.clone(), lender.blob.clone()));
    }
    let archive = archive.ok_or_else(|| missing(package, "compiled_packages"))?;
    Ok((package.sha1.clone(), keep_blob(director, archive).await?))
}

#[cfg(test)]
mod tests;
