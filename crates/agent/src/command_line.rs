//! The original agent's command line: Go's flags, which no parser of ours knows.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::bpm::{BPM, BPM_LAUNCH};
use crate::supervisor::{LAUNCH, MONIT, SUPERVISE, SupervisorKind};
use crate::way_in::own_program::WAY_IN;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Be an agent.
    Run(AgentOptions),
    /// Say the version.
    Version,
    /// Be the supervisor of the jobs below this base directory.
    Supervise { base: PathBuf },
    /// Be the command `monit` for that supervisor.
    Monit {
        /// Its base directory.
        base: PathBuf,
        /// What the command is told.
        arguments: Vec<String>,
    },
    /// Be bpm for the jobs below this base directory.
    Bpm {
        /// Its base directory.
        base: PathBuf,
        /// What bpm is told.
        arguments: Vec<String>,
    },
    /// Copy files or show logs for somebody who came in.
    WayIn {
        /// The base directory of the VM.
        base: PathBuf,
        order: String,
    },
    /// Become a process of bpm.
    BpmLaunch,
    /// Start a program for the supervisor.
    Launch(Vec<OsString>),
}

/// How to be one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AgentOptions {
    /// `-P`: what the machine is.
    pub(crate) platform: String,
    /// `-C`: agent.json.
    pub(crate) config: Option<PathBuf>,
    /// `-M`: who runs the jobs.
    pub(crate) supervisor: SupervisorKind,
    /// `-b`: everything that the agent owns is below.
    pub(crate) base: PathBuf,
}

/// why the command line cannot be understood
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    /// a flag that does not exist
    #[error("flag provided but not defined: -{0}; known are -P, -C, -M, -b and -v")]
    UnknownFlag(String),
    /// a flag without its value
    #[error("flag needs an argument: -{0}")]
    MissingValue(String),
    /// a flag that is not text
    #[error("the flag {0:?} is not text")]
    NotText(OsString),
    /// a job supervisor that does not exist
    #[error("Job Supervisor {0} could not be found; known are monit (the agent's own), original-monit and dummy")]
    UnknownSupervisor(String),
}

/// Reads the arguments after the program's name. As with Go's flags, one or two dashes are the same, `-b X` and `-b=X` too,
/// the last repetition wins, and the first argument that is no flag ends them.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut options = AgentOptions {
        platform: String::new(),
        config: None,
        supervisor: SupervisorKind::Own,
        base: PathBuf::from("/var/vcap"),
    };
    let mut version = false;
    let mut arguments = arguments.peekable();
    let word = arguments.peek().and_then(|word| word.to_str()).unwrap_or_default();
    let supervises = word == SUPERVISE;
    if word == LAUNCH {
        return Ok(Command::Launch(arguments.skip(1).collect()));
    }
    if word == BPM_LAUNCH {
        return Ok(Command::BpmLaunch);
    }
    if word == WAY_IN {
        let (base, arguments) = of_another(arguments.skip(1), options.base)?;
        return Ok(Command::WayIn { base, order: arguments.concat() });
    }
    if word == MONIT || word == BPM {
        let is_monit = word == MONIT;
        let (base, arguments) = of_another(arguments.skip(1), options.base)?;
        return Ok(if is_monit { Command::Monit { base, arguments } } else { Command::Bpm { base, arguments } });
    }
    if supervises {
        arguments.next();
    }
    while let Some(argument) = arguments.next() {
        let text = argument.into_string().map_err(UsageError::NotText)?;
        let Some(flag) = text.strip_prefix("--").or(text.strip_prefix('-')).filter(|flag| !flag.is_empty()) else {
            break;
        };
        let (name, mut inline) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (flag.to_owned(), None),
        };
        let mut value =
            || inline.take().or_else(|| arguments.next()).ok_or_else(|| UsageError::MissingValue(name.clone()));
        match name.as_str() {
            "P" => options.platform = value()?.into_string().map_err(UsageError::NotText)?,
            "C" => options.config = Some(PathBuf::from(value()?)),
            "b" => options.base = PathBuf::from(value()?),
            "M" => match value()?.to_str() {
                Some("monit") => options.supervisor = SupervisorKind::Own,
                Some("original-monit") => options.supervisor = SupervisorKind::Monit,
                Some("dummy") => options.supervisor = SupervisorKind::Dummy,
                other => return Err(UsageError::UnknownSupervisor(other.unwrap_or_default().to_owned())),
            },
            // Of older agents; they had an effect once.
            "r" => drop(value()?),
            "no-alerts" => {}
            "v" => version = true,
            _ => return Err(UsageError::UnknownFlag(name)),
        }
    }
    Ok(match (supervises, version) {
        (true, _) => Command::Supervise { base: options.base },
        (false, true) => Command::Version,
        (false, false) => Command::Run(options),
    })
}

/// `-b BASE` comes first, if at all; the rest is the other program's.
fn of_another(arguments: impl Iterator<Item = OsString>, usual: PathBuf) -> Result<(PathBuf, Vec<String>), UsageError> {
    let mut arguments = arguments.peekable();
    let base = match arguments.next_if(|first| first == "-b") {
        Some(_) => arguments.next().ok_or_else(|| UsageError::MissingValue("b".to_owned()))?.into(),
        None => usual,
    };
    let arguments = arguments.map(|argument| argument.into_string().map_err(UsageError::NotText));
    Ok((base, arguments.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, UsageError> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn every_spelling_of_a_flag_starts_the_same_agent() {
        let expected = Command::Run(AgentOptions {
            platform: "directory".into(),
            config: Some("/a.json".into()),
            supervisor: SupervisorKind::Dummy,
            base: "/base".into(),
        });
        for arguments in [
            &["-P", "directory", "-C", "/a.json", "-b", "/base", "-M=dummy"][..],
            &["--P=directory", "-C=/a.json", "--b", "/base", "-M", "dummy", "-no-alerts"],
            &["-b", "/other", "-P", "directory", "-C", "/a.json", "-b", "/base", "-M", "monit", "-M", "dummy"],
        ] {
            assert_eq!(parsed(arguments).as_ref(), Ok(&expected), "{arguments:?}");
        }
        assert_eq!(parsed(&["-v"]), Ok(Command::Version));
        let monit = |base: &str, words: &[&str]| {
            let arguments = words.iter().map(|&word| word.to_owned()).collect();
            Ok(Command::Monit { base: base.into(), arguments })
        };
        assert_eq!(parsed(&["monit", "-b", "/base", "-g", "vcap", "stop"]), monit("/base", &["-g", "vcap", "stop"]));
        assert_eq!(parsed(&["monit", "summary"]), monit("/var/vcap", &["summary"]));
    }

    #[test]
    fn a_mistyped_flag_is_named() {
        assert_eq!(parsed(&["-x"]), Err(UsageError::UnknownFlag("x".into())));
        assert_eq!(parsed(&["-b"]), Err(UsageError::MissingValue("b".into())));
        assert_eq!(parsed(&["-M", "upstart"]), Err(UsageError::UnknownSupervisor("upstart".into())));
    }
}
