//! The demo is what a newcomer sees first: it must work anywhere, and leave nothing behind, whenever it is interrupted.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use windlass_rigs::own_machine::is_own_machine;

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

/// The whole story, with VMs of one kind. Gives what it printed.
fn shows_everything(more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = folder.path().join("state");
    let mut demo = Demo::start(&state_dir, more);
    let text = demo.read_all();
    assert!(demo.wait().success(), "{text}");
    for expected in [
        "$ windlass create-release --dir guestbook",
        "$ windlass deploy -n guestbook.yml",
        "create VM: the instance is new",
        "Compiling packages",
        "$ curl -d 'Ada was here' http://",
        "Visitors, by web/0\nAda was here",
        "The disk is the same:",
        "all 3 web servers answer",
        "nobody needs a registry",
        "Orphaned At",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    assert!(text.matches("\nAda was here\n").count() >= 4, "{text}");
    for line in text.lines().filter(|line| !line.starts_with("{\"path\"") && !line.starts_with("$ DIR=")) {
        assert!(line.trim_end().chars().count() <= 80, "too long for a terminal of 80 columns: {line}");
    }
    assert_nothing_is_left(&state_dir);
    text
}

/// As root, that is in containers, on a machine of the demo's own.
#[test]
fn the_demo_shows_that_a_disk_survives_its_vm_and_leaves_nothing_behind() {
    shows_everything(&[]);
}

/// What README.md shows is what the demo prints, but for what differs from run to run; a line `…` stands for any others.
#[test]
fn the_demo_needs_no_privileges_and_prints_what_the_readme_shows() {
    let printed = masked(&shows_everything(&["--isolation", "process"]));
    let readme = include_str!("../../../../README.md");
    let (_, after) = readme.split_once("## What the demo shows").unwrap();
    let (_, block) = after.split_once("```text\n").unwrap();
    let (shown, _) = block.split_once("```").unwrap();
    let shown = masked(shown);
    let mut rest = printed.lines();
    let mut skips = true;
    for line in shown.lines() {
        if line == "…" {
            skips = true;
            continue;
        }
        let found = if skips { rest.find(|it| *it == line) } else { rest.next().filter(|it| *it == line) };
        assert!(found.is_some(), "README.md shows, and the demo does not print there: {line}\n{printed}");
        skips = false;
    }
}

/// Root in a container of somebody else's, which may neither mount nor make namespaces.
#[test]
fn in_a_plain_container_the_demo_says_what_it_cannot_show_and_shows_the_rest() {
    let name = "demo::in_a_plain_container_the_demo_says_what_it_cannot_show_and_shows_the_rest";
    if !is_own_machine(name) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (root, state_dir) = (folder.path().join("root"), folder.path().join("state"));
    std::fs::create_dir(&root).unwrap();
    let mount = |arguments: &[&str]| {
        let mounted = Command::new(arguments[0]).args(&arguments[1..]).arg(&root).status().unwrap();
        assert!(mounted.success(), "{arguments:?}");
    };
    mount(&["mount", "--rbind", "/"]);
    // Inside of a changed root nobody makes a user namespace.
    let mut demo = Command::new("chroot");
    demo.arg(&root).args(["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]);
    demo.arg(env!("CARGO_BIN_EXE_windlass")).arg("demo").arg("--state-dir").arg(&state_dir);
    let output = demo.env_remove("WINDLASS_OWN_MACHINE").stdin(Stdio::null()).output().unwrap();
    mount(&["umount", "--lazy", "--recursive"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        "\nJobs do not run on this machine; 'windlass doctor' says why",
        "The disk is the same:",
        "grows from 64 MiB to 128 MiB",
    ] {
        assert!(text.contains(expected), "no '{expected}' in:\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with("$ DIR=")) {
        assert!(line.trim_end().chars().count() <= 80, "too long for a terminal of 80 columns: {line}");
    }
    assert_nothing_is_left(&state_dir);
}

/// Without what differs from run to run.
fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (what, mask) in [
        ("[0-9a-f]{8}…", "ID…"),
        ("windlass-host/p[0-9a-f]{16}", "windlass-host/VERSION"),
        (r"\(\d\d:\d\d:\d\d\)", "(TIME)"),
        (r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d UTC \d{4}", "DATE"),
        (r"127\.\d+\.\d+\.\d+ *", "ADDRESS "),
        (r"IPs +", "IPs "),
        (r"process \d+", "process N"),
        (r"\$ DIR=\S+", "$$ DIR=DIR"),
        ("\"path\":\"[^\"]*/cloud", "\"path\":\"DIR/cloud"),
        (r"(?m) +$", ""),
    ] {
        text = regex_lite::Regex::new(what).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}

/// A demo that was killed could not clean up: `demo --end` removes it.
#[test]
fn what_a_killed_demo_left_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = folder.path().join("state");
    let mut demo = Demo::start(&state_dir, &["--isolation", "process"]);
    let end = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["demo", "--end", "--state-dir"]).arg(&state_dir).output().unwrap()
    };
    demo.read_until("5. ");
    assert!(!end().status.success(), "a demo that runs is not ended");
    demo.signal(Signal::KILL);
    demo.0.wait().unwrap();
    assert!(!processes_about(&state_dir).is_empty(), "its director and its VM live on");
    let ended = end();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_nothing_is_left(&state_dir);
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for moment in
        ["1. ", "$ windlass upload-stemcell", "Compiling packages", "Creating missing vms", "(waiting for the director"]
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
