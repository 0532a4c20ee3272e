//! What stands in for bpm where bpm cannot run: its command line and its `bpm.yml`, with plain processes in place of containers.
//!
//! An operator asks for it with `env.bosh.bpm_stand_in: true`; then `apply` puts it in the place of `jobs/bpm/bin/bpm`. Processes run
//! as the user of jobs with the capabilities that they ask for, or as root if they are privileged, below a parent of their own, with limits of
//! open files and core files. Their folders and volumes are made and given to that user. **They are not isolated:** nothing is mounted, they
//! see everybody else, and limits of memory and processes do not hold. Each start says so in the job's `bpm.log`.
//!
//! - [`config`]: what `bpm.yml` says.
//! - [`volumes`]: the folders that it asks for.
//! - [`process`]: starting and ending. [`init`]: the parent of what was started.

mod config;
mod init;
mod process;
mod volumes;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use windlass_durable::file;

use crate::layout::{Base, is_name};
use crate::supervisor;
use config::{BpmVolume, ProcessConfig};
use process::{Condition, ProcessPaths};
use rustix::process::Signal;

/// The words by which the agent's program is bpm, or becomes a process of bpm.
pub(crate) const BPM: &str = "bpm";
pub(crate) const BPM_LAUNCH: &str = "bpm-launch";

pub(crate) use init::launch;

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
    /// what its command line asks for besides is wrong
    #[error("{0}")]
    Volume(String),
    /// it would keep its data where they are lost
    #[error("failed to create system files: requested persistent disk does not exist")]
    NoDisk,
    /// it does not run
    #[error("process is not running or could not be found")]
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

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BpmError + use<> {
    let path = path.to_owned();
    move |source| BpmError::Io { doing, path, source }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    verb: String,
    job: Option<String>,
    process: Option<String>,
    env: Vec<(String, String)>,
    volumes: Vec<String>,
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
            "-v" | "--volume" => asked.volumes.push(value()?),
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
        "list" => list(base).iter().for_each(|line| say(line)),
        "start" => {
            let (place, config) = find(base, &asked)?;
            place.start(&config)?;
        }
        // What does not run, or ended by itself, is known by its name alone.
        "stop" => match place(base, &asked)? {
            place if matches!(place.condition(), Condition::Running(_)) => {
                let (place, config) = find(base, &asked)?;
                place.stop(if config.shutdown_signal.as_deref() == Some("INT") {
                    Signal::INT
                } else {
                    Signal::TERM
                })?;
            }
            place => place.stop(Signal::TERM)?,
        },
        "pid" => match place(base, &asked)?.condition() {
            Condition::Running(process) => say(&process.pid.to_string()),
            Condition::Failed | Condition::Stopped => return Err(BpmError::NotRunning),
        },
        "run" => {
            let (place, mut config) = find(base, &asked)?;
            let volumes = asked.volumes.iter().map(|volume| BpmVolume::parse(volume)).collect::<Result<Vec<_>, _>>();
            config.additional_volumes.get_or_insert_default().extend(volumes.map_err(BpmError::Volume)?);
            config.env.get_or_insert_default().extend(asked.env.iter().cloned());
            config.check(asked.job.as_deref().unwrap_or_default(), base.path()).map_err(BpmError::Volume)?;
            let code = place.run(&config)?;
            if code != 0 {
                let _ = writeln!(io::stderr(), "Error: failed to run job-process: exit status {code}");
            }
            return Ok(code);
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

fn place(base: &Base, asked: &Asked) -> Result<ProcessPaths, BpmError> {
    let Some(job) = &asked.job else { return Err(BpmError::Usage("must specify a job".to_owned())) };
    let name = asked.process.as_ref().unwrap_or(job);
    for word in [job, name] {
        if !is_name(word) {
            return Err(BpmError::Name(word.clone()));
        }
    }
    Ok(ProcessPaths::new(base, job, name))
}

fn find(base: &Base, asked: &Asked) -> Result<(ProcessPaths, ProcessConfig), BpmError> {
    let place = place(base, asked)?;
    let path = config_of(base, place.job());
    let found = read(base, place.job(), &path)?.into_iter().find(|process| process.name == place.name());
    match found {
        Some(config) => Ok((place, config)),
        None => Err(BpmError::NoProcess { process: place.name().to_owned(), path }),
    }
}

fn config_of(base: &Base, job: &str) -> PathBuf {
    base.jobs().join(job).join("config/bpm.yml")
}

fn read(base: &Base, job: &str, path: &Path) -> Result<Vec<ProcessConfig>, BpmError> {
    let text = std::fs::read_to_string(path).map_err(io_error("failed to parse job configuration:", path))?;
    config::read(job, base.path(), &text)
}

/// Every process of every job, and how it is, in columns.
fn list(base: &Base) -> Vec<String> {
    let jobs = std::fs::read_dir(base.jobs()).into_iter().flatten().flatten();
    let mut jobs: Vec<String> = jobs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    jobs.sort();
    let mut rows = vec![["Name", "Pid", "Status"].map(str::to_owned)];
    for job in jobs {
        let path = config_of(base, &job);
        if !path.exists() {
            continue;
        }
        let processes = read(base, &job, &path).unwrap_or_else(|error| {
            let _ = writeln!(io::stderr(), "invalid config for {job}: {}", windlass_contract::explain(&error));
            Vec::new()
        });
        for process in processes {
            let name = if process.name == job { job.clone() } else { format!("{job}.{}", process.name) };
            let (pid, state) = match ProcessPaths::new(base, &job, &process.name).condition() {
                Condition::Running(process) => (process.pid.to_string(), "running"),
                Condition::Failed => ("-".to_owned(), "failed"),
                Condition::Stopped => ("-".to_owned(), "stopped"),
            };
            rows.push([name, pid, state.to_owned()]);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    rows.iter().map(|[name, pid, state]| format!("{name:first$} {pid:second$} {state}")).collect()
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
            Asked { verb: "start".into(), job: Some("web".into()), process: Some("worker".into()), ..Asked::default() };
        assert_eq!(asked, expected);
        let run = parse(&words("run web -e A=b=c -v /x:writable")).unwrap();
        assert_eq!((run.env, run.volumes), (vec![("A".to_owned(), "b=c".to_owned())], vec!["/x:writable".to_owned()]));
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
            ("pid web", "process is not running or could not be found"),
        ] {
            assert!(perform(&base, &words(line)).unwrap_err().to_string().contains(error), "{line}");
        }
    }
}
