//! What stands in for bpm where bpm cannot run: its command line and its `bpm.yml`, with plain processes in place of containers.
//!
//! An operator asks for it with `env.bosh.bpm_stand_in: true`; then `apply` puts it in the place of `jobs/bpm/bin/bpm`. Processes run
//! as the user of jobs, in a session of their own, with limits of open files, processes and core files. **They are not isolated:**
//! volumes are checked and not mounted, and limits of memory, capabilities and namespaces are not there. Each start says so in the
//! job's `bpm.log`.
//!
//! - [`config`]: what `bpm.yml` says.
//! - [`process`]: starting and ending.

mod config;
mod process;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use windlass_durable::file;

use crate::layout::{Base, is_name};
use crate::supervisor;
use config::ProcessConfig;
use process::Place;

/// The words by which the agent's program is bpm, or becomes a process of bpm.
pub(crate) const BPM: &str = "bpm";
pub(crate) const BPM_LAUNCH: &str = "bpm-launch";

pub(crate) use process::launch;

const USAGE: &str =
    "usage: bpm {start|stop|run|pid} JOB [-p PROCESS] [-e KEY=VALUE]... [-v VOLUME]... | list | version";

/// why bpm did not do it
#[derive(Debug, thiserror::Error)]
pub(crate) enum BpmError {
    /// what is asked for is not known
    #[error("{0}\n{USAGE}")]
    Usage(String),
    /// a name that leads elsewhere
    #[error("'{0}' cannot name a job or process, because it cannot name a file")]
    Name(String),
    /// the job's file is not usable
    #[error("failed to parse job configuration: {job}: {message}")]
    Config { job: String, message: String },
    /// the job has no such process
    #[error("process \"{process}\" not present in job configuration ({path})")]
    NoProcess { process: String, path: PathBuf },
    /// its hook failed
    #[error("failed to start job-process: prestart hook failed: {0}")]
    Hook(String),
    /// it does not run
    #[error("job is not running")]
    NotRunning,
    /// a file or process cannot be used
    #[error("{doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BpmError {
    let path = path.to_owned();
    move |source| BpmError::Io { doing, path, source }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    verb: String,
    job: Option<String>,
    process: Option<String>,
    env: Vec<(String, String)>,
}

fn parse(arguments: &[String]) -> Result<Asked, BpmError> {
    let mut asked = Asked::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| BpmError::Usage(format!("{argument} needs a value")));
        match argument.as_str() {
            "-p" | "--process" => asked.process = Some(value()?),
            "-e" | "--env" => {
                let pair = value()?;
                let Some((key, value)) = pair.split_once('=') else {
                    return Err(BpmError::Usage(format!("'{pair}' is not KEY=VALUE")));
                };
                asked.env.push((key.to_owned(), value.to_owned()));
            }
            "-v" | "--volume" => drop(value()?),
            "--version" => "version".clone_into(&mut asked.verb),
            word if asked.verb.is_empty() => word.clone_into(&mut asked.verb),
            word if asked.job.is_none() => asked.job = Some(word.to_owned()),
            word => return Err(BpmError::Usage(format!("'{word}' is too much"))),
        }
    }
    Ok(asked)
}

/// Is bpm for the jobs below `base`.
pub(crate) fn run(base: &Path, arguments: &[String]) -> ExitCode {
    match perform(&Base::at(base), arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "Error: {}", windlass_contract::explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(base: &Base, arguments: &[String]) -> Result<u8, BpmError> {
    let asked = parse(arguments)?;
    let mut output = io::stdout();
    let mut say = |words: &str| {
        let _ = writeln!(output, "{words}");
    };
    match asked.verb.as_str() {
        "version" => say("windlass's stand-in for bpm: processes are not isolated"),
        "list" => {
            say("Name\tPid\tStatus");
            list(base)?.into_iter().for_each(|line| say(&line));
        }
        "start" | "stop" | "run" | "pid" => {
            let (place, config) = find(base, &asked)?;
            match asked.verb.as_str() {
                "start" => place.start(&config)?,
                "stop" => place.stop(&config)?,
                "pid" => say(&place.running().ok_or(BpmError::NotRunning)?.pid.to_string()),
                _ => return place.run(&config, &asked.env),
            }
        }
        "shell" | "trace" | "logs" => {
            return Err(BpmError::Usage(format!(
                "the stand-in for bpm has no '{}': there is no container",
                asked.verb
            )));
        }
        other => return Err(BpmError::Usage(format!("'{other}' is not known"))),
    }
    Ok(0)
}

fn find(base: &Base, asked: &Asked) -> Result<(Place, ProcessConfig), BpmError> {
    let Some(job) = &asked.job else { return Err(BpmError::Usage("must specify a job".to_owned())) };
    let name = asked.process.as_ref().unwrap_or(job);
    for word in [job, name] {
        if !is_name(word) {
            return Err(BpmError::Name(word.clone()));
        }
    }
    let path = base.jobs().join(job).join("config/bpm.yml");
    let found = read(base, job, &path)?.into_iter().find(|process| process.name == *name);
    let config = found.ok_or_else(|| BpmError::NoProcess { process: name.clone(), path })?;
    Ok((Place::new(base, job, name), config))
}

fn read(base: &Base, job: &str, path: &Path) -> Result<Vec<ProcessConfig>, BpmError> {
    let text = std::fs::read_to_string(path).map_err(io_error("failed to parse job configuration:", path))?;
    config::read(job, base.path(), &text)
}

/// Every process of every job, and how it is.
fn list(base: &Base) -> Result<Vec<String>, BpmError> {
    let folder = base.jobs();
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let Ok(job) = entry.file_name().into_string() else { continue };
        let path = folder.join(&job).join("config/bpm.yml");
        if !path.exists() {
            continue;
        }
        for process in read(base, &job, &path)? {
            let full = if process.name == job { job.clone() } else { format!("{job}.{}", process.name) };
            lines.push(match Place::new(base, &job, &process.name).running() {
                Some(running) => format!("{full}\t{}\trunning", running.pid),
                None => format!("{full}\t-\tstopped"),
            });
        }
    }
    lines.sort();
    Ok(lines)
}

/// Puts the stand-in where the job `bpm` has bpm, and nothing in the place of what prepares containers.
pub(crate) fn install(base: &Base) -> io::Result<()> {
    let folder = base.jobs().join("bpm/bin");
    if !folder.is_dir() {
        return Ok(());
    }
    let note = "# The stand-in for bpm that env.bosh.bpm_stand_in asks for: processes are not isolated.";
    let command = supervisor::command_line(base, BPM);
    file::write(&folder.join("bpm"), format!("#!/bin/sh\n{note}\nexec {command} \"$@\"\n").as_bytes(), 0o750)?;
    file::write(&folder.join("pre-start"), format!("#!/bin/sh\n{note}\n").as_bytes(), 0o750)?;
    tracing::warn!("bpm is stood in for: processes of jobs that use it are not isolated");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_of_bpm_is_understood() {
        let asked = parse(&words("start web -p worker")).unwrap();
        let expected =
            Asked { verb: "start".into(), job: Some("web".into()), process: Some("worker".into()), env: vec![] };
        assert_eq!(asked, expected);
        assert_eq!(parse(&words("run web -e A=b=c -v /x:writable")).unwrap().env, [("A".to_owned(), "b=c".to_owned())]);
        for (line, error) in [
            ("start a b", "'b' is too much"),
            ("start a -p", "-p needs a value"),
            ("run a -e X", "'X' is not KEY=VALUE"),
        ] {
            assert!(parse(&words(line)).unwrap_err().to_string().starts_with(error), "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let base = Base::at(folder.path());
        for (line, error) in [
            ("shell web", "the stand-in for bpm has no 'shell'"),
            ("explode", "'explode' is not known"),
            ("start", "must specify a job"),
            ("start ../x", "cannot name a job or process"),
            ("start web", "failed to parse job configuration:"),
        ] {
            assert!(perform(&base, &words(line)).unwrap_err().to_string().contains(error), "{line}");
        }
    }
}
