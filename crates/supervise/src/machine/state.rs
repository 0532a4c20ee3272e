//! What is known of one service.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use windlass_durable::process::ProcessIdentity;

use super::Millis;
use crate::monit::{Kind, Mode, Service};

/// What operators want of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// It runs, and is started when it does not.
    Keep,
    /// Nobody touches it.
    Leave,
    /// It does not run.
    Stop,
}

/// What is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Busy(Run),
}

/// A start or stop that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) task: Task,
    pub(super) stage: Stage,
    pub(super) deadline: Millis,
    /// Its program runs although its time is over.
    pub(super) is_overdue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    Start,
    Stop,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// A fresh look decides whether there is anything to do.
    Looking,
    /// The program with this number of a launch does not wait behind its gate yet.
    Launching(u64),
    /// The program runs, or has ended; its effect is waited for.
    Waiting(ProcessIdentity),
}

/// How a program that has to go was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) program: ProcessIdentity,
    pub(super) since: Millis,
    pub(super) by_force: bool,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) service: Service,
    pub(super) goal: Goal,
    /// It has to go down before it comes up again.
    pub(super) bounce: bool,
    pub(super) phase: Phase,
    /// The process, as seen last.
    pub(super) process: Option<ProcessIdentity>,
    /// The last start program, until it was seen to have ended. It may be the wrapper of a process that runs.
    pub(super) start_program: Option<ProcessIdentity>,
    pub(super) ended: Option<Ended>,
    /// Stopping was tried and did not help, or there is nothing that stops it.
    pub(super) gave_up: bool,
    /// It was found down, or was asked for.
    pub(super) wants_start: bool,
    /// The next start was asked for by somebody, so it is none that tests count.
    pub(super) is_asked_for: bool,
    /// It was looked at since it is monitored.
    pub(super) is_checked: bool,
    /// It was waited for by a supervisor that is gone.
    pub(super) is_restored: bool,
    pub(super) look: Option<u64>,
    pub(super) next_look: Millis,
    pub(super) since: Millis,
    pub(super) fault: Option<Fault>,
    pub(super) tests: Vec<TestState>,
    /// The cycles of starts that nobody asked for.
    pub(super) restarts: VecDeque<u64>,
}

/// What is wrong with a service, in monit's words and as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) event: &'static str,
    pub(super) text: String,
}

/// What a test saw in the last cycles.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TestState {
    /// One bit per cycle, the last one lowest.
    pub(super) history: u64,
    pub(super) has_matched: bool,
    pub(super) mark: Option<u64>,
}

impl State {
    pub(super) fn new(service: Service, now: Millis) -> Self {
        let goal = if service.mode == Mode::Manual { Goal::Leave } else { Goal::Keep };
        let tests = vec![TestState::default(); service.tests.len()];
        Self {
            service,
            goal,
            bounce: false,
            phase: Phase::Idle,
            process: None,
            start_program: None,
            ended: None,
            gave_up: false,
            wants_start: false,
            is_asked_for: true,
            is_checked: false,
            is_restored: false,
            look: None,
            next_look: now,
            since: now,
            fault: None,
            tests,
            restarts: VecDeque::new(),
        }
    }

    /// All that decides whether something has to be begun.
    pub(super) fn matters(&self) -> (Goal, bool, Phase, Option<ProcessIdentity>, Option<ProcessIdentity>, [bool; 3]) {
        let wants = [self.wants_start, self.gave_up, self.is_checked];
        (self.goal, self.bounce, self.phase.clone(), self.process, self.start_program, wants)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.phase != Phase::Idle
    }

    pub(super) fn is_launching(&self) -> bool {
        matches!(&self.phase, Phase::Busy(Run { stage: Stage::Launching(_), .. }))
    }

    pub(super) fn stop_program(&self) -> Option<ProcessIdentity> {
        match self.phase {
            Phase::Busy(Run { task: Task::Stop, stage: Stage::Waiting(program), .. }) => Some(program),
            _ => None,
        }
    }

    pub(super) fn is_process(&self) -> bool {
        matches!(self.service.kind, Kind::Process { .. })
    }

    /// Whether others that depend on it may run. What is no process is up as long as it is monitored.
    pub(super) fn is_up(&self) -> bool {
        if self.is_process() { self.process.is_some() && !self.is_busy() } else { !self.is_busy() }
    }

    /// Whether it has to be brought down, for good or for a moment.
    pub(super) fn wants_down(&self) -> bool {
        let is_stopped = self.goal == Goal::Stop && (self.process.is_some() || !self.is_checked) && !self.gave_up;
        self.bounce || is_stopped
    }

    /// It was brought down, or cannot be: a restart starts it now.
    pub(super) fn went_down(&mut self) {
        if std::mem::take(&mut self.bounce) && self.goal == Goal::Keep {
            self.wants_start = true;
        }
    }

    pub(super) fn forget_tests(&mut self) {
        self.tests = vec![TestState::default(); self.service.tests.len()];
    }
}
