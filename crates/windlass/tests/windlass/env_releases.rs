//! `create-env` with releases, as people's manifests have them: the CPI is compiled and rendered on this machine, a job is compiled
//! and runs in the VM, and nothing of the credentials stays.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use windlass_durable::sweep::Points;

use crate::cpi_releases::FAILS_LATER;
use crate::site::{Network, agent};
use crate::software::release::{Sources, archive, digest};
use windlass_rigs::vm_root;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
/// Stands in rendered files of the CPI, and must stand nowhere else in the end.
pub(crate) const SECRET: &str = "a-very-secret-word";

/// A CPI release with two packages, one of which needs the other, and which ends at the embedded cloud.
pub(crate) fn write_cpi_release(path: &Path, version: &str, fails: bool) {
    let script = if fails { "echo about to fail\nno-such-compiler main.c\nexit 3" } else { "" };
    write_odd_cpi_release(path, version, script, "");
}

/// The same with something more in the script of a package, or at the start of the program.
pub(crate) fn write_odd_cpi_release(path: &Path, version: &str, script: &str, program: &str) {
    let program = format!(
        "#!/bin/sh\n{program}\nexec \"$BOSH_PACKAGES_DIR/toy_cpi/cpi\" \"$BOSH_JOBS_DIR/toy_cpi/config/cpi.json\"\n"
    );
    let job = [
        (
            "job.MF",
            "name: toy_cpi\npackages: [toy_cpi]\ntemplates: {cpi.erb: bin/cpi, cpi.json.erb: config/cpi.json}\n\
             properties: {password: {}, local: {}}\n",
        ),
        ("monit", ""),
        ("templates/cpi.erb", program.as_str()),
        (
            "templates/cpi.json.erb",
            "<%= JSON.dump('cloud' => {'plugin' => 'local', 'properties' => {'local' => p('local')}, 'password' => p('password')}) %>\n",
        ),
    ];
    let no_cpi = [("job.MF", "name: helper\npackages: []\ntemplates: {}\n"), ("monit", "")];
    let toy = format!(
        "set -e\n{script}\ntest -x \"$BOSH_PACKAGES_DIR/shell/sh\"\n\
         printf '#!/bin/sh\\nexec {WINDLASS} cpi local --config \"$1\"\\n' > \"$BOSH_INSTALL_TARGET/cpi\"\nchmod 755 \"$BOSH_INSTALL_TARGET/cpi\"\n"
    );
    let (toy, shell) = ([("packaging", toy.as_str())], [("packaging", "ln -s /bin/sh \"$BOSH_INSTALL_TARGET/sh\"\n")]);
    let packed = |files: &[(&str, &str)]| {
        archive(&files.iter().map(|(name, text)| (*name, text.as_bytes())).collect::<Vec<_>>())
    };
    let entry = |name: &str, archive: &[u8], rest: &str| {
        format!("- {{name: {name}, version: {0}, fingerprint: {0}, sha1: 'sha256:{0}'{rest}}}\n", digest(archive))
    };
    let (job, helper, toy, shell) = (packed(&job), packed(&no_cpi), packed(&toy), packed(&shell));
    let manifest = format!(
        "name: toy\nversion: '{version}'\njobs:\n{}{}packages:\n{}{}",
        entry("toy_cpi", &job, ", packages: [toy_cpi]"),
        entry("helper", &helper, ""),
        entry("toy_cpi", &toy, ", dependencies: [shell]"),
        entry("shell", &shell, ", dependencies: []"),
    );
    let release = archive(&[
        ("release.MF", manifest.as_bytes()),
        ("jobs/toy_cpi.tgz", &job),
        ("jobs/helper.tgz", &helper),
        ("packages/toy_cpi.tgz", &toy),
        ("packages/shell.tgz", &shell),
    ]);
    fs::write(path, release).unwrap();
}

/// A folder with a manifest, its releases, its stemcell, its state, and a home directory.
pub(crate) struct Env {
    folder: tempfile::TempDir,
    network: Network,
}

impl Env {
    pub(crate) fn new() -> Self {
        let env = Self { folder: tempfile::tempdir().unwrap(), network: Network::claim() };
        fs::create_dir(env.path("home")).unwrap();
        let built = Command::new(WINDLASS)
            .args(["stemcell", "build", "--agent", &agent(), "--userland", "host", "--output"])
            .arg(env.path("stemcell.tgz"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        write_cpi_release(&env.path("cpi.tgz"), "1", false);
        Sources::default().write(&env.path("greeter.tgz"));
        env.write("{greeting: hello}", "template: {name: toy_cpi, release: toy}");
        env
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cloud(&self) -> PathBuf {
        self.path("cloud")
    }

    /// The manifest, with properties of the job, and what names the CPI.
    pub(crate) fn write(&self, properties: &str, cpi: &str) {
        let subnet = &self.network.prefix;
        let manifest = format!(
            "name: tiny
releases:
- {{name: toy, url: \"file://cpi.tgz\"}}
- {{name: greeter, url: \"file://greeter.tgz\"}}
resource_pools: [{{name: vms, network: net, stemcell: {{url: \"file://stemcell.tgz\"}}}}]
disk_pools: [{{name: d, disk_size: 64}}]
networks: [{{name: net, type: manual, subnets: [{{range: {subnet}.0/24, gateway: {subnet}.1}}]}}]
instance_groups:
- name: app
  instances: 1
  resource_pool: vms
  persistent_disk_pool: d
  networks: [{{name: net, static_ips: [{subnet}.9]}}]
  jobs: [{{name: greeter, release: greeter, properties: {properties}}}]
update: {{update_watch_time: 100-60000}}
cloud_provider:
  {cpi}
  properties: {{password: {SECRET}, local: {{state_dir: {cloud}, isolation: process}}}}
",
            cloud = self.cloud().display(),
        );
        fs::write(self.path("env.yml"), manifest).unwrap();
    }

    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(WINDLASS);
        command.arg(verb).arg(self.path("env.yml")).env("HOME", self.path("home")).stdin(Stdio::null());
        command.env("TMPDIR", self.temporary());
        command
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        let folder = self.path("tmp");
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn ok(&self, verb: &str) -> String {
        let output = self.command(verb).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", said(&output));
        said(&output)
    }

    pub(crate) fn refused(&self, verb: &str) -> String {
        let output = self.command(verb).output().unwrap();
        assert!(!output.status.success(), "{verb}: {}", said(&output));
        said(&output)
    }

    pub(crate) fn state(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("env-state.json")).unwrap()).unwrap()
    }

    /// Where the VM has `/var/vcap`.
    fn vcap(&self) -> PathBuf {
        let vm = self.cloud().join("vms").join(self.state()["current_vm_cid"].as_str().unwrap());
        let supervisor: Value = serde_json::from_slice(&fs::read(vm.join("supervisor.json")).unwrap()).unwrap();
        Path::new("/proc").join(supervisor["init"]["pid"].to_string()).join("root/var/vcap")
    }

    pub(crate) fn greeting(&self) -> String {
        fs::read_to_string(self.vcap().join("data/sys/run/greeter/greeting")).unwrap_or_default().trim().to_owned()
    }

    pub(crate) fn list(&self, shelf: &str) -> usize {
        fs::read_dir(self.cloud().join(shelf)).map_or(0, Iterator::count)
    }

    /// Files with the CPI's credential in them, but for the manifest.
    fn leaked(&self) -> Vec<PathBuf> {
        [self.path("home"), self.temporary()].iter().flat_map(|folder| files_with(folder, SECRET)).collect()
    }

    /// The same, once the process that removes them after a kill is done.
    pub(crate) fn assert_nothing_leaks(&self, when: &str) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let entries = fs::read_dir(self.temporary()).unwrap().map(|entry| entry.unwrap().file_name());
            let is_ours = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("windlass-");
            let left: Vec<_> = entries.filter(is_ours).collect();
            if self.leaked().is_empty() && left.is_empty() {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{when}: {:?} {left:?}", self.leaked());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Env {
    fn drop(&mut self) {
        if self.path("env-state.json").exists() {
            write_cpi_release(&self.path("cpi.tgz"), "1", false);
            self.write("{}", "template: {name: toy_cpi, release: toy}");
            let _ = self.command("delete-env").arg("--skip-drain").output();
        }
    }
}

/// Files below a folder that have this text; what vanishes meanwhile has it no more.
pub(crate) fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_with(&path, text)),
            Ok(kind) if kind.is_file() => {
                let has_it = fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text));
                found.extend(has_it.then_some(path));
            }
            _ => {}
        }
    }
    found
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn an_environment_with_releases_lives_from_its_first_run_to_its_end() {
    let env = Env::new();
    let first = env.ok("create-env");
    for line in [
        "  Validating release 'toy'... Finished (",
        "  Validating release 'greeter'... Finished (",
        "  Validating cpi release... Finished (",
        "Started installing CPI\n",
        "  Compiling package 'shell/",
        "Finished installing CPI (",
        "  Compiling package 'words/",
        "  Compiling package 'greeter/",
        "  Waiting for instance 'app/0' to be running... Finished (",
        "  Running the post-start scripts 'app/0'... Finished (",
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    assert_eq!(env.greeting(), "hello to nobody world");
    env.assert_nothing_leaks("after create-env");
    let state = env.state();
    let releases: Vec<_> =
        state["releases"].as_array().unwrap().iter().map(|it| (&it["name"], &it["version"])).collect();
    assert_eq!(format!("{releases:?}"), r#"[(String("toy"), String("1")), (String("greeter"), String("1"))]"#);
    assert!(env.ok("create-env").contains("No deployment, stemcell or release changes. Skipping deploy."));

    // A property: the job changes, and nothing is compiled again.
    vm_root::write(&env.vcap().join("store/precious"), "data");
    env.write("{greeting: bye}", "templates: [{name: toy_cpi, release: toy}, {name: helper, release: toy}]");
    let changed = env.ok("create-env");
    assert!(changed.contains("create VM: the manifest changed"), "{changed}");
    assert_eq!(changed.matches("Skipped [Package already compiled]").count(), 4, "{changed}");
    assert_eq!(env.greeting(), "bye to nobody world");
    let stops = fs::read_to_string(env.vcap().join("store/stops")).unwrap();
    assert!(stops.contains("job_shutdown"), "the job was drained: {stops}");

    // Another version of a release.
    Sources { version: "2", template: "really <%= p('greeting') %>", ..Sources::default() }
        .write(&env.path("greeter.tgz"));
    let upgraded = env.ok("create-env");
    assert!(upgraded.contains("create VM: the releases changed"), "{upgraded}");
    assert_eq!(env.greeting(), "really bye world");

    env.ok("stop-env");
    assert!(!env.vcap().join("data/sys/run/greeter/pid").exists());
    env.ok("start-env");
    assert!(env.vcap().join("data/sys/run/greeter/pid").exists(), "start-env leaves the jobs as they were");
    assert_eq!(fs::read_to_string(env.vcap().join("store/precious")).unwrap(), "data");

    env.ok("delete-env");
    assert_eq!((env.list("vms"), env.list("disks"), env.list("stemcells")), (0, 0, 0));
    assert_eq!(fs::read_dir(env.path("home/.bosh/installations")).unwrap().count(), 0, "nothing compiled stays");
    env.assert_nothing_leaks("after delete-env");
}

#[test]
fn what_is_wrong_with_releases_is_told_before_anything_changes() {
    let env = Env::new();
    let template = "template: {name: toy_cpi, release: toy}";
    let expect = |properties: &str, cpi: &str, words: &[&str]| {
        env.write(properties, cpi);
        let refused = env.refused("create-env");
        assert!(words.iter().all(|word| refused.contains(word)), "{cpi}: {refused}");
        assert!(!refused.contains(SECRET), "{refused}");
        assert!(!env.path("env-state.json").exists(), "{cpi}: nothing was begun");
    };
    expect(
        "{}",
        "template: {name: sky_cpi, release: toy}",
        &["the release 'toy' has no job 'sky_cpi'", "'toy_cpi', 'helper'"],
    );
    expect("{}", "template: {name: helper, release: toy}", &["none of the jobs 'helper' has a template", "'bin/cpi'"]);
    expect("{}", "template: {name: toy_cpi, release: sky}", &["the release 'sky' is needed and is not in 'releases'"]);
    fs::write(env.path("greeter.tgz"), "no tarball").unwrap();
    expect("{}", template, &["'greeter'", "greeter.tgz"]);
    Sources { template: "<%= p('nothing') %>", ..Sources::default() }.write(&env.path("greeter.tgz"));
    expect("{}", template, &["Unable to render jobs for instance group 'app'", "greeting.erb", "nothing"]);
    fs::copy(env.path("cpi.tgz"), env.path("greeter.tgz")).unwrap();
    expect("{}", template, &["is the release 'toy', and the manifest calls it 'greeter'"]);
    Sources::default().write(&env.path("greeter.tgz"));

    // What only shows while it is compiled: the log stays, nothing else was made.
    write_cpi_release(&env.path("cpi.tgz"), "1", true);
    env.write("{}", template);
    let failed = env.refused("create-env");
    for words in [
        "the package 'toy_cpi' cannot be compiled",
        "exited with 127",
        "no-such-compiler: command not found",
        "toy_cpi.log",
    ] {
        assert!(failed.contains(words), "{words}: {failed}");
    }
    assert_eq!((env.list("vms"), env.list("stemcells")), (0, 0));
    let kept = files_with(&env.path("home"), "about to fail");
    assert!(kept.iter().any(|path| path.ends_with("logs/toy_cpi.log")), "the log stays: {kept:?}");
    env.assert_nothing_leaks("after a package that does not compile");
    write_cpi_release(&env.path("cpi.tgz"), "1", false);
    let mended = env.ok("create-env");
    assert!(mended.contains("Skipped [Package already compiled]"), "what was compiled before is kept: {mended}");
    env.ok("delete-env");
}

#[test]
fn a_cpi_that_fails_after_info_leaves_a_state_that_the_next_run_goes_on_with() {
    let env = Env::new();
    write_odd_cpi_release(&env.path("cpi.tgz"), "1", "", FAILS_LATER);
    let failed = env.refused("create-env");
    assert!(failed.contains("no quota for <redacted>") && !failed.contains(SECRET), "{failed}");
    assert!(env.state()["stemcells"].as_array().unwrap().is_empty(), "{}", env.state());
    env.assert_nothing_leaks("after a CPI that failed");
    write_cpi_release(&env.path("cpi.tgz"), "2", false);
    env.ok("create-env");
    assert_eq!((env.list("vms"), env.list("disks"), env.list("stemcells")), (1, 1, 1));
    env.ok("delete-env");
}

#[test]
fn a_run_with_releases_killed_anywhere_is_finished_by_the_next_and_leaks_no_secret() {
    let env = Env::new();
    // Each run changes an environment, wherever a part of the sweep begins.
    env.ok("create-env");
    kill_at_points(&env, || {});
    env.ok("delete-env");
}

#[test]
fn a_first_run_with_releases_killed_anywhere_is_finished_by_the_next_and_leaks_no_secret() {
    let env = Env::new();
    kill_at_points(&env, || {
        env.ok("delete-env");
        assert_eq!((env.list("vms"), env.list("disks"), env.list("stemcells")), (0, 0, 0));
    });
}

/// Kills a run at one point after the other, and finishes it with the next.
fn kill_at_points(env: &Env, after_each: impl Fn()) {
    let mut kills = 0;
    for point in Points::sampled(131) {
        env.write(&format!("{{greeting: number {point}}}"), "template: {name: toy_cpi, release: toy}");
        // Each time everything is compiled.
        let _ = fs::remove_dir_all(env.path("home/.bosh"));
        let output = env.command("create-env").env("WINDLASS_KILL_AT", point.to_string()).output().unwrap();
        let was_killed = output.status.signal() == Some(9);
        assert!(was_killed || output.status.success(), "at point {point}: {}", said(&output));
        env.assert_nothing_leaks(&format!("killed at point {point}"));
        if was_killed {
            kills += 1;
            env.ok("create-env");
            assert_eq!((env.list("vms"), env.list("disks")), (1, 1), "killed at point {point}");
            assert_eq!(env.greeting(), format!("number {point} to nobody world"));
        }
        after_each();
        if !was_killed {
            break;
        }
    }
    eprintln!("create-env with releases: killed {kills} times");
    assert!(kills > 0, "the sweep looked at nothing");
}
