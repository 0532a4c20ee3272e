//! A run as lines: stages with their steps, as the original prints them. On a terminal, the step at hand also shows what it is
//! doing.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_create_env::{End, Screen};

use crate::cli::Global;
use crate::formats::{plain, plain_line};

/// Where lines go.
#[derive(Debug)]
pub(super) struct Lines {
    live: bool,
    silent: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_stage: bool,
    /// What the next line that stands for itself is set off from.
    after_stage: bool,
    /// The step that is being shown.
    step: Option<String>,
}

impl Lines {
    pub(super) fn new(flags: &Global) -> Self {
        let live = io::stdout().is_terminal() && !flags.json;
        Self { live, silent: flags.json, state: Mutex::default() }
    }

    fn print(&self, text: &str) {
        if !self.silent {
            let mut stdout = io::stdout().lock();
            // A reader that went away is no reason to stop in the middle.
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen for Lines {
    fn line(&self, text: &str) {
        let mut state = self.state();
        let (text, step) = (plain(text), state.step.clone());
        match step {
            // In the middle of a step, whose line goes on below.
            Some(step) if self.live => self.print(&format!("\r\u{1b}[K{text}\n{step}...")),
            Some(step) => self.print(&format!("\n{text}\n{step}...")),
            None => self.print(&format!("{text}\n")),
        }
        state.after_stage = false;
    }

    fn begin_stage(&self, name: &str) {
        *self.state() = State { in_stage: true, ..State::default() };
        self.print(&format!("\nStarted {}\n", plain_line(name)));
    }

    fn begin_step(&self, name: &str) {
        let mut state = self.state();
        let indent = if state.in_stage { "  " } else { "" };
        let gap = if state.after_stage { "\n" } else { "" };
        state.after_stage = false;
        let step = format!("{indent}{}", plain_line(name));
        self.print(&format!("{gap}{step}..."));
        state.step = Some(step);
    }

    fn status(&self, status: &str) {
        if self.live
            && let Some(step) = &self.state().step
        {
            self.print(&format!("\r\u{1b}[K{step}... ({})", plain_line(status)));
        }
    }

    fn end_step(&self, end: &End, time: Duration) {
        let Some(step) = self.state().step.take() else { return };
        let begin = if self.live { format!("\r\u{1b}[K{step}...") } else { String::new() };
        let word = match end {
            End::Finished => "Finished".to_owned(),
            End::Skipped(why) => format!("Skipped [{}]", plain_line(why)),
            End::Failed => "Failed".to_owned(),
        };
        self.print(&format!("{begin} {word} ({})\n", clock(time)));
    }

    fn end_stage(&self, name: &str, succeeded: bool, time: Duration) {
        let word = if succeeded { "Finished" } else { "Failed" };
        self.print(&format!("{word} {} ({})\n", plain_line(name), clock(time)));
        *self.state() = State { after_stage: true, ..State::default() };
    }
}

/// Whole seconds that have passed.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
