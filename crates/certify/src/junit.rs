//! A suite of JUnit's XML, which CI servers read.

use std::fmt::Write as _;
use std::time::Duration;

use crate::clean_up::Leftover;

pub(crate) struct TestCase {
    pub class: String,
    pub name: String,
    pub took: Duration,
    pub result: TestResult,
}

pub(crate) enum TestResult {
    Passed,
    /// It passed, and this should be read.
    Noted(String),
    Skipped(String),
    Failed {
        message: String,
        explanation: String,
    },
}

/// A suite without the XML declaration, so that several can stand in one document.
pub(crate) fn suite(name: &str, took: Duration, cases: &[TestCase], leftovers: &[Leftover]) -> String {
    let count = |is_meant: fn(&TestResult) -> bool| cases.iter().filter(|case| is_meant(&case.result)).count();
    let failures = count(|result| matches!(result, TestResult::Failed { .. }));
    let skipped = count(|result| matches!(result, TestResult::Skipped(_)));
    let mut text = format!(
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{:.3}\">\n",
        xml(name),
        cases.len(),
        took.as_secs_f64()
    );
    for TestCase { class, name, took, result } in cases {
        let (class, name, time) = (xml(class), xml(name), took.as_secs_f64());
        let inside = match result {
            TestResult::Passed => String::new(),
            TestResult::Noted(text) => format!("<system-out>{}</system-out>", xml(text)),
            TestResult::Skipped(why) => format!("<skipped message=\"{}\"/>", xml(why)),
            TestResult::Failed { message, explanation } => {
                format!("<failure message=\"{}\">{}</failure>", xml(message), xml(explanation))
            }
        };
        let _ =
            writeln!(text, "  <testcase classname=\"{class}\" name=\"{name}\" time=\"{time:.3}\">{inside}</testcase>");
    }
    for leftover in leftovers {
        let what = xml(&format!("could not remove {}: {}", leftover.what, leftover.why));
        let _ = writeln!(text, "  <system-err>{what}</system-err>");
    }
    text.push_str("</testsuite>\n");
    text
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
