//! The eight combinations of director, CPI and stemcell versions, as an operator would have them certified, and the ways
//! from one to the other.

mod upgrade;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use windlass_rigs::lxd::{BRIDGE, Lxd, POOL, PREFIX};
use windlass_rigs::own_machine::{self, is_own_machine};

use crate::site::agent;
use crate::whole_run::is_whole_run;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
/// What operators read; the test on the simulated cloud writes it when `WINDLASS_UPDATE_DOCS` is set.
const DOCUMENTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/version-table.md");

/// What is said of a row whose job found its data.
const KEPT: &str = "wrote to the disk, and found it in a new VM";

/// A cloud with a configuration for each version, and a registry's place in both.
struct Site {
    folder: tempfile::TempDir,
    plugin: &'static str,
    registry: SocketAddr,
    /// Shows what the VM `{vm_cid}` was given.
    show_settings: String,
}

impl Site {
    fn new(plugin: &'static str, properties: Value) -> Self {
        // An address of this test's own: its port stays free until the registry takes it.
        let [a, b, c, ..] = uuid::Uuid::new_v4().into_bytes();
        let place = Ipv4Addr::new(127, 200 + a % 50, b, c.max(1));
        Self::with_registry(plugin, properties, TcpListener::bind((place, 0)).unwrap().local_addr().unwrap())
    }

    fn with_registry(plugin: &'static str, properties: Value, registry: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let show_settings = match plugin {
            "sim" => {
                format!("{WINDLASS} sim settings {{vm_cid}} --config {}", folder.path().join("cpi.json").display())
            }
            _ => format!("cat {}", folder.path().join("state/vms/{vm_cid}/settings.json").display()),
        };
        let site = Self { folder, plugin, registry, show_settings };
        for (version, name) in [(1, "cpi-v1.json"), (2, "cpi.json")] {
            let mut own = json!({"state_dir": site.folder.path().join("state")});
            own.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
            let config = json!({"cloud": {"plugin": plugin, "properties": {
                plugin: own,
                "registry": {"endpoint": format!("http://{registry}"), "user": "writer", "password": "s3cret"},
                "debug": {"cpi": {"api_version": version}},
            }}});
            std::fs::write(site.path(name), config.to_string()).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cpi(&self, config: &str) -> String {
        format!("{WINDLASS} cpi {} --config {}", self.plugin, self.path(config).display())
    }

    /// `windlass certify --matrix` on this cloud.
    fn matrix(&self, more: &[&str]) -> Output {
        self.certify("--matrix", more)
    }

    /// The version table, alone or after the checks.
    fn certify(&self, which: &str, more: &[&str]) -> Output {
        // Jobs need programs.
        let userland: &[&str] = if self.plugin == "local" { &["--userland", "host"] } else { &[] };
        self.certify_with(which, [&[&["--agent", &agent()], userland].concat(); 2], more)
    }

    /// The same on stemcells of versions 1 and 2 that are built from this.
    fn certify_with(&self, which: &str, what: [&[&str]; 2], more: &[&str]) -> Output {
        let stemcells = [("1", what[0]), ("2", what[1])].map(|(version, what)| {
            let tarball = self.path(&format!("stemcell-{version}.tgz"));
            let mut build = Command::new(WINDLASS);
            build.args(["stemcell", "build", "--api-version", version, "--output"]).arg(&tarball).args(what);
            let built = build.output().unwrap();
            assert!(built.status.success(), "{built:?}");
            tarball
        });
        Command::new(WINDLASS)
            .args(["certify", which, "--cpi", &self.cpi("cpi.json"), "--cpi-v1", &self.cpi("cpi-v1.json")])
            .arg("--stemcell-v1")
            .arg(&stemcells[0])
            .arg("--stemcell")
            .arg(&stemcells[1])
            .args([
                "--registry",
                &format!("http://writer:s3cret@{}", self.registry),
                "--show-settings",
                &self.show_settings,
            ])
            .args(more)
            .output()
            .unwrap()
    }
}

/// In each of the eight rows a job found in a new VM what it had written to its disk.
fn assert_jobs_keep_their_data(output: &Output) {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let kept = cases.iter().filter(|case| case["job"] == KEPT);
    let rows: Vec<u64> = kept.map(|case| case["row"].as_u64().unwrap()).collect();
    assert_eq!(rows, [1, 2, 3, 4, 5, 6, 7, 8], "{report:#}");
}

/// Every case was lived through, nothing was left unseen, and nothing differs.
fn assert_holds(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 20, "{report:#}");
    assert!(cases.iter().all(|case| case["right"] == true && case["user_metadata"] != "not observed"), "{report:#}");
    assert_eq!(report["leftovers"], json!([]));
    for case in cases.iter().filter(|case| case["row"] != 4) {
        // A VM is made and deleted, and its disk attached and detached twice; for the job's new VM, once.
        let writes = if case["job"] == KEPT { 10 } else { 6 };
        assert_eq!(case["registry_writes"], writes, "{case:#}");
    }
    // The one row without a registry, lived through by a director and by the command line.
    let silent: Vec<&Value> = cases.iter().filter(|case| case["registry_writes"] == 0).collect();
    assert_eq!(silent.len(), 2, "{report:#}");
    assert!(silent.iter().all(|case| case["row"] == 4 && case["registry_reads"] == 0), "{report:#}");
}

#[test]
fn the_version_table_holds_on_the_embedded_cloud() {
    let output = Site::new("local", json!({"isolation": "process"})).matrix(&["--json"]);
    assert_holds(&output);
    assert_jobs_keep_their_data(&output);
}

#[test]
fn the_version_table_holds_in_containers() {
    if is_own_machine("matrix::the_version_table_holds_in_containers") {
        // An address that is there also when the last VM's network is gone.
        let registry = (own_machine::ADDRESS, 25777).into();
        let site = Site::with_registry("local", json!({"isolation": "container"}), registry);
        let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../certify/profiles/local-container.yml");
        let output = site.matrix(&["--json", "--profile", profile]);
        assert_holds(&output);
        assert_jobs_keep_their_data(&output);
    }
}

/// With `WINDLASS_ORIGINAL_AGENTS`, two of the original's agents, of the times of version 1 and 2, with a comma between them, and
/// `WINDLASS_SYSTEM`, a root file system for them that has monit and `sv`.
#[test]
fn the_version_table_holds_with_the_originals_agents_of_the_time() {
    let [Ok(agents), Ok(system)] = ["WINDLASS_ORIGINAL_AGENTS", "WINDLASS_SYSTEM"].map(std::env::var) else {
        eprintln!("this needs two of the original's agents and a system with monit for them, and did not run");
        return;
    };
    let Some((first, second)) = agents.split_once(',') else { panic!("one agent is missing: {agents}") };
    if is_own_machine("matrix::the_version_table_holds_with_the_originals_agents_of_the_time") {
        let registry = (own_machine::ADDRESS, 25777).into();
        let site = Site::with_registry("local", json!({"isolation": "container"}), registry);
        let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../certify/profiles/local-container.yml");
        let what = [first, second].map(|agent| ["--rootfs", &system, "--agent", agent, "--os", "windlass-minimal"]);
        let output = site.certify_with("--matrix", [&what[0], &what[1]], &["--json", "--profile", profile]);
        assert_holds(&output);
        assert_jobs_keep_their_data(&output);
    }
}

#[test]
fn the_version_table_holds_on_a_real_lxd_daemon() {
    const NAME: &str = "matrix::the_version_table_holds_on_a_real_lxd_daemon";
    if !is_whole_run(NAME) || !is_own_machine(NAME) {
        return;
    }
    let Some(lxd) = Lxd::start(NAME) else { return };
    let project = lxd.make_project("d1");
    let endpoint = format!("unix:{}", lxd.socket().display());
    let incus = json!({"endpoints": [endpoint], "project": project, "pool": POOL, "network": BRIDGE});
    let mut site = Site::with_registry("incus", incus, (own_machine::ADDRESS, 25777).into());
    let files = lxd.files_of_instance(&project, "{vm_cid}");
    site.show_settings = format!("cat {}/var/vcap/bosh/warden-cpi-agent-env.json", files.display());
    let profile = site.path("profile.yml");
    fs::write(
        &profile,
        format!("networks: {{dynamic: {{}}, manual: {{range: {PREFIX}.0/24, gateway: {PREFIX}.1}}}}\n"),
    )
    .unwrap();
    let output = site.matrix(&["--json", "--profile", profile.to_str().unwrap()]);
    assert_holds(&output);
    assert_jobs_keep_their_data(&output);
    assert_eq!(lxd.held(&project), Vec::<String>::new());
}

#[test]
fn the_version_table_holds_on_the_simulated_cloud_and_is_the_documented_one() {
    let site = Site::new("sim", json!({}));
    let output = site.matrix(&[]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let table: String =
        printed.lines().take_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    let documented = std::fs::read_to_string(DOCUMENTED).unwrap_or_default();
    let (head, tail) = ("<!-- table -->\n", "<!-- end of table -->\n");
    let current = documented.split_once(head).and_then(|(_, rest)| rest.split_once(tail));
    if std::env::var_os("WINDLASS_UPDATE_DOCS").is_some() {
        let (before, after) = (documented.split_once(head).unwrap().0, documented.split_once(tail).unwrap().1);
        std::fs::write(DOCUMENTED, format!("{before}{head}{table}{tail}{after}")).unwrap();
    } else {
        let current = current.map(|(table, _)| table).unwrap_or_default();
        assert_eq!(
            current, table,
            "docs/version-table.md is not what was seen; set WINDLASS_UPDATE_DOCS=1 to write it"
        );
    }
    assert_holds(&site.matrix(&["--json"]));
}

#[test]
fn a_cpi_that_cannot_speak_version_1_is_said_to_be_unseen_there() {
    let site = Site::new("sim", json!({}));
    let output = Command::new(WINDLASS)
        .args(["certify", "--matrix", "--json", "--cpi", &site.cpi("cpi.json"), "--cpi-v1", &site.cpi("cpi.json")])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for case in report["cases"].as_array().unwrap() {
        let unseen = case["unseen"].as_str().is_some_and(|why| why.contains("--cpi-v1"));
        assert_eq!(unseen, case["cpi"] == 1, "{case:#}");
    }
}

#[test]
fn the_pipeline_reports_checks_and_versions_in_one_document_for_ci_systems() {
    let site = Site::new("sim", json!({}));
    let output = site.certify("--pipeline", &["--format", "junit", "--only", "versions"]);
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"), "{report}");
    assert_eq!(report.matches("<testsuite ").count(), 2, "{report}");
    assert!(report.contains("<testcase classname=\"certify.versions\""), "{report}");
    assert_eq!(report.matches("<testcase classname=\"matrix.row-").count(), 20, "{report}");
    assert!(
        report.contains("name=\"windlass certify --matrix\" tests=\"20\" failures=\"0\" skipped=\"0\""),
        "{report}"
    );
}

/// Each call of the CPI looks whether the registry that it is configured for is there.
#[test]
fn the_registry_runs_for_the_checks_as_well_as_for_the_table() {
    let site = Site::new("sim", json!({}));
    let (program, missing) = (site.path("cpi"), site.path("missing"));
    let script = format!(
        "#!/bin/bash\n(: < /dev/tcp/{}/{}) 2> /dev/null || echo missing >> {}\nexec {}\n",
        site.registry.ip(),
        site.registry.port(),
        missing.display(),
        site.cpi("cpi.json")
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let registry = format!("http://writer:s3cret@{}", site.registry);
    let output = Command::new(WINDLASS)
        .args(["certify", "--pipeline", "--json", "--only", "disks.v1-attach", "--registry", &registry, "--cpi"])
        .arg(&program)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let check = &report["checks"]["checks"][0];
    assert_eq!((&check["id"], &check["outcome"]), (&json!("disks.v1-attach"), &json!("passed")), "{check:#}");
    assert_eq!(std::fs::read_to_string(&missing).unwrap_or_default(), "", "calls found no registry");
}

/// As in a cloud whose VMs nobody can reach: what the CPI does is seen in every row all the same, and the table comes to its end.
#[test]
fn rows_whose_agent_never_answers_tell_what_the_cpi_did() {
    let site = Site::new("local", json!({"isolation": "process"}));
    let agent = site.path("agent");
    std::fs::write(&agent, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(site.path("profile.yml"), "boot: 1\n").unwrap();
    let (agent, profile) = (agent.display().to_string(), site.path("profile.yml").display().to_string());
    let what: &[&str] = &["--agent", &agent, "--userland", "host"];
    let output = site.certify_with("--matrix", [what; 2], &["--json", "--profile", &profile]);
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let cases = report["cases"].as_array().unwrap();
    assert_eq!((cases.len(), &report["leftovers"]), (20, &json!([])), "{report:#}");
    for case in cases {
        let told: Vec<&str> = case["differences"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        assert!(matches!(told[..], [only] if only.starts_with("boot: agent ")), "{case:#}");
        let hint = if case["request_version"] == "2" { "hint" } else { "nothing" };
        let writes = if case["row"] == 4 { 0 } else { 6 };
        assert_eq!((&case["attach_disk"], &case["registry_writes"]), (&json!(hint), &json!(writes)), "{case:#}");
    }
}

#[test]
fn a_pipeline_whose_time_is_over_still_reports_every_check_and_every_row() {
    let output = Site::new("sim", json!({})).certify("--pipeline", &["--json", "--within", "0"]);
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let cases = report["matrix"]["cases"].as_array().unwrap();
    assert_eq!((cases.len(), &report["matrix"]["calls"]), (20, &json!(0)));
    assert!(cases.iter().all(|case| case["unseen"].as_str().unwrap().contains("--within")), "{report:#}");
    assert!(report["checks"]["checks"].as_array().unwrap().len() > 100, "{report:#}");
}
