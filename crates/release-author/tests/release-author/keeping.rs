//! Blobs, final releases of tarballs, and packages of others.

use std::fs;

use windlass_release_author::built::Algorithm;
use windlass_release_author::{BuiltRelease, Create};

use crate::shop::{Site, tarball, text};

const STORE: &[u8] = b"name: shop\nblobstore: {provider: local, options: {blobstore_path: ../store}}\n";

/// A repository can bring such a link along.
#[test]
fn what_is_behind_a_link_called_blobs_is_not_touched() {
    let site = Site::shop();
    let outside = site.folder.path().join("precious");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("letter"), "mine").unwrap();
    let blobs = site.path().join("blobs");
    fs::remove_dir_all(&blobs).ok();
    std::os::unix::fs::symlink(&outside, &blobs).unwrap();
    let create = Create { force: true, ..Create::default() };
    for refused in [site.directory().blobs().sync(&mut |_| {}).unwrap_err(), site.create(&create).unwrap_err()] {
        assert!(refused.to_string().contains("symlinks found in blobs"), "{refused}");
    }
    assert_eq!(fs::read_to_string(outside.join("letter")).unwrap(), "mine");
}

#[test]
fn what_is_behind_links_in_place_of_builds_releases_and_packages_is_not_touched() {
    for place in [".dev_builds", ".dev_builds/jobs", ".final_builds", "dev_releases", "dev_releases/shop"] {
        let site = Site::shop();
        let outside = site.folder.path().join("precious");
        fs::create_dir(&outside).unwrap();
        let link = site.path().join(place);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        fs::remove_dir_all(&link).ok();
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        let refused = site.create(&Create { force: true, ..Create::default() }).unwrap_err().to_string();
        assert!(refused.contains(place) && refused.contains("is a link"), "{refused}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{place}");
    }
    let (from, to) = (Site::shop(), Site::empty());
    from.create(&Create::default()).unwrap();
    to.directory().init(false).unwrap();
    to.write("config/final.yml", STORE);
    let outside = to.folder.path().join("precious");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("letter"), "mine").unwrap();
    std::os::unix::fs::symlink(&outside, to.path().join("packages/app")).unwrap();
    let refused = to.directory().vendor("app", &from.directory(), "", &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("packages/app' is a link"), "{refused}");
    assert_eq!(fs::read_to_string(outside.join("letter")).unwrap(), "mine");
}

#[test]
fn blobs_are_added_kept_fetched_and_removed() {
    let site = Site::empty();
    site.directory().init(false).unwrap();
    site.write("config/final.yml", STORE);
    let blobs = site.directory().blobs();
    let big = site.folder.path().join("big");
    fs::write(&big, "large").unwrap();
    for path in ["../out", "/abs", "a/../b", "a/", ""] {
        let refused = blobs.add(&big, path, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(refused, format!("Invalid blob path '{path}': must be a safe local path"));
    }
    assert_eq!(site.read("config/blobs.yml"), "--- {}\n");
    let mut said = Vec::new();
    blobs.add(&big, "go/go.tgz", &mut |it| said.push(text(it))).unwrap();
    assert_eq!(said, ["Added blob 'go/go.tgz'"]);
    let listed = blobs.list().unwrap();
    assert_eq!((listed[0].size, listed[0].id.clone()), (5, None));
    assert!(listed[0].digest.starts_with("sha256:"), "{listed:?}");
    assert_eq!(site.read("config/blobs.yml"), format!("go/go.tgz:\n  size: 5\n  sha: {}\n", listed[0].digest));

    blobs.upload(&mut |_| {}).unwrap();
    let id = blobs.list().unwrap()[0].id.clone().unwrap();
    let index = format!("go/go.tgz:\n  size: 5\n  object_id: {id}\n  sha: {}\n", listed[0].digest);
    assert_eq!(site.read("config/blobs.yml"), index);

    // What is missing or damaged is fetched, what is not listed goes.
    site.write("blobs/go/go.tgz", b"other");
    site.write("blobs/stray", b"x");
    blobs.sync(&mut |_| {}).unwrap();
    assert_eq!(site.read("blobs/go/go.tgz"), "large");
    assert!(!site.path().join("blobs/stray").exists());

    // What the store has is not what it should be.
    fs::write(site.folder.path().join("store").join(&id), "other").unwrap();
    fs::remove_file(site.path().join("blobs/go/go.tgz")).unwrap();
    let refused = blobs.sync(&mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("is not what its digest says"), "{refused}");
    assert_eq!(fs::read_dir(site.path().join("blobs/go")).unwrap().count(), 0, "nothing of it stays");

    std::os::unix::fs::symlink("nowhere", site.path().join("blobs/link")).unwrap();
    assert!(blobs.sync(&mut |_| {}).unwrap_err().to_string().contains("symlinks found in blobs"));
    blobs.remove("go/go.tgz", &mut |_| {}).unwrap();
    assert_eq!(site.read("config/blobs.yml"), "{}\n");
}

#[test]
fn a_package_is_vendored_with_what_it_needs() {
    let (from, to) = (Site::shop(), Site::empty());
    from.create(&Create::default()).unwrap();
    to.directory().init(false).unwrap();
    to.write("config/final.yml", STORE);
    to.directory().vendor("app", &from.directory(), "", &mut |_| {}).unwrap();
    let lock = to.read("packages/app/spec.lock");
    assert!(lock.starts_with("name: app\nfingerprint: ") && lock.ends_with("dependencies:\n- base\n"), "{lock}");
    assert!(to.read("packages/base/spec.lock").starts_with("name: base\n"));
    let (release, _) = to.create(&Create::default()).unwrap();
    assert_eq!(release.packages.len(), 2);

    // The sources that somebody had make way.
    to.write("packages/other-app/spec", b"name: other-app\n");
    to.directory().vendor("app", &from.directory(), "other", &mut |_| {}).unwrap();
    assert!(to.read("packages/other-app/spec.lock").ends_with("dependencies:\n- other-base\n"));
    assert!(!to.path().join("packages/other-app/spec").exists());
    let unknown = to.directory().vendor("nobody", &from.directory(), "", &mut |_| {}).unwrap_err();
    assert!(unknown.to_string().starts_with("Expected to find package 'nobody'"), "{unknown}");
}

#[test]
fn a_tarball_is_finished_and_its_digests_are_said_anew() {
    let site = Site::empty();
    site.directory().init(false).unwrap();
    site.write("config/final.yml", STORE);
    let mut release = BuiltRelease::of_tarball(&tarball()).unwrap();
    site.directory().finalize(&mut release, None, false, &mut |_| {}).unwrap();
    assert_eq!(release.version, "1");
    let twice = site.directory().finalize(&mut release, Some("1"), false, &mut |_| {}).unwrap_err();
    assert_eq!(twice.to_string(), "Release 'shop' version '1' already exists");
    site.directory().finalize(&mut release, None, false, &mut |_| {}).unwrap();
    assert_eq!(release.version, "2");

    let (old, new) = (site.folder.path().join("old.tgz"), site.folder.path().join("new.tgz"));
    release.rehash(Algorithm::Sha1).unwrap();
    release.write_tarball(&old, &[]).unwrap();
    let mut read = BuiltRelease::of_tarball(&old).unwrap();
    assert_eq!(read.jobs[0].part.digest.len(), 40);
    read.rehash(Algorithm::Sha256).unwrap();
    read.write_tarball(&new, &[]).unwrap();
    let original = BuiltRelease::of_tarball(&tarball()).unwrap();
    let digest = |release: &BuiltRelease| release.jobs[0].part.digest.clone();
    assert_eq!(digest(&BuiltRelease::of_tarball(&new).unwrap()), digest(&original));
}
