//! The lines that BOSH's client makes of a task's events.

use std::collections::HashMap;

use windlass_director_client::event_log::{Data, Event, Key, State, TaskError};

use crate::formats;

/// The same event with texts that cannot steer a terminal or begin a line that nobody wrote.
pub(crate) fn plain(event: &Event) -> Event {
    let several = |text: &Option<String>| text.as_deref().map(formats::plain);
    let data = event
        .data
        .as_ref()
        .map(|data| Data { status: data.status.as_deref().map(formats::plain_line), error: several(&data.error) });
    Event {
        stage: formats::plain_line(&event.stage),
        tags: event.tags.as_ref().map(|tags| tags.iter().map(|tag| formats::plain_line(tag)).collect()),
        task: formats::plain_line(&event.task),
        data,
        message: several(&event.message),
        error: event.error.as_ref().map(|error| TaskError { message: formats::plain(&error.message) }),
        ..event.clone()
    }
}

/// Makes the original's lines of events: pieces of text, so that a duration can still be added to the last line.
#[derive(Debug)]
pub(crate) struct EventLines {
    task: u64,
    started: HashMap<Key, i64>,
    /// What the last line is about.
    last: Option<Key>,
    first_time: Option<i64>,
    last_time: i64,
}

impl EventLines {
    /// For the task with this number.
    pub(crate) fn new(task: u64) -> Self {
        Self { task, started: HashMap::new(), last: None, first_time: None, last_time: 0 }
    }

    /// The pieces for one event.
    pub(crate) fn render(&mut self, event: &Event) -> Vec<String> {
        self.first_time.get_or_insert(event.time);
        self.last_time = event.time;
        let prefix = format!("\nTask {} | {} | ", self.task, formats::clock(event.time));
        if let Some(error) = &event.error {
            self.last = None;
            return vec![prefix, format!("Error: {}", error.message)];
        }
        if let Some(kind) = &event.kind {
            self.last = None;
            let label = if kind == "deprecation" { "Deprecation" } else { "Warning" };
            return vec![prefix, format!("{label}: {}", event.message.as_deref().unwrap_or_default())];
        }
        let key = event.key();
        let title = format!("{}: {}", event.stage_title(), event.task);
        match event.state {
            Some(State::Started) => {
                self.started.insert(key.clone(), event.time);
                self.last = Some(key);
                vec![prefix, title]
            }
            Some(State::InProgress) => {
                let Some(status) = event.status() else { return Vec::new() };
                self.last = Some(key);
                vec![prefix, format!("L {status}: {}", event.task)]
            }
            Some(State::Finished | State::Failed) => {
                let began = self.started.remove(&key).unwrap_or(event.time);
                let took = format!(" ({})", formats::duration(event.time - began));
                let indent = " ".repeat(prefix.len() - "\nL ".len());
                let same = self.last.as_ref() == Some(&key);
                let mut pieces = if same { vec![took] } else { vec![prefix, format!("{title}{took}")] };
                if event.state == Some(State::Failed) {
                    let error = event.data.as_ref().and_then(|data| data.error.as_deref()).unwrap_or_default();
                    pieces.push(format!("\n{indent}L Error: {error}"));
                }
                self.last = None;
                pieces
            }
            Some(State::Unknown) | None => Vec::new(),
        }
    }

    /// The times of the first and the last event.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        self.first_time.map(|first| (first, self.last_time))
    }
}

#[cfg(test)]
mod tests {
    use windlass_director_client::event_log::EventReader;

    use super::*;

    /// Lines as recorded from the original's client, and the events that it had.
    fn rendered(task: u64, log: &str) -> String {
        let mut lines = EventLines::new(task);
        EventReader::default().read(log.as_bytes()).iter().flat_map(|event| lines.render(event)).collect()
    }

    #[test]
    fn tasks_read_as_the_original_prints_them() {
        let log = r#"{"time":1794770131,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"started","progress":0}
{"time":1794770132,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"finished","progress":100}
{"time":1794770140,"stage":"Creating missing vms","tags":[],"total":2,"task":"web/3298 (0)","index":1,"state":"started","progress":0}
{"time":1794770140,"stage":"Creating missing vms","tags":[],"total":2,"task":"web/9200 (1)","index":2,"state":"started","progress":0}
{"time":1794770142,"stage":"Creating missing vms","tags":[],"total":2,"task":"web/3298 (0)","index":1,"state":"finished","progress":100}
{"time":1794770143,"stage":"Creating missing vms","tags":[],"total":2,"task":"web/9200 (1)","index":2,"state":"finished","progress":100}
{"time":1794770143,"stage":"Updating instance","tags":["web"],"total":2,"task":"web/3298 (0) (canary)","index":1,"state":"started","progress":0}
{"time":1794770144,"stage":"Updating instance","tags":["web"],"total":2,"task":"web/3298 (0) (canary)","index":1,"state":"in_progress","progress":5,"data":{"status":"executing pre-stop"}}
{"time":1794770151,"stage":"Updating instance","tags":["web"],"total":2,"task":"web/3298 (0) (canary)","index":1,"state":"finished","progress":100}
"#;
        let expected = "
Task 14 | 19:15:31 | Preparing deployment: Preparing deployment (00:00:01)
Task 14 | 19:15:40 | Creating missing vms: web/3298 (0)
Task 14 | 19:15:40 | Creating missing vms: web/9200 (1)
Task 14 | 19:15:42 | Creating missing vms: web/3298 (0) (00:00:02)
Task 14 | 19:15:43 | Creating missing vms: web/9200 (1) (00:00:03)
Task 14 | 19:15:43 | Updating instance web: web/3298 (0) (canary)
Task 14 | 19:15:44 | L executing pre-stop: web/3298 (0) (canary) (00:00:08)";
        assert_eq!(rendered(14, log), expected);
    }

    #[test]
    fn failures_and_warnings_are_seen() {
        let log = r#"{"time":1794770111,"type":"warning","message":"You have ignored instances."}
{"time":1794770111,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"started","progress":0}
{"time":1794770111,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"failed","progress":100,"data":{"error":"Stemcell version '99' doesn't exist"}}
{"time":1794770111,"error":{"code":50003,"message":"Stemcell version '99' doesn't exist"}}
"#;
        let expected = "
Task 13 | 19:15:11 | Warning: You have ignored instances.
Task 13 | 19:15:11 | Preparing deployment: Preparing deployment (00:00:00)
                   L Error: Stemcell version '99' doesn't exist
Task 13 | 19:15:11 | Error: Stemcell version '99' doesn't exist";
        assert_eq!(rendered(13, log), expected);
    }
}
