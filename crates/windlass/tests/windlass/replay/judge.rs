//! An answer beside the recorded one.

use serde_json::Value;
use uuid::Uuid;

use super::compare::{self, difference, normal, same_shape};
use super::recording::{RecordedTask, Step};
use crate::api::client::{Answer, Client, Task};

/// Compares answers of one director.
pub(super) struct Judge<'a> {
    pub(super) client: &'a Client,
    /// A recorded text as it is to be here.
    pub(super) here: &'a dyn Fn(&str) -> String,
    /// Stages and tasks that count on neither side.
    pub(super) ignored: &'a [&'a str],
}

impl Judge<'_> {
    /// Notes what differs, by its kind; gives recorded ids and ours for them, as far as the answer brought any.
    pub(super) fn compare(
        &self,
        step: &Step,
        answer: &Answer,
        note: &mut dyn FnMut(&str, Option<String>),
    ) -> Vec<(String, String)> {
        note("status", difference(&step.status, &answer.status.as_u16()));
        let challenge = answer.headers.contains_key("www-authenticate");
        note("header www-authenticate", difference(&step.challenge, &challenge));
        let has_range = answer.headers.contains_key("content-range");
        note("header content-range", difference(&step.content_range, &has_range));
        if let (Some(recorded), true) = (&step.task, answer.status.as_u16() == 302) {
            let path = answer.headers["location"].to_str().unwrap().to_owned();
            let task = self.client.finish(&path);
            let shown = self.client.get(&path);
            let description = normal(&(self.here)(&recorded.description));
            note("description", difference(&description, &normal(shown["description"].as_str().unwrap())));
            return self.compare_tasks(recorded, &task, note);
        }
        match &step.answer {
            Some(Value::String(text)) => {
                note("text", difference(&normal(&(self.here)(text)), &normal(&answer.text())));
            }
            Some(shape) => note("shape", same_shape(shape, &answer.json())),
            None => {}
        }
        Vec::new()
    }

    fn compare_tasks(
        &self,
        recorded: &RecordedTask,
        task: &Task,
        note: &mut dyn FnMut(&str, Option<String>),
    ) -> Vec<(String, String)> {
        // Clients do not wait for all of them.
        if recorded.state != "queued" {
            note("state", difference(&recorded.state, &task.state));
        }
        note("stages", compare::stages(&recorded.events, &task.events, self.ignored, self.here));
        let removed = compare::stage("Deleting unneeded instances", &recorded.events, &task.events);
        note("instances that are not needed", removed);
        note("steps", compare::odd_steps(&task.events));
        let result = recorded.result.as_deref().unwrap_or_default();
        let last = task.events.last().map(|event| event["error"].clone()).unwrap_or_default();
        let mut learned = Vec::new();
        if recorded.state == "done" {
            learn(&Value::from(result), &Value::from(task.result.clone()), &mut learned);
            note("result", compare::result(&(self.here)(result), &task.result));
            if let Some(output) = &recorded.output {
                let ours = task.output.lines().next().unwrap_or_default();
                let ours = serde_json::from_str(ours).unwrap_or(Value::Null);
                note("output", same_shape(output, &ours));
                learn(output, &ours, &mut learned);
            }
        } else if recorded.state == "error" {
            note("code", difference(&recorded.error.map(Value::from), &Some(last["code"].clone())));
            let said = last["message"].as_str().unwrap_or_default();
            note("text", compare::beginning(&(self.here)(result), said));
        }
        learned
    }
}

/// Pairs the ids of two answers of one shape.
fn learn(recorded: &Value, ours: &Value, learned: &mut Vec<(String, String)>) {
    match (recorded, ours) {
        (Value::String(recorded), Value::String(ours)) if Uuid::try_parse(recorded).is_ok() => {
            learned.push((recorded.clone(), ours.clone()));
        }
        (Value::Object(recorded), Value::Object(ours)) => {
            for (key, value) in recorded {
                learn(value, ours.get(key).unwrap_or(&Value::Null), learned);
            }
        }
        _ => {}
    }
}
