//! Programs that work on hosts, one for each and all at once. What they say is printed line by line as it comes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};

use windlass_durable::kill_point;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::visit::Visit;

/// Longer lines are shown in parts: a host that never ends one is not kept in memory.
const LONGEST_LINE: u64 = 64 * 1024;
/// How many lines wait to be printed; hosts wait then.
const WAITING: usize = 64;

/// Runs the programs for the hosts of these names. Fails if one of them does.
pub(crate) fn run(screen: &mut Screen, visit: &Visit<'_>, programs: Vec<(String, Command)>) -> Result<(), Failure> {
    let all = programs.len();
    let (sender, lines) = sync_channel(WAITING);
    let mut children = Vec::new();
    for (host, program) in programs {
        children.push(start(&host, visit, program, &sender)?);
    }
    drop(sender);
    for (host, kind, line) in lines {
        screen.piece(&format!("{host}: {kind} | {line}\n"));
    }
    let ended = children.into_iter().map(|mut child| child.wait().is_ok_and(|status| status.success()));
    match ended.filter(|succeeded| !succeeded).count() {
        0 => Ok(()),
        failed => Err(Failure::SshCommand { failed, all }),
    }
}

/// A line with its host and where it was written to.
type Line = (String, &'static str, String);

fn start(host: &str, visit: &Visit<'_>, mut program: Command, lines: &SyncSender<Line>) -> Result<Child, Failure> {
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kill_point("before a program for a host is started");
    let mut child = visit.start(&mut program)?;
    if let Some(stdout) = child.stdout.take() {
        pass_on(host, "stdout", stdout, lines);
    }
    if let Some(stderr) = child.stderr.take() {
        pass_on(host, "stderr", stderr, lines);
    }
    Ok(child)
}

fn pass_on(host: &str, kind: &'static str, output: impl Read + Send + 'static, lines: &SyncSender<Line>) {
    let (host, lines, mut output) = (host.to_owned(), lines.clone(), BufReader::new(output));
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while matches!((&mut output).take(LONGEST_LINE).read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            if lines.send((host.clone(), kind, text)).is_err() {
                return;
            }
            line.clear();
        }
    });
}
