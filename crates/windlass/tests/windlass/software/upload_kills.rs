//! The director dies at any point of an upload; the next upload repairs what it left, and clean-up finds what nothing has on record.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use windlass_database::sqlx::{self, Connection};
use windlass_durable::sweep::Points;

use super::release::{Sources, digest};
use crate::site::Site;

struct Upload {
    site: Site,
    tarball: String,
    /// Digests of the release's job and packages.
    archives: BTreeSet<String>,
}

impl Upload {
    fn new() -> Self {
        let site = Site::start();
        let tarball = site.file("greeter.tgz");
        Sources::default().write(&tarball);
        let mut upload = Self { tarball: tarball.to_str().unwrap().to_owned(), site, archives: BTreeSet::new() };
        upload.site.ok(&["upload-release", &upload.tarball]);
        upload.archives = upload.kept();
        assert_eq!(upload.archives.len(), 3, "a job and two packages");
        upload
    }

    /// Has the director die at a point of an upload. False if it outlives it.
    fn is_killed_at(&mut self, point: u64, how: &[&str]) -> bool {
        self.site.kill_director();
        self.site.start_director(Some(point));
        let survived = self.site.try_while_director_runs(&[&["upload-release", &self.tarball], how].concat());
        self.site.kill_director();
        !survived
    }

    /// Digests of what is kept of releases.
    fn kept(&self) -> BTreeSet<String> {
        let files = files(self.site.state_dir().join("releases"));
        let digests: BTreeSet<String> = files.iter().map(|path| digest(&fs::read(path).unwrap())).collect();
        assert_eq!(digests.len(), files.len(), "an archive is kept twice");
        digests
    }

    fn whole_release_is_there(&self, point: u64) {
        assert_eq!(self.site.rows(&["releases"]).len(), 1, "killed at point {point}");
        assert_eq!(self.kept(), self.archives, "killed at point {point}");
    }

    /// Every file of a run that is over is gone, with its folder; the run that goes on has an empty one.
    fn nothing_is_left_in_tmp(&mut self, point: u64) {
        let tmp = self.site.state_dir().join("tmp");
        // A director removes what an earlier run left while it serves.
        self.site.wait_until(&format!("killed at point {point}: an empty tmp/"), |_| {
            let runs = files(tmp.clone());
            runs.len() == 1 && files(runs[0].clone()).is_empty()
        });
    }

    fn clean_up(&mut self, point: u64) {
        self.site.ok(&["-n", "clean-up", "--all"]);
        assert!(self.site.rows(&["releases"]).is_empty(), "killed at point {point}");
        assert!(self.kept().is_empty(), "killed at point {point}: {:?}", self.kept());
        self.nothing_is_left_in_tmp(point);
    }

    /// Has the next director end the task that was killed, as it does with one that was killed three times.
    fn give_up_killed_task(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sqlx::any::install_default_drivers();
            let url = format!("sqlite:{}", self.site.state_dir().join("director.db").display());
            let mut database = sqlx::AnyConnection::connect(&url).await.unwrap();
            let update = sqlx::query("UPDATE tasks SET tries = 3 WHERE state = 'processing'");
            update.execute(&mut database).await.unwrap();
            database.close().await.unwrap();
        });
    }
}

fn files(folder: PathBuf) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Kills uploads of a release that is there already, or not. The task goes on, and the same upload finds everything in its place.
fn the_next_upload_repairs(name: &str, how: &[&str]) {
    let mut upload = Upload::new();
    let mut kills = 0;
    for point in Points::sampled(9) {
        if how.is_empty() {
            upload.clean_up(point);
        }
        let killed = upload.is_killed_at(point, how);
        upload.site.start_director(None);
        if killed {
            kills += 1;
            if upload.site.sees_killed_task_go_on() {
                upload.whole_release_is_there(point);
                upload.nothing_is_left_in_tmp(point);
            }
            upload.site.ok(&["upload-release", &upload.tarball]);
        }
        upload.whole_release_is_there(point);
        upload.nothing_is_left_in_tmp(point);
        if !killed {
            println!("{name}: {kills} kills at points up to {point}");
            break;
        }
    }
    upload.clean_up(u64::MAX);
}

#[test]
fn an_upload_that_is_killed_anywhere_is_repaired_by_the_next() {
    the_next_upload_repairs("upload-release", &[]);
}

#[test]
fn an_upload_that_mends_a_release_and_is_killed_anywhere_is_repaired_by_the_next() {
    the_next_upload_repairs("upload-release --fix", &["--fix"]);
}

#[test]
fn an_upload_that_is_killed_anywhere_and_given_up_leaves_nothing_after_a_clean_up() {
    let mut upload = Upload::new();
    upload.clean_up(0);
    for (kills, point) in Points::sampled(9).enumerate() {
        let killed = upload.is_killed_at(point, &[]);
        upload.give_up_killed_task();
        upload.site.start_director(None);
        upload.nothing_is_left_in_tmp(point);
        upload.clean_up(point);
        if !killed {
            println!("upload-release, given up: {kills} kills at points up to {point}");
            return;
        }
    }
}
