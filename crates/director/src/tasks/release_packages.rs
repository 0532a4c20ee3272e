//! The packages of a release that is being taken: which are new, whose archives are kept, and which of other releases are the same.
//!
//! A source release brings sources, also for packages that were known only compiled. A compiled release brings compiled packages
//! and leaves the sources as they are.

use std::collections::HashSet;
use std::path::PathBuf;

use windlass_planning::records::{CompilationKey, CompiledPackage, PackageRecord, PackageSource, ReleaseRecord};
use windlass_release::{Package, PackageGraph, Release};

use super::update_release::{ReleaseUpload, differs, keep_blob, tell_of_existing};
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
            Listed { package, kept, is_joined }
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
    for Listed { package, kept, .. } in listed {
        let archive = release.packages.get(&package.name);
        let own = kept.and_then(|kept| kept.source.clone());
        if let Some(own) = own.as_ref().filter(|own| own.sha1 != package.sha1) {
            differs(log, how, &format!("package '{}/{}'", package.name, package.version), &own.sha1)?;
        }
        // Any release may say of its packages that they have this fingerprint; their bytes are what the manifest wants, or not.
        let same = lenders.iter().filter(|lender| lender.fingerprint == package.fingerprint);
        let lent = || same.filter_map(|lender| lender.source.clone()).find(|lent| lent.sha1 == package.sha1);
        let keeping = async {
            match (archive, own) {
                (Some(archive), own) if own.is_none() || how.fix => {
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
        packages.push(record(package, Some(source)));
    }
    tell_of_kept(log, listed, false).await?;
    Ok(packages)
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
        if let Some(here) = here.filter(|here| here.sha1 != package.sha1) {
            differs(log, how, &format!("compiled package '{}/{}'", package.name, package.version), &here.sha1)?;
        }
        if is_here && !how.fix {
            continue;
        }
        let known = listed.iter().find(|it| it.package.name == package.name).and_then(|it| it.kept);
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
mod tests {
    use axum::http::{Method, StatusCode};
    use serde_json::{Value, json};

    use super::super::clean_up::{self, CleanUp};
    use super::super::update_release::ReleaseUpload;
    use super::super::update_release::tests::{SHOP, Site};
    use super::*;

    /// The recorded release with its packages compiled for a stemcell; `change` has its way with the manifest. Those that are named
    /// are left out of the tarball.
    fn compiled(stemcell: &str, left_out: &[&str], change: impl FnOnce(String) -> String) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shop.tgz"), SHOP).unwrap();
        let laid = folder.path().join("laid");
        std::fs::create_dir(&laid).unwrap();
        let shop = windlass_release::read(&folder.path().join("shop.tgz"), &laid).unwrap();
        let mut files = Vec::new();
        let mut text = String::from("---\ncompiled_packages:\n");
        for package in &shop.manifest.packages {
            // Any archive will do; those of different packages differ.
            let archive = std::fs::read(&shop.packages[&package.name]).unwrap();
            let needs = package.dependencies.join(", ");
            text.push_str(&format!(
                "- name: {0}\n  version: {1}\n  fingerprint: {1}\n  sha1: {2}\n  stemcell: {stemcell}\n  dependencies: [{needs}]\n",
                package.name, package.fingerprint, package.sha1
            ));
            if !left_out.contains(&package.name.as_str()) {
                files.push((format!("./compiled_packages/{}.tgz", package.name), archive));
            }
        }
        text.push_str("jobs:\n");
        for (job, archive) in shop.manifest.jobs.iter().zip(&shop.jobs) {
            text.push_str(&format!(
                "- name: {0}\n  version: {1}\n  fingerprint: {1}\n  sha1: {2}\n",
                job.name, job.fingerprint, job.sha1
            ));
            files.push((format!("./jobs/{}.tgz", job.name), std::fs::read(&archive.archive).unwrap()));
        }
        text.push_str("commit_hash: non-git\nuncommitted_changes: false\nname: shop\nversion: '1'\n");
        let mut tar = tar::Builder::new(Vec::new());
        let manifest = (String::from("./release.MF"), change(text).into_bytes());
        for (name, content) in std::iter::once(manifest).chain(files) {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn whole(stemcell: &str) -> Vec<u8> {
        compiled(stemcell, &[], |text| text)
    }

    async fn shown(site: &Site, release: &str) -> Value {
        site.bench.ask(Method::GET, &format!("/releases/{release}?version=1"), "").await.1
    }

    /// The stemcells of both packages.
    fn stemcells(shown: &Value) -> Vec<Vec<&str>> {
        shown["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| {
                package["compiled_packages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|it| it["stemcell"].as_str().unwrap())
                    .collect()
            })
            .collect()
    }

    #[tokio::test]
    async fn a_compiled_release_is_taken_without_sources_and_its_sources_come_later() {
        let site = Site::new().await;
        assert_eq!(site.upload(&whole("toronto-os/1"), false).await.unwrap(), "Created release 'shop/1'");
        let one = |name: &str| format!("{name}: {name}");
        let steps = ["Extracting release", "Verifying manifest", "Resolving package dependencies"].map(one);
        let new = [
            "packages: app",
            "packages: base",
            "compiled packages: app",
            "compiled packages: base",
            "jobs: smoke",
            "jobs: web",
        ];
        let new = new.map(|part| format!("Creating new {part}"));
        let created = ["Compiled Release has been created: shop".to_owned()];
        assert_eq!(site.seen(), [&steps[..], &new, &created].concat());
        let shop = shown(&site, "shop").await;
        let app = &shop["packages"][0];
        assert_eq!((&app["name"], &app["blobstore_id"], &app["sha1"]), (&json!("app"), &Value::Null, &Value::Null));
        assert_eq!(stemcells(&shop), [["toronto-os/1"], ["toronto-os/1"]]);

        // For another stemcell, and once more: nothing is new then.
        site.upload(&whole("toronto-os/2"), false).await.unwrap();
        assert_eq!(
            stemcells(&shown(&site, "shop").await),
            [["toronto-os/1", "toronto-os/2"], ["toronto-os/1", "toronto-os/2"]]
        );
        let (again, compiled) = (site.blobs(), site.bench.director.store.compiled_packages().await.unwrap());
        site.upload(&compiled_without_archives("toronto-os/2"), false).await.unwrap();
        assert_eq!(
            site.seen(),
            [&steps[..], &["Processing 2 existing jobs".to_owned()].map(|it| one(&it)), &created].concat()
        );
        assert_eq!(
            (site.blobs(), site.bench.director.store.compiled_packages().await.unwrap()),
            (again, compiled.clone())
        );

        // The sources come later; what is compiled stays.
        site.upload(SHOP, false).await.unwrap();
        let existing = ["Processing 2 existing packages", "Processing 2 existing jobs"].map(one);
        assert_eq!(site.seen()[3..5], existing);
        let shop = shown(&site, "shop").await;
        assert!(shop["packages"][0]["blobstore_id"].is_string(), "{shop}");
        assert_eq!(site.bench.director.store.compiled_packages().await.unwrap(), compiled);

        // To mend it puts other bytes in the place of those that are there.
        site.upload(&whole("toronto-os/2"), true).await.unwrap();
        let mended = site.bench.director.store.compiled_packages().await.unwrap();
        let changed =
            |(before, after): (&(String, CompiledPackage), &(String, CompiledPackage))| before.1.blob != after.1.blob;
        assert_eq!(compiled.iter().zip(&mended).filter(|pair| changed(*pair)).count(), 2, "those of toronto-os/2");
        let builds = |all: &[(String, CompiledPackage)]| all.iter().map(|(_, it)| it.build).collect::<Vec<_>>();
        assert_eq!(builds(&mended), builds(&compiled));
        assert!(shown(&site, "shop").await["packages"][0]["blobstore_id"].is_string(), "the sources are still there");

        assert_eq!(site.delete("shop", Some("1")).await.unwrap(), "/release/shop");
        assert_eq!(site.blobs(), 0);
    }

    fn compiled_without_archives(stemcell: &str) -> Vec<u8> {
        compiled(stemcell, &["app", "base"], |text| text)
    }

    #[tokio::test]
    async fn a_compiled_release_beside_its_sources_compiles_nothing_again_and_other_releases_lend() {
        let site = Site::new().await;
        site.upload(SHOP, false).await.unwrap();
        let before = shown(&site, "shop").await["packages"][0]["blobstore_id"].clone();
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let shop = shown(&site, "shop").await;
        assert_eq!((&shop["packages"][0]["blobstore_id"], stemcells(&shop)[0].len()), (&before, 1));

        // Another release with the same packages need not bring them.
        let other = |text: String| text.replace("name: shop", "name: other");
        let blobs = site.blobs();
        site.upload(&compiled("toronto-os/1", &["app", "base"], other), false).await.unwrap();
        assert_eq!(stemcells(&shown(&site, "other").await), [["toronto-os/1"], ["toronto-os/1"]]);
        assert_eq!(site.blobs(), blobs + 2, "only its jobs are new");
        // And one mends the other.
        site.upload(&compiled("toronto-os/1", &[], other), true).await.unwrap();
        let blob = |shown: &Value| shown["packages"][0]["compiled_packages"][0]["blobstore_id"].clone();
        assert_eq!(blob(&shown(&site, "shop").await), blob(&shown(&site, "other").await));
        assert_ne!(blob(&shown(&site, "shop").await), blob(&shop));
    }

    /// The recorded release as `third`, compiled; the package `app` has other bytes than anybody's: those of `base`.
    fn with_other_bytes() -> Vec<u8> {
        let change = |text: String| {
            let digests: Vec<String> =
                text.lines().filter_map(|line| line.strip_prefix("  sha1: ").map(str::to_owned)).take(2).collect();
            text.replace(&digests[0], &digests[1]).replace("name: shop", "name: third")
        };
        let tarball = compiled("toronto-os/1", &["app"], change);
        let (mut from, mut to) = (tar::Archive::new(tarball.as_slice()), tar::Builder::new(Vec::new()));
        for entry in from.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, header) = (entry.path().unwrap().into_owned(), entry.header().clone());
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if path.ends_with("compiled_packages/base.tgz") {
                to.append_data(&mut header.clone(), "./compiled_packages/app.tgz", content.as_slice()).unwrap();
            }
            to.append_data(&mut header.clone(), path, content.as_slice()).unwrap();
        }
        to.into_inner().unwrap()
    }

    /// A user who may upload a release may not change what others run.
    #[tokio::test]
    async fn to_mend_a_release_leaves_those_alone_whose_compiled_packages_have_other_bytes() {
        let site = Site::new().await;
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let blob = |shown: &Value| shown["packages"][0]["compiled_packages"][0]["blobstore_id"].clone();
        let before = blob(&shown(&site, "shop").await);
        site.upload(&with_other_bytes(), true).await.unwrap();
        let third = blob(&shown(&site, "third").await);
        assert!(third.is_string() && third != before, "{third}");
        assert_eq!(blob(&shown(&site, "shop").await), before);
    }

    /// A compiled release that was downloaded brings what its author compiled, also where somebody else said the same of other bytes.
    #[tokio::test]
    async fn compiled_packages_of_others_are_taken_for_the_same_only_with_the_same_bytes() {
        let site = Site::new().await;
        site.upload(&with_other_bytes(), false).await.unwrap();
        let digest = async |release: &str| {
            shown(&site, release).await["packages"][0]["compiled_packages"][0]["sha1"].as_str().unwrap().to_owned()
        };
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        assert_ne!(digest("shop").await, digest("third").await);
        let other = |text: String| text.replace("name: shop", "name: other");
        site.upload(&compiled("toronto-os/1", &["app", "base"], other), false).await.unwrap();
        assert_eq!(digest("other").await, digest("shop").await);
    }

    /// Who may upload releases, and nothing else, would become root on the VMs of all who deploy the release on that stemcell.
    #[tokio::test]
    async fn who_may_only_upload_brings_nothing_compiled_for_releases_that_are_here() {
        let uploader = ReleaseUpload { fix: false, rebase: false, replaces: false };
        let keys = async |site: &Site| site.bench.director.store.compiled_packages().await.unwrap().len();
        let site = Site::new().await;
        site.upload(SHOP, false).await.unwrap();
        // From the sources that are here, the director compiles by itself.
        site.upload_as(&whole("toronto-os/1"), uploader).await.unwrap();
        assert_eq!(keys(&site).await, 0);
        let fixed = site.upload_as(&whole("toronto-os/1"), ReleaseUpload { fix: true, ..uploader }).await;
        assert_eq!((fixed.is_ok(), keys(&site).await), (true, 0));
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        assert_eq!(keys(&site).await, 2, "an admin may");

        // Where there are no sources, the newest of a line would be taken.
        let site = Site::new().await;
        site.upload_as(&whole("toronto-os/1"), uploader).await.unwrap();
        assert_eq!(keys(&site).await, 2, "nobody has it yet");
        site.upload_as(&whole("toronto-os/1"), uploader).await.unwrap();
        let refused = site.upload_as(&whole("toronto-os/1.9"), uploader).await.unwrap_err();
        assert!(refused.to_string().contains("only an admin may upload it"), "{refused}");
        assert_eq!((refused.code(), keys(&site).await), (600000, 2));
    }

    #[tokio::test]
    async fn what_a_director_has_compiled_need_not_be_sent() {
        let site = Site::new().await;
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let text = |stemcell: &str, change: fn(String) -> String| {
            let tarball = compiled(stemcell, &[], change);
            let mut archive = tar::Archive::new(tarball.as_slice());
            let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            text
        };
        let ask = async |text: String| site.bench.ask(Method::POST, "/packages/matches_compiled", text).await;
        let (_, all) = ask(text("toronto-os/1", |text| text)).await;
        assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
        assert_eq!(ask(text("toronto-os/2", |text| text)).await, (StatusCode::OK, json!([])));
        // Compiled with something else, it is another one; what it was compiled with is the same.
        let (_, some) =
            ask(text("toronto-os/1", |text| text.replace("dependencies: [base]", "dependencies: []"))).await;
        assert_eq!(some.as_array().unwrap().len(), 1, "{some}");
        let source = "name: shop\nversion: 1\npackages: [{name: app, version: f, sha1: 0}]".to_owned();
        let (status, said) = ask(source).await;
        assert_eq!((status, &said["code"]), (StatusCode::BAD_REQUEST, &json!(440001)));
    }

    #[tokio::test]
    async fn a_compiled_release_that_does_not_fit_is_refused_and_leaves_nothing() {
        let site = Site::new().await;
        let refused = site.upload(&compiled_without_archives("toronto-os/1"), false).await.unwrap_err();
        assert!(refused.to_string().contains("has no compiled_packages/app.tgz"), "{refused}");
        assert!(refused.to_string().contains("upload the whole release"), "{refused}");
        assert_eq!((site.blobs(), site.bench.ask(Method::GET, "/releases", "").await.1), (0, json!([])));
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let before = (site.blobs(), shown(&site, "shop").await);
        type Change = fn(String) -> String;
        let cases: [(Change, u32, &str); 4] = [
            (
                |text| text.replace("dependencies: [base]", "dependencies: []"),
                30016,
                "The uploaded release contains package dependencies in 'app' that do not match database records.",
            ),
            (
                |text| text.replacen("fingerprint: ", "fingerprint: 0", 1),
                30012,
                "package 'app' had different fingerprint in previously uploaded release 'shop/1'",
            ),
            (
                |text| text.replace("commit_hash: non-git", "commit_hash: other"),
                30014,
                "release 'shop/1' has already been uploaded with commit_hash as 'non-git'",
            ),
            (|text| text.replace("toronto-os/2", "toronto"), 100, "release.MF is not valid"),
        ];
        for (change, code, words) in cases {
            let error = site.upload(&compiled("toronto-os/2", &[], change), false).await.unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
            assert_eq!(error.code(), code, "{error}");
            assert_eq!((site.blobs(), shown(&site, "shop").await), before, "{error}");
        }
        let fix = site.upload(&compiled_without_archives("toronto-os/1"), true).await.unwrap_err();
        assert!(fix.to_string().contains("upload the whole release"), "{fix}");
        assert_eq!((site.blobs(), shown(&site, "shop").await), before);
        let rebased = site
            .upload_as(&whole("toronto-os/1"), ReleaseUpload { fix: false, rebase: true, replaces: true })
            .await
            .unwrap_err();
        assert!(rebased.to_string().starts_with("Failed to Rebase"), "{rebased}");
    }

    #[tokio::test]
    async fn clean_up_takes_unused_releases_compiled_packages_and_exported_releases() {
        let site = Site::new().await;
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let (director, blob) = (&site.bench.director, uuid::Uuid::new_v4().to_string());
        let made = director.folders.kept().join("blobs");
        std::fs::create_dir_all(&made).unwrap();
        std::fs::write(made.join(&blob), "x").unwrap();
        director.store.note_exported_release(&blob, "digest").await.unwrap();
        director.store.note_exported_release("gone already", "digest").await.unwrap();
        let release = director.store.releases().await.unwrap()[0].id;
        director.store.add_deployment(&"d".into(), &[]).await.unwrap();
        director.store.use_releases(&"d".into(), &[release]).await.unwrap();
        let (_, dry) = site.bench.ask(Method::GET, "/cleanup/dryrun?remove_all=true", "").await;
        let compiled = |name: &str| json!({"package_name": name, "stemcell_os": "toronto-os", "stemcell_version": "1"});
        assert_eq!(
            (&dry["releases"], &dry["compiled_packages"]),
            (&json!([]), &json!([compiled("app"), compiled("base")]))
        );
        assert_eq!(dry["exported_releases"].as_array().unwrap().len(), 2);

        let all = CleanUp { remove_all: true, keep_orphaned_disks: false };
        let clean = async |how| {
            let log = site.log();
            let result = clean_up::run(director, &log, how).await.unwrap();
            director.store.release_locks(log.task()).await.unwrap();
            result
        };
        let said = clean(CleanUp::default()).await;
        assert!(said.contains("0 release(s)") && said.contains("2 exported release(s)"), "{said}");
        assert!(!made.join(&blob).exists());
        // No stemcell of the line is here, so nobody will ever use what was compiled for it.
        let said = clean(all).await;
        assert!(said.contains("0 release(s)") && said.contains("2 extra compiled package(s)"), "{said}");
        let seen = site.seen();
        assert_eq!(
            seen,
            ["Deleting compiled packages: app for toronto-os", "Deleting compiled packages: base for toronto-os"]
        );
        assert_eq!(site.blobs(), 2, "the jobs of the release in use");
        director.store.remove_deployment(&"d".into()).await.unwrap();
        site.upload(&whole("toronto-os/1"), false).await.unwrap();
        let said = clean(all).await;
        assert!(said.contains("1 release(s)") && said.contains("0 extra compiled package(s)"), "{said}");
        assert_eq!((site.blobs(), site.bench.ask(Method::GET, "/releases", "").await.1), (0, json!([])));
    }
}
