//! The supervisor's decisions, without a process, a file or a clock of its own: events in, actions out.
//!
//! - [`Machine`]: takes an [`Event`] at a time and says which [`Action`]s follow, in the order in which they must be carried out.
//! - [`state`]: what is known of one service.
//! - [`commands`]: what operators and agents ask for, and whom else it concerns.
//! - [`looks`]: what follows from a look at a service.
//! - [`tests`]: `if … then …` of monit files, in cycles.
//! - [`rounds`]: actions of many events, carried out together.
//! - [`snapshot`]: what outlives the supervisor.
//! - [`status`]: what is told about a service.
//!
//! # Never twice, never lost
//!
//! - A start program is launched behind a gate: it exists, but does nothing. Its pid and start time are saved, then the gate
//!   opens. Those of many programs may be saved together, as long as all of that comes before the first of their gates opens. A supervisor that dies before leaves a program that ends without having begun; one that dies later knows
//!   at its next start which program it has to wait for.
//! - Nothing is launched without a fresh look: [`Action::Look`] and [`Event::Seen`] carry a number, and old answers do not count.
//! - A service is started again only when its last start program has ended and the time for its pid file is over.
//! - A process is a pid and a start time. Only programs that the supervisor launched itself are ever signalled.

pub mod commands;
pub mod looks;
pub mod rounds;
pub mod snapshot;
pub mod state;
pub mod status;
pub mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_durable::process::ProcessIdentity;

use crate::monit::{Fleet, Mode, Program};
use snapshot::{Change, MonitText};
use state::{Fault, Goal, Phase, Run, Stage, State, Task};

/// Milliseconds since the machine booted, also over time asleep.
pub type Millis = u64;

/// How often a service is looked at while it starts or stops.
pub const POLL: Duration = Duration::from_millis(200);

/// Between asking a program to end and making it.
pub const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Tick,
    /// The answer to [`Action::Look`].
    Seen {
        service: String,
        /// The number of that look.
        look: u64,
        /// What was seen.
        sighting: Sighting,
    },
    /// A program waits behind its gate: the answer to [`Action::Launch`].
    Launched {
        service: String,
        /// The number of that launch.
        launch: u64,
        program: ProcessIdentity,
    },
    /// No program waits: the other answer, also when the state could not be saved before the gate opened.
    LaunchFailed {
        service: String,
        /// The number of that launch.
        launch: u64,
        reason: String,
    },
    /// The answer to a connection test of a [`Action::Look`] with tests.
    Probed {
        service: String,
        test: usize,
        /// Whether nobody answered.
        failed: bool,
    },
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Look at a service, and tell with [`Event::Seen`].
    Look {
        service: String,
        /// To be told with the answer.
        look: u64,
        /// The process that was known last.
        process: Option<ProcessIdentity>,
        /// The start program that was known last.
        start_program: Option<ProcessIdentity>,
        /// The stop program that was known last.
        stop_program: Option<ProcessIdentity>,
        /// Whether its tests are read, too.
        with_tests: bool,
    },
    /// Start a program behind a gate, and tell with [`Event::Launched`].
    Launch {
        service: String,
        /// To be told with the answer.
        launch: u64,
        program: Program,
    },
    /// Make this last, before any gate opens.
    Save(Box<Change>),
    /// Open the gate of a program.
    Release {
        /// The number of its launch.
        launch: u64,
    },
    /// Let a program end behind its gate.
    Discard {
        /// The number of its launch.
        launch: u64,
    },
    /// End a program that the supervisor launched, with its session, if it is still this one.
    End {
        program: ProcessIdentity,
        /// Whether it was asked before.
        by_force: bool,
    },
    /// Run a program of a test, and forget it.
    Run { service: String, program: Program },
    /// Tell operators.
    Note(Note),
}

/// Something that operators should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub service: String,
    /// What happened, in monit's words, if it is worth an alert.
    pub event: Option<&'static str>,
    /// The same as a sentence.
    pub text: String,
}

/// A service at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sighting {
    /// What its pid file says.
    pub file: PidFile,
    /// Whether the process that was known last still runs.
    pub process_runs: bool,
    /// Whether the start program that was known last still runs.
    pub start_program_runs: bool,
    /// Whether the stop program that was known last still runs.
    pub stop_program_runs: bool,
    /// What its tests read, in the order of the tests; empty without tests.
    pub readings: Vec<Reading>,
}

/// What a pid file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PidFile {
    /// It is not there, holds no pid, or that of no process.
    #[default]
    Nobody,
    Process {
        process: ProcessIdentity,
        /// Whether it is younger than the file, so that the file means another one that had its pid before.
        is_younger: bool,
    },
}

/// What a test reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// Nothing, this time.
    Nothing,
    /// A number, which the test compares.
    Number(f64),
    /// A number that stands for a state, which the test compares with the last one.
    Mark(u64),
    /// What is looked at is not there.
    Missing,
}

/// The supervisor's mind.
#[derive(Debug)]
pub struct Machine {
    fleet: Fleet,
    files: Vec<MonitText>,
    boot: String,
    states: BTreeMap<String, State>,
    cycle: Millis,
    next_cycle: Millis,
    cycles: u64,
    now: Millis,
    numbers: u64,
    /// Something has to be saved, of a service that was touched.
    is_changed: bool,
    touched: Touched,
    actions: Vec<Action>,
}

/// Whose state may have changed since actions were last taken away: what follows is decided for these and their neighbours alone.
#[derive(Debug)]
enum Touched {
    All,
    Some(BTreeSet<String>),
}

impl Default for Touched {
    fn default() -> Self {
        Self::Some(BTreeSet::new())
    }
}

impl Machine {
    /// One that remembers nothing. A cycle is the unit of what monit files count.
    pub fn new(boot: &str, cycle: Duration, now: Millis) -> Self {
        let cycle = u64::try_from(cycle.as_millis()).unwrap_or(u64::MAX).max(1);
        Self {
            fleet: Fleet::default(),
            files: Vec::new(),
            boot: boot.to_owned(),
            states: BTreeMap::new(),
            cycle,
            next_cycle: now.saturating_add(cycle),
            cycles: 0,
            now,
            numbers: 0,
            is_changed: false,
            touched: Touched::default(),
            actions: Vec::new(),
        }
    }

    /// What follows from `event`.
    pub fn handle(&mut self, event: Event, now: Millis) -> Vec<Action> {
        self.now = self.now.max(now);
        match event {
            Event::Tick => self.tick(),
            Event::Seen { service, look, sighting } => {
                self.touch(&service);
                let before = self.states.get(&service).map(State::matters);
                self.seen(&service, look, &sighting);
                // Most looks find what the last one found, and nothing follows for anybody.
                let is_same = before == self.states.get(&service).map(State::matters);
                if is_same && !self.is_changed && self.actions.is_empty() {
                    self.touched = Touched::default();
                    return Vec::new();
                }
            }
            Event::Launched { service, launch, program } => {
                self.touch(&service);
                self.launched(&service, launch, program);
            }
            Event::LaunchFailed { service, launch, reason } => {
                self.touch(&service);
                self.launch_failed(&service, launch, &reason);
            }
            Event::Probed { service, test, failed } => {
                self.touch(&service);
                self.judge(&service, test, failed);
            }
        }
        self.settle()
    }

    /// The state of `name` may change now.
    fn touch(&mut self, name: &str) {
        if let Touched::Some(names) = &mut self.touched
            && !names.contains(name)
        {
            names.insert(name.to_owned());
        }
    }

    /// What the files say of a service; also of one that they no longer have, as long as something of it is waited for.
    pub fn definition(&self, name: &str) -> Option<&crate::monit::Service> {
        self.states.get(name).map(|state| &state.service)
    }

    /// All services, also those that are no longer in the files, as long as something of them is waited for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.states.keys().map(String::as_str)
    }

    /// When something is due next, at the latest.
    pub fn next_due(&self) -> Millis {
        let poll = self.states.values().filter(|state| state.is_busy()).map(|state| state.next_look).min();
        poll.unwrap_or(self.next_cycle).min(self.next_cycle)
    }

    /// Decides what can be begun, and ends with saving what has changed.
    fn settle(&mut self) -> Vec<Action> {
        for name in self.concerned() {
            self.advance(&name);
        }
        self.forget_leftovers();
        self.save_changes();
        self.touched = Touched::default();
        std::mem::take(&mut self.actions)
    }

    /// Those that were touched, those that wait for them to come up, and those that wait for them to go down.
    fn concerned(&self) -> Vec<String> {
        match &self.touched {
            Touched::All => self.states.keys().cloned().collect(),
            Touched::Some(names) => {
                let mut concerned = names.clone();
                for name in names {
                    concerned.extend(self.fleet.dependants(name).map(|service| service.name.clone()));
                    concerned.extend(self.fleet.get(name).into_iter().flat_map(|service| service.depends.clone()));
                }
                concerned.into_iter().collect()
            }
        }
    }

    /// What no file has any more is known only as long as something of it is waited for.
    fn forget_leftovers(&mut self) {
        let fleet = &self.fleet;
        let is_kept =
            |name: &str, state: &State| fleet.get(name).is_some() || state.is_busy() || state.start_program.is_some();
        match &self.touched {
            Touched::All => self.states.retain(|name, state| is_kept(name, state)),
            Touched::Some(names) => {
                for name in names {
                    if self.states.get(name).is_some_and(|state| !is_kept(name, state)) {
                        self.states.remove(name);
                        self.is_changed = true;
                    }
                }
            }
        }
    }

    /// Saves the services that were touched, if something changed that has to outlive the supervisor.
    fn save_changes(&mut self) {
        if std::mem::take(&mut self.is_changed) {
            let change = match &self.touched {
                Touched::All => Change::All(self.snapshot()),
                Touched::Some(names) => {
                    Change::Of(names.iter().map(|name| (name.clone(), self.record(name))).collect())
                }
            };
            self.actions.push(Action::Save(Box::new(change)));
        }
    }

    fn tick(&mut self) {
        let is_cycle = self.now >= self.next_cycle;
        if !is_cycle && self.now < self.next_due() {
            return;
        }
        if is_cycle {
            self.cycles += 1;
            let missed = (self.now - self.next_cycle) / self.cycle;
            self.next_cycle = self.next_cycle.saturating_add(self.cycle.saturating_mul(missed + 1));
        }
        let names: Vec<String> = self.states.keys().cloned().collect();
        for name in names {
            if is_cycle {
                self.judge_restarts(&name);
            }
            let Some(state) = self.states.get(&name) else { continue };
            let is_due = state.is_busy() && self.now >= state.next_look && !state.is_launching();
            let is_checked = is_cycle && self.cycles.is_multiple_of(u64::from(state.service.every));
            if is_due || (!state.is_busy() && state.goal == Goal::Keep && is_checked) {
                self.look(&name, !is_due);
            } else if is_cycle && !state.is_busy() && (state.start_program.is_some() || state.process.is_some()) {
                // Nobody wants it, but what is told about it should be true.
                self.look(&name, false);
            }
        }
    }

    /// Begins what `name` needs and may have now.
    fn advance(&mut self, name: &str) {
        let Some(state) = self.states.get(name) else { return };
        if state.is_busy() {
            return;
        }
        if state.wants_down() {
            if !state.gave_up && self.may_go_down(name) {
                self.begin(name, Task::Stop);
            }
        } else if state.goal == Goal::Keep && state.wants_start && self.may_go_up(name) {
            self.begin(name, Task::Start);
        } else if state.goal == Goal::Keep && !state.is_checked && state.look.is_none() {
            self.look(name, false);
        }
    }

    fn may_go_up(&self, name: &str) -> bool {
        let Some(service) = self.fleet.get(name) else { return false };
        service.depends.iter().all(|on| self.states.get(on).is_some_and(|state| state.is_up() && !state.wants_down()))
    }

    /// Once those that depend on it and go down, too, are down.
    fn may_go_down(&self, name: &str) -> bool {
        let mut dependants = self.fleet.dependants(name).filter_map(|service| self.states.get(&service.name));
        dependants.all(|state| !state.is_busy() && !state.wants_down())
    }

    fn begin(&mut self, name: &str, task: Task) {
        let Some(state) = self.states.get_mut(name) else { return };
        state.phase = Phase::Busy(Run { task, stage: Stage::Looking, deadline: Millis::MAX, is_overdue: false });
        self.look(name, false);
    }

    /// Asks for a look, whose answer alone counts from now on.
    fn look(&mut self, name: &str, with_tests: bool) {
        let look = self.number();
        let Some(state) = self.states.get_mut(name) else { return };
        state.look = Some(look);
        state.next_look = self.now.saturating_add(POLL.as_millis() as Millis);
        let action = Action::Look {
            service: name.to_owned(),
            look,
            process: state.process,
            start_program: state.start_program,
            stop_program: state.stop_program(),
            with_tests,
        };
        self.actions.push(action);
    }

    fn launch(&mut self, name: &str, task: Task) {
        let launch = self.number();
        let cycles = self.cycles;
        let Some(state) = self.states.get_mut(name) else { return };
        let program = match task {
            Task::Start => state.service.start.clone(),
            Task::Stop => state.service.stop.clone(),
        };
        let Some(program) = program else { return };
        if let Phase::Busy(run) = &mut state.phase {
            run.stage = Stage::Launching(launch);
        }
        if task == Task::Start {
            if !std::mem::take(&mut state.is_asked_for) {
                state.restarts.push_back(cycles);
                state.restarts.truncate(1024);
            }
            state.forget_tests();
        }
        self.actions.push(Action::Launch { service: name.to_owned(), launch, program });
    }

    fn launched(&mut self, name: &str, launch: u64, program: ProcessIdentity) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else {
            self.actions.push(Action::Discard { launch });
            return;
        };
        let wants_down = state.wants_down();
        let goal = state.goal;
        let is_wanted = |run: &Run| match run.task {
            Task::Start => goal == Goal::Keep && !wants_down,
            Task::Stop => wants_down,
        };
        match &mut state.phase {
            Phase::Busy(run) if run.stage == Stage::Launching(launch) && is_wanted(run) => {
                let clause = if run.task == Task::Start { &state.service.start } else { &state.service.stop };
                let timeout = clause.as_ref().map_or(crate::monit::PATIENCE, |program| program.timeout);
                run.stage = Stage::Waiting(program);
                run.deadline = now.saturating_add(timeout.as_millis() as Millis);
                if run.task == Task::Start {
                    state.start_program = Some(program);
                    state.ended = None;
                }
                state.next_look = now.saturating_add(POLL.as_millis() as Millis);
                let text = match run.task {
                    Task::Start => "start",
                    Task::Stop => "stop",
                };
                self.is_changed = true;
                self.save_changes();
                self.actions.push(Action::Release { launch });
                self.note(name, None, text.to_owned());
            }
            Phase::Busy(run) if run.stage == Stage::Launching(launch) => {
                state.phase = Phase::Idle;
                self.actions.push(Action::Discard { launch });
                self.note(name, None, "its program does not begin, because nobody wants that any more".to_owned());
            }
            _ => self.actions.push(Action::Discard { launch }),
        }
    }

    fn launch_failed(&mut self, name: &str, launch: u64, reason: &str) {
        let Some(state) = self.states.get_mut(name) else { return };
        let Phase::Busy(run) = &state.phase else { return };
        // A gate that could not be opened was waited for already.
        let is_this = match run.stage {
            Stage::Launching(number) => number == launch,
            Stage::Waiting(_) => true,
            Stage::Looking => false,
        };
        if !is_this {
            return;
        }
        let task = run.task;
        state.phase = Phase::Idle;
        if task == Task::Start {
            state.start_program = None;
        }
        self.is_changed = true;
        self.failed(name, task, reason);
    }

    /// A start or stop did not do what it should.
    fn failed(&mut self, name: &str, task: Task, reason: &str) {
        let Some(state) = self.states.get_mut(name) else { return };
        let text = match task {
            Task::Start => {
                state.wants_start = false;
                format!("failed to start: {reason}")
            }
            Task::Stop => {
                state.gave_up = true;
                state.went_down();
                format!("failed to stop: {reason}")
            }
        };
        self.fault(name, "Execution failed", text);
    }

    /// Something is wrong with a service, until it is not.
    fn fault(&mut self, name: &str, event: &'static str, text: String) {
        if let Some(state) = self.states.get_mut(name) {
            state.fault = Some(Fault { event, text: text.clone() });
        }
        self.note(name, Some(event), text);
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn note(&mut self, service: &str, event: Option<&'static str>, text: String) {
        self.actions.push(Action::Note(Note { service: service.to_owned(), event, text }));
    }

    /// Whether a service is started when it is found down.
    fn is_active(&self, name: &str) -> bool {
        self.states.get(name).is_some_and(|state| state.service.mode == Mode::Active)
    }
}

#[cfg(test)]
mod unit_tests;
#[cfg(test)]
mod world;
