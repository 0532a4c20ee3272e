use std::collections::VecDeque;

use super::commands::{Command, Selection};
use super::rounds::Round;
use super::snapshot::MonitText;
use super::status::Health;
use super::*;

const CYCLE: Duration = Duration::from_secs(10);

/// A machine whose looks are answered by hand: who runs, by name.
struct Rig {
    machine: Machine,
    now: Millis,
    runs: BTreeMap<String, ProcessIdentity>,
    programs: BTreeMap<String, ProcessIdentity>,
    readings: Vec<Reading>,
    /// What was released, run, ended and noted, in order.
    done: Vec<String>,
    launches: BTreeMap<u64, (String, ProcessIdentity)>,
    next_pid: u32,
}

impl Rig {
    fn new(text: &str) -> Self {
        let mut rig = Self {
            machine: Machine::new("boot", CYCLE, 0),
            now: 0,
            runs: BTreeMap::new(),
            programs: BTreeMap::new(),
            readings: Vec::new(),
            done: Vec::new(),
            launches: BTreeMap::new(),
            next_pid: 0,
        };
        let files = vec![MonitText { name: "f".into(), text: text.into() }];
        let actions = rig.machine.load(files, 0).unwrap();
        rig.carry_out(actions);
        rig
    }

    fn process(&mut self) -> ProcessIdentity {
        self.next_pid += 1;
        ProcessIdentity { pid: self.next_pid, start_time: 1 }
    }

    /// The process of `name` is there from now on.
    fn up(&mut self, name: &str) -> ProcessIdentity {
        let process = self.process();
        self.runs.insert(name.into(), process);
        process
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            let event = match action {
                Action::Look { service, look, process, start_program, with_tests, .. } => {
                    let running = self.runs.get(&service).copied();
                    let program = self.programs.get(&service).copied();
                    let sighting = Sighting {
                        file: running
                            .map_or(PidFile::Nobody, |process| PidFile::Process { process, is_younger: false }),
                        process_runs: process.is_some() && process == running,
                        start_program_runs: start_program.is_some() && start_program == program,
                        stop_program_runs: false,
                        readings: if with_tests { self.readings.clone() } else { Vec::new() },
                    };
                    Event::Seen { service, look, sighting }
                }
                Action::Launch { service, launch, program } => {
                    let identity = self.process();
                    self.launches.insert(launch, (program.arguments.join(" "), identity));
                    Event::Launched { service, launch, program: identity }
                }
                Action::Release { launch } => {
                    self.done.push(self.launches[&launch].0.clone());
                    continue;
                }
                Action::Run { program, .. } => {
                    self.done.push(program.arguments.join(" "));
                    continue;
                }
                Action::End { by_force, .. } => {
                    self.done.push(if by_force { "kill".into() } else { "end".into() });
                    continue;
                }
                Action::Note(note) => {
                    self.done.extend(note.event.map(|event| format!("{}: {event}", note.service)));
                    continue;
                }
                Action::Save(_) | Action::Discard { .. } => continue,
            };
            let actions = self.machine.handle(event, self.now);
            self.carry_out(actions);
        }
    }

    fn pass(&mut self, seconds: u64) -> Vec<String> {
        for _ in 0..seconds * 5 {
            self.now += 200;
            let actions = self.machine.handle(Event::Tick, self.now);
            self.carry_out(actions);
        }
        std::mem::take(&mut self.done)
    }

    fn command(&mut self, command: Command, name: &str) -> Vec<String> {
        let actions = self.machine.command(command, &Selection::Service(name.into()), self.now).unwrap();
        self.carry_out(actions);
        std::mem::take(&mut self.done)
    }

    fn health(&self, name: &str) -> Health {
        self.machine.status().into_iter().find(|status| status.name == name).unwrap().health
    }
}

fn check(name: &str, more: &str) -> String {
    format!("check process {name} pidfile /{name} start \"/start {name}\" stop \"/stop {name}\" {more}\n")
}

#[test]
fn a_new_service_is_started_and_runs_when_its_pid_file_comes_late() {
    let mut rig = Rig::new(&check("web", ""));
    assert_eq!(rig.pass(20), ["/start web"]);
    assert_eq!(rig.health("web"), Health::Starting);
    rig.up("web");
    assert_eq!(rig.pass(20), [""; 0]);
    assert_eq!(rig.health("web"), Health::Running);
}

#[test]
fn a_service_that_runs_already_is_not_started() {
    let mut rig = Rig::new("");
    rig.up("web");
    let files = vec![MonitText { name: "f".into(), text: check("web", "") }];
    let actions = rig.machine.load(files, 0).unwrap();
    rig.carry_out(actions);
    assert_eq!(rig.command(Command::Start, "web"), [""; 0]);
    assert_eq!(rig.pass(30), [""; 0]);
    assert_eq!(rig.health("web"), Health::Running);
}

#[test]
fn a_death_is_noticed_and_the_service_started_within_two_cycles() {
    let mut rig = Rig::new(&check("web", ""));
    rig.up("web");
    rig.pass(15);
    rig.runs.clear();
    assert_eq!(rig.pass(20), ["web: Does not exist", "/start web"]);
}

#[test]
fn a_start_that_brings_no_process_fails_after_its_timeout_and_is_tried_again_in_the_next_cycle() {
    let mut rig = Rig::new("check process web pidfile /web start \"/start web\" with timeout 20 seconds");
    assert_eq!(rig.pass(19), ["/start web"]);
    assert_eq!(rig.pass(2), ["web: Execution failed"]);
    assert_eq!(rig.health("web"), Health::Failing);
    assert_eq!(rig.pass(10), ["/start web"]);
}

#[test]
fn a_start_program_that_still_runs_is_never_run_a_second_time() {
    let mut rig = Rig::new(&check("web", ""));
    let program = rig.launches.values().next().unwrap().1;
    rig.programs.insert("web".into(), program);
    assert_eq!(rig.pass(200), ["/start web", "web: Execution failed"]);
    rig.programs.clear();
    assert_eq!(rig.pass(15), ["web: Execution failed", "/start web"]);
}

#[test]
fn a_stop_waits_for_a_start_and_ends_a_start_program_that_does_not() {
    let mut rig = Rig::new(&check("web", ""));
    let program = rig.launches.values().next().unwrap().1;
    rig.programs.insert("web".into(), program);
    rig.pass(1);
    assert_eq!(rig.command(Command::Stop, "web"), [""; 0]);
    assert_eq!(rig.pass(31), ["web: Execution failed", "end"]);
    assert_eq!(rig.pass(10), ["kill"]);
    rig.programs.clear();
    assert_eq!(rig.pass(60), ["web: Execution failed"]);
    assert_eq!(rig.health("web"), Health::Unmonitored);
    assert!(rig.machine.status()[0].is_stopped);
}

#[test]
fn dependencies_start_first_and_stop_last() {
    let mut rig = Rig::new(&(check("web", "depends on db") + &check("db", "")));
    assert_eq!(rig.pass(5), ["/start db"]);
    rig.up("db");
    assert_eq!(rig.pass(5), ["/start web"]);
    rig.up("web");
    rig.pass(1);
    assert_eq!(rig.command(Command::Stop, "db"), ["/stop web"]);
    assert_eq!(rig.pass(5), [""; 0], "the process of web still runs");
    rig.runs.remove("web");
    assert_eq!(rig.pass(1), ["/stop db"]);
    rig.runs.remove("db");
    rig.pass(1);
    assert_eq!(rig.command(Command::Start, "web"), ["/start db"]);
}

#[test]
fn when_a_service_dies_those_that_depend_on_it_are_stopped_and_started_after_it() {
    let mut rig = Rig::new(&(check("web", "depends on db") + &check("db", "")));
    rig.up("db");
    rig.up("web");
    rig.pass(15);
    rig.done.clear();
    rig.runs.remove("db");
    assert_eq!(rig.pass(10), ["db: Does not exist", "/stop web"]);
    rig.runs.remove("web");
    assert_eq!(rig.pass(1), ["/start db"]);
    rig.up("db");
    assert_eq!(rig.pass(1), ["/start web"]);
}

#[test]
fn a_restart_stops_and_starts_and_a_stopped_service_stays_stopped() {
    let mut rig = Rig::new(&check("web", ""));
    rig.up("web");
    rig.pass(1);
    assert_eq!(rig.command(Command::Restart, "web"), ["/stop web"]);
    rig.runs.clear();
    assert_eq!(rig.pass(1), ["/start web"]);
    rig.up("web");
    rig.pass(1);
    assert_eq!(rig.command(Command::Stop, "web"), ["/stop web"]);
    rig.runs.clear();
    assert_eq!(rig.pass(60), [""; 0]);
    let snapshot = rig.machine.snapshot();
    let (machine, actions) = Machine::restore(snapshot, "another boot", CYCLE, 0).unwrap();
    rig.machine = machine;
    rig.carry_out(actions);
    assert_eq!(rig.pass(60), [""; 0], "also after a boot");
}

#[test]
fn a_service_without_a_stop_program_is_left_running_and_others_do_not_wait_for_it() {
    let web = "check process web pidfile /web start \"/start web\" depends on db\n";
    let mut rig = Rig::new(&(web.to_owned() + &check("db", "")));
    rig.up("db");
    rig.up("web");
    rig.pass(1);
    assert_eq!(rig.command(Command::Stop, "db"), ["/stop db"]);
}

#[test]
fn a_process_that_a_stop_does_not_end_is_reported_and_not_killed() {
    let mut rig = Rig::new(&check("web", ""));
    rig.up("web");
    rig.pass(1);
    assert_eq!(rig.command(Command::Stop, "web"), ["/stop web"]);
    assert_eq!(rig.pass(60), ["web: Execution failed"]);
    assert!(rig.machine.status()[0].has_stop_failed);
    assert_eq!(rig.command(Command::Stop, "web"), ["/stop web"], "asked again, it is tried again");
}

#[test]
fn a_pid_file_with_the_pid_of_a_younger_process_means_nobody() {
    let mut machine = Machine::new("boot", CYCLE, 0);
    let files = vec![MonitText { name: "f".into(), text: check("web", "") }];
    let actions = machine.load(files, 0).unwrap();
    let [Action::Look { look, .. }, ..] = &actions[..] else { panic!("{actions:?}") };
    let process = ProcessIdentity { pid: 7, start_time: 99 };
    let file = PidFile::Process { process, is_younger: true };
    let event = Event::Seen { service: "web".into(), look: *look, sighting: Sighting { file, ..Sighting::default() } };
    machine.handle(event, 0);
    assert_eq!(machine.status()[0].pid, None);
}

#[test]
fn what_is_unmonitored_is_left_alone_until_it_is_monitored() {
    let mut rig = Rig::new(&check("web", ""));
    rig.up("web");
    rig.pass(1);
    rig.command(Command::Unmonitor, "web");
    rig.runs.clear();
    assert_eq!(rig.pass(60), [""; 0]);
    assert_eq!(rig.health("web"), Health::Unmonitored);
    assert_eq!(rig.command(Command::Monitor, "web"), ["/start web"]);
}

#[test]
fn a_test_counts_cycles_before_it_restarts() {
    let mut rig = Rig::new(&check("web", "if totalmem > 1 MB for 3 cycles then restart"));
    rig.up("web");
    rig.pass(5);
    rig.readings = vec![Reading::Number(2000.0)];
    assert_eq!(rig.pass(20), [""; 0]);
    assert_eq!(rig.health("web"), Health::Running);
    assert_eq!(rig.pass(10), ["web: Resource limit matched", "/stop web"]);
    rig.runs.clear();
    assert_eq!(rig.pass(1), ["/start web"]);
}

#[test]
fn a_test_that_no_longer_matches_does_the_other_thing() {
    let mut rig = Rig::new(&check("web", "if cpu > 50 then exec \"/high\" else if succeeded then exec \"/low\""));
    rig.up("web");
    rig.pass(1);
    rig.readings = vec![Reading::Number(90.0)];
    assert_eq!(rig.pass(10), ["web: Resource limit matched", "/high"]);
    assert_eq!(rig.health("web"), Health::Failing);
    rig.readings = vec![Reading::Number(10.0)];
    assert_eq!(rig.pass(10), ["/low"]);
    assert_eq!(rig.health("web"), Health::Running);
}

#[test]
fn a_service_that_restarts_too_often_is_given_up() {
    let mut rig = Rig::new(&check("web", "if 3 restarts within 20 cycles then timeout"));
    rig.up("web");
    rig.pass(5);
    for _ in 0..3 {
        rig.runs.clear();
        rig.pass(10);
        rig.up("web");
        rig.pass(1);
    }
    rig.pass(10);
    assert_eq!(rig.health("web"), Health::Unmonitored);
}

#[test]
fn a_file_that_changes_restarts_what_depends_on_it() {
    let mut rig = Rig::new(
        &("check file cert path /cert if changed checksum then restart\n".to_owned()
            + &check("web", "depends on cert")),
    );
    rig.up("web");
    rig.pass(1);
    rig.readings = vec![Reading::Mark(1)];
    assert_eq!(rig.pass(25), [""; 0]);
    rig.readings = vec![Reading::Mark(2)];
    assert_eq!(rig.pass(10), ["cert: Checksum changed", "/stop web"]);
    rig.runs.clear();
    assert_eq!(rig.pass(1), ["/start web"]);
}

#[test]
fn files_that_are_wrong_change_nothing() {
    let mut rig = Rig::new(&check("web", ""));
    rig.up("web");
    rig.pass(1);
    let files = vec![MonitText { name: "f".into(), text: "check process web".into() }];
    assert!(rig.machine.load(files, rig.now).is_err());
    assert_eq!(rig.health("web"), Health::Running);
}

#[test]
fn a_service_that_is_taken_away_while_it_starts_and_comes_back_is_not_started_twice() {
    let mut rig = Rig::new(&check("web", ""));
    assert_eq!(rig.pass(1), ["/start web"]);
    let actions = rig.machine.load(Vec::new(), rig.now).unwrap();
    rig.carry_out(actions);
    let files = vec![MonitText { name: "f".into(), text: check("web", "") }];
    let actions = rig.machine.load(files, rig.now).unwrap();
    rig.carry_out(actions);
    assert_eq!(rig.pass(10), [""; 0]);
    rig.up("web");
    assert_eq!(rig.pass(10), [""; 0]);
    assert_eq!(rig.health("web"), Health::Running);
}

#[test]
fn five_hundred_services_are_saved_and_restored() {
    let text: String = (0..500).map(|number| check(&format!("s{number}"), "")).collect();
    let rig = Rig::new(&text);
    let snapshot = rig.machine.snapshot();
    let json = serde_json::to_string(&snapshot).unwrap();
    let back: snapshot::Snapshot = serde_json::from_str(&json).unwrap();
    assert_eq!(back, snapshot);
    let (machine, _) = Machine::restore(back, "boot", CYCLE, 1000).unwrap();
    assert_eq!(machine.snapshot(), snapshot);
}

/// The bytes that are written while this many services are started.
fn written_for(services: usize) -> usize {
    let text: String = (0..services).map(|number| check(&format!("s{number}"), "")).collect();
    let mut machine = Machine::new("boot", CYCLE, 0);
    let mut next: VecDeque<Action> =
        machine.load(vec![MonitText { name: "f".into(), text }], 0).unwrap().into_iter().collect();
    let (mut written, mut started, mut next_pid) = (0, 0, 0);
    while !next.is_empty() {
        let round = Round::take(&mut next);
        let launches = round.actions.iter().filter(|action| matches!(action, Action::Launch { .. })).count();
        assert!(launches <= rounds::MOST_LAUNCHES);
        for action in round.actions {
            let event = match action {
                Action::Look { service, look, .. } => Event::Seen { service, look, sighting: Sighting::default() },
                Action::Launch { service, launch, .. } => {
                    next_pid += 1;
                    let program = ProcessIdentity { pid: next_pid, start_time: 1 };
                    Event::Launched { service, launch, program }
                }
                _ => continue,
            };
            next.extend(machine.handle(event, 0));
        }
        if let Some(snapshot::Change::Of(records)) = &round.save {
            written += serde_json::to_string(records).unwrap().len();
        }
        assert!(round.releases.is_empty() || round.save.is_some(), "a gate opens before it is known");
        started += round.releases.len();
    }
    assert_eq!(started, services);
    written
}

#[test]
fn ten_times_as_many_services_write_ten_times_as_much() {
    let (few, many) = (written_for(100), written_for(1000));
    assert!(many > few && many < few * 11, "{few} bytes for 100, {many} for 1000");
}

#[test]
fn after_another_boot_what_was_started_starts_and_what_was_stopped_or_left_alone_stays_so() {
    let names = ["kept", "stopped", "left", "bounced"];
    let mut rig = Rig::new(&names.map(|name| check(name, "")).concat());
    for name in names {
        rig.up(name);
    }
    rig.pass(20);
    rig.command(Command::Stop, "stopped");
    rig.runs.remove("stopped");
    rig.pass(1);
    rig.command(Command::Unmonitor, "left");
    rig.command(Command::Restart, "bounced");
    let snapshot = rig.machine.snapshot();

    let mut after = Rig::new("");
    let (machine, actions) = Machine::restore(snapshot, "another boot", CYCLE, 0).unwrap();
    after.machine = machine;
    // The same pids, and nobody has them.
    after.carry_out(actions);
    let mut started = after.pass(1);
    started.sort();
    assert_eq!(started, ["/start bounced", "/start kept"]);
}
