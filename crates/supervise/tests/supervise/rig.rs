//! A folder with a supervisor and jobs whose programs start another copy each time they are asked to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use windlass_durable::kill_point::KILL_AT;
use windlass_durable::process::ProcessIdentity;
use windlass_supervise::{Client, ServiceStatus};

pub(crate) const CYCLE: u64 = 250;

/// It starts a daemon without looking whether there is one, as scripts of jobs do. The daemon writes its pid file late.
const CTL: &str = r#"#!/bin/sh
case $2 in
start)
  echo "$3" >> "$1/starts"
  setsid "$1/daemon" "$1" "$3" < /dev/null > /dev/null 2>&1 &
  ;;
stop)
  pid=$(cat "$1/$3.pid" 2> /dev/null) || exit 0
  kill "$pid"
  while kill -0 "$pid" 2> /dev/null; do
    case $(cat "/proc/$pid/stat" 2> /dev/null) in *") Z "*) break ;; esac
    sleep 0.02
  done
  rm -f "$1/$3.pid"
  ;;
esac
"#;

const DAEMON: &str = r#"#!/bin/sh
sleep 0.1
echo $$ > "$1/.$2.pid"
mv "$1/.$2.pid" "$1/$2.pid"
while :; do sleep 0.3; done
"#;

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    supervisor: Option<Child>,
    /// Milliseconds of a cycle.
    pub(crate) cycle: u64,
    /// The control group for services.
    pub(crate) groups: Option<PathBuf>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("ctl", CTL), ("daemon", DAEMON)] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder, supervisor: None, cycle: CYCLE, groups: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("supervise")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.state())
    }

    /// A monit file that checks `name`.
    pub(crate) fn check(&self, name: &str, more: &str) -> String {
        let folder = self.path().display();
        format!(
            "check process {name} with pidfile {folder}/{name}.pid
               start program \"{folder}/ctl {folder} start {name}\" with timeout 10 seconds
               stop program \"{folder}/ctl {folder} stop {name}\"
               group vcap {more}\n"
        )
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_supervisor"));
        command.arg("run").arg(self.state()).arg(self.cycle.to_string()).args(&self.groups);
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove(KILL_AT);
        command
    }

    pub(crate) fn start(&mut self) {
        let child = self.command().spawn().unwrap();
        self.supervisor = Some(child);
    }

    pub(crate) fn start_killed_at(&mut self, point: u64) {
        let child = self.command().env(KILL_AT, point.to_string()).stderr(Stdio::null()).spawn().unwrap();
        self.supervisor = Some(child);
    }

    pub(crate) fn supervisor_pid(&self) -> Option<u32> {
        self.supervisor.as_ref().map(Child::id)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.supervisor.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the supervisor again if it has died, and says whether it had.
    pub(crate) fn revive(&mut self) -> bool {
        let has_died = self.supervisor.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some());
        if has_died {
            self.start();
        }
        has_died
    }

    /// Waits until `is_so`, and looks meanwhile that nobody runs twice.
    pub(crate) fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self, &[ServiceStatus]) -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut has_died = false;
        loop {
            has_died |= self.revive();
            self.nobody_runs_twice();
            let client = self.client().with_patience(Duration::from_millis(100));
            let status = client.status().unwrap_or_default();
            if is_so(self, &status) {
                return has_died;
            }
            let log = || fs::read_to_string(self.state().join("monit.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "not so: {what}: {status:#?}\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks, also a supervisor that dies meanwhile.
    pub(crate) fn ask<T>(
        &mut self,
        request: impl Fn(&Client) -> Result<T, windlass_supervise::ClientError>,
    ) -> (T, bool) {
        let mut has_died = false;
        for _ in 0..600 {
            has_died |= self.revive();
            match request(&self.client().with_patience(Duration::from_millis(100))) {
                Ok(answer) => return (answer, has_died),
                Err(windlass_supervise::ClientError::Unreachable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        panic!("the supervisor does not answer");
    }

    /// The daemons of `name` that run.
    pub(crate) fn copies(&self, name: &str) -> Vec<ProcessIdentity> {
        let daemon = self.path().join("daemon");
        let is_it = |words: &[String]| {
            words.iter().any(|word| Path::new(word) == daemon) && words.last().is_some_and(|word| word == name)
        };
        let found = processes_with(self.path());
        let copies: Vec<ProcessIdentity> =
            found.into_iter().filter(|(_, words)| is_it(words)).map(|(process, _)| process).collect();
        // Between its `fork` and its `exec`, what a daemon starts looks like the daemon.
        // One that has ended since is none, either.
        let is_forked = |process: &ProcessIdentity| {
            parent(process.pid).is_none_or(|parent| copies.iter().any(|copy| copy.pid == parent))
        };
        copies.iter().filter(|process| !is_forked(process)).copied().collect()
    }

    /// Whether one daemon of `name` runs, and it is not this one. Looks once: one that dies between two looks is in the first only.
    pub(crate) fn is_another(&self, name: &str, than: ProcessIdentity) -> bool {
        matches!(self.copies(name)[..], [only] if only != than)
    }

    fn nobody_runs_twice(&self) {
        for name in ["a", "b", "c"] {
            let copies = self.copies(name);
            let log = || fs::read_to_string(self.state().join("monit.log")).unwrap_or_default();
            assert!(copies.len() <= 1, "{copies:?} are copies of {name}\n{}", log());
        }
    }

    pub(crate) fn starts(&self, name: &str) -> usize {
        let starts = fs::read_to_string(self.path().join("starts")).unwrap_or_default();
        starts.lines().filter(|line| *line == name).count()
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Processes with the rig's folder in their command line: nobody else has it.
fn processes_with(folder: &Path) -> Vec<(ProcessIdentity, Vec<String>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into())
            .collect();
        if words.iter().any(|word| Path::new(word).starts_with(folder))
            && let Ok(process) = ProcessIdentity::of(pid)
            && process.is_running()
        {
            found.push((process, words));
        }
    }
    found
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut child) = self.supervisor.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Programs may be in the middle of starting others.
        for _ in 0..50 {
            let left = processes_with(self.folder.path());
            if left.is_empty() {
                break;
            }
            for (process, _) in left {
                let _ = process.signal(Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
