//! Releases that are taken, and what stays of those that are not.

mod strangers;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::super::OutputKind;
use super::*;
use crate::testing::TestDirector;

pub(in crate::tasks) const SHOP: &[u8] = include_bytes!("../../../../release/tests/release/data/shop-1.tgz");

/// A director with a tarball that somebody sent.
pub(in crate::tasks) struct Site {
    pub(in crate::tasks) bench: TestDirector,
    tasks: std::cell::Cell<i64>,
}

impl Site {
    pub(in crate::tasks) async fn new() -> Self {
        Self { bench: TestDirector::new().await, tasks: std::cell::Cell::new(0) }
    }

    pub(in crate::tasks) fn log(&self) -> TaskLog {
        self.tasks.set(self.tasks.get() + 1);
        TaskLog::open(&self.bench.director, self.tasks.get()).unwrap()
    }

    pub(in crate::tasks) async fn upload(&self, tarball: &[u8], fix: bool) -> Result<String, TaskError> {
        self.upload_as(tarball, ReleaseUpload { fix, rebase: false, replaces: true }).await
    }

    pub(in crate::tasks) async fn upload_as(&self, tarball: &[u8], how: ReleaseUpload) -> Result<String, TaskError> {
        let director = &self.bench.director;
        let path = director.folders.temporary().join("upload");
        std::fs::write(&path, tarball).unwrap();
        let log = self.log();
        let result = run(director, &log, &path, how).await;
        director.store.release_locks(log.task()).await.unwrap();
        // What was sent goes when the end of its task is on record.
        director.folders.forget_upload(&path).unwrap();
        assert_eq!(std::fs::read_dir(director.folders.temporary()).unwrap().count(), 0);
        result
    }

    pub(in crate::tasks) async fn delete(&self, name: &str, version: Option<&str>) -> Result<String, TaskError> {
        let log = self.log();
        let result = super::super::delete_release::run(&self.bench.director, &log, name, version).await;
        self.bench.director.store.release_locks(log.task()).await.unwrap();
        result
    }

    /// What people saw of the last task, without digests.
    pub(in crate::tasks) fn seen(&self) -> Vec<String> {
        let path = OutputKind::Event.path(&self.bench.director.folders.tasks(), self.tasks.get());
        let text = std::fs::read_to_string(path).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let started = events.filter(|event| event["state"] == "started");
        let name = |task: &Value| task.as_str().unwrap().split('/').next().unwrap().to_owned();
        started.map(|event| format!("{}: {}", event["stage"].as_str().unwrap(), name(&event["task"]))).collect()
    }

    /// What people were warned of in the last task.
    pub(in crate::tasks) fn warnings(&self) -> Vec<String> {
        let path = OutputKind::Event.path(&self.bench.director.folders.tasks(), self.tasks.get());
        let text = std::fs::read_to_string(path).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let warnings = events.filter(|event| event["type"] == "warning");
        warnings.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    fn folder(&self) -> std::path::PathBuf {
        self.bench.director.folders.kept().join("releases")
    }

    pub(in crate::tasks) fn blobs(&self) -> usize {
        std::fs::read_dir(self.folder()).map_or(0, Iterator::count)
    }
}

/// The recorded release in another version.
fn in_version(version: &str) -> Vec<u8> {
    let mut from = tar::Archive::new(flate2::read::GzDecoder::new(SHOP));
    let mut to = tar::Builder::new(Vec::new());
    for entry in from.entries().unwrap() {
        let mut entry = entry.unwrap();
        let (path, mut header) = (entry.path().unwrap().into_owned(), entry.header().clone());
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        if path == Path::new("release.MF") {
            let text = String::from_utf8(content).unwrap();
            content = text.replace("version: \"1\"", &format!("version: {version}")).into_bytes();
            header.set_size(content.len() as u64);
        }
        to.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    to.into_inner().unwrap()
}

#[tokio::test]
async fn a_dev_release_is_rebased_onto_what_is_there() {
    let site = Site::new().await;
    let rebase = ReleaseUpload { fix: false, rebase: true, replaces: true };
    let dev = in_version("1+dev.7");
    assert_eq!(site.upload_as(&dev, rebase).await.unwrap(), "Created release 'shop/1+dev.1'");
    assert_eq!(site.upload_as(&dev, rebase).await.unwrap(), "Created release 'shop/1+dev.2'");
    let refused = site.upload_as(SHOP, rebase).await.unwrap_err();
    assert!(refused.to_string().starts_with("Failed to Rebase - Invalid Version: '1'"), "{refused}");
    let (_, listed) = site.bench.ask(Method::GET, "/releases", "").await;
    let versions: Vec<&Value> =
        listed[0]["release_versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
    assert_eq!(versions, ["1+dev.1", "1+dev.2"]);
}

/// The recorded release without its packages' archives, as clients send what the director has.
fn without_packages() -> Vec<u8> {
    let mut from = tar::Archive::new(flate2::read::GzDecoder::new(SHOP));
    let mut to = tar::Builder::new(Vec::new());
    for entry in from.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        if !path.starts_with("packages") {
            let mut header = entry.header().clone();
            to.append_data(&mut header, path, &mut entry).unwrap();
        }
    }
    to.into_inner().unwrap()
}

#[tokio::test]
async fn a_release_is_taken_shown_sent_again_without_its_packages_and_deleted_as_recorded() {
    let site = Site::new().await;
    assert_eq!(site.upload(SHOP, false).await.unwrap(), "Created release 'shop/1'");
    let one = |name: &str| format!("{name}: {name}");
    let steps = ["Extracting release", "Verifying manifest", "Resolving package dependencies"].map(one);
    let new =
        ["packages: app", "packages: base", "jobs: smoke", "jobs: web"].map(|part| format!("Creating new {part}"));
    let created = ["Release has been created: shop".to_owned()];
    assert_eq!(site.seen(), [&steps[..], &new, &created].concat());
    assert_eq!(site.blobs(), 4);
    let listed = json!([{"name": "shop", "release_versions": [{"version": "1", "commit_hash": "non-git",
        "uncommitted_changes": false, "currently_deployed": false, "job_names": ["smoke", "web"]}]}]);
    assert_eq!(site.bench.ask(Method::GET, "/releases", "").await, (StatusCode::OK, listed.clone()));
    let (_, shop) = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await;
    let web = &shop["jobs"][1];
    assert_eq!((&web["name"], &web["consumes"][0]["optional"]), (&json!("web"), &json!(true)));
    assert_eq!(shop["packages"][1]["fingerprint"].as_str().unwrap().len(), 64);

    let found = shop["packages"][0]["fingerprint"].clone();
    let sha1 = shop["packages"][0]["sha1"].as_str().unwrap();
    let matches = async |sha1: &str| {
        let manifest = format!(
            "name: shop\nversion: 1\npackages: [{{name: app, version: f, fingerprint: {}, sha1: {sha1}}}, \
             {{name: x, version: f, fingerprint: other, sha1: 0}}]",
            found.as_str().unwrap()
        );
        site.bench.ask(Method::POST, "/packages/matches", manifest).await
    };
    assert_eq!(matches(sha1).await, (StatusCode::OK, json!([found])));
    assert_eq!(matches("0").await, (StatusCode::OK, json!([])), "other bytes are sent");

    site.upload(&without_packages(), false).await.unwrap();
    let existing = ["Processing 2 existing packages", "Processing 2 existing jobs"].map(one);
    assert_eq!(site.seen(), [&steps[..], &existing, &created].concat());
    assert_eq!(site.bench.ask(Method::GET, "/releases", "").await.1, listed);
    let before = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await.1;
    site.upload(SHOP, true).await.unwrap();
    let after = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await.1;
    assert_ne!(before["jobs"][0]["blobstore_id"], after["jobs"][0]["blobstore_id"], "kept anew");
    assert_eq!(site.blobs(), 4, "and nothing of the old");

    let missing = site.delete("shop", Some("2")).await.unwrap_err();
    assert_eq!((missing.code(), missing.to_string().as_str()), (30006, "Release version 'shop/2' doesn't exist"));
    assert_eq!(site.delete("shop", Some("1")).await.unwrap(), "/release/shop");
    assert_eq!(site.seen()[..2], ["Deleting packages: app", "Deleting packages: base"]);
    assert_eq!((site.blobs(), site.bench.ask(Method::GET, "/releases", "").await.1), (0, json!([])));
    assert_eq!(site.delete("shop", None).await.unwrap_err().code(), 30005);
}

#[tokio::test]
async fn a_release_that_cannot_be_taken_leaves_nothing() {
    let site = Site::new().await;
    let refused = site.upload(&without_packages(), false).await.unwrap_err();
    assert!(refused.to_string().contains("upload the whole release"), "{refused}");
    assert_eq!(site.upload(b"not a release", false).await.unwrap_err().code(), 30002);
    assert_eq!(site.bench.ask(Method::GET, "/releases", "").await.1, json!([]));
    // A file that a killed upload left goes with the next.
    std::fs::write(site.folder().join("left"), "x").unwrap();
    site.upload(SHOP, false).await.unwrap();
    assert_eq!(site.blobs(), 4);
}

#[tokio::test]
async fn what_is_too_much_is_refused_and_what_nobody_names_is_collected() {
    let mut site = Site::new().await;
    let limited = |limit| {
        let settings = crate::settings::Settings { blobs_limit: Some(limit), ..Default::default() };
        move |folders: &crate::state_dir::StateDir| crate::blobs::open(&settings, folders, "uuid").unwrap()
    };
    let director = std::sync::Arc::get_mut(&mut site.bench.director).unwrap();
    director.blobs = std::sync::Arc::new(limited(1)(&director.folders));
    let refused = site.upload(SHOP, false).await.unwrap_err();
    assert!(refused.to_string().contains("raise 'blobs_limit' in director.yml"), "{refused}");
    assert_eq!(site.blobs(), 0);
    let director = std::sync::Arc::get_mut(&mut site.bench.director).unwrap();
    director.blobs = std::sync::Arc::new(limited(1 << 30)(&director.folders));
    site.upload(SHOP, false).await.unwrap();
    let made = site.bench.director.folders.kept().join("blobs");
    std::fs::create_dir_all(&made).unwrap();
    for folder in [site.folder(), made.clone()] {
        std::fs::write(folder.join("left"), "x").unwrap();
    }
    let (_, plan) = site.bench.ask(Method::GET, "/cleanup/dryrun?remove_all=true", "").await;
    assert_eq!(plan["unreferenced_blobs"], json!(["releases/left", "blobs/left"]));
    assert_eq!(crate::blobs::remove_unreferenced(&site.bench.director).await.unwrap(), 2);
    assert_eq!((site.blobs(), std::fs::read_dir(made).unwrap().count()), (4, 0));
}

#[tokio::test]
async fn a_download_ends_with_its_task() {
    let site = Site::new().await;
    // It takes connections and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/release.tgz", listener.local_addr().unwrap());
    let log = site.log();
    let download = run_remote(&site.bench.director, &log, (&url, None), ReleaseUpload::default());
    let (ended, ()) = tokio::join!(download, async { log.cancel() });
    let error = ended.unwrap_err();
    assert!(error.is_cancellation(), "{error}");
    assert_eq!(std::fs::read_dir(site.bench.director.folders.temporary()).unwrap().count(), 0);
}
