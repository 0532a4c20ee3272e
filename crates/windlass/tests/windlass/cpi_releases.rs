//! `windlass cpi install` and its sisters as an operator runs them: a CPI release becomes a CPI with a name.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use windlass_durable::sweep::Points;

use crate::env_releases::{files_with, said, write_cpi_release, write_odd_cpi_release};
use crate::site::{Site, agent};

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A machine with a state directory and releases.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        write_cpi_release(&machine.path("toy-1.tgz"), "1", false);
        machine.properties("first-secret");
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn properties(&self, password: &str) {
        let cloud = self.path("cloud");
        let text = format!("password: {password}\nlocal: {{state_dir: {}, isolation: process}}\n", cloud.display());
        fs::write(self.path("toy.yml"), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WINDLASS);
        command.arg("--state-dir").arg(self.path("state")).arg("-n").args(arguments).stdin(Stdio::null());
        command.env("TMPDIR", self.temporary()).env("HOME", self.path("home")).current_dir(self.folder.path());
        command
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        let folder = self.path("tmp");
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        said(&output)
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", said(&output));
        said(&output)
    }

    pub(crate) fn install(&self) -> [&str; 9] {
        ["--tty", "cpi", "install", "toy-1.tgz", "--job", "toy_cpi", "--properties", "toy.yml", "--name=toy"]
    }

    pub(crate) fn with(&self, text: &str) -> Vec<PathBuf> {
        files_with(&self.path("state"), text)
    }

    /// What the installed CPI answers to `info`.
    fn info(&self) -> Value {
        let mut child =
            Command::new(self.path("state/cpis/toy/cpi")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let request = r#"{"method":"info","arguments":[],"context":{"director_uuid":"d"}}"#;
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), request.as_bytes()).unwrap();
        serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap()
    }
}

#[test]
fn a_cpi_release_is_installed_used_certified_upgraded_and_removed() {
    let machine = Machine::new();
    let installed = machine.ok(&machine.install());
    assert!(installed.contains("CPI 'toy' of release 'toy/1' answers, with API version 2"), "{installed}");
    assert!(machine.ok(&["cpi", "list"]).contains("toy\ttoy/1\ttoy_cpi\t"));
    let shown = machine.ok(&["cpi", "show", "toy"]);
    assert!(shown.contains("cpis/toy/cpi") && shown.contains("password") && !shown.contains("first-secret"), "{shown}");
    assert_eq!(machine.info()["result"]["api_version"], 2);
    for path in machine.with("first-secret") {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }

    let stemcell = machine.path("stemcell.tgz");
    let built = Command::new(WINDLASS)
        .args(["stemcell", "build", "--agent", &agent(), "--output"])
        .arg(&stemcell)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let certified = machine.ok(&[
        "certify",
        "--cpi",
        "toy",
        "--stemcell",
        "stemcell.tgz",
        "--only",
        "envelope",
        "--format",
        "junit",
    ]);
    assert!(certified.contains("<testcase classname=\"certify.envelope\""), "{certified}");

    write_cpi_release(&machine.path("toy-2.tgz"), "2", false);
    let upgraded = machine.ok(&["--tty", "cpi", "upgrade", "toy", "toy-2.tgz"]);
    assert!(upgraded.contains("Package 'shell/") && upgraded.contains("compiled already"), "{upgraded}");
    assert!(machine.ok(&["cpi", "list"]).contains("toy\ttoy/2\ttoy_cpi\t"));
    machine.properties("second-secret");
    machine.ok(&["cpi", "upgrade", "toy", "toy-2.tgz", "--properties", "toy.yml"]);
    machine.ok(&["cpi", "upgrade", "toy", "toy-2.tgz"]);
    assert!(machine.with("first-secret").is_empty(), "{:?}", machine.with("first-secret"));
    assert!(!machine.with("second-secret").is_empty(), "properties are kept");

    machine.ok(&["cpi", "remove", "toy"]);
    assert_eq!(machine.with("secret"), Vec::<PathBuf>::new());
    let gone = machine.refused(&["cpi", "show", "toy"]);
    assert!(gone.contains("no CPI 'toy' is installed"), "{gone}");
    assert_eq!(fs::read_dir(machine.temporary()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_installed_is_refused_and_changes_nothing() {
    let machine = Machine::new();
    let job =
        |job: &'static str| ["cpi", "install", "toy-1.tgz", "--job", job, "--properties", "toy.yml", "--name=toy"];
    let unknown = machine.refused(&job("sky_cpi"));
    assert!(unknown.contains("the release 'toy' has no job 'sky_cpi'; it has 'toy_cpi', 'helper'"), "{unknown}");
    assert!(machine.refused(&job("helper")).contains("'bin/cpi'"));
    let mut built_in = machine.install();
    built_in[8] = "--name=local";
    assert!(machine.refused(&built_in).contains("a cloud that is built in"));
    fs::write(machine.path("empty.yml"), "").unwrap();
    let mut without = machine.install();
    without[7] = "empty.yml";
    let missing = machine.refused(&without);
    assert!(missing.contains("cpi.json.erb") && missing.contains("local"), "{missing}");
    let absent = machine.refused(&["cpi", "install", "no.tgz", "--job", "x"]);
    assert!(absent.contains("no.tgz"), "{absent}");
    let url = machine.refused(&["cpi", "install", "https://127.0.0.1:1/x.tgz", "--job", "x"]);
    assert!(url.contains("needs --sha1"), "{url}");
    write_cpi_release(&machine.path("toy-1.tgz"), "1", true);
    let failed = machine.refused(&machine.install());
    assert!(failed.contains("exited with 127") && failed.contains("cpis/toy/logs/toy_cpi.log"), "{failed}");
    assert!(machine.with("secret").is_empty() && machine.ok(&["cpi", "list"]).is_empty());
    machine.ok(&["cpi", "remove", "toy"]);
    assert!(!machine.path("state/cpis/toy").exists(), "logs and packages of what failed can be removed");
    let other =
        machine.refused(&[&machine.install()[..], &["--sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709"]].concat());
    assert!(other.contains("is not the release that the digest belongs to"), "{other}");

    // One that works until it is asked: it is not put in use, and what was in use stays.
    write_cpi_release(&machine.path("toy-1.tgz"), "1", false);
    machine.ok(&machine.install());
    fs::write(machine.path("toy.yml"), "password: second-secret\nlocal: {isolation: nonsense}\n").unwrap();
    let silent = machine.refused(&["cpi", "upgrade", "toy", "toy-1.tgz", "--properties", "toy.yml"]);
    assert!(silent.contains("does not answer 'info', so it was not put in use"), "{silent}");
    assert!(machine.with("second-secret").is_empty());
    assert_eq!(machine.info()["result"]["api_version"], 2);
}

#[test]
fn an_installation_killed_anywhere_is_completed_by_the_same_command() {
    let machine = Machine::new();
    let mut kills = 0;
    for point in Points::sampled(20) {
        let output = machine.command(&machine.install()).env("WINDLASS_KILL_AT", point.to_string()).output().unwrap();
        if output.status.signal() != Some(9) {
            assert!(output.status.success(), "at point {point}: {}", said(&output));
            break;
        }
        kills += 1;
        let again = machine.run(&machine.install());
        // Killed after its last effect, it is there already.
        assert!(again.status.success() || said(&again).contains("is installed already"), "{point}: {}", said(&again));
        assert_eq!(machine.info()["result"]["api_version"], 2, "killed at point {point}");
        machine.ok(&["cpi", "remove", "toy"]);
        assert_eq!(machine.with("secret"), Vec::<PathBuf>::new(), "killed at point {point}");
    }
    eprintln!("cpi install: killed {kills} times");
    assert!(kills > 1, "the sweep looked at nothing");
    assert!(Path::new(&machine.path("state")).exists());
}

#[test]
fn a_removal_killed_anywhere_is_completed_by_the_same_command_and_leaves_no_secret() {
    let machine = Machine::new();
    machine.ok(&machine.install());
    let copy = |from: &str, to: &str| {
        let copied = Command::new("cp").arg("-a").arg(machine.path(from)).arg(machine.path(to)).status().unwrap();
        assert!(copied.success());
    };
    copy("state", "installed");
    let mut kills = 0;
    for point in 1.. {
        let remove = ["cpi", "remove", "toy"];
        let output = machine.command(&remove).env("WINDLASS_KILL_AT", point.to_string()).output().unwrap();
        if output.status.signal() != Some(9) {
            assert!(output.status.success(), "at point {point}: {}", said(&output));
            break;
        }
        kills += 1;
        let again = machine.run(&remove);
        // Killed after its last effect, it is gone already.
        assert!(
            again.status.success() || said(&again).contains("no CPI 'toy' is installed"),
            "{point}: {}",
            said(&again)
        );
        assert_eq!(machine.with("secret"), Vec::<PathBuf>::new(), "killed at point {point}");
        fs::remove_dir_all(machine.path("state")).unwrap();
        copy("installed", "state");
    }
    assert!(kills > 1, "the sweep looked at nothing");
}

#[test]
fn a_director_drives_an_installed_cpi_by_its_name() {
    let site = Site::start();
    let file = |name: &str| site.file(name).to_str().unwrap().to_owned();
    write_cpi_release(&site.file("toy.tgz"), "1", false);
    let cloud = site.state_dir().join("cloud");
    let properties = format!("password: secret\nlocal: {{state_dir: {}, isolation: process}}\n", cloud.display());
    fs::write(site.file("toy.yml"), properties).unwrap();
    site.ok(&["cpi", "install", &file("toy.tgz"), "--job=toy_cpi", "--properties", &file("toy.yml"), "--name=toy"]);
    fs::write(site.file("cpis.yml"), "cpis: [{name: sky, type: toy}]\n").unwrap();
    site.ok(&["-n", "update-cpi-config", &file("cpis.yml")]);
    let config = fs::read_to_string(site.file("cloud-config.yml")).unwrap();
    fs::write(site.file("cloud-config.yml"), config.replace("{name: z1}", "{name: z1, cpi: sky}")).unwrap();
    site.ok(&["-n", "update-cloud-config", &file("cloud-config.yml")]);
    site.ok(&["stemcell", "build", "--output", &file("stemcell.tgz")]);
    site.ok(&["upload-stemcell", &file("stemcell.tgz")]);
    site.deploy();
    assert_eq!((site.in_cloud("vms").len(), site.in_cloud("disks").len()), (1, 1));
    let log = site.director_log();
    assert!(log.contains("cpis/toy/cpi"), "the release's own program was called: {log}");

    // Another version comes in place while the director runs.
    write_cpi_release(&site.file("toy-2.tgz"), "2", false);
    site.ok(&["cpi", "upgrade", "toy", &file("toy-2.tgz")]);
    let before = site.in_cloud("vms");
    site.ok(&["-n", "-d", "example", "recreate"]);
    assert_ne!(site.in_cloud("vms"), before);
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

/// Works when it is asked for `info`, and later fails with all it knows.
pub(crate) const FAILS_LATER: &str = r#"
config="$BOSH_JOBS_DIR/toy_cpi/config/cpi.json"
request=$(cat)
case "$request" in *'"method":"info"'*) printf '%s' "$request" | "$BOSH_PACKAGES_DIR/toy_cpi/cpi" "$config"; exit ;; esac
secret=$(sed 's/.*"password":"//; s/".*//' "$config")
echo "looking for $secret" >&2
printf '{"result":null,"error":{"type":"Unknown","message":"no quota for %s","ok_to_retry":false},"log":"%s"}' "$secret" "$secret"
exit
"#;

#[test]
fn a_cpi_that_fails_after_info_is_explained_without_its_credentials() {
    let site = Site::start();
    let file = |name: &str| site.file(name).to_str().unwrap().to_owned();
    write_odd_cpi_release(&site.file("toy.tgz"), "1", "", FAILS_LATER);
    let cloud = site.state_dir().join("cloud");
    let secret = "word-of-the-sky";
    let properties = format!("password: {secret}\nlocal: {{state_dir: {}, isolation: process}}\n", cloud.display());
    fs::write(site.file("toy.yml"), properties).unwrap();
    site.ok(&["cpi", "install", &file("toy.tgz"), "--job=toy_cpi", "--properties", &file("toy.yml"), "--name=toy"]);
    fs::write(site.file("cpis.yml"), "cpis: [{name: sky, type: toy}]\n").unwrap();
    site.ok(&["-n", "update-cpi-config", &file("cpis.yml")]);
    site.ok(&["stemcell", "build", "--output", &file("stemcell.tgz")]);
    let failed = said(&site.windlass(&["upload-stemcell", &file("stemcell.tgz")]));
    assert!(failed.contains("no quota for <redacted>"), "{failed}");
    let calls = said(&site.windlass(&["task", "1", "--cpi"]));
    assert!(calls.contains("looking for <redacted>"), "{calls}");
    let certified =
        site.windlass(&["certify", "--cpi", "toy", "--stemcell", &file("stemcell.tgz"), "--only", "stemcells"]);
    assert!(said(&certified).contains("no quota for <redacted>"), "{}", said(&certified));
    for shown in [failed, calls, said(&certified), site.director_log()] {
        assert!(!shown.contains(secret), "{shown}");
    }
    write_cpi_release(&site.file("toy-2.tgz"), "2", false);
    site.ok(&["cpi", "upgrade", "toy", &file("toy-2.tgz")]);
    site.ok(&["upload-stemcell", &file("stemcell.tgz")]);
}
