//! `windlass ssh`: a shell on an instance, or a command on instances. The director lets a user in for as long as it takes.

use std::process::{Command, Stdio};

use windlass_durable::kill_point;

use crate::cli::SshArgs;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::Session;
use crate::table::Table;
use crate::visit::{self, Host, Visit, programs};

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
        let ran = ran.wait_with_output().map_err(|error| Failure::Process("cannot wait for ssh", error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = ran.status.code().unwrap_or(-1);
        rows.push(vec![host.name(), text(&ran.stdout), text(&ran.stderr), code.to_string(), String::new()]);
    }
    let failed = rows.iter().filter(|row| row[3] != "0").count();
    rows.sort();
    let all = rows.len();
    let header = vec!["Instance", "Stdout", "Stderr", "Exit Code", "Error"];
    screen.table(&Table { content: "results", header, rows, transpose: true, ..Table::default() });
    if failed == 0 { Ok(()) } else { Err(Failure::SshCommand { failed, all }) }
}

/// What the ssh program is started with.
fn words(visit: &Visit<'_>, arguments: &SshArgs, host: &Host) -> Vec<String> {
    let mut words = visit.options(host);
    words.extend(arguments.opts.iter().flat_map(|opts| opts.split_whitespace()).map(str::to_owned));
    words.extend(["-l".to_owned(), host.user.clone(), "--".to_owned(), host.address.to_string()]);
    words
}
