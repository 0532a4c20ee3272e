//! Scripts of jobs: `jobs/<job>/bin/<name>`, those of all jobs at once.
//!
//! - [`process`]: a script runs, is cancelled, and is waited for when its agent was killed.
//! - [`output`]: what it writes, within limits.

mod output;
pub(crate) mod process;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, getpriority_process, setpriority_process};
use serde::Serialize;
use windlass_contract::explain;
use windlass_durable::file;

use crate::layout::is_name;
use crate::log_file;
use process::{EndedScript, Runner};

/// Scripts find the machine's programs whatever the agent was started with.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How much nicer scripts are than the agent.
const NICER: i32 = 5;

/// why scripts did not all succeed
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptsError {
    /// a name that leads elsewhere
    #[error("'{0}' cannot name a script, because it cannot name a file")]
    Name(String),
    /// the jobs cannot be listed
    #[error("cannot list the jobs in {path}")]
    Jobs {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}", summary(.name, .failed, .succeeded))]
    Failed { name: String, failed: Vec<String>, succeeded: Vec<String> },
}

fn summary(name: &str, failed: &[String], succeeded: &[String]) -> String {
    let all = failed.len() + succeeded.len();
    let mut text = format!("{} of {all} {name} scripts failed. Failed Jobs: {}.", failed.len(), failed.join(", "));
    if !succeeded.is_empty() {
        text.push_str(&format!(" Successful Jobs: {}.", succeeded.join(", ")));
    }
    text
}

/// why a script did not succeed
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    /// it cannot be run
    #[error("Running script '{path}'")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// it says that it failed
    #[error("Running script '{path}': {status}")]
    Status { path: PathBuf, status: ExitStatus },
    /// a drain script does not say how long to wait
    #[error("Script did not return a signed integer")]
    NoInteger,
    /// a caller cancelled the task
    #[error("Script was cancelled by user request")]
    Cancelled,
}

/// A script of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) job: String,
    pub(crate) path: PathBuf,
}

/// The scripts with this name, sorted by job. A job without it has none, and so has an agent without jobs.
pub(crate) fn find(jobs: &Path, name: &str) -> Result<Vec<Script>, ScriptsError> {
    if !is_name(name) {
        return Err(ScriptsError::Name(name.to_owned()));
    }
    let failed = |source| ScriptsError::Jobs { path: jobs.to_owned(), source };
    let entries = match std::fs::read_dir(jobs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let Ok(job) = entry.map_err(failed)?.file_name().into_string() else { continue };
        let path = jobs.join(&job).join("bin").join(name);
        if path.is_file() {
            found.push(Script { job, path });
        }
    }
    found.sort_by(|one, other| one.job.cmp(&other.job));
    Ok(found)
}

/// Runs scripts in parallel, each with `run`; all of them end before this does.
pub(crate) fn run_all(
    name: &str,
    scripts: &[Script],
    run: impl Fn(&Script) -> Result<(), ScriptError> + Sync,
) -> Result<(), ScriptsError> {
    // In the order in which they ended.
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for script in scripts {
            scope.spawn(|| {
                let result = run(script);
                if let Err(error) = &result {
                    tracing::warn!("{name} of job {}: {}", script.job, explain(error));
                }
                ended.lock().unwrap_or_else(PoisonError::into_inner).push((script.job.clone(), result.is_ok()));
            });
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let named = |wanted: bool| {
        let with_result = ended.iter().filter(|(_, result)| *result == wanted);
        with_result.map(|(job, _)| job.clone()).collect::<Vec<_>>()
    };
    let failed = named(false);
    if failed.is_empty() {
        return Ok(());
    }
    Err(ScriptsError::Failed { name: name.to_owned(), failed, succeeded: named(true) })
}

/// What an errand did.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ErrandResult {
    stdout: String,
    stderr: String,
    exit_code: i32,
}

impl Script {
    fn failed(&self) -> impl FnOnce(io::Error) -> ScriptError {
        let path = self.path.clone();
        move |source| ScriptError::Io { path, source }
    }

    fn command(&self, env: &BTreeMap<String, String>) -> Command {
        let mut command = Runner::command(&self.path);
        command.env("PATH", PATH).envs(env);
        command
    }

    /// Runs it, nicer than the agent, with its output at the end of the job's log files.
    pub(crate) fn run_logged(
        &self,
        name: &str,
        logs: &Path,
        env: &BTreeMap<String, String>,
        runner: &Runner<'_>,
    ) -> Result<(), ScriptError> {
        let log = |stream: &str| {
            let folder = logs.join(&self.job);
            if !folder.is_dir() {
                file::create_private_dir(&folder)?;
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770))?;
            }
            let path = folder.join(format!("{name}.{stream}.log"));
            log_file::append(&path, 0o640)
        };
        let mut command = self.command(env);
        command.stdout(log("stdout").map_err(self.failed())?).stderr(log("stderr").map_err(self.failed())?);
        let EndedScript { status, was_cancelled } =
            runner.start(&mut command, be_nicer).and_then(process::Running::wait).map_err(self.failed())?;
        match was_cancelled {
            true => Err(ScriptError::Cancelled),
            false if status.success() => Ok(()),
            false => Err(ScriptError::Status { path: self.path.clone(), status }),
        }
    }

    /// Runs it and returns what it wrote, whatever its exit code.
    pub(crate) fn run_captured(
        &self,
        arguments: &[String],
        env: &BTreeMap<String, String>,
        runner: &Runner<'_>,
    ) -> Result<String, ScriptError> {
        let mut command = self.command(env);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = runner.start(&mut command, |_| ()).map_err(self.failed())?;
        let stdout = running.stdout().map_err(self.failed())?;
        if running.wait().map_err(self.failed())?.was_cancelled {
            return Err(ScriptError::Cancelled);
        }
        Ok(stdout.text().trim().to_owned())
    }

    /// Runs it as an errand. One that was cancelled has a result, too.
    pub(crate) fn run_errand(&self, runner: &Runner<'_>) -> Result<ErrandResult, ScriptError> {
        self.path.metadata().map_err(self.failed())?;
        let mut command = self.command(&BTreeMap::new());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = runner.start(&mut command, |_| ()).map_err(self.failed())?;
        let streams = running.stdout().and_then(|stdout| Ok((stdout, running.stderr()?)));
        let exit_code = running.wait().map_err(self.failed())?.code();
        let (stdout, stderr) = streams.map_err(self.failed())?;
        Ok(ErrandResult { stdout: stdout.text(), stderr: stderr.text(), exit_code })
    }
}

fn be_nicer(child: &mut Child) {
    if let (Some(pid), Ok(own)) = (Pid::from_raw(child.id().cast_signed()), getpriority_process(None)) {
        let _ = setpriority_process(Some(pid), own + NICER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Base;
    use crate::tasks::Tasks;

    fn job(folder: &Path, job: &str, name: &str, text: &str) {
        let bin = folder.join("jobs").join(job).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn scripts_run_at_once_with_their_environment_and_the_failed_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (jobs, logs) = (folder.path().join("jobs"), folder.path().join("log"));
        let base = Base::prepare(folder.path()).unwrap();
        let tasks = Tasks::new(base.tasks());
        let runner = Runner::new(&base, &tasks);
        // Each waits for the other, so they end only if they run at the same time.
        let meet = |own: &str, other: &str| {
            let at = folder.path().display();
            format!("touch {at}/{own}; while [ ! -e {at}/{other} ]; do sleep 0.01; done")
        };
        job(folder.path(), "b", "pre-start", &format!("{}; echo no >&2; exit 3", meet("b", "a")));
        job(folder.path(), "a", "pre-start", &format!("{}; echo \"$WORD $PATH $(nice)\"", meet("a", "b")));
        job(folder.path(), "c", "post-start", "exit 1");
        let scripts = find(&jobs, "pre-start").unwrap();
        let env = BTreeMap::from([("WORD".to_owned(), "hi".to_owned())]);
        let run = |script: &Script| script.run_logged("pre-start", &logs, &env, &runner);
        let error = run_all("pre-start", &scripts, run).unwrap_err().to_string();
        assert_eq!(error, "1 of 2 pre-start scripts failed. Failed Jobs: b. Successful Jobs: a.");
        let log = std::fs::read_to_string(logs.join("a/pre-start.stdout.log")).unwrap();
        assert!(log.starts_with(&format!("hi {PATH} ")), "{log}");
        assert_eq!(std::fs::read_to_string(logs.join("b/pre-start.stderr.log")).unwrap(), "no\n");
        let error = run_all("pre-start", &scripts[1..], run).unwrap_err().to_string();
        assert_eq!(error, "1 of 1 pre-start scripts failed. Failed Jobs: b.");
        assert_eq!(std::fs::read_to_string(logs.join("b/pre-start.stderr.log")).unwrap(), "no\nno\n", "appended");
    }

    #[test]
    fn absent_scripts_are_none_and_a_name_cannot_lead_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(&folder.path().join("jobs"), "pre-start").unwrap(), []);
        job(folder.path(), "a", "pre-start", "");
        assert_eq!(find(&folder.path().join("jobs"), "post-start").unwrap(), []);
        assert!(matches!(find(&folder.path().join("jobs"), "../../x"), Err(ScriptsError::Name(_))));
    }
}
