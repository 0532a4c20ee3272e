//! A run as lines: stages with their steps, as the original prints them. On a terminal, the step at hand also shows what it is
//! doing.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use windlass_create_env::{End, Screen};

use crate::cli::Global;
use crate::formats::{plain, plain_line, short_ids};
use crate::screen::{between_words, terminal_width};

/// Where lines go.
#[derive(Debug)]
pub(super) struct StageLines {
    live: bool,
    silent: bool,
    /// Whether ids are shown as in tables on a terminal.
    short: bool,
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

impl StageLines {
    pub(super) fn new(flags: &Global) -> Self {
        let live = io::stdout().is_terminal() && !flags.json;
        Self { live, silent: flags.json, short: live && !flags.wide, state: Mutex::default() }
    }

    /// What a step is called here.
    fn named(&self, name: &str) -> String {
        let name = plain_line(name);
        if self.short { short_ids(&name) } else { name }
    }

    /// A line that stays, in lines of the terminal and with short ids there.
    fn staying(&self, text: &str) -> String {
        if self.short { between_words(&short_ids(text), terminal_width()) } else { text.to_owned() }
    }

    /// A line that is drawn over later, so that it must not be longer than the terminal is wide.
    fn passing(&self, text: &str) -> String {
        if self.live { clipped(text, terminal_width()) } else { text.to_owned() }
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

impl Screen for StageLines {
    fn line(&self, text: &str) {
        let mut state = self.state();
        let (text, step) = (self.staying(&plain(text)), state.step.clone());
        match step {
            // In the middle of a step, whose line goes on below.
            Some(step) if self.live => {
                self.print(&format!("\r\u{1b}[K{text}\n{}", self.passing(&format!("{step}..."))));
            }
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
        let step = format!("{indent}{}", self.named(name));
        self.print(&format!("{gap}{}", self.passing(&format!("{step}..."))));
        state.step = Some(step);
    }

    fn status(&self, status: &str) {
        if self.live
            && let Some(step) = &self.state().step
        {
            let text = format!("{step}... ({})", self.named(status));
            self.print(&format!("\r\u{1b}[K{}", self.passing(&text)));
        }
    }

    fn end_step(&self, end: &End, time: Duration) {
        let Some(step) = self.state().step.take() else { return };
        let word = match end {
            End::Finished => "Finished".to_owned(),
            End::Skipped(why) => format!("Skipped [{}]", plain_line(why)),
            End::Failed => "Failed".to_owned(),
        };
        let end = format!(" {word} ({})\n", clock(time));
        match self.live {
            true => self.print(&format!("\r\u{1b}[K{}", self.staying(&format!("{step}...{end}")))),
            false => self.print(&end),
        }
    }

    fn end_stage(&self, name: &str, succeeded: bool, time: Duration) {
        let word = if succeeded { "Finished" } else { "Failed" };
        self.print(&format!("{word} {} ({})\n", plain_line(name), clock(time)));
        *self.state() = State { after_stage: true, ..State::default() };
    }
}

/// The beginning of a text that stands in one line of the terminal, with room for the cursor behind it.
fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() < width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(2)).chain(['…']).collect()
}

/// Whole seconds that have passed.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line that went on in the next one would stay on the screen each time it is drawn over.
    #[test]
    fn what_is_drawn_over_stands_in_one_line() {
        let step = format!("Attaching disk 'disk-{0}' to VM 'vm-{0}'...", "83e68947-b7a1-4c06-9c6e-3f2b81f1a7a2");
        let shown = clipped(&step, 80);
        assert_eq!(shown.chars().count(), 79);
        assert!(shown.ends_with('…') && step.starts_with(shown.trim_end_matches('…')), "{shown}");
        assert_eq!(clipped("  Creating disk...", 80), "  Creating disk...");
        let lines = StageLines { live: true, silent: true, short: true, state: Mutex::default() };
        lines.begin_step(step.trim_end_matches('.'));
        let named = lines.state().step.clone().unwrap();
        assert_eq!(named, "Attaching disk 'disk-83e68947…' to VM 'vm-83e68947…'");
        let id = "83e68947-b7a1-4c06-9c6e-3f2b81f1a7a2";
        let planned = format!("    resize disk disk-{id} to 1048576 MiB: its size changed from 524288 MiB");
        let expected = "    resize disk disk-83e68947… to 1048576 MiB: its size changed from 524288 MiB";
        assert_eq!(lines.staying(&planned), expected);
        let skipped = "Uploading stemcell 'windlass-minimal/1'... Skipped [Stemcell already uploaded] (00:00:00)\n";
        assert!(lines.staying(skipped).lines().all(|line| line.len() < 80), "{}", lines.staying(skipped));
    }
}
