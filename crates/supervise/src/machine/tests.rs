//! `if … then …` of monit files, in cycles.

use super::state::{Goal, TestState};
use super::{Action, Machine, Reading};
use crate::monit::{Condition, Property, Reaction};

impl Machine {
    /// Judges what one look read for all tests of a service.
    pub(super) fn judge_all(&mut self, name: &str, readings: &[Reading]) {
        for (index, reading) in readings.iter().enumerate() {
            if let Some(matches) = self.matches(name, index, *reading) {
                self.judge(name, index, matches);
            }
        }
    }

    /// Whether a test matches; none if this look cannot tell.
    fn matches(&mut self, name: &str, index: usize, reading: Reading) -> Option<bool> {
        let state = self.states.get_mut(name)?;
        let test = state.service.tests.get(index)?;
        let seen = state.tests.get_mut(index)?;
        match (&test.condition, reading) {
            (Condition::Resource { operator, limit, .. }, Reading::Number(number)) => {
                Some(operator.holds(number, *limit))
            }
            (Condition::Age { operator, limit }, Reading::Number(number)) => {
                Some(operator.holds(number, *limit as f64))
            }
            (Condition::Changed(Property::Pid), _) => None,
            (Condition::Changed(_), Reading::Mark(mark)) => {
                let last = seen.mark.replace(mark);
                Some(last.is_some_and(|last| last != mark))
            }
            (Condition::Missing, Reading::Missing) => Some(true),
            (Condition::Missing, Reading::Nothing) => None,
            (Condition::Missing, _) => Some(false),
            _ => None,
        }
    }

    /// Counts a match, and does what the test says when there were enough of them.
    pub(super) fn judge(&mut self, name: &str, index: usize, matches: bool) {
        let Some(state) = self.states.get_mut(name) else { return };
        let (Some(test), Some(seen)) = (state.service.tests.get(index), state.tests.get_mut(index)) else { return };
        if state.goal != Goal::Keep {
            return;
        }
        let (condition, rate) = (test.condition.clone(), test.rate);
        let (reaction, otherwise) = (test.action.clone(), test.otherwise.clone());
        seen.history = seen.history << 1 | u64::from(matches);
        let window = u64::MAX >> (64 - rate.cycles.clamp(1, 64));
        let is_failed = (seen.history & window).count_ones() >= rate.matches;
        let had_failed = std::mem::replace(&mut seen.has_matched, is_failed);
        if is_failed {
            if !had_failed {
                let often = rate_in_words(rate.matches, rate.cycles);
                let text = format!("{} ({often}): {}", words(&condition), reaction_in_words(&reaction));
                self.fault(name, event_of(&condition), text);
            }
            self.react(name, reaction);
        } else if had_failed {
            state.fault = None;
            self.note(name, None, format!("no longer: {}", words(&condition)));
            if let Some(reaction) = otherwise {
                self.react(name, reaction);
            }
        }
    }

    /// Tests that count restarts, once per cycle.
    pub(super) fn judge_restarts(&mut self, name: &str) {
        let cycles = self.cycles;
        let Some(state) = self.states.get(name) else { return };
        if state.goal != Goal::Keep {
            return;
        }
        let tests = state.service.tests.iter();
        let exceeded = tests.filter_map(|test| match test.condition {
            Condition::Restarts(restarts) => {
                let since = cycles.saturating_sub(u64::from(test.rate.cycles));
                let counted = state.restarts.iter().filter(|at| **at >= since).count();
                (counted >= restarts as usize).then(|| (restarts, test.rate.cycles, test.action.clone()))
            }
            _ => None,
        });
        let exceeded: Vec<_> = exceeded.collect();
        for (restarts, within, reaction) in exceeded {
            let follows = reaction_in_words(&reaction);
            self.note(name, Some("Timeout"), format!("restarted {restarts} times within {within} cycles: {follows}"));
            if let Some(state) = self.states.get_mut(name) {
                state.restarts.clear();
            }
            self.react(name, reaction);
        }
    }

    fn react(&mut self, name: &str, reaction: Reaction) {
        self.touch(name);
        let Some(state) = self.states.get_mut(name) else { return };
        match reaction {
            Reaction::Alert => {}
            Reaction::Start => state.wants_start = state.process.is_none(),
            Reaction::Restart => {
                for seen in &mut state.tests {
                    *seen = TestState { mark: seen.mark, ..TestState::default() };
                }
                self.bounce(name);
            }
            Reaction::Stop => self.stop(name),
            Reaction::Unmonitor => {
                self.leave(name);
                self.note(name, None, "is left alone from now on".to_owned());
            }
            Reaction::Exec(program) => self.actions.push(Action::Run { service: name.to_owned(), program }),
        }
    }
}

/// monit's name of the event, which decides how bad an alert is.
fn event_of(condition: &Condition) -> &'static str {
    match condition {
        Condition::Resource { .. } => "Resource limit matched",
        Condition::Connection(_) => "Connection failed",
        Condition::Restarts(_) => "Timeout",
        Condition::Changed(Property::Timestamp) => "Timestamp changed",
        Condition::Changed(Property::Checksum) => "Checksum changed",
        Condition::Changed(Property::Size) => "Size changed",
        Condition::Changed(Property::Pid) => "PID changed",
        Condition::Missing => "Does not exist",
        Condition::Age { .. } => "Timestamp failed",
    }
}

fn words(condition: &Condition) -> String {
    match condition {
        Condition::Resource { resource, limit, .. } => format!("{resource:?} is beyond its limit of {limit}"),
        Condition::Connection(connection) => format!("nobody answers at {:?}", connection.to),
        Condition::Restarts(restarts) => format!("it was restarted {restarts} times"),
        Condition::Changed(property) => format!("its {property:?} has changed").to_lowercase(),
        Condition::Missing => "it does not exist".to_owned(),
        Condition::Age { limit, .. } => format!("its age is beyond its limit of {limit} seconds"),
    }
}

fn reaction_in_words(reaction: &Reaction) -> String {
    match reaction {
        Reaction::Alert => "alert".to_owned(),
        Reaction::Restart => "restart".to_owned(),
        Reaction::Start => "start".to_owned(),
        Reaction::Stop => "stop".to_owned(),
        Reaction::Unmonitor => "unmonitor".to_owned(),
        Reaction::Exec(program) => format!("exec {}", program.arguments[0]),
    }
}

fn rate_in_words(matches: u32, cycles: u32) -> String {
    match (matches, cycles) {
        (1, 1) => "once".to_owned(),
        (matches, cycles) if matches == cycles => format!("for {cycles} cycles"),
        (matches, cycles) => format!("{matches} times within {cycles} cycles"),
    }
}
