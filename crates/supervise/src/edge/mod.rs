//! The supervisor as a process: it carries out what the [`machine`](crate::machine) decides, and tells it what happened.
//!
//! One thread does everything; others wait for connections of clients and for answers of connection tests.
//!
//! - [`programs`]: start and stop programs, behind gates.
//! - [`processes`]: pid files and `/proc`: who runs, what they take, and signals that never reach a stranger.
//! - [`groups`]: a control group for each service, where they are allowed.
//! - [`readings`]: what tests read.
//! - [`journal`]: what outlives it.
//! - [`server`]: connections of clients.
//! - [`log`]: `monit.log`, where operators look.

pub mod groups;
mod journal;
pub mod log;
pub mod processes;
pub mod programs;
pub mod readings;
pub mod server;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, UNIX_EPOCH};

use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;
use windlass_durable::{file, kill_point};

use crate::machine::commands::Selection;
use crate::machine::rounds::Round;
use crate::machine::snapshot::Change;
use crate::machine::status::Usage;
use crate::machine::{Action, Event, Machine, Millis, Note, PidFile, Sighting};
use crate::monit::{Condition, FleetError, Kind, Service};
use crate::protocol::{Answer, Happening, Request};
use groups::Groups;
use journal::Journal;
use log::Log;
use processes::Table;
use programs::Gates;
use server::Asked;

const LOCK: &str = "supervise.lock";

/// How often, at least, we wait for processes that ended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How old measurements of all processes may be: as long as it takes to look at all services of a cycle.
const TABLE_AGE: Millis = 100;

/// So many events are remembered.
const EVENTS: usize = 256;

/// Where and how a supervisor runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its state, its socket and its lock; made if it is missing, for its owner alone.
    pub folder: PathBuf,
    /// The program that calls [`launch()`](crate::launch) with the arguments that come after these.
    pub launcher: Vec<OsString>,
    /// The unit of what monit files count.
    pub cycle: Duration,
    /// Where decisions are written to.
    pub log: PathBuf,
    /// The control group below which each service gets its own; none unless it is said, because groups outlive processes.
    pub groups: Option<PathBuf>,
    /// How long one that ends may hold the folder.
    pub patience: Duration,
}

impl Settings {
    /// Cycles of ten seconds, as stemcells have them, and `monit.log` in `folder`.
    pub fn new(folder: impl Into<PathBuf>, launcher: Vec<OsString>) -> Self {
        let folder = folder.into();
        let log = folder.join("monit.log");
        let patience = Duration::from_secs(10);
        Self { folder, launcher, cycle: Duration::from_secs(10), log, groups: None, patience }
    }
}

/// why a supervisor does not run
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// its folder is not usable, or another one has it
    #[error("the supervisor's folder {} cannot be used", folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// its state is not readable
    #[error("{} is not a supervisor's state: move it away, and what runs is found again by its pid files", path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// its state has files that it does not understand
    #[error("the monit files in {} are not understood: a newer version has written it", path.display())]
    Files {
        path: PathBuf,
        #[source]
        source: FleetError,
    },
    #[error("the kernel refuses what a supervisor needs")]
    Kernel(#[source] io::Error),
}

/// What reaches the thread that does everything.
#[derive(Debug)]
pub(crate) enum Message {
    Asked(Asked),
    Happened(Event),
}

/// Supervises until it is killed, and leaves everything running then.
pub fn run(settings: &Settings) -> Result<(), RunError> {
    let in_folder = |source| RunError::Folder { folder: settings.folder.clone(), source };
    file::create_private_dir(&settings.folder).map_err(in_folder)?;
    let _lock = FileLock::acquire(&settings.folder.join(LOCK), settings.patience).map_err(in_folder)?;
    // Processes whose parents have ended become children of the supervisor, which notices when they end.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| RunError::Kernel(error.into()))?;
    let boot = processes::boot().map_err(RunError::Kernel)?;
    let now = processes::now();
    let (journal, snapshot) = Journal::open(&settings.folder)?;
    let (machine, actions) = match snapshot {
        Some(snapshot) => Machine::restore(snapshot, &boot, settings.cycle, now)
            .map_err(|source| RunError::Files { path: journal.state(), source })?,
        None => (Machine::new(&boot, settings.cycle, now), Vec::new()),
    };
    let (to_main, messages) = mpsc::channel();
    server::listen(&settings.folder, to_main.clone()).map_err(in_folder)?;
    let mut edge = Edge {
        gates: Gates::new(settings.launcher.clone(), Groups::below(settings.groups.as_deref())),
        log: Log::new(settings.log.clone()),
        journal,
        machine,
        next: actions.into(),
        to_main,
        table: None,
        usage: BTreeMap::new(),
        events: VecDeque::new(),
        last_event: 0,
        unsaved: None,
    };
    edge.log.say("", "the supervisor has started");
    match (&settings.groups, edge.gates.groups.are_made()) {
        (Some(parent), true) => edge.log.say("", &format!("services have control groups below {}", parent.display())),
        (Some(parent), false) => {
            edge.log.say("", &format!("services have no control groups: {} cannot be used", parent.display()));
        }
        (None, _) => {}
    }
    edge.supervise(&messages);
    Ok(())
}

/// What was asked for, for the log.
fn in_words(request: &Request) -> String {
    match request {
        Request::Load { files } => format!("asked to look after the services of {} files", files.len()),
        Request::Command { command, of } => {
            let whom = match of {
                Selection::All => "all services".to_owned(),
                Selection::Group(group) => format!("the services of group {group}"),
                Selection::Service(name) => format!("'{name}'"),
            };
            format!("asked to {} {whom}", format!("{command:?}").to_lowercase())
        }
        Request::Status | Request::Events { .. } => "asked how everybody is".to_owned(),
    }
}

struct Edge {
    machine: Machine,
    gates: Gates,
    log: Log,
    journal: Journal,
    /// What is still to be done.
    next: VecDeque<Action>,
    to_main: Sender<Message>,
    /// All processes, when they were measured last, and before that.
    table: Option<Table>,
    usage: BTreeMap<String, Usage>,
    events: VecDeque<Happening>,
    last_event: u64,
    /// What could not be saved, and why.
    unsaved: Option<String>,
}

impl Edge {
    fn supervise(&mut self, messages: &Receiver<Message>) {
        loop {
            let due = self.machine.next_due().saturating_sub(processes::now());
            // Clients are heard between rounds, however many services are being started.
            let due = if self.next.is_empty() { Duration::from_millis(due).min(LONGEST_SLEEP) } else { Duration::ZERO };
            match messages.recv_timeout(due) {
                Ok(Message::Asked(asked)) => {
                    let answer = self.answer(asked.request);
                    kill_point("before an answer");
                    // The client may be gone.
                    let _ = asked.answer.send(answer);
                }
                Ok(Message::Happened(event)) => self.happened(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            processes::reap();
            self.happened(Event::Tick);
            self.carry_out();
            if self.unsaved.is_some() {
                self.save(&Change::All(self.machine.snapshot()));
            }
        }
    }

    fn answer(&mut self, request: Request) -> Answer {
        let now = processes::now();
        let asked = in_words(&request);
        let actions = match request {
            Request::Status => return self.status(),
            Request::Events { after } => {
                return Answer::Events(self.events.iter().filter(|event| event.number > after).cloned().collect());
            }
            Request::Load { files } => self.machine.load(files, now).map_err(|error| error.to_string()),
            Request::Command { command, of } => {
                self.machine.command(command, &of, now).map_err(|error| error.to_string())
            }
        };
        match actions {
            Ok(actions) => {
                self.log.say("", &asked);
                self.gates.groups.keep(self.machine.names());
                self.next.extend(actions);
                self.carry_out();
                self.unsaved.clone().map_or(Answer::Done, Answer::Unsaved)
            }
            Err(reason) => {
                self.log.say("", &format!("{asked}, refused: {reason}"));
                Answer::Refused(reason)
            }
        }
    }

    fn status(&self) -> Answer {
        let mut services = self.machine.status();
        for service in &mut services {
            service.usage = service.pid.and_then(|_| self.usage.get(&service.name).copied());
        }
        Answer::Status(services)
    }

    fn happened(&mut self, event: Event) {
        let actions = self.machine.handle(event, processes::now());
        self.next.extend(actions);
    }

    /// Carries out a round of what is to be done; what follows from it is for the next one.
    fn carry_out(&mut self) {
        let round = Round::take(&mut self.next);
        let mut events: Vec<Event> = round.actions.into_iter().filter_map(|action| self.act(action)).collect();
        if let Some(change) = round.save {
            self.save(&change);
        }
        events.extend(round.releases.into_iter().filter_map(|launch| self.release(launch)));
        for event in events {
            self.happened(event);
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Look { service, look, process, start_program, stop_program, with_tests } => {
                let known = [process, start_program, stop_program];
                let sighting = self.look(&service, known, with_tests);
                return Some(Event::Seen { service, look, sighting });
            }
            Action::Launch { service, launch, program } => {
                return Some(match self.gates.launch(launch, &service, &program) {
                    Ok(program) => Event::Launched { service, launch, program },
                    Err(reason) => Event::LaunchFailed { service, launch, reason },
                });
            }
            // A round has these by themselves.
            Action::Save(_) | Action::Release { .. } => {}
            Action::Discard { launch } => {
                self.gates.discard(launch);
            }
            Action::End { program, by_force } => {
                kill_point("before a signal");
                processes::end_session(program, by_force);
            }
            Action::Run { service, program } => {
                let line = program.arguments.join(" ");
                match self.gates.run(&service, &program) {
                    Ok(()) => self.log.say(&service, &format!("exec: {line}")),
                    Err(reason) => self.log.say(&service, &format!("failed to run a program: {reason}")),
                }
            }
            Action::Note(note) => self.note(note),
        }
        None
    }

    fn release(&mut self, launch: u64) -> Option<Event> {
        // What a later supervisor would not know of must not run.
        if let Some(reason) = self.unsaved.clone() {
            let service = self.gates.discard(launch)?;
            let reason = format!("the supervisor's state cannot be saved: {reason}");
            return Some(Event::LaunchFailed { service, launch, reason });
        }
        let (service, error) = self.gates.release(launch).err()?;
        Some(Event::LaunchFailed { service, launch, reason: error.to_string() })
    }

    fn save(&mut self, change: &Change) {
        match self.journal.save(change, || self.machine.snapshot()) {
            Ok(()) => self.unsaved = None,
            Err(error) => {
                if self.unsaved.is_none() {
                    self.log.say("", &format!("the state cannot be saved, so nothing is started: {error}"));
                }
                self.unsaved = Some(error.to_string());
            }
        }
    }

    fn note(&mut self, note: Note) {
        self.log.say(&note.service, &note.text);
        let Some(event) = note.event else { return };
        self.last_event += 1;
        let at = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        self.events.push_back(Happening {
            number: self.last_event,
            at,
            service: note.service,
            event: event.to_owned(),
            text: note.text,
            action: None,
        });
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }

    fn look(&mut self, name: &str, known: [Option<ProcessIdentity>; 3], with_tests: bool) -> Sighting {
        // All services of a cycle are looked at in one table. What a look without tests decides is seen at this moment.
        if with_tests {
            self.measure();
        }
        let table = self.table.as_ref().filter(|_| with_tests);
        let runs = |process: ProcessIdentity| match table.and_then(|table| table.runs(process)) {
            Some(runs) => runs,
            None => process.is_running(),
        };
        let [process_runs, start_program_runs, stop_program_runs] = known.map(|process| process.is_some_and(runs));
        let Some(service) = self.machine.definition(name) else { return Sighting::default() };
        let file = match &service.kind {
            Kind::Process { pidfile } => processes::read_pid_file(pidfile, table),
            _ => PidFile::Nobody,
        };
        let readings = if with_tests { self.readings(&service.clone(), file) } else { Vec::new() };
        Sighting { file, process_runs, start_program_runs, stop_program_runs, readings }
    }

    /// Measures all processes, unless that was just done.
    fn measure(&mut self) {
        let now = processes::now();
        if self.table.as_ref().is_none_or(|table| table.at.saturating_add(TABLE_AGE) < now) {
            self.table = Table::read(now, self.table.take()).ok();
        }
    }

    /// What the tests of a service read; connection tests are begun, and tell later.
    fn readings(&mut self, service: &Service, file: PidFile) -> Vec<crate::machine::Reading> {
        let usage = match file {
            PidFile::Process { process, .. } => {
                let members = self.gates.groups.members(&service.name);
                self.table.as_ref().and_then(|table| table.measure(process, &members))
            }
            PidFile::Nobody => None,
        };
        if let Some(usage) = usage {
            match self.usage.get_mut(&service.name) {
                Some(known) => *known = usage.total(),
                None => drop(self.usage.insert(service.name.clone(), usage.total())),
            }
        }
        for (index, test) in service.tests.iter().enumerate() {
            if let Condition::Connection(connection) = &test.condition {
                readings::probe(&service.name, index, connection.clone(), self.to_main.clone());
            }
        }
        let is_there = matches!(file, PidFile::Process { .. });
        service.tests.iter().map(|test| readings::read(&service.kind, test, usage.as_ref(), is_there)).collect()
    }
}
