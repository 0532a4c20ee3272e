//! A process of a job: started, ended, found again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use super::config::ProcessConfig;
use super::init::Launch;
use super::{BpmError, io_error, volumes};
use crate::layout::Base;
use crate::{log_file, supervisor};

/// The user of jobs.
const USER: &str = "vcap";
/// How long a process may take to end when it is asked to, and when it is asked again.
const PATIENCE: Duration = Duration::from_secs(15);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// What bpm gives to processes that do not say how many they need.
const OPEN_FILES: u64 = 524_288;

/// Where what belongs to a process is.
#[derive(Debug)]
pub(super) struct ProcessPaths {
    base: Base,
    job: String,
    name: String,
}

/// Whom a pid file means, because pids are given again.
#[derive(Debug, Serialize, Deserialize)]
struct StartedProcess {
    #[serde(flatten)]
    parent: ProcessIdentity,
    /// See [`meaning_of_pids`].
    #[serde(default)]
    meaning: String,
}

/// Since which boot, and for whom, pids mean what they mean.
fn meaning_of_pids() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Running(ProcessIdentity),
    /// It ended, and nobody stopped it.
    Failed,
    Stopped,
}

impl ProcessPaths {
    pub(super) fn new(base: &Base, job: &str, name: &str) -> Self {
        Self { base: base.clone(), job: job.to_owned(), name: name.to_owned() }
    }

    pub(super) fn job(&self) -> &str {
        &self.job
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn data(&self) -> PathBuf {
        self.base.data().join(&self.job)
    }

    fn logs(&self) -> PathBuf {
        self.base.job_logs().join(&self.job)
    }

    fn runs(&self) -> PathBuf {
        self.base.job_runs().join("bpm").join(&self.job)
    }

    fn pid_file(&self) -> PathBuf {
        self.runs().join(format!("{}.pid", self.name))
    }

    fn identity(&self) -> PathBuf {
        self.runs().join(format!("{}.identity", self.name))
    }

    fn lock(&self) -> Result<FileLock, BpmError> {
        let path = self.runs().join(format!("{}.lock", self.name));
        FileLock::acquire(&path, PATIENCE + LAST_PATIENCE).map_err(io_error("cannot lock", &path))
    }

    fn started(&self) -> Option<StartedProcess> {
        let text = std::fs::read(self.identity()).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(super) fn condition(&self) -> Condition {
        match self.started() {
            Some(StartedProcess { parent, .. }) if parent.is_running() => Condition::Running(parent),
            Some(_) => Condition::Failed,
            None => Condition::Stopped,
        }
    }

    /// Starts it, unless it runs.
    pub(super) fn start(&self, config: &ProcessConfig) -> Result<(), BpmError> {
        self.make_own_folders()?;
        let _lock = self.lock()?;
        if let Condition::Running(_) = self.condition() {
            self.note("process-already-running");
            return Ok(());
        }
        self.end_those_left()?;
        self.make_folders(config)?;
        self.note("start: a stand-in for bpm, so the process is not isolated: volumes are not mounted, and limits of memory and processes do not hold");
        let launch = self.launch(config, true);
        self.hook(config, &launch)?;
        let parent = self.spawn(&launch)?;
        self.note(&format!("started with pid {}", parent.pid));
        Ok(())
    }

    /// Runs it in the foreground; its exit code.
    pub(super) fn run(&self, config: &ProcessConfig) -> Result<u8, BpmError> {
        self.make_own_folders()?;
        let _lock = self.lock()?;
        if let Condition::Running(_) = self.condition() {
            self.note("process-already-running");
            return Ok(0);
        }
        self.make_folders(config)?;
        let launch = self.launch(config, false);
        self.hook(config, &launch)?;
        let (stdout, stderr) = (self.log("stdout")?, self.log("stderr")?);
        let failed = || io_error("cannot run", Path::new(&launch.program));
        let mut child = launcher(Stdio::piped(), Stdio::piped()).map_err(failed())?;
        begin(&mut child, &launch).map_err(failed())?;
        let output =
            child.stdout.take().map(|from| std::thread::spawn(|| copy(from, [&mut io::stdout(), &mut { stdout }])));
        let errors =
            child.stderr.take().map(|from| std::thread::spawn(|| copy(from, [&mut io::stderr(), &mut { stderr }])));
        for copied in [output, errors].into_iter().flatten() {
            let _ = copied.join();
        }
        let status = child.wait().map_err(failed())?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }

    /// Ends it, with more and more force.
    pub(super) fn stop(&self, first: Signal) -> Result<(), BpmError> {
        self.make_own_folders()?;
        let _lock = self.lock()?;
        if let Condition::Running(parent) = self.condition() {
            let failed = || io_error("cannot signal", &self.pid_file());
            let wait = |patience: Duration| {
                let deadline = Instant::now() + patience;
                while parent.is_running() && Instant::now() < deadline {
                    std::thread::sleep(LOOK);
                }
            };
            for (signal, patience) in [(first, PATIENCE), (Signal::QUIT, LAST_PATIENCE)] {
                if parent.is_running() {
                    self.note(&format!("stop: pid {} gets signal {}", parent.pid, signal.as_raw()));
                    parent.signal(signal).map_err(failed())?;
                    wait(patience);
                }
            }
            if parent.is_running() {
                self.note("stop: everything is killed");
                // Their parent ends after them, and sees to those who were not there yet.
                for process in parent.descendants().map_err(failed())? {
                    process.signal(Signal::KILL).map_err(failed())?;
                }
                wait(PATIENCE);
                parent.signal(Signal::KILL).map_err(failed())?;
            }
        }
        self.end_those_left()?;
        for path in [self.pid_file(), self.identity()] {
            file::remove_file(&path).map_err(io_error("cannot remove", &path))?;
        }
        self.note("stopped");
        Ok(())
    }

    /// Ends those who outlived a parent that was killed itself. Daemons, which left its session, are not found.
    fn end_those_left(&self) -> Result<(), BpmError> {
        let Some(started) = self.started() else { return Ok(()) };
        let failed = || io_error("cannot end what is left of", &self.pid_file());
        if started.meaning != meaning_of_pids().map_err(failed())? {
            return Ok(());
        }
        for process in started.parent.left_in_session().map_err(failed())? {
            self.note(&format!("pid {} was left of an earlier start, and is killed", process.pid));
            process.signal(Signal::KILL).map_err(failed())?;
        }
        Ok(())
    }

    fn launch(&self, config: &ProcessConfig, in_background: bool) -> Launch {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let path = format!(
            "{}:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin:.",
            text(self.base.jobs().join(&self.job).join("bin"))
        );
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), text(self.data())),
            ("TMPDIR".to_owned(), text(self.data().join("tmp"))),
            ("LANG".to_owned(), "en_US.UTF-8".to_owned()),
        ]);
        env.extend(config.env.clone().unwrap_or_default());
        let limits = config.limits.clone().unwrap_or_default();
        if let Some(memory) = &limits.memory {
            self.note(&format!("the limit of {memory} of memory does not hold"));
        }
        if let Some(processes) = limits.processes {
            // The kernel's own would count what all jobs run.
            self.note(&format!("the limit of {processes} processes does not hold"));
        }
        Launch {
            program: config.executable.clone(),
            arguments: config.args.clone().unwrap_or_default(),
            env,
            folder: config.workdir.as_ref().map_or_else(|| self.base.jobs().join(&self.job), PathBuf::from),
            user: if config.is_privileged() { None } else { user() },
            capabilities: config.capabilities.clone().unwrap_or_default(),
            open_files: limits.open_files.unwrap_or(OPEN_FILES),
            wants_open_files: limits.open_files.is_some(),
            core_file_size: limits.core_file_size,
            in_background,
        }
    }

    /// A log that its process can open again by the name of its standard output.
    fn log(&self, stream: &str) -> Result<File, BpmError> {
        let path = self.logs().join(format!("{}.{stream}.log", self.name));
        let open = || {
            let opened = log_file::append(&path, 0o640)?;
            if let Some((user, group)) = user() {
                fchown(&opened, Some(user), Some(group))?;
            }
            Ok(opened)
        };
        open().map_err(io_error("cannot log to", &path))
    }

    /// Starts a launcher, writes down who it is, and lets it start the process.
    fn spawn(&self, launch: &Launch) -> Result<ProcessIdentity, BpmError> {
        let program = PathBuf::from(&launch.program);
        if launch.program.contains('/') {
            launch.folder.join(&program).metadata().map_err(io_error("cannot run", &program))?;
        }
        let (stdout, stderr) = (self.log("stdout")?, self.log("stderr")?);
        let failed = || io_error("cannot start", &program);
        let mut child = launcher(stdout.into(), stderr.into()).map_err(failed())?;
        let mut start = || -> io::Result<ProcessIdentity> {
            let parent = ProcessIdentity::of(child.id())?;
            let started = StartedProcess { parent, meaning: meaning_of_pids()? };
            file::write_json(&self.identity(), &started, file::PRIVATE)?;
            file::write(&self.pid_file(), child.id().to_string().as_bytes(), 0o644)?;
            begin(&mut child, launch)?;
            Ok(parent)
        };
        start().map_err(failed())
    }

    /// What has to be done before a process starts. As with bpm, it runs as the caller and where the caller is: this is
    /// root under a supervisor, and hooks of releases rely on it.
    fn hook(&self, config: &ProcessConfig, launch: &Launch) -> Result<(), BpmError> {
        let Some(hook) = config.hooks.as_ref().and_then(|hooks| hooks.pre_start.as_ref()) else { return Ok(()) };
        let mut command = Command::new(hook);
        command.env_clear().envs(&launch.env).stdin(Stdio::null());
        command.stdout(self.log("stdout")?).stderr(self.log("stderr")?);
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(BpmError::Hook(format!("{hook}: {status}"))),
            Err(error) => Err(BpmError::Hook(format!("{hook}: {error}"))),
        }
    }

    fn make_folders(&self, config: &ProcessConfig) -> Result<(), BpmError> {
        let made = config.additional_volumes.iter().flatten().filter(|volume| !volume.mount_only);
        for path in made.map(|volume| Path::new(&volume.path)) {
            volumes::give(path, user()).map_err(io_error("cannot make the volume", path))?;
        }
        let mut folders = vec![self.base.job_runs().join(&self.job), self.data(), self.data().join("tmp")];
        if config.persistent_disk {
            // A folder in its place would be lost with the VM.
            if !self.base.store().is_dir() {
                return Err(BpmError::NoDisk);
            }
            folders.push(self.base.store().join(&self.job));
        }
        for folder in folders {
            log_file::give_folder(&folder, user()).map_err(io_error("cannot make", &folder))?;
        }
        Ok(())
    }

    /// Where pid files are, and which process each means: the job cannot change them, because `stop` signals that process. And where
    /// bpm logs, which is the job's.
    fn make_own_folders(&self) -> Result<(), BpmError> {
        let runs = self.base.job_runs();
        let folders = || {
            std::fs::create_dir_all(&runs)?;
            log_file::own_folder(&runs.join("bpm"))?;
            log_file::own_folder(&self.runs())
        };
        folders().map_err(io_error("cannot make", &self.runs()))?;
        log_file::give_folder(&self.logs(), user()).map_err(io_error("cannot make", &self.logs()))
    }

    /// A line in the job's `bpm.log`. One that cannot be written is no reason to stop.
    fn note(&self, words: &str) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let line = format!("{seconds} bpm {}/{}: {words}\n", self.job, self.name);
        let log = log_file::append(&self.logs().join("bpm.log"), 0o600);
        let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
    }
}

/// A process that waits for what it has to start.
fn launcher(stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    let mut command = Command::new(supervisor::program());
    command.arg(super::BPM_LAUNCH).stdin(Stdio::piped()).stdout(stdout).stderr(stderr).spawn()
}

fn begin(child: &mut Child, launch: &Launch) -> io::Result<()> {
    match child.stdin.take() {
        Some(mut gate) => gate.write_all(&serde_json::to_vec(launch)?),
        None => Ok(()),
    }
}

/// Whatever is said reaches both, as far as they listen.
fn copy(mut from: impl Read, mut to: [&mut dyn Write; 2]) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        for to in to.iter_mut() {
            let _ = to.write_all(&buffer[..length]).and_then(|()| to.flush());
        }
    }
}

/// The user and group of jobs, where they exist and can be had.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let entry = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|entry| entry[0] == USER)?;
    Some((entry.get(2)?.parse().ok()?, entry.get(3)?.parse().ok()?))
}
