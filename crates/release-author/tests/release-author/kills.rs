//! A command that is killed at any point, and the next try.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use windlass_durable::kill_point::KILL_AT;
use windlass_durable::sweep::Points;
use windlass_release_author::{BuiltRelease, Create};

use crate::shop::Site;

fn create(site: &Site, kill_at: Option<u64>) -> ExitStatus {
    let mut command = Command::new(env!("CARGO_BIN_EXE_create-release"));
    command.arg(site.path()).arg(site.cache()).arg(site.folder.path().join("shop.tgz"));
    if let Some(point) = kill_at {
        command.env(KILL_AT, point.to_string());
    }
    command.status().unwrap()
}

#[test]
fn a_release_that_is_killed_anywhere_is_created_by_the_next_try() {
    for point in Points::sampled(3) {
        let site = Site::shop();
        let store = b"name: shop\nblobstore: {provider: local, options: {blobstore_path: ../store}}\n";
        site.write("config/final.yml", store);
        let first = create(&site, Some(point));
        if first.success() {
            assert!(point > 40, "there must be more points than {point}");
            return;
        }
        assert_eq!(first.signal(), Some(9), "{first}");
        assert!(create(&site, None).success(), "killed at point {point}");
        let tarball = BuiltRelease::of_tarball(&site.folder.path().join("shop.tgz")).unwrap();
        assert_eq!(tarball.packages.len(), 2, "killed at point {point}");
        // A clone finds all that is on record.
        fs::remove_dir_all(site.cache()).unwrap();
        site.directory().reset(&mut |_| {}).unwrap();
        site.create(&Create::default()).unwrap();
        assert!(!site.path().join(".dev_builds").exists(), "killed at point {point}");
    }
}
