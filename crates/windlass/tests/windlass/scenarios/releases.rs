//! Releases on the director: uploaded, looked at, deleted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::release::{Job, Package, Release};
use super::stand::{Scene, Stand, group, message};
use crate::api::client::Task;

super::scenarios! {
    "release/upload_release_spec.rb": "can upload a release" =>
        "it is listed with its version and commit, and has its jobs and packages", it_is_listed;
    "release/upload_release_spec.rb": "updates job successfully" =>
        "a tarball whose manifest comes last is taken", in_any_order;
    "release/upload_release_spec.rb": "reuses existing jobs/packages release" =>
        "of the next version only the package that changed is new; the others are told as existing", only_what_changed_is_new;
    "release/upload_release_spec.rb": "cannot upload malformed release" =>
        "an archive that is not what its digest says is refused, and nothing of the release is kept", a_wrong_digest;
    "release/upload_release_spec.rb": "includes no package blobs in the repacked release and uploads it to the director" =>
        "the same release without its packages is taken, and all are told as existing", without_packages;
    "release/upload_release_spec.rb": "does not affect the blobstore ids of the source package blobs" =>
        "the same release again changes nothing of what is known of it", the_same_again;
    "release/upload_release_spec.rb": "accepts the release when the sha1 matches" =>
        "a release of a URL with the right digest is taken", a_url_with_a_digest;
    "release/upload_release_spec.rb": "rejects the release when the sha1 does not match" =>
        "a release of a URL with another digest is refused with both digests", a_url_with_another_digest;
    "release/upload_release_spec.rb": "rejects the release when the sha1 is an unknown algorithm" =>
        "a digest by an unknown algorithm is refused with its name", an_unknown_algorithm;
    "release/upload_release_spec.rb": "does not allow uploading same release version with different commit hash" =>
        "refused with the commit that is known", another_commit;
    "release/upload_release_spec.rb": "raises an error if the uploaded release version already exists but there are packages with different fingerprints" =>
        "refused with the package", another_package;
    "release/upload_release_spec.rb": "raises an error if the uploaded release version already exists but there are jobs with different fingerprints" =>
        "refused with the job", another_job;
    "release/upload_release_spec.rb": "omits identical packages from the repacked tarball and creates new copies of the blobstore entries under the new release" =>
        "a release with the packages of another, sent without them, has archives of its own with the same digests", packages_of_another_release;
    "release/upload_release_spec.rb": "allows uploading two source releases with different version numbers but identical contents" =>
        "both versions are there", the_same_content_twice;
    "release/upload_release_spec.rb": "Re-uploads all packages to replace old ones and eliminates broken compiled packages" =>
        "with fix all archives are replaced and what was compiled is compiled again", a_fix_replaces;
    "release/delete_release_spec.rb": "allows deleting a whole release" =>
        "all versions are gone", it_is_deleted;
    "release/delete_release_spec.rb": "allows deleting a particular release version" =>
        "the other version stays", a_version_is_deleted;
    "release/delete_release_spec.rb": "fails to delete release in use but deletes a different release" =>
        "refused with the deployment's name; another version goes", in_use;
    "release/inspect_release_spec.rb": "shows consumed and provided links of release jobs" =>
        "links of a job have name, type and whether they are optional", links_are_shown;
}

#[test]
fn what_releases_promise() {
    Stand::new().play(SCENARIOS);
}

/// A release with two packages and a job.
fn release(name: &'static str, version: &'static str, content: &'static str) -> Release {
    Release::new(name, version)
        .job(Job::new("web", "packages: [bar, foo]\nconsumes: [{name: db, type: sql, optional: true}]\nprovides: [{name: http, type: http}]"))
        .package(Package::new("bar", &[], content))
        .package(Package::new("foo", &[], "foo"))
}

fn done(task: &Task) {
    assert_eq!(task.state, "done", "{}", message(task));
}

/// All that a task said, in lines of stage and task.
fn said(task: &Task) -> String {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    task.events.iter().map(|event| format!("{}: {}\n", text(event, "stage"), text(event, "task"))).collect()
}

fn versions(scene: &Scene<'_>, name: &str) -> Vec<String> {
    let releases = scene.client().get("/releases");
    let release = releases.as_array().unwrap().iter().find(|release| release["name"] == name).cloned();
    let versions = release.map(|release| release["release_versions"].as_array().unwrap().clone()).unwrap_or_default();
    versions.iter().map(|version| version["version"].as_str().unwrap().to_owned()).collect()
}

fn shown(scene: &Scene<'_>, name: &str, version: &str) -> Value {
    scene.client().get(&format!("/releases/{name}?version={version}"))
}

/// The files of a tarball, in their order.
fn files(tarball: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tarball));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

fn packed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    crate::software::release::archive(&files)
}

fn it_is_listed(scene: &Scene<'_>) {
    let task = scene.stand.try_upload(release("listed", "1", "bar").tarball(), "");
    done(&task);
    assert_eq!(task.result, "Created release 'listed/1'");
    let releases = scene.client().get("/releases");
    let ours = releases.as_array().unwrap().iter().find(|release| release["name"] == "listed").unwrap();
    let version = &ours["release_versions"][0];
    assert_eq!(
        (&version["version"], &version["commit_hash"], &version["uncommitted_changes"]),
        (&json!("1"), &json!("abc"), &json!(false))
    );
    assert_eq!(version["job_names"], json!(["web"]));
    let shown = shown(scene, "listed", "1");
    assert_eq!((&shown["jobs"][0]["name"], shown["packages"].as_array().unwrap().len()), (&json!("web"), 2));
}

fn in_any_order(scene: &Scene<'_>) {
    let mut files = files(&release("unsorted", "1", "bar").tarball());
    files.reverse();
    done(&scene.stand.try_upload(packed(&files), ""));
    assert_eq!(versions(scene, "unsorted"), ["1"]);
}

fn only_what_changed_is_new(scene: &Scene<'_>) {
    let first = said(&scene.stand.try_upload(release("sparse", "1", "bar").tarball(), ""));
    assert!(first.contains("Creating new packages: bar/") && first.contains("Creating new packages: foo/"), "{first}");
    let second = said(&scene.stand.try_upload(release("sparse", "2", "changed").tarball(), ""));
    assert!(
        second.contains("Creating new packages: bar/") && !second.contains("Creating new packages: foo/"),
        "{second}"
    );
    assert!(
        second.contains("Processing 1 existing package") && second.contains("Processing 1 existing job"),
        "{second}"
    );
    assert_eq!(versions(scene, "sparse"), ["1", "2"]);
}

fn a_wrong_digest(scene: &Scene<'_>) {
    let mut files = files(&release("broken", "1", "bar").tarball());
    let other = files.iter().position(|(name, _)| name == "packages/foo.tgz").unwrap();
    files[other].1 = files.iter().find(|(name, _)| name == "packages/bar.tgz").unwrap().1.clone();
    let task = scene.stand.try_upload(packed(&files), "");
    assert_eq!(task.state, "error");
    assert!(message(&task).contains("foo"), "{}", message(&task));
    assert!(versions(scene, "broken").is_empty());
}

fn without_packages(scene: &Scene<'_>) {
    let tarball = release("lean", "1", "bar").tarball();
    done(&scene.stand.try_upload(tarball.clone(), ""));
    let mut files = files(&tarball);
    files.retain(|(name, _)| !name.starts_with("packages/"));
    let task = scene.stand.try_upload(packed(&files), "");
    done(&task);
    let said = said(&task);
    assert!(said.contains("Processing 2 existing packages") && said.contains("Processing 1 existing job"), "{said}");
}

fn the_same_again(scene: &Scene<'_>) {
    let tarball = release("again", "1", "bar").tarball();
    done(&scene.stand.try_upload(tarball.clone(), ""));
    let before = shown(scene, "again", "1");
    done(&scene.stand.try_upload(tarball, ""));
    assert_eq!(shown(scene, "again", "1"), before);
}

fn from_url(scene: &Scene<'_>, name: &'static str, digest: &str) -> Task {
    let tarball = release(name, "1", "bar").tarball();
    let digest = digest.replace("RIGHT", &format!("sha256:{}", crate::software::release::digest(&tarball)));
    let url = crate::replay::serve(BTreeMap::from([("/release.tgz".to_owned(), tarball)]));
    let body = json!({"location": format!("{url}/release.tgz"), "sha1": digest});
    scene.client().task("POST", "/releases", "application/json", body.to_string())
}

fn a_url_with_a_digest(scene: &Scene<'_>) {
    done(&from_url(scene, "remote", "RIGHT"));
    assert_eq!(versions(scene, "remote"), ["1"]);
}

fn a_url_with_another_digest(scene: &Scene<'_>) {
    let task = from_url(scene, "other-digest", "abcd1234abcd1234abcd1234abcd1234abcd1234");
    assert_eq!(task.state, "error");
    assert!(
        message(&task).contains("Expected stream to have digest 'abcd1234abcd1234abcd1234abcd1234abcd1234' but was '"),
        "{}",
        message(&task)
    );
    assert!(versions(scene, "other-digest").is_empty());
}

fn an_unknown_algorithm(scene: &Scene<'_>) {
    let task = from_url(scene, "other-algorithm", "shaxyz:abcd1234");
    assert_eq!(task.state, "error");
    assert!(message(&task).contains("shaxyz"), "{}", message(&task));
}

fn another_commit(scene: &Scene<'_>) {
    let tarball = release("commit", "1", "bar").tarball();
    done(&scene.stand.try_upload(tarball.clone(), ""));
    let mut files = files(&tarball);
    let manifest = String::from_utf8(files[0].1.clone()).unwrap().replace("commit_hash: abc", "commit_hash: def");
    files[0].1 = manifest.into_bytes();
    let task = scene.stand.try_upload(packed(&files), "");
    let expected =
        "release 'commit/1' has already been uploaded with commit_hash as 'abc' and uncommitted_changes as 'false'";
    assert_eq!((task.state.as_str(), message(&task).contains(expected)), ("error", true), "{}", message(&task));
}

fn another_package(scene: &Scene<'_>) {
    done(&scene.stand.try_upload(release("prints", "1", "bar").tarball(), ""));
    let task = scene.stand.try_upload(release("prints", "1", "changed").tarball(), "");
    let expected = "package 'bar' had different fingerprint in previously uploaded release 'prints/1'";
    assert_eq!((task.state.as_str(), message(&task).contains(expected)), ("error", true), "{}", message(&task));
}

fn another_job(scene: &Scene<'_>) {
    let with_job = |text: &str| Release::new("jobs", "1").job(Job::new("web", "").template("file", text));
    done(&scene.stand.try_upload(with_job("one").tarball(), ""));
    let task = scene.stand.try_upload(with_job("two").tarball(), "");
    let expected = "job 'web' had different fingerprint in previously uploaded release 'jobs/1'";
    assert_eq!((task.state.as_str(), message(&task).contains(expected)), ("error", true), "{}", message(&task));
}

fn packages_of_another_release(scene: &Scene<'_>) {
    done(&scene.stand.try_upload(release("owner", "1", "bar").tarball(), ""));
    let mut files = files(&release("borrower", "1", "bar").tarball());
    files.retain(|(name, _)| !name.starts_with("packages/"));
    done(&scene.stand.try_upload(packed(&files), ""));
    let of = |name: &str, key: &str| -> Vec<String> {
        shown(scene, name, "1")["packages"].as_array().unwrap().iter().map(|package| package[key].to_string()).collect()
    };
    assert_eq!(of("borrower", "sha1"), of("owner", "sha1"));
    assert!(of("borrower", "blobstore_id").iter().all(|blob| !of("owner", "blobstore_id").contains(blob)));
}

fn the_same_content_twice(scene: &Scene<'_>) {
    for version in ["1", "2"] {
        done(&scene.stand.try_upload(release("twice", version, "bar").tarball(), ""));
    }
    assert_eq!(versions(scene, "twice"), ["1", "2"]);
}

fn deploys(scene: &Scene<'_>, release: &str, version: &str) -> Task {
    let mut manifest = scene.manifest_of(
        &scene.name,
        &[release],
        json!([group("web", 1, json!([{"name": "web", "release": release}]))]),
    );
    manifest["releases"][0]["version"] = json!(version);
    scene.deploy_manifest(&manifest)
}

fn a_fix_replaces(scene: &Scene<'_>) {
    let tarball = release("fixed", "1", "to be fixed").tarball();
    done(&scene.stand.try_upload(tarball.clone(), ""));
    deploys(scene, "fixed", "1");
    let before = shown(scene, "fixed", "1");
    assert!(
        before["packages"]
            .as_array()
            .unwrap()
            .iter()
            .all(|package| !package["compiled_packages"].as_array().unwrap().is_empty())
    );
    done(&scene.stand.try_upload(tarball, "?fix=true"));
    let after = shown(scene, "fixed", "1");
    for (before, after) in before["packages"].as_array().unwrap().iter().zip(after["packages"].as_array().unwrap()) {
        assert_ne!(before["blobstore_id"], after["blobstore_id"]);
        assert_eq!(after["compiled_packages"], json!([]), "{after}");
    }
    assert_ne!(before["jobs"][0]["blobstore_id"], after["jobs"][0]["blobstore_id"]);
}

fn delete(scene: &Scene<'_>, path: &str) -> Task {
    scene.client().task("DELETE", &format!("/releases/{path}"), "", "")
}

fn it_is_deleted(scene: &Scene<'_>) {
    for version in ["1", "2"] {
        done(&scene.stand.try_upload(release("gone", version, "bar").tarball(), ""));
    }
    done(&delete(scene, "gone"));
    assert!(versions(scene, "gone").is_empty());
}

fn a_version_is_deleted(scene: &Scene<'_>) {
    for version in ["1", "2"] {
        done(&scene.stand.try_upload(release("half", version, "bar").tarball(), ""));
    }
    done(&delete(scene, "half?version=1"));
    assert_eq!(versions(scene, "half"), ["2"]);
}

fn in_use(scene: &Scene<'_>) {
    for version in ["1", "2"] {
        done(&scene.stand.try_upload(release("used", version, "bar").tarball(), ""));
    }
    deploys(scene, "used", "1");
    let task = delete(scene, "used");
    assert_eq!(task.state, "error");
    assert!(message(&task).contains("Release 'used' is still in use"), "{}", message(&task));
    let task = delete(scene, "used?version=1");
    assert!(message(&task).contains(&scene.name), "{}", message(&task));
    done(&delete(scene, "used?version=2"));
    assert_eq!(versions(scene, "used"), ["1"]);
}

fn links_are_shown(scene: &Scene<'_>) {
    done(&scene.stand.try_upload(release("linked", "1", "bar").tarball(), ""));
    let job = shown(scene, "linked", "1")["jobs"][0].clone();
    assert_eq!(job["consumes"], json!([{"name": "db", "type": "sql", "optional": true}]), "{job}");
    assert_eq!(job["provides"], json!([{"name": "http", "type": "http"}]), "{job}");
}
