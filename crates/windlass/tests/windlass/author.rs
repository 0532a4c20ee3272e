//! Release directories as their authors use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::Site;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A release directory and a home of its own.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello");
        copy(&hello, &desk.release());
        desk
    }

    fn release(&self) -> PathBuf {
        self.0.path().join("hello-release")
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(WINDLASS);
        command.args(arguments).current_dir(self.release()).env("HOME", self.0.path());
        let output = command.output().unwrap();
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
            false => {
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }
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
