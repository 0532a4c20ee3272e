//! What a CPI logs during one call, on its way to whoever watches.

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
    last_line: String,
}

impl<'a, O: CallObserver> CallLog<'a, O> {
    pub(crate) fn new(redactor: &'a Redactor, observer: &'a O) -> Self {
        Self { redactor, observer, room: LONGEST_LOG, dropped: 0, last_line: String::new() }
    }

    pub(crate) fn line(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.last_line.clear();
            self.last_line.push_str(line);
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

    /// The last line that says something, also when it was not passed on. It may hold secrets.
    pub(crate) fn last_line(&self) -> String {
        self.last_line.clone()
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
