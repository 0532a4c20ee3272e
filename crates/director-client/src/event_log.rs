//! The event log of a task.

use serde::Deserialize;

/// One line of a task's event log.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    pub time: i64,
    #[serde(default)]
    pub stage: String,
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// How many tasks the stage has, if anybody knows.
    #[serde(default)]
    pub total: Option<u64>,
    #[serde(default)]
    pub task: String,
    #[serde(default)]
    pub state: Option<State>,
    #[serde(default)]
    pub data: Option<Data>,
    /// `warning` or `deprecation`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub error: Option<TaskError>,
}

/// Where a task of a stage stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Started,
    InProgress,
    Finished,
    Failed,
    #[serde(other)]
    Unknown,
}

/// What a state says more.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Data {
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub error: Option<String>,
}

/// Why the whole task failed.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskError {
    #[serde(default)]
    pub message: String,
}

/// What belongs together: a task of a stage.
pub type Key = (String, Vec<String>, String);

impl Event {
    /// Which task of which stage it is about.
    pub fn key(&self) -> Key {
        (self.stage.clone(), self.tags.clone().unwrap_or_default(), self.task.clone())
    }

    /// `Updating instance db`.
    pub fn stage_title(&self) -> String {
        match self.tags.as_deref().unwrap_or_default() {
            [] => self.stage.clone(),
            tags => format!("{} {}", self.stage, tags.join(", ")),
        }
    }

    /// What the task is doing now.
    pub fn status(&self) -> Option<&str> {
        self.data.as_ref()?.status.as_deref().filter(|status| !status.is_empty())
    }
}

/// Complete lines out of pieces that end anywhere.
#[derive(Debug, Default)]
pub struct EventReader {
    rest: Vec<u8>,
}

impl EventReader {
    /// The events that `bytes` complete. A line that is no event is left out: a log is no reason to fail.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let complete: Vec<u8> = self.rest.drain(..end).collect();
        complete.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_arrives_in_two_pieces_is_shown_once() {
        let mut reader = EventReader::default();
        assert!(reader.read(br#"{"time":1,"type":"war"#).is_empty());
        let events = reader.read(b"ning\",\"message\":\"\xc3");
        assert!(events.is_empty());
        let events = reader.read(b"\xa4\"}\nnot json\n");
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].message.as_deref(), Some("ä"));
    }
}
