//! What came of a run, for people, for scripts and for CI servers.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_contract::shortened;

use crate::answer::ShownCall;
use crate::check::{Check, Outcome};
use crate::clean_up::Leftover;
use crate::junit::{self, TestCase, TestResult};

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
    pub check: Check,
    /// What came of it.
    pub outcome: Outcome,
    /// Why, unless it passed.
    pub what: String,
    /// The calls that show it.
    pub calls: Vec<ShownCall>,
    /// The same for all rows that one answer of the CPI kept from passing.
    pub(crate) cause: Option<String>,
    /// The earlier check that did not pass for the same cause, which tells it.
    pub same_as: Option<&'static str>,
    /// With its clean-up.
    pub took: Duration,
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Passed, Outcome::Failed, Outcome::Warned, Outcome::NotSupported, Outcome::NotObserved];

/// When this many checks fail for the reason of another one, it is likely to be the same for all that follow.
const MANY: usize = 3;
const PROFILE: &str =
    "if this cloud needs networks, cloud properties or sizes of its own, name them in a file for --profile";

/// Capabilities, by the check that shows them.
const CAPABILITIES: [(&str, &str); 9] = [
    ("reboot_vm", "vms.reboot"),
    ("calculate_vm_cloud_properties", "vms.calculate"),
    ("get_disks", "disks.get-disks"),
    ("resize_disk", "disks.resize"),
    ("update_disk", "disks.update"),
    ("snapshots", "snapshots.create"),
    ("managed networks", "networks.create"),
    ("metadata", "metadata.no-known-keys"),
    ("version 3", "stemcells.v3-tags"),
];

impl Row {
    /// Whether a certified CPI may have this row.
    pub fn is_satisfied(&self) -> bool {
        self.outcome.satisfies(self.check.level)
    }

    pub(crate) fn has_the_cause_of(&self, later: &Self) -> bool {
        self.same_as.is_none() && self.cause.is_some() && self.cause == later.cause
    }

    /// Why it did not pass, unless an earlier row has told it.
    fn reason(&self) -> String {
        self.same_as.map_or_else(|| one_line(&self.what), |earlier| format!("for the same reason as {earlier}"))
    }

    pub fn line(&self) -> String {
        let why = if self.what.is_empty() { String::new() } else { format!(": {}", self.reason()) };
        let level = if self.is_satisfied() { "" } else { " (required)" };
        let level = if self.outcome == Outcome::Failed { "" } else { level };
        format!("{:<13} {}{level}{why}", self.outcome.as_str(), self.check.id)
    }

    /// The exact request and answer, and why it matters, as an indented block.
    pub fn explanation(&self) -> String {
        let mut text = format!("{}\n  why it matters: {}\n", self.line(), self.check.why);
        text.extend(self.calls.iter().filter(|_| self.same_as.is_none()).map(ShownCall::block));
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

    /// What a CPI may have or not, and whether this one has it; nothing of what did not run.
    pub fn capabilities(&self) -> Vec<(&'static str, bool)> {
        let outcome = |id: &str| self.rows.iter().find(|row| row.check.id == id).map(|row| row.outcome);
        let had = |outcome| match outcome {
            Outcome::Passed | Outcome::Warned => Some(true),
            Outcome::NotSupported => Some(false),
            Outcome::Failed | Outcome::NotObserved => None,
        };
        CAPABILITIES.iter().filter_map(|(name, id)| Some((*name, outcome(id).and_then(had)?))).collect()
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

    /// The checks that did not pass for the reason that `row` tells.
    fn same_as(&self, row: &Row) -> Vec<&'static str> {
        self.rows.iter().filter(|other| other.same_as == Some(row.check.id)).map(|other| other.check.id).collect()
    }

    /// What needs an explanation, what could not be removed, and the summary.
    pub fn conclusion(&self) -> String {
        let mut text = String::new();
        // A row whose reason stands elsewhere is named there.
        let needs_words = |row: &&Row| !row.is_satisfied() || row.outcome == Outcome::Warned;
        let is_told = |row: &&Row| row.same_as.is_none() && (needs_words(row) || !self.same_as(row).is_empty());
        for row in self.rows.iter().filter(is_told) {
            let _ = write!(text, "{}", row.explanation());
            let others = self.same_as(row);
            if !others.is_empty() {
                let _ = writeln!(text, "  for the same reason did not pass: {}", others.join(", "));
            }
            if others.len() >= MANY {
                let _ = writeln!(text, "  {PROFILE}");
            }
            text.push('\n');
        }
        let (has, lacks): (Vec<_>, Vec<_>) = self.capabilities().into_iter().partition(|(_, has)| *has);
        for (title, names) in [("supported", has), ("not supported", lacks)] {
            let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
            if !names.is_empty() {
                let _ = writeln!(text, "Optional, {title}: {}", names.join(", "));
            }
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
            let (outcome, level, what) = (row.outcome.as_str(), row.check.level.as_str(), row.reason());
            let line = format!("{outcome:<13}  {:<width$}  {level:<8}  {what}", row.check.id);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        format!("{text}\n{}", self.conclusion())
    }

    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let calls = row.calls.iter().filter(|_| row.same_as.is_none());
                json!({
                    "id": row.check.id, "outcome": row.outcome.as_str(), "level": row.check.level.as_str(),
                    "why": row.check.why, "what": row.what, "covers": row.check.covers,
                    "same_cause_as": row.same_as, "calls": calls.map(ShownCall::to_json).collect::<Vec<_>>(), "seconds": row.took.as_secs_f64(),
                })
            })
            .collect();
        let leftovers: Vec<Value> =
            self.leftovers.iter().map(|left| json!({"what": left.what, "why": left.why})).collect();
        json!({
            "certified": self.is_certified(), "interrupted": self.interrupted, "calls": self.calls,
            "seconds": self.took.as_secs_f64(), "checks": rows, "leftovers": leftovers,
            "capabilities": self.capabilities().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }

    /// For CI servers. What is not supported or not observed is skipped; what is required and was not observed failed.
    pub fn to_junit(&self) -> String {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", self.to_suite())
    }

    /// The same as one of several suites.
    pub fn to_suite(&self) -> String {
        let case = |row: &Row| {
            let message = format!("{}: {}", row.outcome.as_str(), row.reason());
            let result = match row.outcome {
                _ if !row.is_satisfied() => TestResult::Failed { message, explanation: row.explanation() },
                Outcome::NotSupported | Outcome::NotObserved => TestResult::Skipped(message),
                Outcome::Warned => TestResult::Noted(row.explanation()),
                _ => TestResult::Passed,
            };
            let section = row.check.id.split('.').next().unwrap_or_default();
            TestCase { class: format!("certify.{section}"), name: row.check.id.to_owned(), took: row.took, result }
        };
        let cases: Vec<TestCase> = self.rows.iter().map(case).collect();
        junit::suite("windlass certify", self.took, &cases, &self.leftovers)
    }
}

/// What is said in one line, at most.
const LONGEST_LINE: usize = 600;

/// One line, however much a CPI says.
pub(crate) fn one_line(text: &str) -> String {
    shortened(text.replace(|letter: char| letter.is_control(), " "), LONGEST_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    fn row(id: &str, outcome: Outcome, what: &str) -> Row {
        let check = checks::all().find(|check| check.id == id).unwrap();
        let call = ShownCall {
            request: r#"{"method":"create_vm"}"#.into(),
            stdout: r#"{"result":"<vm>"}"#.into(),
            stderr: "first\nsecond\n".into(),
            ending: "exit 0".into(),
        };
        let calls = if outcome == Outcome::Failed { vec![call] } else { Vec::new() };
        let (cause, same_as) = (None, None);
        Row { check, outcome, what: what.into(), calls, cause, same_as, took: Duration::from_millis(1500) }
    }

    fn report(rows: Vec<Row>) -> Report {
        let leftovers = vec![Leftover { what: "VM 'vm-1'".into(), why: "delete_vm: no".into() }];
        Report { rows, leftovers, interrupted: false, calls: 7, took: Duration::from_secs(2) }
    }

    #[test]
    fn people_see_the_exact_request_and_answer_and_why_it_matters() {
        let report = report(vec![
            row("vms.v2-array", Outcome::Failed, "expected [cid, networks]"),
            row("disks.resize", Outcome::NotSupported, "no"),
            row("vms.settings", Outcome::NotObserved, "needs --show-settings to look into the VM"),
        ]);
        let expected = r#"failed         vms.v2-array  required  expected [cid, networks]
not supported  disks.resize  optional  no
not observed   vms.settings  optional  needs --show-settings to look into the VM

failed        vms.v2-array: expected [cid, networks]
  why it matters: the director takes the first element; of a bare string that is its first letter, and the VM is lost
  request: {"method":"create_vm"}
  answer:  {"result":"<vm>"} (exit 0)
  stderr:  first
  stderr:  second

Optional, not supported: resize_disk
could not remove VM 'vm-1': delete_vm: no
Not certified: 1 failed, 1 not supported, 1 not observed (7 calls in 2.0 s)
"#;
        assert_eq!(report.to_table(), expected);
    }

    /// Ruby shows all that an object holds when it has no such method.
    #[test]
    fn a_row_is_a_line_however_much_a_cpi_says() {
        let said = format!("undefined method\n{} the end", "@config ".repeat(10_000));
        let report = report(vec![row("vms.v2-array", Outcome::Failed, &said)]);
        let line = report.rows[0].line();
        assert!(line.len() < 800 && line.ends_with("the end") && !line.contains('\n'), "{line}");
        let (table, junit) = (report.to_table(), report.to_junit());
        assert!(table.len() < 4_000 && junit.len() < 4_000, "{table}\n{junit}");
    }

    #[test]
    fn ci_servers_see_failures_and_what_was_skipped() {
        let text = report(vec![
            row("vms.v2-array", Outcome::Failed, "got \"<vm>\" & more"),
            row("vms.settings", Outcome::NotObserved, "not seen"),
            row("vms.has-vm", Outcome::Passed, ""),
        ])
        .to_junit();
        assert!(text.contains(r#"tests="3" failures="1" skipped="1" time="2.000""#), "{text}");
        assert!(text.contains(r#"<failure message="failed: got &quot;&lt;vm&gt;&quot; &amp; more">"#), "{text}");
        assert!(text.contains(r#"<skipped message="not observed: not seen"/>"#), "{text}");
        assert!(text.contains(r#"name="vms.has-vm" time="1.500"></testcase>"#), "{text}");
    }

    #[test]
    fn what_is_required_and_was_not_seen_is_no_certificate() {
        assert!(!report(vec![row("vms.has-vm", Outcome::NotObserved, "no VM")]).is_certified());
        assert!(report(vec![row("vms.settings", Outcome::NotObserved, "no")]).is_certified());
        assert!(!report(vec![row("vms.settings", Outcome::Failed, "wrong")]).is_certified());
        let mut interrupted = report(vec![row("vms.has-vm", Outcome::Passed, "")]);
        interrupted.interrupted = true;
        assert!(!interrupted.is_certified());
    }

    #[test]
    fn json_has_capabilities_checks_and_leftovers() {
        let json = report(vec![row("disks.resize", Outcome::Passed, "")]).to_json();
        assert_eq!(json["capabilities"], json!({"resize_disk": true}));
        assert_eq!((&json["certified"], &json["checks"][0]["id"]), (&json!(true), &json!("disks.resize")));
        assert_eq!(json["leftovers"][0]["what"], "VM 'vm-1'");
    }
}
