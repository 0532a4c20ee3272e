//! What follows from a look at a service.

use windlass_durable::process::ProcessIdentity;

use super::state::{Ended, Goal, Phase, Run, Stage, State, Task};
use super::{Action, GRACE, Machine, Millis, PidFile, Sighting};
use crate::monit::{Condition, Property};

impl Machine {
    pub(super) fn seen(&mut self, name: &str, look: u64, sighting: &Sighting) {
        let Some(state) = self.states.get_mut(name) else { return };
        if state.look != Some(look) {
            return;
        }
        state.look = None;
        if state.start_program.is_some() && !sighting.start_program_runs {
            state.start_program = None;
            state.ended = None;
            self.is_changed = true;
        }
        let running = running(state, sighting);
        // A program that became the process is no program any more.
        if running.is_some() && running == state.start_program {
            state.start_program = None;
            self.is_changed = true;
        }
        match state.phase.clone() {
            Phase::Idle => self.seen_idle(name, running, sighting),
            Phase::Busy(run) => match run.stage {
                Stage::Looking => self.seen_before(name, run.task, running),
                Stage::Launching(_) => {}
                Stage::Waiting(program) => self.seen_while(name, &run, program, running, sighting),
            },
        }
    }

    /// Nothing is under way.
    fn seen_idle(&mut self, name: &str, running: Option<ProcessIdentity>, sighting: &Sighting) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else { return };
        let before = state.process;
        if before != running {
            state.process = running;
            self.is_changed = true;
        }
        if state.goal != Goal::Keep {
            return;
        }
        let was_checked = std::mem::replace(&mut state.is_checked, true);
        if !state.is_process() {
            self.judge_all(name, &sighting.readings);
            return;
        }
        match (before, running) {
            (_, Some(process)) => {
                state.wants_start = false;
                // It runs, whatever did not work before; what tests have found stays.
                if !state.tests.iter().any(|test| test.has_matched) {
                    state.fault = None;
                }
                if before != running {
                    state.since = now;
                    let text = match before {
                        None => format!("process is running with pid {}", process.pid),
                        Some(old) => format!("process PID changed from {} to {}", old.pid, process.pid),
                    };
                    let is_new = state.service.tests.iter().enumerate();
                    let tests: Vec<usize> = is_new
                        .filter(|(_, test)| before.is_some() && test.condition == Condition::Changed(Property::Pid))
                        .map(|(index, _)| index)
                        .collect();
                    self.note(name, before.map(|_| "PID changed"), text);
                    for index in tests {
                        self.judge(name, index, true);
                    }
                }
                self.judge_all(name, &sighting.readings);
            }
            (before, None) => self.found_down(name, before.is_some(), was_checked),
        }
    }

    /// A service that should run does not.
    fn found_down(&mut self, name: &str, did_run: bool, was_checked: bool) {
        let Some(state) = self.states.get_mut(name) else { return };
        let missing = state.service.tests.iter().position(|test| test.condition == Condition::Missing);
        if did_run {
            self.fault(name, "Does not exist", "process is not running".to_owned());
        } else if !was_checked {
            self.note(name, None, "process is not running yet".to_owned());
        }
        if let Some(test) = missing {
            self.judge(name, test, true);
        } else if did_run && self.is_active(name) {
            self.bounce(name);
        } else if self.is_active(name)
            && let Some(state) = self.states.get_mut(name)
        {
            state.wants_start = true;
        }
    }

    /// The look before a program is launched.
    fn seen_before(&mut self, name: &str, task: Task, running: Option<ProcessIdentity>) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else { return };
        if state.process != running {
            state.process = running;
            self.is_changed = true;
        }
        let is_process = state.is_process();
        match task {
            Task::Start if running.is_some() => {
                state.phase = Phase::Idle;
                state.wants_start = false;
                state.is_checked = true;
                state.fault = None;
                state.since = now;
            }
            Task::Start if state.goal != Goal::Keep || state.wants_down() => state.phase = Phase::Idle,
            Task::Start if state.start_program.is_some() => {
                state.phase = Phase::Idle;
                self.failed(name, Task::Start, "its last start program still runs");
            }
            Task::Start if state.service.start.is_some() => self.launch(name, Task::Start),
            Task::Start => {
                state.phase = Phase::Idle;
                state.is_checked = true;
                state.wants_start = false;
                if is_process {
                    self.failed(name, Task::Start, "it has no start program");
                }
            }
            Task::Stop if !state.wants_down() => state.phase = Phase::Idle,
            Task::Stop if is_process && running.is_none() => self.went_down(name),
            Task::Stop if state.service.stop.is_some() => self.launch(name, Task::Stop),
            Task::Stop => {
                state.phase = Phase::Idle;
                state.is_checked = true;
                state.gave_up = is_process;
                state.went_down();
                self.is_changed = true;
                if is_process {
                    self.note(name, None, "stop skipped: it has no stop program".to_owned());
                }
            }
        }
    }

    /// A program was launched, and its effect is waited for.
    fn seen_while(
        &mut self,
        name: &str,
        run: &Run,
        program: ProcessIdentity,
        running: Option<ProcessIdentity>,
        sighting: &Sighting,
    ) {
        let Some(state) = self.states.get_mut(name) else { return };
        if state.process != running {
            state.process = running;
            self.is_changed = true;
        }
        match run.task {
            Task::Start => self.seen_starting(name, run, program, running, sighting),
            Task::Stop => self.seen_stopping(name, run, program, running, sighting),
        }
    }

    fn seen_starting(
        &mut self,
        name: &str,
        run: &Run,
        program: ProcessIdentity,
        running: Option<ProcessIdentity>,
        sighting: &Sighting,
    ) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else { return };
        let is_process = state.is_process();
        let program_runs = sighting.start_program_runs && running != Some(program);
        let has_come = if is_process { running.is_some() } else { !program_runs };
        if has_come {
            state.phase = Phase::Idle;
            state.is_checked = true;
            state.wants_start = false;
            state.fault = None;
            state.since = now;
            self.is_changed = true;
            let text = running.map_or("started".to_owned(), |process| format!("started with pid {}", process.pid));
            self.note(name, None, text);
        } else if now >= run.deadline && !program_runs {
            state.phase = Phase::Idle;
            state.is_checked = true;
            self.is_changed = true;
            self.failed(name, Task::Start, "there is no process with the pid of its pid file in time");
        } else if now >= run.deadline {
            if !run.is_overdue {
                self.is_overdue(name, "start");
            }
            self.end_if_unwanted(name, program);
        }
    }

    fn seen_stopping(
        &mut self,
        name: &str,
        run: &Run,
        program: ProcessIdentity,
        running: Option<ProcessIdentity>,
        sighting: &Sighting,
    ) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else { return };
        let is_gone = running.is_none();
        let start_program = state.start_program;
        if sighting.stop_program_runs {
            if now >= run.deadline && !run.is_overdue {
                self.is_overdue(name, "stop");
            } else if now >= run.deadline && !state.wants_down() {
                self.end(name, program);
            }
        } else if is_gone && start_program.is_none() {
            self.went_down(name);
        } else if std::mem::take(&mut state.is_restored) {
            // Whether its gate was opened is not known: what still runs is stopped again.
            state.phase = Phase::Idle;
            self.is_changed = true;
        } else if now >= run.deadline {
            match start_program {
                // It would bring the process back.
                Some(program) if is_gone => self.end(name, program),
                _ => {
                    state.phase = Phase::Idle;
                    state.is_checked = true;
                    self.is_changed = true;
                    self.failed(name, Task::Stop, "the process still runs");
                }
            }
        }
    }

    fn went_down(&mut self, name: &str) {
        let Some(state) = self.states.get_mut(name) else { return };
        state.phase = Phase::Idle;
        state.is_checked = true;
        state.is_restored = false;
        state.gave_up = false;
        state.fault = None;
        state.went_down();
        self.is_changed = true;
        self.note(name, None, "stopped".to_owned());
    }

    fn is_overdue(&mut self, name: &str, which: &str) {
        let text = format!("its {which} program takes longer than it may, and is waited for");
        let Some(state) = self.states.get_mut(name) else { return };
        if let Phase::Busy(run) = &mut state.phase {
            run.is_overdue = true;
        }
        self.fault(name, "Execution failed", text);
    }

    /// A start that takes too long is waited for, unless nobody wants it any more.
    fn end_if_unwanted(&mut self, name: &str, program: ProcessIdentity) {
        let Some(state) = self.states.get(name) else { return };
        if state.goal == Goal::Stop || state.bounce {
            self.end(name, program);
        }
    }

    /// Asks a program of ours to end, and makes it after a while.
    fn end(&mut self, name: &str, program: ProcessIdentity) {
        let now = self.now;
        let Some(state) = self.states.get_mut(name) else { return };
        let grace = GRACE.as_millis() as Millis;
        let by_force = match state.ended {
            Some(ended) if ended.program != program => false,
            Some(ended) if !ended.by_force && now >= ended.since.saturating_add(grace) => true,
            Some(_) => return,
            None => false,
        };
        state.ended = Some(Ended { program, since: now, by_force });
        let how = if by_force { "killed" } else { "asked to end" };
        self.note(name, None, format!("its program with pid {} is {how}", program.pid));
        self.actions.push(Action::End { program, by_force });
    }
}

/// The process that a service has: the one that its pid file names, unless that pid is somebody else's by now; or the one that
/// was known before, as long as it runs, whatever became of the file.
fn running(state: &State, sighting: &Sighting) -> Option<ProcessIdentity> {
    match sighting.file {
        PidFile::Process { process, is_younger } if !is_younger || Some(process) == state.process => Some(process),
        _ => state.process.filter(|_| sighting.process_runs),
    }
}
