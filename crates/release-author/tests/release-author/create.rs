//! `create-release` and what it leaves in a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use windlass_release_author::{BuiltRelease, Create};

use crate::shop::{Site, files, recorded, tarball};

#[test]
fn the_originals_sources_have_the_originals_fingerprints() {
    let site = Site::shop();
    let (release, said) = site.create(&Create::default()).unwrap();
    let (recorded, found) = (recorded(), windlass_release::ReleaseManifest::parse(&release.manifest()).unwrap());
    let names = |manifest: &windlass_release::ReleaseManifest| {
        let jobs = manifest.jobs.iter().map(|job| format!("{}/{}", job.name, job.fingerprint));
        let packages =
            manifest.packages.iter().map(|it| format!("{}/{} {:?}", it.name, it.fingerprint, it.dependencies));
        jobs.chain(packages).collect::<Vec<_>>()
    };
    assert_eq!(names(&found), names(&recorded));
    assert_eq!((found.name.as_str(), found.version.as_str()), ("shop", "0+dev.1"));
    assert_eq!(found.commit_hash.as_deref(), Some("non-git"));
    assert_eq!(said.last().map(String::as_str), Some("Added dev release 'shop/0+dev.1'"));
    assert_eq!(said.iter().filter(|line| line.starts_with("Adding ")).count(), 4);
}

#[test]
fn a_directory_has_the_originals_files_and_a_second_release_makes_nothing_anew() {
    let site = Site::shop();
    let (first, _) = site.create(&Create::default()).unwrap();
    let web = &first.jobs[1].part;
    let index = format!(
        "builds:\n  {0}:\n    version: {0}\n    sha1: {1}\nformat-version: \"2\"\n",
        web.fingerprint, web.digest
    );
    assert_eq!(site.read(".dev_builds/jobs/web/index.yml"), index);
    assert_eq!(site.read("dev_releases/shop/shop-0+dev.1.yml"), first.manifest());
    let versions = site.read("dev_releases/shop/index.yml");
    assert!(
        versions.starts_with("builds:\n  ") && versions.ends_with(":\n    version: 0+dev.1\nformat-version: \"2\"\n")
    );
    assert!(site.cache().join(&web.digest).is_file());
    let (second, said) = site.create(&Create::default()).unwrap();
    assert_eq!(said, ["Added dev release 'shop/0+dev.2'"]);
    assert_eq!(second.manifest().replace("dev.2", "dev.1"), first.manifest());

    // Archives that are lost are made again with the same bytes.
    fs::remove_dir_all(site.cache()).unwrap();
    let (third, _) = site.create(&Create::default()).unwrap();
    assert_eq!(third.manifest().replace("dev.3", "dev.1"), first.manifest());
}

#[test]
fn versions_are_the_next_the_given_or_the_time() {
    let site = Site::shop();
    let create = |options: Create| site.create(&options).map(|(release, _)| release.version);
    assert_eq!(create(Create { version: Some("2.1".into()), ..Create::default() }).unwrap(), "2.1");
    assert_eq!(create(Create::default()).unwrap(), "2.1+dev.1");
    let timed = create(Create { timestamp: true, ..Create::default() }).unwrap();
    assert!(timed.starts_with("2.1+dev.1") && timed.len() > 12, "{timed}");
    let again = create(Create { version: Some("2.1".into()), ..Create::default() }).unwrap_err();
    assert_eq!(again.to_string(), "Release version '2.1' already exists; give another --version, or none");
    let wrong = create(Create { version: Some("a b".into()), ..Create::default() }).unwrap_err();
    assert_eq!(wrong.to_string(), "Release version invalid: a b");
    let named = site.create(&Create { name: Some("other".into()), ..Create::default() }).unwrap().0;
    assert_eq!((named.name.as_str(), named.version.as_str()), ("other", "0+dev.1"));
}

#[test]
fn a_tarball_is_one_that_directors_take() {
    let site = Site::shop();
    site.write("LICENSE", b"free\n");
    let (release, _) = site.create(&Create::default()).unwrap();
    let path = site.folder.path().join("shop.tgz");
    release.write_tarball(&path, &[]).unwrap();
    let files_there = files(fs::read(&path).unwrap());
    let names: Vec<&str> = files_there.keys().map(String::as_str).collect();
    let expected = [
        "LICENSE",
        "jobs/smoke.tgz",
        "jobs/web.tgz",
        "license.tgz",
        "packages/app.tgz",
        "packages/base.tgz",
        "release.MF",
    ];
    assert_eq!(names, expected);
    let read = BuiltRelease::of_tarball(&path).unwrap();
    assert_eq!(read.manifest(), release.manifest());
    let job = files(files_there["jobs/web.tgz"].clone());
    let original = files(files(fs::read(tarball()).unwrap())["jobs/web.tgz"].clone());
    assert_eq!(job, original);

    let without = vec![release.packages[0].part.fingerprint.clone()];
    release.write_tarball(&path, &without).unwrap();
    assert!(!files(fs::read(&path).unwrap()).contains_key("packages/app.tgz"));
}

#[test]
fn a_package_is_prepared_by_its_script() {
    let site = Site::shop();
    site.write(
        "packages/app/pre_packaging",
        b"echo $RELEASE_DIR > made; mkdir -p deep; cp packaging deep/; rm -r app\n",
    );
    let (release, _) = site.create(&Create::default()).unwrap();
    let app = files(fs::read(&release.packages[0].part.archive).unwrap());
    assert_eq!(app.keys().collect::<Vec<_>>(), ["deep/packaging", "made", "packaging"]);
    assert_eq!(String::from_utf8_lossy(&app["made"]).trim(), site.path().display().to_string());

    site.write("packages/app/pre_packaging", b"echo before\necho why >&2\nexit 3\n");
    let failed = site.create(&Create::default()).unwrap_err().to_string();
    assert!(failed.contains("app/pre_packaging' failed: exit status: 3") && failed.contains("why"), "{failed}");
}

#[test]
fn links_and_modes_are_packed_as_they_are() {
    let site = Site::shop();
    site.write("src/app/tool", b"x");
    fs::set_permissions(site.path().join("src/app/tool"), fs::Permissions::from_mode(0o700)).unwrap();
    let long = format!("{}/{}", "d".repeat(90), "n".repeat(90));
    site.write(&format!("src/app/{long}"), b"far");
    std::os::unix::fs::symlink("tool", site.path().join("src/app/link")).unwrap();
    site.write("packages/app/spec", b"name: app\ndependencies: [base]\nfiles: [app/**/*]\n");
    let (release, _) = site.create(&Create::default()).unwrap();
    let archive = fs::read(&release.packages[0].part.archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive.as_slice()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let link = entry.link_name().unwrap().map(|target| target.display().to_string()).unwrap_or_default();
        found.push(format!("{name} {:o} {link}", entry.header().mode().unwrap()));
    }
    assert!(found.contains(&"./app/tool 755 ".to_owned()), "{found:?}");
    assert!(found.contains(&"./app/link 777 tool".to_owned()), "{found:?}");
    assert!(found.contains(&format!("./app/{long} 644 ")), "{found:?}");
    assert_eq!(found[0].split(' ').next(), Some("./"));
}

#[test]
fn a_final_release_is_kept_in_the_store_and_found_there() {
    let site = Site::shop();
    let refused = site.create(&Create { is_final: true, ..Create::default() }).unwrap_err().to_string();
    assert!(refused.contains("Expected release blobstore to be configured"), "{refused}");
    assert!(!site.path().join("dev_releases").exists(), "nothing was made");
    site.write("config/final.yml", b"name: shop\nblobstore: {provider: local, options: {blobstore_path: ../store}}\n");
    let (release, said) = site.create(&Create { is_final: true, ..Create::default() }).unwrap();
    assert_eq!(release.version, "1");
    assert_eq!(said.last().map(String::as_str), Some("Added final release 'shop/1'"));
    assert!(said.iter().any(|line| line.starts_with("-- Started uploading 'web/")), "{said:?}");
    assert_eq!(fs::read_dir(site.folder.path().join("store")).unwrap().count(), 4);
    assert!(site.read(".final_builds/packages/app/index.yml").contains("    blobstore_id: "));
    assert!(site.read("releases/shop/index.yml").contains("    version: \"1\"\n"));

    // Somebody else has neither the archives nor what was made here.
    fs::remove_dir_all(site.cache()).unwrap();
    site.directory().reset(&mut |_| {}).unwrap();
    let (again, said) = site.create(&Create::default()).unwrap();
    assert_eq!(again.version, "1+dev.1");
    assert!(said.iter().any(|line| line.starts_with("-- Finished downloading 'web/")), "{said:?}");
    assert!(!site.path().join(".dev_builds").exists(), "nothing was made");
    let found = site.directory().find(None, Some("1"), &mut |_| {}).unwrap();
    assert_eq!(found.manifest(), release.manifest());
    let twice = site.create(&Create { is_final: true, version: Some("1".into()), ..Create::default() }).unwrap_err();
    assert_eq!(twice.to_string(), "Release 'shop' version '1' already exists");
}
