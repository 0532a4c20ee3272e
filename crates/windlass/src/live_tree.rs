//! The stages of a task on a terminal: what ended stays, what runs turns, with what it is doing now.

use std::collections::HashMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event_log::{Event, Key, State};
use crate::formats;

/// Grows downwards; only what runs is drawn again.
pub(crate) struct LiveTree {
    multi: MultiProgress,
    running: HashMap<Key, (ProgressBar, i64)>,
    /// The stage that stands above the last line.
    stage: String,
}

impl LiveTree {
    /// Draws on the standard output.
    pub(crate) fn new() -> Self {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        Self { multi, running: HashMap::new(), stage: String::new() }
    }

    /// Takes in one event.
    pub(crate) fn show(&mut self, event: &Event) {
        if let Some(error) = &event.error {
            return self.keep(&format!("✗ {}", error.message));
        }
        if event.kind.is_some() {
            return self.keep(&format!("! {}", event.message.as_deref().unwrap_or_default()));
        }
        let key = event.key();
        match event.state {
            Some(State::Started) => {
                let bar = self.multi.add(ProgressBar::new_spinner().with_style(style()));
                bar.set_prefix(event.task.clone());
                bar.enable_steady_tick(Duration::from_millis(100));
                if event.stage_title() != self.stage {
                    bar.set_message(format!("({})", event.stage_title()));
                }
                self.running.insert(key, (bar, event.time));
            }
            Some(State::InProgress) => {
                if let (Some((bar, _)), Some(status)) = (self.running.get(&key), event.status()) {
                    bar.set_message(status.to_owned());
                }
            }
            Some(State::Finished | State::Failed) => {
                let began = match self.running.remove(&key) {
                    Some((bar, began)) => {
                        bar.finish_and_clear();
                        began
                    }
                    None => event.time,
                };
                if event.stage_title() != self.stage {
                    self.stage = event.stage_title();
                    self.keep(&self.stage.clone());
                }
                let took = formats::duration(event.time - began);
                let mark = if event.state == Some(State::Failed) { "✗" } else { "✓" };
                self.keep(&format!("  {mark} {} ({took})", event.task));
                if let Some(error) = event.data.as_ref().and_then(|data| data.error.as_deref()) {
                    self.keep(&format!("    {error}"));
                }
            }
            Some(State::Unknown) | None => {}
        }
    }

    /// Leaves what ended on the terminal, and clears the rest away.
    pub(crate) fn end(self) {
        for (bar, _) in self.running.into_values() {
            bar.finish_and_clear();
        }
        let _ = self.multi.clear();
    }

    fn keep(&self, line: &str) {
        let _ = self.multi.println(line);
    }
}

fn style() -> ProgressStyle {
    let bare = ProgressStyle::default_spinner();
    bare.clone().template("  {spinner} {elapsed} {prefix} {wide_msg}").unwrap_or(bare)
}
