//! Start and stop programs, behind gates.
//!
//! A program is started as a launcher that waits for one byte on its standard input. Its pid and start time are saved
//! meanwhile. With the byte it becomes the program: same pid, same start time. If the supervisor dies before, the launcher
//! reads the end of its input and ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitCode, Stdio};

use windlass_durable::process::ProcessIdentity;
use windlass_durable::{file, kill_point};

use super::groups::Groups;
use crate::monit::Program;

/// All that programs get of an environment: scripts of jobs rely on it being almost empty.
const PATH: &str = "/bin:/usr/bin:/sbin:/usr/sbin";

/// No user, no group.
const NOBODY: &str = "-";

#[derive(Debug)]
pub(super) struct Gates {
    launcher: Vec<OsString>,
    pub(super) groups: Groups,
    waiting: BTreeMap<u64, (String, ChildStdin)>,
}

impl Gates {
    pub(super) fn new(launcher: Vec<OsString>, groups: Groups) -> Self {
        Self { launcher, groups, waiting: BTreeMap::new() }
    }

    /// Starts `program` behind a gate.
    pub(super) fn launch(&mut self, launch: u64, service: &str, program: &Program) -> Result<ProcessIdentity, String> {
        let (process, gate) = self.spawn(program, self.groups.entrance(service))?;
        self.waiting.insert(launch, (service.to_owned(), gate));
        Ok(process)
    }

    /// Lets a program begin.
    pub(super) fn release(&mut self, launch: u64) -> Result<(), (String, io::Error)> {
        let Some((service, mut gate)) = self.waiting.remove(&launch) else { return Ok(()) };
        kill_point("before a gate opens");
        gate.write_all(b"\n").map_err(|error| (service, error))?;
        kill_point("after a gate opened");
        Ok(())
    }

    /// Lets a program end that never began, and says whose it was.
    pub(super) fn discard(&mut self, launch: u64) -> Option<String> {
        self.waiting.remove(&launch).map(|(service, _gate)| service)
    }

    /// Runs a program at once.
    pub(super) fn run(&self, service: &str, program: &Program) -> Result<(), String> {
        let (_, mut gate) = self.spawn(program, self.groups.entrance(service))?;
        gate.write_all(b"\n").map_err(|error| error.to_string())
    }

    fn spawn(&self, program: &Program, joins: Option<PathBuf>) -> Result<(ProcessIdentity, ChildStdin), String> {
        let (user, group) = check(program)?;
        let as_argument = |id: Option<u32>| id.map_or(NOBODY.to_owned(), |id| id.to_string());
        let Some((launcher, first)) = self.launcher.split_first() else {
            return Err("the supervisor has no launcher".to_owned());
        };
        let mut command = Command::new(launcher);
        let joins = joins.map_or(NOBODY.into(), PathBuf::into_os_string);
        command.args(first).arg(as_argument(user)).arg(as_argument(group)).arg(joins).args(&program.arguments);
        command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null());
        kill_point("before a launch");
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", launcher.to_string_lossy()))?;
        kill_point("after a launch");
        let process = ProcessIdentity::of(child.id()).map_err(|error| error.to_string())?;
        let gate = child.stdin.take().ok_or("the launcher has no standard input")?;
        Ok((process, gate))
    }
}

/// What keeps a program from being run, or the numbers of the user and the group as which it is.
fn check(program: &Program) -> Result<(Option<u32>, Option<u32>), String> {
    let path = &program.arguments[0];
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(format!("{path} is not a file")),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => return Err(format!("{path} is not executable")),
        Ok(_) => {}
        Err(error) => return Err(format!("{path}: {error}")),
    }
    let user = program.uid.as_deref().map(|user| id_of("/etc/passwd", "user", user)).transpose()?;
    let group = program.gid.as_deref().map(|group| id_of("/etc/group", "group", group)).transpose()?;
    Ok((user, group))
}

/// Runs a start or stop program with what it gets from the supervisor, for code that drives another supervisor. The caller waits for it.
pub fn run_program(program: &Program) -> Result<std::process::Child, String> {
    let (user, group) = check(program)?;
    let (path, arguments) = program.arguments.split_first().ok_or("there is no program")?;
    let mut command = Command::new(path);
    become_program(command.args(arguments), user, group);
    command.process_group(0).spawn().map_err(|error| format!("{path}: {error}"))
}

fn become_program(command: &mut Command, user: Option<u32>, group: Option<u32>) {
    command.env_clear().env("PATH", PATH).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(group) = group {
        command.gid(group);
    }
    if let Some(user) = user {
        command.uid(user);
    }
}

/// The number of a user or group, by number or by its name in `file`.
fn id_of(file: &str, what: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let entries = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let entry = entries.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|entry| entry[0] == name);
    let number = entry.and_then(|entry| entry.get(2)?.parse().ok());
    number.ok_or_else(|| format!("there is no {what} '{name}' in {file}"))
}

/// What the launcher is: it waits for its gate and becomes the program. `arguments` are those that [`Settings::launcher`] does
/// not have.
///
/// [`Settings::launcher`]: crate::Settings::launcher
pub fn launch(arguments: &[OsString]) -> ExitCode {
    let [user, group, joins, program, arguments @ ..] = arguments else { return ExitCode::FAILURE };
    let id = |text: &OsString| text.to_str().and_then(|text| text.parse::<u32>().ok());
    // A session of its own: what it starts can be found, and no terminal reaches it.
    if rustix::process::setsid().is_err() {
        return ExitCode::FAILURE;
    }
    if !matches!(io::stdin().read(&mut [0]), Ok(1)) {
        return ExitCode::SUCCESS;
    }
    if joins != NOBODY {
        // Without a group it runs all the same.
        let _ = file::write_in_place(joins.as_ref(), std::process::id().to_string());
    }
    let mut command = Command::new(program);
    become_program(command.args(arguments), id(user), id(group));
    let error = command.exec();
    let _ = writeln!(io::stderr(), "{}: {error}", program.to_string_lossy());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(arguments: &[&str], uid: Option<&str>) -> Program {
        let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
        Program { arguments, uid: uid.map(str::to_owned), gid: None, timeout: crate::monit::PATIENCE }
    }

    #[test]
    fn a_program_that_cannot_run_is_refused_with_the_reason_before_anything_is_started() {
        let gates = Gates::new(vec!["/bin/false".into()], Groups::below(None));
        for (arguments, uid, reason) in [
            (["/nowhere/ctl"], None, "/nowhere/ctl: No such file"),
            (["/etc"], None, "/etc is not a file"),
            (["/etc/passwd"], None, "/etc/passwd is not executable"),
            (["/bin/sh"], Some("nobody-has-this-name"), "there is no user 'nobody-has-this-name' in /etc/passwd"),
        ] {
            let error = gates.spawn(&program(&arguments, uid), None).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
        assert_eq!(id_of("/etc/passwd", "user", "root"), Ok(0));
        assert_eq!(id_of("/etc/passwd", "user", "1234"), Ok(1234));
    }
}
