//! Release directories as their authors use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use windlass_durable::sweep::Points;

use crate::site::Site;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A release directory, a store and a home of their own.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello");
        copy(&hello, &desk.release());
        let config = "name: hello\nblobstore: {provider: local, options: {blobstore_path: ../store}}\n";
        fs::write(desk.release().join("config/final.yml"), config).unwrap();
        desk
    }

    fn release(&self) -> PathBuf {
        self.0.path().join("hello-release")
    }

    fn run(&self, arguments: &[&str], kill_at: Option<u64>) -> Output {
        let mut command = Command::new(WINDLASS);
        command.args(arguments).current_dir(self.release()).env("HOME", self.0.path());
        command.env("GIT_CEILING_DIRECTORIES", self.0.path());
        if let Some(point) = kill_at {
            command.env(windlass_durable::kill_point::KILL_AT, point.to_string());
        }
        command.output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, None);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        let is_made = |name: &str| [".dev_builds", "dev_releases", "blobs"].contains(&name);
        match entry.file_type().unwrap().is_dir() {
            true if is_made(&entry.file_name().to_string_lossy()) => {}
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn a_release_that_is_killed_anywhere_is_created_by_the_next_try() {
    let create = ["create-release", "--final", "--tarball", "hello.tgz"];
    let mut kills = 0;
    for point in Points::sampled(3) {
        let desk = Desk::new();
        let output = desk.run(&create, Some(point));
        if output.status.success() {
            break;
        }
        kills += 1;
        desk.ok(&["create-release", "--final", "--tarball", "hello.tgz"]);
        let shown = desk.ok(&["inspect-local-release", "hello.tgz"]);
        assert!(shown.contains("hello/"), "killed at point {point}: {shown}");
        // Whoever fetches it finds all that is on record.
        fs::remove_dir_all(desk.0.path().join(".bosh")).unwrap();
        desk.ok(&["reset-release"]);
        desk.ok(&["create-release", "--tarball", "again.tgz"]);
        assert!(!desk.release().join(".dev_builds").exists(), "killed at point {point}");
    }
    assert!(kills > 5, "{kills}");
}

#[test]
fn a_directory_becomes_a_release_on_the_director_and_its_packages_are_sent_once() {
    let (desk, site) = (Desk::new(), Site::start());
    let shown = desk.ok(&["create-release", "--tty"]);
    for words in ["Adding job 'hello/", "Added package 'hello/", "Added dev release 'hello/0+dev.1'", "1 packages"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let folder = desk.release();
    let folder = folder.to_str().unwrap();
    let upload = |arguments: &[&str]| {
        let mut command = Command::new(WINDLASS);
        command.args(["--tty", "--state-dir", site.state_dir().to_str().unwrap(), "upload-release"]).args(arguments);
        let output = command.env("HOME", desk.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(upload(&["--dir", folder]).contains("Creating new packages"));
    fs::write(desk.release().join("jobs/hello/monit"), "# another\n").unwrap();
    desk.ok(&["create-release"]);
    let second = upload(&[folder]);
    assert!(second.contains("Processing 1 existing package") && second.contains("Creating new jobs"), "{second}");
    // The package's archive is not in what was sent: a director that lost it would have to say so.
    assert!(site.ok(&["releases"]).contains("0+dev.2"));
}
