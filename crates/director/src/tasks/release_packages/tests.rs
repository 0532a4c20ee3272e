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
            package["compiled_packages"].as_array().unwrap().iter().map(|it| it["stemcell"].as_str().unwrap()).collect()
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
    assert_eq!((site.blobs(), site.bench.director.store.compiled_packages().await.unwrap()), (again, compiled.clone()));

    // The sources come later; what is compiled stays, and that is said.
    site.upload(SHOP, false).await.unwrap();
    let warned = "2 packages (app, base) were here without sources; what was uploaded compiled stays";
    assert!(site.warnings().iter().any(|warning| warning.starts_with(warned)), "{:?}", site.warnings());
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

/// On a stemcell that it is not compiled for, what others run was taken from the newest of the line; with a source, that is compiled.
#[tokio::test]
async fn who_may_only_upload_brings_no_source_for_what_is_here_compiled() {
    let site = Site::new().await;
    site.upload(&whole("toronto-os/1"), false).await.unwrap();
    let uploader = ReleaseUpload { fix: false, rebase: false, replaces: false };
    for how in [uploader, ReleaseUpload { fix: true, ..uploader }] {
        site.upload_as(SHOP, how).await.unwrap();
        let warned = site.warnings().iter().filter(|warning| warning.contains("the package is here compiled")).count();
        assert_eq!(warned, 2, "{:?}", site.warnings());
        let shop = shown(&site, "shop").await;
        assert_eq!(shop["packages"][0]["blobstore_id"], Value::Null, "{shop}");
    }
    site.upload(SHOP, false).await.unwrap();
    let shop = shown(&site, "shop").await;
    assert!(shop["packages"][0]["blobstore_id"].is_string(), "an admin may: {shop}");
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
    let (_, some) = ask(text("toronto-os/1", |text| text.replace("dependencies: [base]", "dependencies: []"))).await;
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
