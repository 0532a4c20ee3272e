//! `windlass ssh`: a shell on an instance, or a command on instances. The director lets a user in for as long as it takes.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use windlass_durable::kill_point;

use crate::cli::SshArgs;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;
use crate::table::Table;
use crate::visit::{self, Host, Visit, programs};

/// How much of what a command writes a row has.
const LONGEST: usize = 1 << 20;

pub(super) async fn run(session: &mut Session<'_>, arguments: &SshArgs) -> Result<(), Failure> {
    let selected = [arguments.instances.as_ref()];
    visit::during(session, &arguments.gateway, &arguments.key, &selected, |screen, visit, hosts| {
        on(screen, visit, arguments, hosts)
    })
    .await
}

/// On hosts that let the user in.
pub(super) fn on(screen: &mut Screen, visit: &Visit<'_>, arguments: &SshArgs, hosts: &[Host]) -> Result<(), Failure> {
    let command = if arguments.command.is_empty() { &arguments.words } else { &arguments.command };
    match (command.join(" "), hosts) {
        (command, [host]) if command.is_empty() => shell(visit, arguments, host),
        (command, several) if command.is_empty() => Err(Failure::SshSeveral(several.len())),
        (command, hosts) if arguments.results => results(screen, visit, arguments, hosts, &command),
        (command, hosts) => {
            let program = |host: &Host| (host.name(), program(visit, arguments, host, &command));
            programs::run(screen, visit, hosts.iter().map(program).collect())
        }
    }
}

fn program(visit: &Visit<'_>, arguments: &SshArgs, host: &Host, command: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(words(visit, arguments, host)).arg(command);
    ssh
}

fn shell(visit: &Visit<'_>, arguments: &SshArgs, host: &Host) -> Result<(), Failure> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-tt").args(words(visit, arguments, host));
    kill_point("before ssh is started");
    let ended = visit.start(&mut ssh)?.wait().map_err(|error| Failure::Process("cannot wait for ssh", error))?;
    match ended.code() {
        Some(0) => Ok(()),
        // What ssh ends with if it could not connect; the shell's own code is any other.
        Some(255) => Err(Failure::SshConnect(host.name())),
        _ => Err(Failure::SshCommand { failed: 1, all: 1 }),
    }
}

/// What commands print, in a table.
fn results(
    screen: &mut Screen,
    visit: &Visit<'_>,
    arguments: &SshArgs,
    hosts: &[Host],
    command: &str,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for host in hosts {
        kill_point("before ssh is started");
        let mut ssh = program(visit, arguments, host, command);
        let ran = visit.start(ssh.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let result = result(ran).map_err(|error| Failure::Process("cannot wait for ssh", error))?;
        rows.push([vec![host.name()], result].concat());
    }
    let failed = rows.iter().filter(|row| row[3] != "0").count();
    rows.sort();
    let all = rows.len();
    let header = vec!["Instance", "Stdout", "Stderr", "Exit Code", "Error"];
    screen.table(&Table { content: "results", header, rows, transpose: true, ..Table::default() });
    if failed == 0 { Ok(()) } else { Err(Failure::SshCommand { failed, all }) }
}

/// What a command wrote, its code, and what went wrong. One that writes more than [`LONGEST`] is ended: a VM may write for ever.
fn result(mut ran: Child) -> io::Result<Vec<String>> {
    let (sender, ended) = channel();
    if let Some(stdout) = ran.stdout.take() {
        read(0, stdout, &sender);
    }
    if let Some(stderr) = ran.stderr.take() {
        read(1, stderr, &sender);
    }
    drop(sender);
    let (mut texts, mut error) = ([String::new(), String::new()], "");
    for (place, bytes) in ended {
        if bytes.len() > LONGEST {
            error = "it wrote more than 1 MiB and was ended";
            ran.kill()?;
        }
        texts[place] = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned();
    }
    let code = ran.wait()?.code().unwrap_or(-1).to_string();
    let [stdout, stderr] = texts;
    Ok(vec![stdout, stderr, code, error.to_owned()])
}

/// Reads one letter more than is shown, if there is one.
fn read(place: usize, output: impl Read + Send + 'static, sender: &Sender<(usize, Vec<u8>)>) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
        sender.send((place, bytes))
    });
}

/// What the ssh program is started with.
fn words(visit: &Visit<'_>, arguments: &SshArgs, host: &Host) -> Vec<String> {
    let mut words = visit.options(host);
    words.extend(arguments.opts.iter().flat_map(|opts| opts.split_whitespace()).map(str::to_owned));
    words.extend(["-l".to_owned(), host.user.clone(), "--".to_owned(), host.address.to_string()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that wrote for ever took all memory of the operator's machine.
    #[test]
    fn a_command_that_writes_without_end_is_ended() {
        let run = |script: &str| {
            let mut program = Command::new("sh");
            program.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            result(program.spawn().unwrap()).unwrap()
        };
        assert_eq!(run("echo out; echo err >&2; exit 3"), ["out\n", "err\n", "3", ""]);
        let endless = run("exec yes");
        assert_eq!((endless[0].len(), endless[2].as_str()), (LONGEST, "-1"));
        assert!(endless[3].contains("more than 1 MiB"), "{endless:?}");
    }
}
