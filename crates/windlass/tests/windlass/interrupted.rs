//! Ctrl-C, and the signal with which services are stopped, in the middle of `create-env` and of `cpi install`: what was begun is on
//! record, no credential stays, and the next run finishes.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use windlass_durable::sweep::Points;

use crate::cpi_releases::Machine;
use crate::env_releases::{Env, write_cpi_release, write_odd_cpi_release};

/// Longer than anything that these runs do, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run in a process group of its own, as a shell starts it.
struct Run {
    child: Child,
    said: String,
}

impl Run {
    fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Self { child: command.spawn().unwrap(), said: String::new() }
    }

    /// Waits until so many steps began; false if the run ended before.
    fn reaches_step(&mut self, number: u64) -> bool {
        let mut stdout = self.child.stdout.take().unwrap();
        let (mut byte, mut reached) = ([0], false);
        // A step begins with its name and "...", and its end follows on the same line.
        while !reached && stdout.read(&mut byte).unwrap() == 1 {
            self.said.push(char::from(byte[0]));
            reached = self.said.ends_with("...") && self.said.matches("...").count() as u64 >= number;
        }
        self.child.stdout = Some(stdout);
        reached
    }

    /// As a terminal does it: to all in the group.
    fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process_group(group, signal).unwrap();
    }

    /// Its status, and what it said from then on.
    fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                self.signal(Signal::KILL);
                panic!("it runs on: {}", self.said);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = self.child.wait_with_output().unwrap();
        let rest = [output.stdout, output.stderr].concat();
        (output.status, self.said + &String::from_utf8_lossy(&rest))
    }
}

#[test]
fn a_run_that_is_interrupted_at_any_step_is_finished_by_the_next_and_leaves_no_secret() {
    let env = Env::new();
    let mut interrupted = 0;
    for number in Points::sampled(23) {
        env.write(&format!("{{greeting: number {number}}}"), "template: {name: toy_cpi, release: toy}");
        // Each time everything is compiled.
        let _ = fs::remove_dir_all(env.path("home/.bosh"));
        let mut run = Run::start(env.command("create-env"));
        let reached = run.reaches_step(number);
        if reached {
            run.signal(if number % 2 == 0 { Signal::TERM } else { Signal::INT });
            // A user in a hurry does it twice. Nothing tells when the first was heard; either way is fine.
            if number % 3 == 0 {
                run.signal(Signal::INT);
            }
        }
        let (status, said) = run.end();
        assert!(status.code().is_some(), "at step {number}: it ended by {status}: {said}");
        env.assert_nothing_leaks(&format!("interrupted at step {number}"));
        if status.success() {
            assert!(!reached || interrupted > 1, "it went on to its end: {said}");
            break;
        }
        interrupted += 1;
        assert!(said.contains("stopped; ") || said.contains("interrupted; "), "at step {number}: {said}");
        if let Ok(state) = fs::read(env.path("env-state.json")) {
            serde_json::from_slice::<Value>(&state).unwrap();
        }
        env.ok("create-env");
        assert_eq!((env.list("vms"), env.list("disks")), (1, 1), "interrupted at step {number}: {said}");
        assert_eq!(env.greeting(), format!("number {number} to nobody world"));
    }
    eprintln!("create-env: interrupted {interrupted} times");
    assert!(interrupted > 1, "the sweep looked at nothing");
    env.ok("delete-env");
}

fn wait_for(path: &Path, run: &mut Run) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(run.child.try_wait().unwrap().is_none(), "it ended before {}", path.display());
        assert!(begun.elapsed() < PATIENCE, "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_installation_is_interrupted_while_it_fetches_compiles_or_asks_and_leaves_no_secret() {
    let machine = Machine::new();
    let (mark, release) = (machine.path("mark"), machine.path("toy-1.tgz"));
    let hang = format!("touch '{}'\nsleep 1000", mark.display());
    // What the script or the CPI started goes with it.
    for (script, program, signal) in [(hang.as_str(), "", Signal::INT), ("", hang.as_str(), Signal::TERM)] {
        let _ = fs::remove_file(&mark);
        write_odd_cpi_release(&release, "1", script, program);
        let mut run = Run::start(machine.command(&machine.install()));
        wait_for(&mark, &mut run);
        run.signal(signal);
        let (status, said) = run.end();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("stopped; packages that are compiled are kept for the next try"), "{said}");
        assert_eq!(machine.with("first-secret"), Vec::<std::path::PathBuf>::new(), "{said}");
        assert_eq!(fs::read_dir(machine.temporary()).unwrap().count(), 0, "{said}");
        assert!(machine.ok(&["cpi", "list"]).is_empty());
    }

    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/toy.tgz", server.local_addr().unwrap());
    let digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    let run =
        Run::start(machine.command(&["cpi", "install", &url, "--job", "toy_cpi", "--name=toy", "--sha1", digest]));
    // Taken, and never answered.
    let connection = server.accept().unwrap();
    run.signal(Signal::INT);
    let (status, said) = run.end();
    assert!(status.code() == Some(1) && said.contains("stopped; "), "{said}");
    assert_eq!(fs::read_dir(machine.path("home/.bosh/downloads")).unwrap().count(), 0, "no part of it stays");
    drop(connection);

    write_cpi_release(&release, "1", false);
    machine.ok(&machine.install());
    machine.ok(&["cpi", "remove", "toy"]);
    assert_eq!(machine.with("secret"), Vec::<std::path::PathBuf>::new());
}
