//! Namespaces of a test's own, and loop devices that do not outlive it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says to the process inside where its temporary files are.
const INSIDE: &str = "WINDLASS_TEST_INSIDE";

/// Runs `body` in private network, mount, process and name namespaces. `test` is the full name of the calling test, because
/// it is what runs there. Needs root; says so and does nothing otherwise.
pub(super) fn in_namespaces(test: &str, body: impl AsyncFnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        run("ip", ["link", "set", "lo", "up"]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(body());
    }
    if !rustix::process::geteuid().is_root() {
        return println!("{test} needs root, so it did not run");
    }
    let folder = tempfile::tempdir().unwrap();
    // `unshare` passes over interrupts, so it is ended with the test that waits for it.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--uts",
            "--propagation",
            "private",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, folder.path())
        .env("TMPDIR", folder.path())
        .status()
        .unwrap();
    detach_all(folder.path());
    assert!(status.success(), "{test} failed inside of its namespaces: {status}");
}

/// Detaches the loop devices of images in a folder, should the process inside have died before it did.
fn detach_all(folder: &Path) {
    let list = run("losetup", ["--list", "--noheadings", "--output", "NAME,BACK-FILE"]);
    for line in list.lines() {
        if let Some((device, image)) = line.split_once(char::is_whitespace)
            && Path::new(image.trim()).starts_with(folder)
        {
            detach(device);
        }
    }
}

/// Detaches a loop device; one that is still mounted goes with the namespace. Its partitions would stay for the next user of the
/// device next.
fn detach(device: &str) {
    for (program, argument) in [("partx", "--delete"), ("losetup", "--detach")] {
        // With none to delete, it complains.
        let _ = Command::new(program).args([argument, device]).output();
    }
}

/// Runs a program and returns what it said.
pub(super) fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A sparse file as a block device.
#[derive(Debug)]
pub(super) struct LoopDisk {
    pub(super) image: PathBuf,
    /// Its name in `/dev`.
    pub(super) name: String,
}

impl LoopDisk {
    pub(super) fn attach(image: PathBuf, size: u64) -> Self {
        let file = std::fs::File::options().create(true).append(true).open(&image).unwrap();
        if file.metadata().unwrap().len() == 0 {
            file.set_len(size).unwrap();
        }
        // Others look for a free device at the same time.
        for _ in 0..20 {
            let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().unwrap();
            if output.status.success() {
                let device = String::from_utf8(output.stdout).unwrap();
                return Self { image, name: device.trim().trim_start_matches("/dev/").to_owned() };
            }
        }
        panic!("no loop device for {}", image.display());
    }

    pub(super) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    pub(super) fn minor(&self) -> u32 {
        self.name.trim_start_matches("loop").parse().unwrap()
    }

    /// Makes the disk larger, as a cloud does.
    pub(super) fn grow(&self, size: u64) {
        std::fs::File::options().append(true).open(&self.image).unwrap().set_len(size).unwrap();
        run("losetup", ["--set-capacity", &self.path()]);
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        detach(&self.path());
    }
}
