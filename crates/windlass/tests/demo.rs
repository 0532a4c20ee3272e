//! The demo is what a newcomer sees first: it must work anywhere, and leave nothing behind, whenever it is interrupted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

const PATIENCE: Duration = Duration::from_secs(60);

/// A demo that is ended with the test, if it has not ended by itself.
struct Demo(Child);

impl Demo {
    fn start(state_dir: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("demo").arg("--state-dir").arg(state_dir).args(more);
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// Reads until a line begins with `beginning`.
    fn read_until(&mut self, beginning: &str) -> String {
        let mut output = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "'{beginning}' never came:\n{text}");
            text.push_str(&line);
            if line.starts_with(beginning) {
                return text;
            }
        }
    }

    fn read_all(&mut self) -> String {
        let mut text = String::new();
        self.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_raw(self.0.id() as i32).unwrap(), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the demo does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // It cleans up after itself when asked, but not when killed.
            self.signal(Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// Processes of this machine that name `path`.
fn processes_about(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let lines = processes.filter_map(|process| std::fs::read(process.join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(&path)).collect()
}

fn assert_nothing_is_left(state_dir: &Path) {
    assert_eq!(processes_about(state_dir), Vec::<String>::new());
    assert!(!state_dir.exists());
}

/// The whole story, with VMs of one kind.
fn shows_everything(more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = folder.path().join("state");
    let mut demo = Demo::start(&state_dir, more);
    let text = demo.read_all();
    assert!(demo.wait().success(), "{text}");
    for expected in [
        "$ windlass deploy -n deployment.yml",
        "create VM: the instance is new",
        "The disk is the same:",
        "the disk grows from 64 MiB to 128 MiB",
        "nobody needs a registry",
        "Orphaned At",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    assert!(text.matches("\nwritten before the VM died\n").count() >= 2, "{text}");
    assert_nothing_is_left(&state_dir);
}

/// As root, that is in containers, on a machine of the demo's own.
#[test]
fn the_demo_shows_that_a_disk_survives_its_vm_and_leaves_nothing_behind() {
    shows_everything(&[]);
}

#[test]
fn the_demo_needs_no_privileges() {
    shows_everything(&["--isolation", "process"]);
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for moment in ["1. ", "$ windlass upload-stemcell", "Task 2 |", "(waiting for the resurrector)", "Task 6 |", "9. "]
    {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        let mut demo = Demo::start(&state_dir, &[]);
        demo.read_until(moment);
        demo.signal(Signal::INT);
        let rest = demo.read_all();
        assert_eq!(demo.wait().code(), Some(1), "interrupted at '{moment}':\n{rest}");
        assert_nothing_is_left(&state_dir);
    }
}

#[test]
fn a_folder_with_something_in_it_is_not_the_demos_to_delete() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), "data").unwrap();
    let mut demo = Demo::start(folder.path(), &[]);
    assert_eq!(demo.wait().code(), Some(1));
    assert!(folder.path().join("precious").exists());
}
