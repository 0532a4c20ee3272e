//! What a task wrote about one instance. Its log may have gigabytes, and most of its lines are about others: it is read line by line,
//! as far as there is time for it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use windlass_contract::director::Moment;

use crate::tasks::OutputKind;

/// How many bytes of logs are looked through for an answer, and how many of one log: a deploy of five thousand instances writes about as many.
const MOST_READ: u64 = 256 << 20;
const MOST_OF_A_LOG: u64 = 128 << 20;
/// How many bytes of moments are told of a task: an instance has a few kilobytes, unless its name or its errors are very long.
const MOST_TOLD: usize = 1 << 20;
/// How long a line may be: its error has 64 KiB at most. Parts of longer ones are no lines.
const LONGEST_LINE: u64 = 1 << 20;

/// How many bytes of tasks' logs may still be looked through.
#[derive(Debug)]
pub(super) struct LogsToRead(u64);

impl Default for LogsToRead {
    fn default() -> Self {
        Self(MOST_READ)
    }
}

/// The moments in a task's log that are about one instance.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) moments: Vec<Moment>,
    /// How much of the log was not looked through, because it is long.
    pub(super) bytes_left_out: u64,
}

impl Timeline {
    /// Reads the log of a task, which calls the instance `label`. It may have been removed with age.
    pub(super) fn read(tasks: &Path, task: i64, label: &str, room: &mut LogsToRead) -> Self {
        // Earlier versions had all steps among the events.
        let kinds = [OutputKind::Steps, OutputKind::Event];
        let Some(log) = kinds.into_iter().find_map(|kind| File::open(kind.path(tasks, task)).ok()) else {
            return Self::default();
        };
        let length = log.metadata().map_or(0, |found| found.len());
        let (moments, looked_through) = moments(BufReader::new(log.take(length.min(room.0).min(MOST_OF_A_LOG))), label);
        room.0 -= looked_through;
        Self { moments, bytes_left_out: length - looked_through }
    }
}

/// The moments that are about an instance, and how many bytes were looked through.
fn moments(mut log: impl BufRead, label: &str) -> (Vec<Moment>, u64) {
    let words = Words::new(label);
    let (mut moments, mut told, mut looked_through) = (Vec::new(), 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let Ok(length @ 1..) = log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) else { break };
        if let Some(moment) = words.moment(&line) {
            told += size_of::<Moment>() + moment.stage.len() + moment.what.len();
            if told > MOST_TOLD {
                break;
            }
            moments.push(moment);
        }
        looked_through += length as u64;
    }
    (moments, looked_through)
}

/// What is in the lines that are about an instance.
struct Words {
    label: String,
    /// As it is written in JSON.
    written: String,
    quoted: String,
    at_the_end: String,
}

impl Words {
    fn new(label: &str) -> Self {
        let written = serde_json::Value::from(label).to_string();
        let inside = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Self {
            label: label.to_owned(),
            written: inside.unwrap_or_default().to_owned(),
            quoted: format!("'{label}'"),
            at_the_end: format!(" {label}"),
        }
    }

    /// The part of a stage begins with the instance, the stage ends with it where it is about nothing else, and a problem that is repaired
    /// has it in quotation marks.
    fn is_about(&self, line: &Line) -> bool {
        line.task.starts_with(&self.label) || line.task.contains(&self.quoted) || line.stage.ends_with(&self.at_the_end)
    }

    /// What a line tells of the instance.
    fn moment(&self, line: &[u8]) -> Option<Moment> {
        let line = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok())?;
        // Most lines are about others, and not worth parsing.
        let line: Line = line.contains(&self.written).then(|| serde_json::from_str(line).ok())??;
        if !self.is_about(&line) {
            return None;
        }
        let said = line.data.error.map(|error| format!("failed: {error}")).or(line.data.status);
        Some(Moment {
            time: line.time,
            milliseconds: Some(line.milliseconds.unwrap_or(line.time.saturating_mul(1000))),
            stage: line.stage,
            what: said.unwrap_or(line.state),
        })
    }
}

#[derive(Deserialize)]
struct Line {
    time: i64,
    /// Since 1970; earlier versions did not note it.
    milliseconds: Option<i64>,
    #[serde(default)]
    stage: String,
    #[serde(default)]
    task: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    data: LineData,
}

#[derive(Default, Deserialize)]
struct LineData {
    status: Option<String>,
    error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &str) -> Vec<Moment> {
        let (moments, looked_through) = moments(log.as_bytes(), "db/a (0)");
        assert_eq!(looked_through, log.len() as u64);
        moments
    }

    #[test]
    fn only_the_moments_of_the_instance_are_told() {
        let log = r#"{"time":1,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"started","progress":0}
{"time":2,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"started","progress":0}
{"time":2,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/b (1)","index":2,"state":"started","progress":0}
{"time":3,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"in_progress","progress":50,"data":{"status":"waiting for the agent"}}
{"time":4,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"finished","progress":100}
{"time":5,"stage":"Updating instance","tags":["db"],"total":2,"task":"db/a (0) (canary)","index":1,"state":"failed","progress":100,"data":{"error":"no"}}
{"time":5,"error":{"code":100,"message":"no"}}
"#;
        let log = log.replacen("{\"time\":3,", "{\"time\":3,\"milliseconds\":3250,", 1);
        let log = log.as_str();
        let times: Vec<_> = all(log).iter().map(|moment| moment.milliseconds.unwrap()).collect();
        assert_eq!(times, [2000, 3250, 4000, 5000], "steps of earlier versions have whole seconds");
        let told: Vec<_> = all(log).iter().map(|moment| moment.what.clone()).collect();
        assert_eq!(told, ["started", "waiting for the agent", "finished", "failed: no"]);
        let log = r#"{"time":1,"stage":"Updating instance db/a (0)","tags":[],"task":"Stopping instance","index":1,"state":"started"}
{"time":2,"stage":"Updating instance db/ba (0)","tags":[],"task":"Stopping instance","index":1,"state":"started"}
{"time":3,"stage":"Applying problem resolutions","tags":[],"task":"VM for 'db/a (0)' is not responding.: Recreate VM","index":1,"state":"finished"}
"#;
        let times: Vec<_> = all(log).iter().map(|moment| moment.time).collect();
        assert_eq!(times, [1, 3], "starting, stopping and repairs are told as well");
    }

    #[test]
    fn names_that_json_writes_otherwise_are_found() {
        let label = "d\"b\\ä/a (0)";
        let log = format!("{}\n", serde_json::json!({"time": 1, "task": label, "state": "started"}));
        assert_eq!(moments(log.as_bytes(), label).0.len(), 1);
    }

    /// Somebody chooses how long names and errors are, and a line that never ends would be in memory.
    #[test]
    fn only_so_much_is_told_and_lines_have_an_end() {
        let line = format!("{}\n", serde_json::json!({"time": 1, "task": "db/a (0)", "state": "x".repeat(100_000)}));
        let (told, looked_through) = moments(line.repeat(20).as_bytes(), "db/a (0)");
        assert_eq!(told.len(), MOST_TOLD / 100_000);
        assert_eq!(looked_through, (told.len() * line.len()) as u64);
        let endless = std::io::repeat(b'x').take(3 * LONGEST_LINE).chain(&b"\n"[..]).chain(line.as_bytes());
        let (told, looked_through) = moments(BufReader::new(endless), "db/a (0)");
        assert_eq!((told.len(), looked_through), (1, 3 * LONGEST_LINE + 1 + line.len() as u64));
    }
}
