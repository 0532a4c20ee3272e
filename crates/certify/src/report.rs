//! What came of a run, for people, for scripts and for CI servers.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::ShownCall;
use crate::check::{Check, Outcome};
use crate::clean_up::Leftover;

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// One row per check, in the order in which they ran.
    pub rows: Vec<Row>,
    /// What could not be removed.
    pub leftovers: Vec<Leftover>,
    /// Whether checks were left out because somebody ended the run.
    pub interrupted: bool,
    /// How many processes of the CPI were started.
    pub calls: usize,
    /// How long the checks took.
    pub took: Duration,
}

/// What came of a check.
#[derive(Debug)]
pub struct Row {
    /// The check.
    pub check: Check,
    /// What came of it.
    pub outcome: Outcome,
    /// Why, unless it passed.
    pub what: String,
    /// The calls that show it.
    pub calls: Vec<ShownCall>,
    /// With its clean-up.
    pub took: Duration,
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Passed, Outcome::Failed, Outcome::Warned, Outcome::NotSupported, Outcome::NotObserved];

impl Row {
    /// Whether a certified CPI may have this row.
    pub fn is_satisfied(&self) -> bool {
        self.outcome.satisfies(self.check.level)
    }

    /// One line.
    pub fn line(&self) -> String {
        let why = if self.what.is_empty() { String::new() } else { format!(": {}", one_line(&self.what)) };
        let level = if self.is_satisfied() { "" } else { " (required)" };
        let level = if self.outcome == Outcome::Failed { "" } else { level };
        format!("{:<13} {}{level}{why}", self.outcome.as_str(), self.check.id)
    }

    /// The exact request and answer, and why it matters, as an indented block.
    pub fn explanation(&self) -> String {
        let mut text = format!("{}\n  why it matters: {}\n", self.line(), self.check.why);
        for call in &self.calls {
            let _ = writeln!(text, "  request: {}\n  answer:  {} ({})", call.request, call.stdout.trim(), call.ending);
            for line in call.stderr.lines() {
                let _ = writeln!(text, "  stderr:  {line}");
            }
        }
        text
    }
}

impl Report {
    /// Whether all checks ran and all required ones passed.
    pub fn is_certified(&self) -> bool {
        !self.interrupted && self.rows.iter().all(Row::is_satisfied)
    }

    /// How many checks ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }

    /// One line.
    pub fn summary(&self) -> String {
        let counts = OUTCOMES.iter().map(|outcome| (self.count(*outcome), outcome.as_str()));
        let counts: Vec<_> =
            counts.filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
        let verdict = match (self.is_certified(), self.interrupted) {
            (true, _) => "Certified",
            (false, true) => "Interrupted, not certified",
            (false, false) => "Not certified",
        };
        let took = self.took.as_secs_f64();
        format!("{verdict}: {} ({} calls in {took:.1} s)", counts.join(", "), self.calls)
    }

    /// What needs an explanation, what could not be removed, and the summary.
    pub fn conclusion(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| !row.is_satisfied() || row.outcome == Outcome::Warned) {
            let _ = writeln!(text, "{}", row.explanation());
        }
        for leftover in &self.leftovers {
            let _ = writeln!(text, "could not remove {}: {}", leftover.what, leftover.why);
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    /// A table with all rows, and the conclusion.
    pub fn to_table(&self) -> String {
        let width = self.rows.iter().map(|row| row.check.id.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            let (outcome, level, what) = (row.outcome.as_str(), row.check.level.as_str(), one_line(&row.what));
            let line = format!("{outcome:<13}  {:<width$}  {level:<8}  {what}", row.check.id);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        format!("{text}\n{}", self.conclusion())
    }

    /// Everything.
    pub fn to_json(&self) -> Value {
        let call = |call: &ShownCall| json!({"request": call.request, "stdout": call.stdout, "stderr": call.stderr, "ending": call.ending});
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.check.id, "outcome": row.outcome.as_str(), "level": row.check.level.as_str(),
                    "why": row.check.why, "what": row.what, "covers": row.check.covers,
                    "calls": row.calls.iter().map(call).collect::<Vec<_>>(), "seconds": row.took.as_secs_f64(),
                })
            })
            .collect();
        let leftovers: Vec<Value> =
            self.leftovers.iter().map(|left| json!({"what": left.what, "why": left.why})).collect();
        json!({
            "certified": self.is_certified(), "interrupted": self.interrupted, "calls": self.calls,
            "seconds": self.took.as_secs_f64(), "checks": rows, "leftovers": leftovers,
        })
    }

    /// For CI servers. What is not supported or not observed is skipped; what is required and was not observed failed.
    pub fn to_junit(&self) -> String {
        let failures = self.rows.iter().filter(|row| !row.is_satisfied()).count();
        let skipped = self.rows.iter().filter(|row| row.is_satisfied() && is_skipped(row.outcome)).count();
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            text,
            "<testsuite name=\"windlass certify\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{:.3}\">",
            self.rows.len(),
            self.took.as_secs_f64()
        );
        for row in &self.rows {
            let section = row.check.id.split('.').next().unwrap_or_default();
            let (id, time) = (row.check.id, row.took.as_secs_f64());
            let _ = write!(text, "  <testcase classname=\"certify.{section}\" name=\"{id}\" time=\"{time:.3}\">");
            let message = format!("{}: {}", row.outcome.as_str(), row.what);
            if !row.is_satisfied() {
                let (message, explanation) = (xml(&message), xml(&row.explanation()));
                let _ = write!(text, "<failure message=\"{message}\">{explanation}</failure>");
            } else if is_skipped(row.outcome) {
                let _ = write!(text, "<skipped message=\"{}\"/>", xml(&message));
            } else if row.outcome == Outcome::Warned {
                let _ = write!(text, "<system-out>{}</system-out>", xml(&row.explanation()));
            }
            text.push_str("</testcase>\n");
        }
        for leftover in &self.leftovers {
            let what = xml(&format!("could not remove {}: {}", leftover.what, leftover.why));
            let _ = writeln!(text, "  <system-err>{what}</system-err>");
        }
        text.push_str("</testsuite>\n");
        text
    }
}

fn is_skipped(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::NotSupported | Outcome::NotObserved)
}

fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
