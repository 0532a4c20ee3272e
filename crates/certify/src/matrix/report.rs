//! The version table with what was seen in each cell.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_contract::cpi::Redactor;

use super::life::{KEPT, Observed};
use super::table::Case;
use crate::answer::ShownCall;
use crate::check::NotPassed;
use crate::clean_up::Leftover;
use crate::junit::{self, TestCase, TestResult};
use crate::report::one_line;

/// One line without secrets, however long the CPI's words are.
fn told(what: &str, secrets: &Redactor) -> String {
    one_line(&secrets.echo(what))
}

/// One case, lived through.
#[derive(Debug)]
pub struct Lived {
    pub case: Case,
    /// What was seen.
    pub observed: Observed,
    /// How it differs from the table; nothing if it does not.
    pub differences: Vec<String>,
    /// Why it could not be looked at.
    pub unseen: Option<String>,
    /// The call that could not be gone on from.
    pub call: Option<ShownCall>,
    /// With its clean-up.
    pub took: Duration,
}

/// What came of a run.
#[derive(Debug)]
pub struct MatrixReport {
    /// One per case, in the order of the table.
    pub lived: Vec<Lived>,
    /// What could not be removed.
    pub leftovers: Vec<Leftover>,
    /// Whether cases were left out because somebody ended the run.
    pub interrupted: bool,
    /// How many processes of the CPI were started.
    pub calls: usize,
    /// How long it took.
    pub took: Duration,
}

const HEADER: [&str; 12] = [
    "Row",
    "Director",
    "CPI",
    "Stemcell",
    "Asked by",
    "Request",
    "Stemcell sent",
    "create_vm",
    "attach_disk",
    "Registry",
    "User metadata",
    "Hint from",
];

impl Lived {
    pub(super) fn new(
        case: Case,
        observed: Observed,
        mut differences: Vec<String>,
        end: Result<(), NotPassed>,
        secrets: &Redactor,
    ) -> Self {
        let mut call = None;
        let unseen = match end {
            Ok(()) | Err(NotPassed::Interrupted) => None,
            Err(NotPassed::Failed(why, calls) | NotPassed::Warned(why, calls)) => {
                call = calls.first().map(|answer| answer.shown(secrets));
                differences.push(why);
                None
            }
            Err(NotPassed::NotObserved(why, _) | NotPassed::NotSupported(why)) => Some(told(&why, secrets)),
        };
        let differences = differences.iter().map(|what| told(what, secrets)).collect();
        Self { case, observed, differences, unseen, call, took: Duration::ZERO }
    }

    /// Whether everything was as the table says.
    pub fn is_right(&self) -> bool {
        self.differences.is_empty() && self.unseen.is_none()
    }

    pub fn line(&self) -> String {
        let row = self.case.row;
        let title = format!(
            "row {}: director {}, CPI {}, stemcell {}, asked by {}",
            self.case.number,
            row.director,
            row.cpi,
            row.stemcell,
            self.case.client.as_str()
        );
        match (&self.unseen, self.differences.as_slice()) {
            (Some(why), _) => format!("not observed  {title}: {why}"),
            (None, []) => format!("as written    {title}"),
            (None, differences) => format!("different     {title}: {}", differences.join("; ")),
        }
    }

    /// The line, and the call that shows it.
    fn explanation(&self) -> String {
        self.line() + "\n" + &self.call.as_ref().map(ShownCall::block).unwrap_or_default()
    }

    fn cells(&self) -> [String; 12] {
        let (row, seen) = (self.case.row, &self.observed);
        // How often an agent reads depends on how fast it is; that it reads is seen in the last column.
        let registry = match (seen.registry_writes, seen.registry_reads) {
            (0, 0) => "not touched".to_owned(),
            (writes, _) => format!("{writes} writes"),
        };
        [
            self.case.number.to_string(),
            row.director.to_string(),
            row.cpi.to_string(),
            row.stemcell.to_string(),
            self.case.client.as_str().to_owned(),
            seen.request_version.clone(),
            seen.stemcell_version.clone(),
            seen.create_vm.to_owned(),
            seen.attach_disk.to_owned(),
            registry,
            seen.user_metadata.to_owned(),
            seen.hint_from.to_owned(),
        ]
    }
}

impl MatrixReport {
    /// Whether every case was lived through and was as the table says.
    pub fn is_right(&self) -> bool {
        !self.interrupted && self.lived.iter().all(Lived::is_right)
    }

    /// For CI servers.
    pub fn to_junit(&self) -> String {
        let case = |one: &Lived| {
            let row = one.case.row;
            let result = match (&one.unseen, one.differences.as_slice()) {
                (Some(why), _) => TestResult::Skipped(why.clone()),
                (None, []) => TestResult::Passed,
                (None, differences) => {
                    TestResult::Failed { message: differences.join("; "), explanation: one.explanation() }
                }
            };
            let name = format!(
                "director {}, CPI {}, stemcell {}, asked by {}",
                row.director,
                row.cpi,
                row.stemcell,
                one.case.client.as_str()
            );
            TestCase { class: format!("matrix.row-{}", one.case.number), name, took: one.took, result }
        };
        let cases: Vec<TestCase> = self.lived.iter().map(case).collect();
        junit::suite("windlass certify --matrix", self.took, &cases, &self.leftovers)
    }

    /// One line.
    pub fn summary(&self) -> String {
        let right = self.lived.iter().filter(|one| one.is_right()).count();
        let unseen = self.lived.iter().filter(|one| one.unseen.is_some()).count();
        let different = self.lived.len() - right - unseen;
        let mut parts = vec![format!("{right} as written")];
        parts.extend((different > 0).then(|| format!("{different} different")));
        parts.extend((unseen > 0).then(|| format!("{unseen} not observed")));
        let verdict = match (self.is_right(), self.interrupted) {
            (true, _) => "The version table holds",
            (false, true) => "Interrupted",
            (false, false) => "The version table does not hold",
        };
        format!("{verdict}: {} ({} calls in {:.1} s)", parts.join(", "), self.calls, self.took.as_secs_f64())
    }

    /// The table in Markdown, which people can read as it is, then what differs, and the summary.
    pub fn to_table(&self) -> String {
        let rows: Vec<[String; 12]> = self.lived.iter().map(Lived::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([HEADER[column].len()]).max().unwrap_or(0)
        };
        let widths: [usize; 12] = std::array::from_fn(width);
        let line = |cells: &[&str; 12]| {
            let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} ")).collect::<Vec<_>>();
            format!("|{}|\n", cells.join("|"))
        };
        let rule: String = widths.iter().map(|width| format!("|{}", "-".repeat(width + 2))).collect();
        let mut text = line(&HEADER) + &rule + "|\n";
        for row in &rows {
            text += &line(&row.each_ref().map(String::as_str));
        }
        text.push('\n');
        text + &self.conclusion()
    }

    /// What is not as written, what could not be removed, and the summary.
    pub fn conclusion(&self) -> String {
        let mut text = String::new();
        let mut explained: Vec<&[String]> = Vec::new();
        for one in self.lived.iter().filter(|one| !one.is_right()) {
            // What is wrong with the same words in many rows is shown once.
            let is_new = !explained.contains(&one.differences.as_slice());
            text += &if is_new { one.explanation() } else { one.line() + "\n" };
            explained.push(&one.differences);
        }
        for leftover in &self.leftovers {
            let _ = writeln!(text, "could not remove {}: {}", leftover.what, leftover.why);
        }
        let kept = self.lived.iter().filter(|one| one.observed.job == KEPT).count();
        if kept > 0 {
            let _ = writeln!(text, "A job {KEPT}: {kept} rows");
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    pub fn to_json(&self) -> Value {
        let one = |one: &Lived| {
            let (row, seen) = (one.case.row, &one.observed);
            json!({
                "row": one.case.number, "director": row.director, "cpi": row.cpi, "stemcell": row.stemcell,
                "asked_by": one.case.client.as_str(), "right": one.is_right(), "differences": one.differences,
                "unseen": one.unseen, "call": one.call.as_ref().map(ShownCall::to_json), "request_version": seen.request_version,
                "stemcell_version": seen.stemcell_version, "create_vm": seen.create_vm, "attach_disk": seen.attach_disk,
                "registry_writes": seen.registry_writes, "registry_reads": seen.registry_reads,
                "user_metadata": seen.user_metadata, "hint_from": seen.hint_from, "job": seen.job, "seconds": one.took.as_secs_f64(),
            })
        };
        let leftovers: Vec<Value> =
            self.leftovers.iter().map(|left| json!({"what": left.what, "why": left.why})).collect();
        json!({
            "right": self.is_right(), "interrupted": self.interrupted, "calls": self.calls,
            "seconds": self.took.as_secs_f64(), "cases": self.lived.iter().map(one).collect::<Vec<_>>(),
            "leftovers": leftovers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::caller::Exchange;
    use crate::matrix::cases;
    use crate::profile::Profile;
    use crate::run::secrets_of;

    /// Two rows that end at the same words of a CPI, which says a page, and in it all that it was asked with.
    fn report() -> MatrixReport {
        let request = json!({"method": "create_vm", "arguments": [{"password": "of-the-request"}], "context": {}});
        let error =
            json!({"type": "Unknown", "message": format!("{}\nthe end", "words ".repeat(500)), "ok_to_retry": false});
        let answer = Answer::new(Exchange {
            request: request.to_string().into_bytes(),
            stdout: json!({"result": null, "error": error, "log": ""}).to_string().into_bytes(),
            stderr: b"first line\nwith of-the-request, of-the-configuration\n".to_vec(),
            exit: None,
            took: Duration::ZERO,
            timed_out: false,
            streams_lingered: false,
            request_unread: false,
        });
        let configuration = [("secret_key".to_owned(), json!("of-the-configuration"))].into_iter().collect();
        let secrets = secrets_of(&Profile { configuration, ..Profile::default() });
        let seen = Observed {
            request_version: "2".into(),
            stemcell_version: "2".into(),
            create_vm: "",
            attach_disk: "",
            registry_writes: 0,
            registry_reads: 0,
            user_metadata: "",
            hint_from: "",
            job: "",
        };
        let end = || answer.success().map(drop);
        let lived = cases().take(2).map(|case| Lived::new(case, seen.clone(), Vec::new(), end(), &secrets)).collect();
        MatrixReport { lived, leftovers: Vec::new(), interrupted: false, calls: 2, took: Duration::ZERO }
    }

    /// A row stays a line, whatever a CPI says; the call is shown with its first row, and in JSON and JUnit.
    #[test]
    fn a_row_is_a_line_and_the_call_behind_it_is_shown_once_without_secrets() {
        let report = report();
        for one in &report.lived {
            let line = one.line();
            assert!(!line.contains('\n') && line.len() < 900 && line.ends_with("the end"), "{line}");
        }
        let (table, junit, json) = (report.to_table(), report.to_junit(), report.to_json().to_string());
        assert_eq!(table.matches("\n  stderr:  first line\n  stderr:  with").count(), 1, "{table}");
        assert_eq!(junit.matches("stderr:  first line").count(), 2, "{junit}");
        assert!(json.contains("first line"), "{json}");
        for text in [table, junit, json] {
            assert!(!text.contains("of-the-request") && !text.contains("of-the-configuration"), "{text}");
        }
    }
}
