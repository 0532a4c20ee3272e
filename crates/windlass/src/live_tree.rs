//! The stages of a task on a terminal: what ended stays, what runs turns, with what it is doing now, and a bar below it tells
//! how far a stage of several tasks is.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use windlass_director_client::event_log::{Event, Key, State};

use crate::event_lines;
use crate::failure::cause_first;
use crate::formats;

/// Grows downwards; only what runs is drawn again.
pub(crate) struct LiveTree {
    multi: MultiProgress,
    /// Whether it is drawn; otherwise what ended is printed line by line.
    live: bool,
    /// Letters in a line.
    width: usize,
    /// What runs, with its line if there was room for one, and when it began.
    running: HashMap<Key, (Option<ProgressBar>, i64)>,
    /// What runs without a line of its own, in the order in which it began, with its words.
    waiting: Vec<(Key, String)>,
    /// How many lines may be drawn again: as many as the terminal has, but for the bars and what stands above them.
    room: usize,
    /// Says how many run without a line.
    more: Option<ProgressBar>,
    /// How far stages of several tasks are, by their titles.
    bars: HashMap<String, ProgressBar>,
    /// The stage that stands above the last line.
    stage: String,
    /// Why parts failed: each cause once, with those that it befell.
    failures: Vec<(String, Vec<String>)>,
    /// Why the whole task failed, which the verb tells at its end.
    verdict: Option<String>,
}

impl LiveTree {
    /// Draws on the standard output if that is `live`, and otherwise prints there what ended.
    pub(crate) fn new(live: bool) -> Self {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let window = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|window| usize::from(window.ws_col));
        let width = window.filter(|width| *width > 2 * CONTINUED).unwrap_or(USUAL_WIDTH);
        let rows =
            rustix::termios::tcgetwinsize(io::stdout()).map_or(USUAL_HEIGHT, |window| usize::from(window.ws_row));
        let room = rows.saturating_sub(KEPT_FREE).max(1);
        Self {
            multi,
            live,
            width,
            running: HashMap::new(),
            waiting: Vec::new(),
            room,
            more: None,
            bars: HashMap::new(),
            stage: String::new(),
            failures: Vec::new(),
            verdict: None,
        }
    }

    /// Takes in one event.
    pub(crate) fn show(&mut self, event: &Event) {
        // What VMs, CPIs and manifests say is in it.
        let event = &event_lines::plain(event);
        if let Some(error) = &event.error {
            self.verdict = Some(error.message.clone());
            return;
        }
        if event.kind.is_some() {
            return self.keep(&format!("! {}", event.message.as_deref().unwrap_or_default()));
        }
        let key = event.key();
        match event.state {
            Some(State::Started) => {
                self.count(event);
                let words = if event.stage_title() == self.stage {
                    String::new()
                } else {
                    format!("({})", event.stage_title())
                };
                if self.turning() < self.room {
                    let bar = self.turn(&event.task, &words);
                    self.running.insert(key, (Some(bar), event.time));
                } else {
                    self.waiting.push((key.clone(), words));
                    self.running.insert(key, (None, event.time));
                }
                self.tell_how_many_more();
            }
            Some(State::InProgress) => {
                if let (Some((bar, _)), Some(status)) = (self.running.get(&key), event.status()) {
                    match bar {
                        Some(bar) => bar.set_message(status.to_owned()),
                        None => self
                            .waiting
                            .iter_mut()
                            .filter(|(it, _)| *it == key)
                            .for_each(|it| status.clone_into(&mut it.1)),
                    }
                }
            }
            Some(State::Finished | State::Failed) => {
                let began = match self.running.remove(&key) {
                    Some((bar, began)) => {
                        bar.into_iter().for_each(|bar| bar.finish_and_clear());
                        began
                    }
                    None => event.time,
                };
                self.waiting.retain(|(it, _)| *it != key);
                self.give_lines();
                if event.stage_title() != self.stage {
                    self.stage = event.stage_title();
                    self.keep(&self.stage.clone());
                }
                self.count(event);
                let took = formats::duration(event.time - began);
                let mark = if event.state == Some(State::Failed) { "✗" } else { "✓" };
                self.keep(&format!("  {mark} {} ({took})", event.task));
                if let Some(error) = event.data.as_ref().and_then(|data| data.error.as_deref()) {
                    let (cause, _) = cause_first(error);
                    match self.failures.iter_mut().find(|(known, _)| *known == cause) {
                        Some((_, befallen)) => befallen.push(event.task.clone()),
                        None => self.failures.push((cause, vec![event.task.clone()])),
                    }
                }
            }
            Some(State::Unknown) | None => {}
        }
    }

    fn turning(&self) -> usize {
        self.running.values().filter(|(bar, _)| bar.is_some()).count()
    }

    fn turn(&self, task: &str, words: &str) -> ProgressBar {
        let spinner = ProgressBar::new_spinner().with_style(style(TURNING));
        // Above the bars and the line about others, which stay last.
        let bar = self.multi.insert_from_back(self.bars.len() + usize::from(self.more.is_some()), spinner);
        bar.set_prefix(task.to_owned());
        bar.set_message(words.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// A part that waits for a line gets one that became free.
    fn give_lines(&mut self) {
        while self.turning() < self.room && !self.waiting.is_empty() {
            let (key, words) = self.waiting.remove(0);
            let bar = self.turn(&key.2, &words);
            if let Some((line, _)) = self.running.get_mut(&key) {
                *line = Some(bar);
            }
        }
        self.tell_how_many_more();
    }

    fn tell_how_many_more(&mut self) {
        if self.waiting.is_empty() {
            self.more.take().into_iter().for_each(|line| line.finish_and_clear());
            return;
        }
        let line = self.more.get_or_insert_with(|| {
            let line = ProgressBar::new_spinner().with_style(style(MORE));
            self.multi.insert_from_back(self.bars.len(), line)
        });
        line.set_message(format!("and {} more", self.waiting.len()));
        line.tick();
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

    /// Leaves what ended on the terminal, and clears the rest away. What is not told as the reason of the whole is told here.
    pub(crate) fn end(self) {
        self.other_failures().iter().for_each(|line| self.keep(line));
        let turning = self.running.into_values().filter_map(|(bar, _)| bar);
        for bar in turning.chain(self.more).chain(self.bars.into_values()) {
            bar.finish_and_clear();
        }
        let _ = self.multi.clear();
    }

    fn other_failures(&self) -> Vec<String> {
        let verdict = self.verdict.as_deref().unwrap_or_default();
        let others = self.failures.iter().filter(|(cause, _)| !verdict.contains(cause.as_str()));
        let line = |(cause, befallen): &(String, Vec<String>)| match befallen.as_slice() {
            [one] => format!("  ✗ {one}: {cause}"),
            [first, ..] => format!("  ✗ {first} and {} more: {cause}", befallen.len() - 1),
            [] => format!("  ✗ {cause}"),
        };
        others.map(line).collect()
    }

    fn keep(&self, line: &str) {
        let line = formats::folded(line, self.width, CONTINUED);
        // The reader may have seen enough, as `head` does.
        let _ = if self.live { self.multi.println(line) } else { writeln!(io::stdout(), "{line}") };
    }
}

const USUAL_WIDTH: usize = 80;
const USUAL_HEIGHT: usize = 24;
/// Lines for what ended last, the bars, and what tells how many more there are.
const KEPT_FREE: usize = 8;
const MORE: &str = "  {msg}";
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
        let event = event_lines::plain(&serde_json::from_str::<Event>(hostile).unwrap());
        assert_eq!((event.stage_title().as_str(), event.task.as_str()), (r"a\u{1b}[2J", r"b\u{a}c"));
        assert_eq!(event.status(), Some(r"\u{9b}1A\u{202e}"));
    }

    #[test]
    fn a_failure_is_told_once_and_one_that_befell_many_in_one_line() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut tree = LiveTree { multi, ..LiveTree::new(true) };
        let fails = |task: u32, error: &str| {
            let mut event = event(task, "failed");
            event.data =
                Some(windlass_director_client::event_log::Data { status: None, error: Some(error.to_owned()) });
            event
        };
        for task in 0..12 {
            tree.show(&fails(
                task,
                &format!("creating the VM of db/{task} failed while naming VM: the network is gone"),
            ));
        }
        tree.show(&fails(12, "the disk is full"));
        let last = r#"{"time":1,"error":{"code":100,"message":"creating the VM of db/12 failed while creating VM: the disk is full"}}"#;
        tree.show(&serde_json::from_str::<Event>(last).unwrap());
        assert_eq!(tree.other_failures(), ["  ✗ db/0 and 11 more: the network is gone"]);
    }

    #[test]
    fn forty_instances_leave_room_for_the_bar_in_24_rows() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut tree = LiveTree { multi, room: 24 - KEPT_FREE, ..LiveTree::new(true) };
        let many = |task: u32, state: &str| {
            let mut event = event(task, state);
            event.total = Some(40);
            event
        };
        (0..40).for_each(|task| tree.show(&many(task, "started")));
        assert_eq!((tree.turning(), tree.waiting.len()), (16, 24));
        assert_eq!(tree.more.as_ref().unwrap().message(), "and 24 more");
        assert!(tree.turning() + tree.bars.len() < 24);
        tree.show(&many(0, "finished"));
        tree.show(&many(39, "finished"));
        assert_eq!((tree.turning(), tree.waiting.len()), (16, 22), "the next one gets the free line");
        (1..39).for_each(|task| tree.show(&many(task, "finished")));
        assert_eq!((tree.running.len(), tree.bars.len(), tree.more.is_some()), (0, 0, false));
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
