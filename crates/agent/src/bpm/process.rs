//! A process of a job: started, ended, found again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use super::config::ProcessConfig;
use super::{BpmError, io_error};
use crate::layout::Base;
use crate::{log_file, supervisor};

/// The user of jobs.
const USER: &str = "vcap";
/// How long a process may take to end when it is asked to, and when it is asked again.
const PATIENCE: Duration = Duration::from_secs(15);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// Where what belongs to a process is.
#[derive(Debug)]
pub(super) struct Place {
    base: Base,
    job: String,
    name: String,
}

/// What a launcher needs to become the process.
#[derive(Debug, Serialize, Deserialize)]
struct Launch {
    program: String,
    arguments: Vec<String>,
    env: BTreeMap<String, String>,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    /// Open files, processes, size of a core file.
    limits: [Option<u64>; 3],
}

impl Place {
    pub(super) fn new(base: &Base, job: &str, name: &str) -> Self {
        Self { base: base.clone(), job: job.to_owned(), name: name.to_owned() }
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

    /// Which process the pid file means, because pids are given again.
    fn identity(&self) -> PathBuf {
        self.runs().join(format!("{}.identity", self.name))
    }

    fn lock(&self) -> Result<FileLock, BpmError> {
        let path = self.runs().join(format!("{}.lock", self.name));
        FileLock::acquire(&path, PATIENCE + LAST_PATIENCE).map_err(io_error("cannot lock", &path))
    }

    /// The process, if it runs.
    pub(super) fn running(&self) -> Option<ProcessIdentity> {
        let text = std::fs::read(self.identity()).ok()?;
        serde_json::from_slice::<ProcessIdentity>(&text).ok().filter(ProcessIdentity::is_running)
    }

    /// Starts it, unless it runs.
    pub(super) fn start(&self, config: &ProcessConfig) -> Result<(), BpmError> {
        self.make_folders(config)?;
        let _lock = self.lock()?;
        if self.running().is_some() {
            self.note("process-already-running");
            return Ok(());
        }
        self.note("start: a stand-in for bpm, so the process is not isolated: volumes are not mounted, and limits of memory do not hold");
        let launch = self.launch(config, &[]);
        hook(config, &launch, self.log("stdout")?.into(), self.log("stderr")?.into())?;
        let identity = self.spawn(&launch, self.log("stdout")?.into(), self.log("stderr")?.into())?;
        self.note(&format!("started with pid {}", identity.pid));
        Ok(())
    }

    /// Runs it in the foreground; its exit code.
    pub(super) fn run(&self, config: &ProcessConfig, env: &[(String, String)]) -> Result<u8, BpmError> {
        self.make_folders(config)?;
        let launch = self.launch(config, env);
        hook(config, &launch, Stdio::inherit(), Stdio::inherit())?;
        let program = PathBuf::from(&launch.program);
        let status = launch.command().stdin(Stdio::null()).status().map_err(io_error("cannot run", &program))?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }

    /// Ends it, with more and more force.
    pub(super) fn stop(&self, config: &ProcessConfig) -> Result<(), BpmError> {
        let folder = self.runs();
        self.own_folders().map_err(io_error("cannot make", &folder))?;
        let _lock = self.lock()?;
        let first = if config.shutdown_signal.as_deref() == Some("INT") { Signal::INT } else { Signal::TERM };
        if let Some(process) = self.running() {
            for (signal, patience) in [(first, PATIENCE), (Signal::QUIT, LAST_PATIENCE), (Signal::KILL, PATIENCE)] {
                self.note(&format!("stop: pid {} gets signal {}", process.pid, signal.as_raw()));
                process.signal_group(signal).map_err(io_error("cannot signal", &self.pid_file()))?;
                let deadline = Instant::now() + patience;
                while process.is_running() && Instant::now() < deadline {
                    std::thread::sleep(LOOK);
                }
                if !process.is_running() {
                    break;
                }
            }
        }
        for path in [self.pid_file(), self.identity()] {
            file::remove_file(&path).map_err(io_error("cannot remove", &path))?;
        }
        self.note("stopped");
        Ok(())
    }

    fn launch(&self, config: &ProcessConfig, more: &[(String, String)]) -> Launch {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let path = format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            text(self.base.jobs().join(&self.job).join("bin"))
        );
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), text(self.data())),
            ("TMPDIR".to_owned(), text(self.data().join("tmp"))),
            ("LANG".to_owned(), "en_US.UTF-8".to_owned()),
        ]);
        env.extend(config.env.clone().unwrap_or_default());
        env.extend(more.iter().cloned());
        let limits = config.limits.clone().unwrap_or_default();
        if let Some(memory) = &limits.memory {
            self.note(&format!("the limit of {memory} of memory does not hold"));
        }
        Launch {
            program: config.executable.clone(),
            arguments: config.args.clone().unwrap_or_default(),
            env,
            folder: config.workdir.as_ref().map_or_else(|| self.base.jobs().join(&self.job), PathBuf::from),
            user: user(),
            limits: [limits.open_files, limits.processes, limits.core_file_size],
        }
    }

    fn log(&self, stream: &str) -> Result<File, BpmError> {
        let path = self.logs().join(format!("{}.{stream}.log", self.name));
        log_file::append(&path, 0o640).map_err(io_error("cannot log to", &path))
    }

    /// Starts a launcher, writes down who it is, and lets it become the process.
    fn spawn(&self, launch: &Launch, stdout: Stdio, stderr: Stdio) -> Result<ProcessIdentity, BpmError> {
        let program = PathBuf::from(&launch.program);
        program.metadata().map_err(io_error("cannot run", &program))?;
        let failed = || io_error("cannot start", &program);
        let mut command = Command::new(supervisor::program());
        command.arg(super::BPM_LAUNCH).stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        let mut child = command.spawn().map_err(failed())?;
        let mut begin = || -> io::Result<ProcessIdentity> {
            let gate = child.stdin.take();
            let identity = ProcessIdentity::of(child.id())?;
            file::write_json(&self.identity(), &identity, file::PRIVATE)?;
            file::write(&self.pid_file(), child.id().to_string().as_bytes(), 0o644)?;
            if let Some(mut gate) = gate {
                gate.write_all(&serde_json::to_vec(launch)?)?;
            }
            Ok(identity)
        };
        begin().map_err(failed())
    }

    fn make_folders(&self, config: &ProcessConfig) -> Result<(), BpmError> {
        let runs = self.runs();
        self.own_folders().map_err(io_error("cannot make", &runs))?;
        let mut folders = vec![self.logs(), self.base.job_runs().join(&self.job), self.data(), self.data().join("tmp")];
        if config.persistent_disk {
            folders.push(self.base.store().join(&self.job));
        }
        for folder in folders {
            log_file::give_folder(&folder, user()).map_err(io_error("cannot make", &folder))?;
        }
        Ok(())
    }

    /// Where pid files are, and which process each means: not the job's to change, because whoever stops it signals that process.
    fn own_folders(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.base.job_runs())?;
        log_file::own_folder(&self.base.job_runs().join("bpm"))?;
        log_file::own_folder(&self.runs())
    }

    /// A line in the job's `bpm.log`. One that cannot be written is no reason to stop.
    fn note(&self, words: &str) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let line = format!("{seconds} bpm {}/{}: {words}\n", self.job, self.name);
        let log = log_file::append(&self.logs().join("bpm.log"), 0o600);
        let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
    }
}

impl Launch {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.env).current_dir(&self.folder);
        if let Some((user, group)) = self.user {
            command.gid(group).uid(user);
        }
        command
    }
}

/// What has to be done before a process starts. As with bpm, it is done by whoever asked for the process: that is root under a
/// supervisor, and hooks of releases rely on it.
fn before(config: &ProcessConfig, launch: &Launch) -> Option<Launch> {
    let hook = config.hooks.as_ref()?.pre_start.clone()?;
    let (env, folder) = (launch.env.clone(), launch.folder.clone());
    Some(Launch { program: hook, arguments: Vec::new(), env, folder, user: None, limits: launch.limits })
}

fn hook(config: &ProcessConfig, launch: &Launch, stdout: Stdio, stderr: Stdio) -> Result<(), BpmError> {
    let Some(before) = before(config, launch) else { return Ok(()) };
    let hook = &before.program;
    match before.command().stdin(Stdio::null()).stdout(stdout).stderr(stderr).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(BpmError::Hook(format!("{hook}: {status}"))),
        Err(error) => Err(BpmError::Hook(format!("{hook}: {error}"))),
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

/// What the launcher is: it learns what to become, once it is written down who it is.
pub(crate) fn launch() -> ExitCode {
    let mut text = Vec::new();
    let read = io::stdin().read_to_end(&mut text).ok();
    let launch: Option<Launch> = read.and_then(|_| serde_json::from_slice(&text).ok());
    // Whoever started it has ended before it wrote that down.
    let Some(launch) = launch else { return ExitCode::SUCCESS };
    for (limit, resource) in launch.limits.iter().zip([Resource::Nofile, Resource::Nproc, Resource::Core]) {
        if let Some(limit) = limit {
            let _ = setrlimit(resource, Rlimit { current: Some(*limit), maximum: Some(*limit) });
        }
    }
    let _ = rustix::process::setsid();
    let Ok(nothing) = File::open("/dev/null") else { return ExitCode::FAILURE };
    let error = launch.command().stdin(nothing).exec();
    let _ = writeln!(io::stderr(), "{}: {error}", launch.program);
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpm::config::Hooks;

    #[test]
    fn a_hook_is_run_by_whoever_asks_and_the_process_by_the_user_of_jobs() {
        let hooks = Some(Hooks { pre_start: Some("/hook".to_owned()) });
        let config = ProcessConfig { hooks, ..ProcessConfig::default() };
        let launch = Launch {
            program: "/process".to_owned(),
            arguments: vec!["--flag".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            folder: "/".into(),
            user: Some((1000, 1000)),
            limits: [None; 3],
        };
        let hook = before(&config, &launch).unwrap();
        assert_eq!((hook.program.as_str(), hook.arguments.len(), hook.user), ("/hook", 0, None));
        assert_eq!(hook.env, launch.env);
        assert!(before(&ProcessConfig::default(), &launch).is_none());
    }
}
