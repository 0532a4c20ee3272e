//! What operators and agents ask for, and whom else it concerns.
//!
//! What depends on a service stops before it and with it. What a service depends on starts before it and with it.

use serde::{Deserialize, Serialize};

use super::snapshot::MonitText;
use super::state::{Goal, State};
use super::{Action, Machine, Millis, Touched};
use crate::monit::{Fleet, FleetError};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Runs from now on.
    Start,
    /// Does not run from now on.
    Stop,
    /// Stops and starts.
    Restart,
    /// Is looked after from now on, as it is.
    Monitor,
    /// Is left alone from now on, as it is.
    Unmonitor,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    All,
    /// Of those in a group; perhaps of nobody.
    Group(String),
    Service(String),
}

/// nobody has that name
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no service '{name}': there are {known}")]
pub struct UnknownService {
    name: String,
    known: String,
}

impl Machine {
    /// Takes the place of all services. Those that stay keep what is known of them; new ones are looked after from now on.
    /// If anything is wrong with the files, nothing changes.
    pub fn load(&mut self, files: Vec<MonitText>, now: Millis) -> Result<Vec<Action>, FleetError> {
        let fleet = Fleet::read(files.iter().map(|file| (file.name.as_str(), file.text.as_str())))?;
        self.now = self.now.max(now);
        for service in fleet.services() {
            match self.states.get_mut(&service.name) {
                Some(state) => {
                    let is_back = self.fleet.get(&service.name).is_none();
                    state.service = service.clone();
                    state.forget_tests();
                    if is_back {
                        state.goal = State::new(service.clone(), self.now).goal;
                        state.is_checked = false;
                    }
                }
                None => {
                    self.states.insert(service.name.clone(), State::new(service.clone(), self.now));
                }
            }
        }
        for (name, state) in &mut self.states {
            if fleet.get(name).is_none() {
                state.goal = Goal::Leave;
                state.bounce = false;
                state.wants_start = false;
            }
        }
        for ignored in &fleet.ignored {
            self.actions.push(Action::Note(super::Note { service: String::new(), event: None, text: ignored.clone() }));
        }
        self.fleet = fleet;
        self.files = files;
        self.touched = Touched::All;
        self.is_changed = true;
        Ok(self.settle())
    }

    /// Does `command` to those that are selected.
    pub fn command(&mut self, command: Command, of: &Selection, now: Millis) -> Result<Vec<Action>, UnknownService> {
        self.now = self.now.max(now);
        let selected: Vec<String> = match of {
            Selection::All => self.fleet.services().map(|service| service.name.clone()).collect(),
            Selection::Group(group) => {
                let members = self.fleet.services().filter(|service| service.groups.contains(group));
                members.map(|service| service.name.clone()).collect()
            }
            Selection::Service(name) if self.fleet.get(name).is_some() => vec![name.clone()],
            Selection::Service(name) => {
                let known: Vec<&str> = self.fleet.services().map(|service| service.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(UnknownService { name: name.clone(), known });
            }
        };
        for name in &selected {
            self.touch(name);
            match command {
                Command::Start => self.keep(name, true),
                Command::Stop => self.stop(name),
                Command::Restart => {
                    self.keep(name, false);
                    self.bounce(name);
                    if let Some(state) = self.states.get_mut(name) {
                        state.is_asked_for = true;
                    }
                }
                Command::Monitor => {
                    if let Some(state) = self.states.get_mut(name) {
                        state.goal = Goal::Keep;
                        state.gave_up = false;
                        state.is_checked = false;
                    }
                }
                Command::Unmonitor => self.leave(name),
            }
        }
        self.is_changed = true;
        Ok(self.settle())
    }

    /// `name` and what it depends on run from now on.
    pub(super) fn keep(&mut self, name: &str, is_started: bool) {
        for name in self.with_dependencies(name) {
            self.touch(&name);
            let Some(state) = self.states.get_mut(&name) else { continue };
            if state.goal != Goal::Keep {
                state.is_checked = false;
            }
            state.goal = Goal::Keep;
            state.gave_up = false;
            state.restarts.clear();
            state.is_asked_for = true;
            if (is_started && state.process.is_none()) || !state.is_checked {
                state.wants_start = true;
            }
        }
    }

    /// `name` and what depends on it do not run from now on.
    pub(super) fn stop(&mut self, name: &str) {
        for name in self.with_dependants(name) {
            self.touch(&name);
            let Some(state) = self.states.get_mut(&name) else { continue };
            state.goal = Goal::Stop;
            state.bounce = false;
            state.wants_start = false;
            state.gave_up = false;
            state.is_checked = false;
        }
        self.is_changed = true;
    }

    /// `name` and what depends on it are left alone from now on.
    pub(super) fn leave(&mut self, name: &str) {
        for name in self.with_dependants(name) {
            self.touch(&name);
            let Some(state) = self.states.get_mut(&name) else { continue };
            state.goal = Goal::Leave;
            state.bounce = false;
            state.wants_start = false;
            state.fault = None;
        }
        self.is_changed = true;
    }

    /// `name` goes down and comes up again, and so does what depends on it and should run.
    pub(super) fn bounce(&mut self, name: &str) {
        for each in self.with_dependants(name) {
            self.touch(&each);
            let Some(state) = self.states.get_mut(&each) else { continue };
            if state.goal == Goal::Keep {
                state.bounce = true;
                state.gave_up = false;
                state.is_asked_for |= each != name;
            }
        }
        self.is_changed = true;
    }

    fn with_dependants(&self, name: &str) -> Vec<String> {
        self.reached(name, |fleet, name| fleet.dependants(name).map(|service| service.name.clone()).collect())
    }

    fn with_dependencies(&self, name: &str) -> Vec<String> {
        self.reached(name, |fleet, name| fleet.get(name).map(|service| service.depends.clone()).unwrap_or_default())
    }

    fn reached(&self, name: &str, next: impl Fn(&Fleet, &str) -> Vec<String>) -> Vec<String> {
        let mut reached = vec![name.to_owned()];
        let mut at = 0;
        while at < reached.len() {
            for name in next(&self.fleet, &reached[at]) {
                if !reached.contains(&name) {
                    reached.push(name);
                }
            }
            at += 1;
        }
        reached
    }
}
