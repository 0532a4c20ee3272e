//! What a job notices of the stand-in for bpm, as scripts of public releases use it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use windlass_durable::process::ProcessIdentity;

/// A user that owns nothing here.
const VCAP: u32 = 65_531;

/// A VM with one job; what it left running is ended with it.
struct Vm {
    folder: tempfile::TempDir,
    has_user: bool,
}

impl Vm {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["data/sys/run", "data/sys/log", "data/jobs/web/bin", "data/jobs/web/config", "jobs"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("data/sys", folder.path().join("sys")).unwrap();
        std::os::unix::fs::symlink("../data/jobs/web", folder.path().join("jobs/web")).unwrap();
        Self { folder, has_user: false }
    }

    /// One that has the user of jobs; none without root.
    fn with_user() -> Option<Self> {
        let allowed = Command::new("unshare").args(["--mount", "true"]).status();
        if !allowed.is_ok_and(|status| status.success()) {
            eprintln!("needs mounts of its own and did not run");
            return None;
        }
        let mut vm = Self::new();
        vm.has_user = true;
        let users = format!("root:x:0:0::/:/bin/sh\nvcap:x:{VCAP}:{VCAP}::/:/bin/sh\n");
        fs::write(vm.at("passwd"), users).unwrap();
        Some(vm)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `BASE` in the text is the VM's own.
    fn write(&self, name: &str, text: &str) {
        let text = text.replace("BASE", self.folder.path().to_str().unwrap());
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn bpm(&self, words: &[&str]) -> (Option<i32>, String) {
        let program = env!("CARGO_BIN_EXE_windlass-agent");
        let mut command = Command::new("unshare");
        if self.has_user {
            let passwd = self.at("passwd");
            let script = format!("mount --bind {} /etc/passwd && exec \"$@\"", passwd.display());
            command.args(["--mount", "sh", "-c", &script, "sh", program]);
        } else {
            command = Command::new(program);
        }
        let output = command.args(["bpm", "-b"]).arg(self.folder.path()).args(words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    fn ok(&self, words: &[&str]) -> String {
        let (code, said) = self.bpm(words);
        assert_eq!(code, Some(0), "{words:?}: {said}{}", self.read("sys/log/web/web.stderr.log"));
        said
    }

    /// Whom the pid file names.
    fn parent(&self) -> ProcessIdentity {
        ProcessIdentity::of(self.read("sys/run/bpm/web/web.pid").parse().unwrap()).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}", self.read("sys/log/web/web.stderr.log"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if self.at("sys/run/bpm/web/web.pid").exists() {
            self.bpm(&["stop", "web"]);
        }
    }
}

fn name_of(process: &ProcessIdentity) -> String {
    fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default().trim().to_owned()
}

/// As `pgrep -P PID -x NAME` finds it.
fn child(parent: ProcessIdentity, name: &str) -> Option<ProcessIdentity> {
    let own = |process: &ProcessIdentity| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        status.contains(&format!("PPid:\t{}\n", parent.pid))
    };
    parent.descendants().unwrap().into_iter().find(|process| own(process) && name_of(process) == name)
}

/// haproxy's way: a wrapper starts a daemon and watches it. Its drain and reload scripts look for both below the pid of bpm's pid file.
#[test]
fn the_pid_file_names_the_parent_of_the_process_and_of_the_daemons_that_it_left() {
    let vm = Vm::new();
    vm.write("jobs/web/config/bpm.yml", "processes: [{name: web, executable: BASE/jobs/web/bin/web_wrapper}]");
    let wrapper = "#!/bin/bash\ntrap 'echo reload' USR2\ntrap 'echo end; exit 0' TERM\n(setsid sleep 600 &)\n\
        echo up\nwhile :; do sleep 0.05; done\n";
    vm.write("jobs/web/bin/web_wrapper", wrapper);
    vm.ok(&["start", "web"]);
    let said = || vm.read("sys/log/web/web.stdout.log");
    vm.until("it does not start", || said() == "up\n");
    let parent = vm.parent();
    assert_eq!(vm.ok(&["pid", "web"]).trim(), parent.pid.to_string());
    vm.until("the daemon is not below it", || child(parent, "sleep").is_some());
    let daemon = child(parent, "sleep").unwrap();
    let wrapper = child(parent, "web_wrapper").unwrap();
    rustix::process::kill_process_group(Pid::from_raw(wrapper.pid.cast_signed()).unwrap(), Signal::USR2).unwrap();
    vm.until("its group is not its own", || said().contains("reload"));
    parent.signal(Signal::USR2).unwrap();
    vm.until("signals are not passed on", || said().matches("reload").count() == 2);
    vm.ok(&["stop", "web"]);
    assert_eq!(said().lines().last(), Some("end"));
    for process in [parent, wrapper, daemon] {
        assert!(!process.is_running(), "{process:?} outlives the stop");
    }
    assert!(!vm.at("sys/run/bpm/web/web.pid").exists());
}

#[test]
fn a_process_that_does_not_listen_is_killed_with_all_that_it_started() {
    let vm = Vm::new();
    vm.write("jobs/web/config/bpm.yml", "processes: [{name: web, executable: BASE/jobs/web/bin/web}]");
    vm.write(
        "jobs/web/bin/web",
        "#!/bin/bash\ntrap '' TERM QUIT\n(setsid sleep 600 &)\necho up\nwhile :; do sleep 1; done\n",
    );
    vm.ok(&["start", "web"]);
    vm.until("it does not start", || vm.read("sys/log/web/web.stdout.log") == "up\n");
    let parent = vm.parent();
    let all = parent.descendants().unwrap();
    vm.ok(&["stop", "web"]);
    assert!(all.len() >= 2 && all.iter().chain([&parent]).all(|process| !process.is_running()), "{all:?}");
}

#[test]
fn a_parent_that_is_killed_leaves_nothing_to_the_next_start_and_counts_as_failed() {
    let vm = Vm::new();
    let config = "processes: [{name: web, executable: sleep, args: [600]}, {name: once, executable: 'true'}]";
    vm.write("jobs/web/config/bpm.yml", config);
    vm.ok(&["start", "web"]);
    let first = vm.parent();
    vm.until("it does not start", || child(first, "sleep").is_some());
    let process = child(first, "sleep").unwrap();
    first.signal(Signal::KILL).unwrap();
    vm.until("it lives", || !first.is_running());
    assert!(process.is_running());
    assert_eq!(vm.ok(&["list"]), "Name     Pid Status\nweb      -   failed\nweb.once -   stopped\n");
    let (code, said) = vm.bpm(&["pid", "web"]);
    assert_eq!((code, said.as_str()), (Some(1), "Error: process is not running or could not be found\n"));
    vm.ok(&["start", "web"]);
    vm.until("what was left runs", || !process.is_running());
    assert!(vm.parent().is_running() && vm.parent() != first);
    // Its configuration is gone, for example with the job.
    vm.parent().signal(Signal::TERM).unwrap();
    vm.until("it does not end", || vm.bpm(&["pid", "web"]).0 == Some(1));
    fs::remove_file(vm.at("jobs/web/config/bpm.yml")).unwrap();
    vm.ok(&["stop", "web"]);
    assert!(!vm.at("sys/run/bpm/web/web.pid").exists());
}

/// Otherwise a stand-in that is root could end processes of others.
#[test]
fn after_a_boot_nobody_is_taken_for_what_was_left_before() {
    let vm = Vm::new();
    vm.write("jobs/web/config/bpm.yml", "processes: [{name: web, executable: sleep, args: [600]}]");
    vm.ok(&["start", "web"]);
    let first = vm.parent();
    vm.until("it does not start", || child(first, "sleep").is_some());
    let process = child(first, "sleep").unwrap();
    first.signal(Signal::KILL).unwrap();
    vm.until("it lives", || !first.is_running());
    let identity = vm.read("sys/run/bpm/web/web.identity");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(identity.contains(boot.trim()), "{identity}");
    fs::write(vm.at("sys/run/bpm/web/web.identity"), identity.replace(boot.trim(), "another")).unwrap();
    vm.ok(&["start", "web"]);
    assert!(process.is_running());
    process.signal(Signal::KILL).unwrap();
}

#[test]
fn volumes_are_made_for_the_user_of_jobs_who_gets_what_the_process_asks_for_and_no_more() {
    let Some(vm) = Vm::with_user() else { return };
    let config = "processes:\n- name: web\n  executable: web\n  workdir: BASE/data/hooked\n  hooks: {pre_start: BASE/jobs/web/bin/hook}\n  \
        persistent_disk: true\n  capabilities: [NET_BIND_SERVICE, NOT_KNOWN]\n  limits: {processes: 1}\n  env: {PORT: 80}\n  additional_volumes:\n  \
        - {path: BASE/jobs/web/config/ssl, writable: true}\n  - {path: BASE/sys/run/web, writable: true}\n  \
        - {path: BASE/data/shared/deep, writable: true}\n  - {path: BASE/data/other, mount_only: true}\n";
    vm.write("jobs/web/config/bpm.yml", config);
    vm.write("jobs/web/bin/hook", "#!/bin/sh\nid -u\nmkdir BASE/data/hooked\n");
    let script = "#!/bin/sh\numask 077\nid -u >> /dev/stdout; id -G; pwd; echo $PORT\nulimit -n; umask 022; grep -e CapAmb -e NoNewPrivs /proc/self/status\n\
        for folder in jobs/web/config/ssl sys/run/web data/shared/deep data/web/tmp store/web; do touch BASE/$folder/mine || exit 1; done\necho up\nexec sleep 600\n";
    vm.write("jobs/web/bin/web", script);
    let (code, said) = vm.bpm(&["start", "web"]);
    let words = "failed to create system files: requested persistent disk does not exist";
    assert!(code == Some(1) && said.contains(words), "a folder in its place would be lost: {said}");
    fs::create_dir(vm.at("store")).unwrap();
    vm.ok(&["start", "web"]);
    let said = || vm.read("sys/log/web/web.stdout.log");
    vm.until(&said(), || said().ends_with("up\n"));
    let base = vm.folder.path().display();
    // Not every root may raise it so far.
    let most = Command::new("sh").args(["-c", "ulimit -n 524288 2>&- || ulimit -n $(ulimit -Hn); ulimit -n"]).output();
    let most = String::from_utf8(most.unwrap().stdout).unwrap();
    let expected =
        format!("0\n{VCAP}\n{VCAP}\n{base}/data/hooked\n80\n{most}CapAmb:\t0000000000000400\nNoNewPrivs:\t1\nup\n");
    assert_eq!(said(), expected);
    assert!(vm.read("sys/log/web/web.stderr.log").contains("this VM does not have the capability NOT_KNOWN"));
    assert!(vm.read("sys/log/web/bpm.log").contains("the limit of 1 processes does not hold"));
    for name in ["jobs/web/config/ssl", "data/shared/deep"] {
        let found = fs::metadata(vm.at(name)).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (VCAP, VCAP, 0o700), "{name}");
    }
    assert!(!vm.at("data/other").exists(), "somebody else makes it");
    assert_eq!(fs::metadata(vm.at("data/shared")).unwrap().uid(), 0);
    let parent = vm.parent();
    let owner = |process: ProcessIdentity| fs::metadata(format!("/proc/{}/stat", process.pid)).unwrap().uid();
    assert_eq!(owner(child(parent, "sleep").unwrap()), VCAP);
    let status = fs::read_to_string(format!("/proc/{}/status", parent.pid)).unwrap();
    assert!(status.contains(&format!("Uid:\t{VCAP}\t{VCAP}\t{VCAP}\t{VCAP}\n")), "{status}");
}

#[test]
fn a_privileged_process_is_root_and_one_in_the_foreground_says_how_it_ended() {
    let Some(vm) = Vm::with_user() else { return };
    let config = "processes:\n- {name: web, executable: /bin/sh, args: [-c, 'id -u; kill -TERM $$'], unsafe: {privileged: true}}\n\
        - {name: once, executable: /bin/sh, args: [-c, 'id -u; touch BASE/data/given/mine && echo done']}\n";
    vm.write("jobs/web/config/bpm.yml", config);
    let (code, said) = vm.bpm(&["run", "web"]);
    assert_eq!((code, said.as_str()), (Some(143), "0\nError: failed to run job-process: exit status 143\n"));
    let given = format!("{}:writable", vm.at("data/given").display());
    assert_eq!(vm.ok(&["run", "web", "-p", "once", "-v", &given]), format!("{VCAP}\ndone\n"));
    assert_eq!(vm.read("sys/log/web/once.stdout.log"), format!("{VCAP}\ndone\n"));
    let (code, said) = vm.bpm(&["run", "web", "-p", "once", "-v", "/etc"]);
    assert!(code == Some(1) && said.contains("invalid volume path: /etc must be within"), "{said}");
    assert!(!Path::new("/etc/mine").exists());
}
