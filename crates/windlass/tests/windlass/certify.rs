//! `windlass certify` as a user runs it: on the clouds that come with Windlass, and interrupted in the middle.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

struct Cloud {
    folder: tempfile::TempDir,
    plugin: &'static str,
}

impl Cloud {
    /// A cloud of its own, and a stemcell with an agent that does nothing but stay.
    fn new(plugin: &'static str) -> Self {
        let cloud = Self { folder: tempfile::tempdir().unwrap(), plugin };
        cloud.isolate("process");
        std::fs::write(cloud.path("agent"), "#!/bin/sh\nexec sleep 1000\n").unwrap();
        std::fs::set_permissions(cloud.path("agent"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let build = Command::new(WINDLASS)
            .args(["stemcell", "build", "--agent"])
            .arg(cloud.path("agent"))
            .arg("--output")
            .arg(cloud.path("stemcell.tgz"))
            .output()
            .unwrap();
        assert!(build.status.success(), "{build:?}");
        cloud
    }

    /// What the embedded cloud would choose itself depends on the machine, and may be bridges and mounts on it.
    fn isolate(&self, isolation: &str) {
        let mut properties = json!({"state_dir": self.state()});
        if self.plugin == "local" {
            properties["isolation"] = json!(isolation);
        }
        let config = json!({"cloud": {"plugin": self.plugin, "properties": {self.plugin: properties}}});
        std::fs::write(self.path("cpi.json"), config.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    fn certify(&self) -> Command {
        let state = self.state().display().to_string();
        let mut command = Command::new(WINDLASS);
        command
            .arg("certify")
            .arg("--cpi")
            .arg(format!("{WINDLASS} cpi {} --config {}", self.plugin, self.path("cpi.json").display()))
            .arg("--stemcell")
            .arg(self.path("stemcell.tgz"))
            .arg("--list")
            .arg(format!(
                "sh -c 'cd {state} && ls stemcells vms disks snapshots networks 2>/dev/null | grep -- - || true'"
            ));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What is there, by its files.
    fn left(&self) -> Vec<PathBuf> {
        let shelves = ["stemcells", "vms", "disks", "snapshots", "networks"].map(|shelf| self.state().join(shelf));
        shelves
            .iter()
            .flat_map(|shelf| std::fs::read_dir(shelf).into_iter().flatten().flatten())
            .map(|it| it.path())
            .collect()
    }
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn assert_certified(report: &Value) {
    let is_wrong = |check: &&Value| check["outcome"] == "failed";
    let wrong: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report["certified"], true, "{report:#}");
    assert_eq!(report["leftovers"], json!([]));
}

#[test]
fn the_simulated_cloud_is_certified_and_has_every_capability_but_version_3() {
    let cloud = Cloud::new("sim");
    let settings = format!("{WINDLASS} sim settings {{vm_cid}} --config {}", cloud.path("cpi.json").display());
    let output = cloud.certify().args(["--format", "json", "--show-settings", &settings]).output().unwrap();
    let report = report(&output);
    assert_certified(&report);
    assert!(output.status.success());
    let lacks: Vec<_> = report["capabilities"].as_object().unwrap().iter().filter(|(_, has)| **has == false).collect();
    assert!(lacks.iter().all(|(name, _)| *name == "version 3"), "{lacks:?}");
    let inside = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == "vms.settings").unwrap();
    assert_eq!(inside["outcome"], "passed", "{inside:#}");
    assert_eq!(cloud.left(), Vec::<PathBuf>::new());
}

#[test]
fn the_embedded_cloud_is_certified_as_far_as_it_goes() {
    certify_embedded("process", "local.yml");
}

#[test]
fn the_embedded_cloud_is_certified_in_containers_too() {
    if is_own_machine("certify::the_embedded_cloud_is_certified_in_containers_too") {
        certify_embedded("container", "local-container.yml");
    }
}

fn certify_embedded(isolation: &str, profile: &str) {
    let cloud = Cloud::new("local");
    cloud.isolate(isolation);
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../certify/profiles").join(profile);
    let settings = format!("cat {}/vms/{{vm_cid}}/settings.json", cloud.state().display());
    let output = cloud
        .certify()
        .arg("--profile")
        .arg(profile)
        .args(["--format", "json", "--show-settings", &settings])
        .output()
        .unwrap();
    assert_certified(&report(&output));
    assert!(output.status.success());
    assert_eq!(cloud.left(), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupted_run_cleans_up_and_is_no_certificate() {
    for signal in [Signal::INT, Signal::TERM] {
        let cloud = Cloud::new("sim");
        let mut run = Run(cloud.certify().spawn().unwrap());
        let mut lines = BufReader::new(run.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let reached = lines.find(|line| line.contains("vms.v2-array")).unwrap();
        assert!(reached.starts_with("passed"), "{reached}");
        kill_process(Pid::from_child(&run.0), signal).unwrap();
        let rest: Vec<String> = lines.collect();
        assert!(!run.0.wait().unwrap().success());
        assert!(rest.last().unwrap().starts_with("Interrupted, not certified"), "{rest:?}");
        assert_eq!(cloud.left(), Vec::<PathBuf>::new());
    }
}

/// Killed when a test fails before it ended.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_wrong_with_the_command_line_is_said_before_anything_is_called() {
    let run = |arguments: &[&str]| {
        let output = Command::new(WINDLASS).arg("certify").args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (ok, said) = run(&["--cpi", "no-such-cpi --flag"]);
    assert!(!ok && said.contains("'no-such-cpi' is neither an executable file nor found in PATH"), "{said}");
    let (ok, said) = run(&["--cpi", "true", "--only", "vms.no-such-check"]);
    assert!(!ok && said.contains("--list-checks"), "{said}");
    let (ok, said) = run(&[]);
    assert!(!ok && said.contains("--cpi"), "{said}");
    let listed = Command::new(WINDLASS).args(["certify", "--list-checks"]).output().unwrap();
    assert!(String::from_utf8(listed.stdout).unwrap().contains("vms.v2-array "));
}

#[test]
fn a_program_that_is_no_cpi_is_not_certified_and_the_report_shows_what_it_answered() {
    let output = Command::new(WINDLASS)
        .args(["certify", "--cpi", "sh -c 'cat >/dev/null; echo hello'", "--only", "envelope.three-keys"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("failed        envelope.three-keys"), "{text}");
    assert!(text.contains("answer:  hello (exit 0)") && text.contains("\"method\":\"info\""), "{text}");
    assert!(text.contains("Not certified: 1 failed"), "{text}");
}
