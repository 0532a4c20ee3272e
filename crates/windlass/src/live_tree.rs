//! The stages of a task on a terminal: what ended stays, what runs turns, with what it is doing now, and a bar below it tells
//! how far a stage of several tasks is.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::event_log::{Event, Key, State};
use crate::formats;

/// Grows downwards; only what runs is drawn again.
pub(crate) struct LiveTree {
    multi: MultiProgress,
    /// Whether it is drawn; otherwise what ended is printed line by line.
    live: bool,
    /// Letters in a line.
    width: usize,
    running: HashMap<Key, (ProgressBar, i64)>,
    /// How far stages of several tasks are, by their titles.
    bars: HashMap<String, ProgressBar>,
    /// The stage that stands above the last line.
    stage: String,
}

impl LiveTree {
    /// Draws on the standard output if that is `live`, and otherwise prints there what ended.
    pub(crate) fn new(live: bool) -> Self {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let window = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|window| usize::from(window.ws_col));
        let width = window.filter(|width| *width > 2 * CONTINUED).unwrap_or(USUAL_WIDTH);
        Self { multi, live, width, running: HashMap::new(), bars: HashMap::new(), stage: String::new() }
    }

    /// Takes in one event.
    pub(crate) fn show(&mut self, event: &Event) {
        // What VMs, CPIs and manifests say is in it.
        let event = &event.plain();
        if let Some(error) = &event.error {
            return self.keep(&format!("✗ {}", error.message));
        }
        if event.kind.is_some() {
            return self.keep(&format!("! {}", event.message.as_deref().unwrap_or_default()));
        }
        let key = event.key();
        match event.state {
            Some(State::Started) => {
                self.count(event);
                let spinner = ProgressBar::new_spinner().with_style(style(TURNING));
                // Above the bars, which stay last.
                let bar = self.multi.insert_from_back(self.bars.len(), spinner);
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
                self.count(event);
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

    /// A stage of several tasks has a bar until all of them ended.
    fn count(&mut self, event: &Event) {
        let Some(total) = event.total.filter(|total| *total > 1) else { return };
        let title = event.stage_title();
        let bar = self.bars.entry(title.clone()).or_insert_with(|| {
            self.multi.add(ProgressBar::new(total).with_style(style(COUNTING)).with_message(title.clone()))
        });
        if matches!(event.state, Some(State::Finished | State::Failed)) {
            bar.inc(1);
        }
        if bar.position() >= total {
            bar.finish_and_clear();
            self.bars.remove(&title);
        }
    }

    /// Leaves what ended on the terminal, and clears the rest away.
    pub(crate) fn end(self) {
        for bar in self.running.into_values().map(|(bar, _)| bar).chain(self.bars.into_values()) {
            bar.finish_and_clear();
        }
        let _ = self.multi.clear();
    }

    fn keep(&self, line: &str) {
        let line = formats::folded(line, self.width, CONTINUED);
        // Whoever reads us may have seen enough, as `head` does.
        let _ = if self.live { self.multi.println(line) } else { writeln!(io::stdout(), "{line}") };
    }
}

const USUAL_WIDTH: usize = 80;
/// How far lines are indented that go on with one that was too long.
const CONTINUED: usize = 4;
const TURNING: &str = "  {spinner} {elapsed} {prefix} {wide_msg}";
const COUNTING: &str = "  {bar:30} {pos} of {len}  {wide_msg}";

fn style(template: &str) -> ProgressStyle {
    let bare = ProgressStyle::default_bar();
    bare.clone().template(template).unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(task: u32, state: &str) -> Event {
        let line = format!(
            r#"{{"time":1,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/{task}","index":1,"state":"{state}"}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn what_others_say_does_not_steer_the_terminal() {
        let hostile =
            r#"{"time":1,"stage":"a\u001b[2J","task":"b\nc","state":"in_progress","data":{"status":"\u009b1A\u202e"}}"#;
        let event = serde_json::from_str::<Event>(hostile).unwrap().plain();
        assert_eq!((event.stage_title().as_str(), event.task.as_str()), (r"a\u{1b}[2J", r"b\u{a}c"));
        assert_eq!(event.status(), Some(r"\u{9b}1A\u{202e}"));
    }

    #[test]
    fn a_stage_has_a_bar_until_all_of_it_ended() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut tree = LiveTree { multi, ..LiveTree::new(true) };
        let position = |tree: &LiveTree| tree.bars.values().next().map(ProgressBar::position);
        tree.show(&event(1, "started"));
        tree.show(&event(2, "started"));
        assert_eq!((position(&tree), tree.running.len()), (Some(0), 2));
        tree.show(&event(2, "failed"));
        assert_eq!((position(&tree), tree.running.len()), (Some(1), 1));
        tree.show(&event(1, "finished"));
        assert_eq!((position(&tree), tree.running.len()), (None, 0));
    }
}
