//! What outlives the supervisor: the files that are in force, what is wanted of each service, and which programs it waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_durable::process::ProcessIdentity;

use super::state::{Goal, Phase, Run, Stage, State, Task};
use super::{Action, Machine, Millis, Touched};
use crate::monit::{FleetError, Kind, Mode, Service};

/// The version of the form in which snapshots are stored. The first had no journal; it is read as well.
pub const VERSION: u32 = 2;

/// A file's name and text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitText {
    /// Its name, for errors.
    pub name: String,
    pub text: String,
}

/// All that is stored. Its form is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// The kernel's name of this boot: pids and times mean nothing after the next one.
    pub boot: String,
    /// The files in force.
    pub files: Vec<MonitText>,
    /// By name, also those that no file has any more, as long as a program of theirs may run.
    pub services: BTreeMap<String, Record>,
}

/// What has to outlive the supervisor from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// All of this, and nothing else.
    All(Snapshot),
    /// These services; those without a record are forgotten.
    Of(BTreeMap<String, Option<Record>>),
}

impl Change {
    /// Both, this one first.
    pub fn then(self, later: Self) -> Self {
        match (self, later) {
            (_, Self::All(snapshot)) => Self::All(snapshot),
            (Self::All(mut snapshot), Self::Of(records)) => {
                snapshot.apply(records);
                Self::All(snapshot)
            }
            (Self::Of(mut records), Self::Of(later)) => {
                records.extend(later);
                Self::Of(records)
            }
        }
    }
}

impl Snapshot {
    /// Takes over what is on record of some services since.
    pub fn apply(&mut self, records: BTreeMap<String, Option<Record>>) {
        for (name, record) in records {
            match record {
                Some(record) => self.services.insert(name, record),
                None => self.services.remove(&name),
            };
        }
    }
}

/// What is stored of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What is wanted.
    pub goal: Goal,
    /// Whether it has to go down before it comes up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// Its pid file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pidfile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// Its last start program, if it may still run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_program: Option<ProcessIdentity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<Waiting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiting {
    task: Task,
    program: ProcessIdentity,
    deadline: Millis,
}

impl Machine {
    /// What has to outlive the supervisor now.
    pub fn snapshot(&self) -> Snapshot {
        let services = self.states.iter().map(|(name, state)| (name.clone(), record(state))).collect();
        Snapshot { version: VERSION, boot: self.boot.clone(), files: self.files.clone(), services }
    }

    /// What has to outlive the supervisor of one service.
    pub(super) fn record(&self, name: &str) -> Option<Record> {
        self.states.get(name).map(record)
    }

    /// The supervisor that left `snapshot`. After another boot, what was wanted is wanted, and nothing runs.
    pub fn restore(
        snapshot: Snapshot,
        boot: &str,
        cycle: Duration,
        now: Millis,
    ) -> Result<(Self, Vec<Action>), FleetError> {
        let mut machine = Self::new(boot, cycle, now);
        let is_same_boot = snapshot.boot == boot;
        let mut actions = machine.load(snapshot.files, now)?;
        actions.clear();
        for (name, record) in snapshot.services {
            let is_left_over = machine.fleet.get(&name).is_none();
            if is_left_over && !is_same_boot {
                continue;
            }
            let new = || State::new(nameless(&name, record.pidfile.clone()), now);
            let state = machine.states.entry(name.clone()).or_insert_with(new);
            state.look = None;
            state.goal = record.goal;
            state.bounce = record.restart;
            if is_same_boot {
                state.process = record.process;
                state.start_program = record.start_program;
                if let Some(waiting) = record.waiting {
                    let (task, deadline) = (waiting.task, waiting.deadline);
                    let stage = Stage::Waiting(waiting.program);
                    state.phase = Phase::Busy(Run { task, stage, deadline, is_overdue: false });
                    state.is_restored = true;
                    state.next_look = now;
                }
            } else {
                // Restarted it is by the boot.
                state.bounce = false;
            }
        }
        machine.touched = Touched::All;
        machine.is_changed = true;
        let actions = machine.settle();
        Ok((machine, actions))
    }
}

fn record(state: &State) -> Record {
    let waiting = match &state.phase {
        Phase::Busy(Run { task, stage: Stage::Waiting(program), deadline, .. }) => {
            Some(Waiting { task: *task, program: *program, deadline: *deadline })
        }
        _ => None,
    };
    let pidfile = match &state.service.kind {
        Kind::Process { pidfile } => Some(pidfile.clone()),
        _ => None,
    };
    Record {
        goal: state.goal,
        restart: state.bounce,
        pidfile,
        process: state.process,
        start_program: state.start_program,
        waiting,
    }
}

/// A service that no file has any more.
fn nameless(name: &str, pidfile: Option<String>) -> Service {
    Service {
        name: name.to_owned(),
        line: 0,
        kind: pidfile.map_or(Kind::System, |pidfile| Kind::Process { pidfile }),
        start: None,
        stop: None,
        groups: Vec::new(),
        depends: Vec::new(),
        tests: Vec::new(),
        mode: Mode::Manual,
        every: 1,
    }
}
