//! What a CPI logs during one call, on its way to the task log.

use std::collections::VecDeque;

use windlass_contract::cpi::Redactor;

use crate::CallObserver;

/// What of one call's log is passed on: a task's log is kept for long, and a CPI that went wild writes gigabytes.
const LONGEST_LOG: usize = 4 << 20;

/// The log of one call: its stderr, then what its answer says.
pub(crate) struct CallLog<'a, O> {
    redactor: &'a Redactor,
    observer: &'a O,
    room: usize,
    dropped: usize,
    first_lines: Vec<String>,
    last_lines: VecDeque<String>,
    /// Whether there were others between the first and the last.
    has_gap: bool,
}

/// How many of the first lines, and of the last ones, an error shows: programs say first what happened, or last.
const SHOWN: usize = 3;
/// Of each of them.
const LONGEST_SHOWN: usize = 1024;

impl<'a, O: CallObserver> CallLog<'a, O> {
    pub(crate) fn new(redactor: &'a Redactor, observer: &'a O) -> Self {
        Self {
            redactor,
            observer,
            room: LONGEST_LOG,
            dropped: 0,
            first_lines: Vec::new(),
            last_lines: VecDeque::new(),
            has_gap: false,
        }
    }

    pub(crate) fn line(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.remember(line);
        }
        // With its line break. After the first line that does not fit, shorter ones do not either.
        let length = line.len() + 1;
        if self.dropped > 0 || length > self.room {
            self.dropped += length;
            return;
        }
        self.room -= length;
        self.observer.stderr_line(&self.redactor.message(line));
    }

    fn remember(&mut self, line: &str) {
        let line = line[..line.floor_char_boundary(LONGEST_SHOWN)].trim_end();
        if self.first_lines.len() < SHOWN {
            self.first_lines.push(line.to_owned());
            return;
        }
        if self.last_lines.len() == SHOWN {
            self.last_lines.pop_front();
            self.has_gap = true;
        }
        self.last_lines.push_back(line.to_owned());
    }

    /// The first and last lines that say something, also when they were not passed on. They may hold secrets.
    pub(crate) fn shown(&self) -> String {
        let gap = self.has_gap.then(|| "…".to_owned());
        let lines: Vec<&str> =
            self.first_lines.iter().chain(&gap).chain(&self.last_lines).map(String::as_str).collect();
        lines.join("\n")
    }

    /// Says how much was not passed on.
    pub(crate) fn end(&self) {
        if self.dropped > 0 {
            self.observer.stderr_line(&dropped(self.dropped));
        }
    }
}

/// What stands where the rest was.
pub(crate) fn dropped(bytes: usize) -> String {
    format!("… {bytes} bytes more were dropped")
}
