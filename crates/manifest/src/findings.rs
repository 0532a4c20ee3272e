//! What reading and planning found: problems, which end a deploy before anything changes, and warnings, which do not.

use std::collections::HashSet;

use crate::{At, Position, Problem};

/// Problems and warnings of all documents together, so that one round of editing mends them all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    document: String,
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    /// How many letters the problems have that are kept, and how many problems are not.
    letters: usize,
    left_out: usize,
    /// How many letters the warnings have.
    warned: usize,
}

/// How many letters of problems are kept, and of warnings, or a little more: nobody mends thousands at once, and each names its place.
const MOST_LETTERS: usize = 1 << 20;

/// One problem or warning.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Such as `cloud config 'default'`; empty for the manifest.
    pub document: String,
    /// Such as `instance_groups[0].name`; empty for the document as a whole.
    pub path: String,
    pub message: String,
    /// Where in the document's text, if it is about a place there.
    pub line: Option<usize>,
    /// The number that BOSH has for it, whose words the message then begins with.
    pub code: Option<u32>,
}

impl Finding {
    /// For people. Without the line when the document was rewritten on its way, as the original client does.
    pub fn describe(&self, with_line: bool) -> String {
        let Self { path, message, line, .. } = self;
        if self.code.is_some() {
            return self.in_the_words_of_bosh(with_line);
        }
        let mut text = String::new();
        if !self.document.is_empty() {
            text.push_str(&format!("in the {}: ", self.document));
        }
        if !path.is_empty() {
            text.push_str(&format!("{path}: "));
        }
        text.push_str(message);
        if let Some(line) = line.filter(|_| with_line) {
            text.push_str(&format!(" (line {line})"));
        }
        text
    }

    /// The message comes first, so that it can be searched for.
    fn in_the_words_of_bosh(&self, with_line: bool) -> String {
        let line = self.line.filter(|_| with_line).map(|line| format!("line {line}"));
        let place: Vec<&str> =
            [self.path.as_str()].into_iter().chain(line.as_deref()).filter(|it| !it.is_empty()).collect();
        match place.is_empty() {
            true => self.message.clone(),
            false => format!("{} ({})", self.message, place.join(", ")),
        }
    }

    fn letters(&self) -> usize {
        self.document.len() + self.path.len() + self.message.len()
    }

    /// For the sender of a manifest, verbatim or rewritten. Of a config that is stored, the lines can be looked up.
    pub fn describe_to_sender(&self, verbatim: bool) -> String {
        self.describe(verbatim || !self.document.is_empty())
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe(true))
    }
}

impl Findings {
    /// None yet; what is found from now on is in the manifest.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is found from now on is in this document; the empty name is the manifest's.
    pub fn begin(&mut self, document: impl Into<String>) {
        self.document = document.into();
    }

    /// Something that cannot be used.
    pub fn push(&mut self, problem: Problem) {
        let finding = self.finding(problem);
        self.keep(finding);
    }

    fn keep(&mut self, finding: Finding) {
        if self.is_full() {
            self.left_out += 1;
            return;
        }
        self.letters += finding.letters();
        self.problems.push(finding);
    }

    /// Whether no more problems are kept: there are so many that nobody needs to look for others.
    pub fn is_full(&self) -> bool {
        self.letters > MOST_LETTERS
    }

    /// How many problems were found that are not kept.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Something that can be used, but may not mean what its author thinks.
    pub fn warn(&mut self, problem: Problem) {
        let finding = self.finding(problem);
        if self.warned <= MOST_LETTERS {
            self.warned += finding.letters();
            self.warnings.push(finding);
        }
    }

    /// A problem with the document as a whole.
    pub fn say(&mut self, message: impl Into<String>) {
        let (document, message) = (self.document.clone(), message.into());
        self.keep(Finding { document, path: String::new(), message, line: None, code: None });
    }

    /// Something that cannot be used, which BOSH has a number and words for.
    pub fn refuse(&mut self, code: u32, place: Option<&Place>, message: impl Into<String>) {
        let path = place.map(|place| place.path.clone()).unwrap_or_default();
        let line = place.map(|place| place.position.line);
        let (document, message) = (self.document.clone(), message.into());
        self.keep(Finding { document, path, message, line, code: Some(code) });
    }

    /// The number that BOSH has for all that stands in the way, if that is one.
    pub fn code(&self) -> Option<u32> {
        let code = self.problems.first()?.code;
        code.filter(|_| self.problems.iter().all(|problem| problem.code == code))
    }

    fn finding(&self, problem: Problem) -> Finding {
        let Problem { path, position, message } = problem;
        Finding { document: self.document.clone(), path, message, line: Some(position.line), code: None }
    }

    /// The value, or none after keeping the problem.
    pub fn check<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.push(problem)).ok()
    }

    /// What is about one document.
    pub fn only(mut self, document: &str) -> Self {
        self.problems.retain(|finding| finding.document == document);
        self.warnings.retain(|finding| finding.document == document);
        self
    }

    /// Whether nothing stands in the way.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.left_out == 0
    }

    /// What stands in the way.
    pub fn problems(&self) -> &[Finding] {
        &self.problems
    }

    /// Warnings about keys of objects that have a problem: a key that nobody knows is often the misspelt one that is missing.
    pub fn warnings_beside_problems(&self) -> impl Iterator<Item = &Finding> {
        // There may be ten thousand of both.
        let own = self.problems.iter().map(|it| (it.document.as_str(), it.path.as_str()));
        let around = self.problems.iter().map(|it| (it.document.as_str(), parent_of(&it.path)));
        let concerned: HashSet<(&str, &str)> = own.chain(around).collect();
        self.warnings.iter().filter(move |it| concerned.contains(&(it.document.as_str(), parent_of(&it.path))))
    }

    /// What should be looked at.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}

/// The path of what a key or an element is in.
fn parent_of(path: &str) -> &str {
    path.rfind(['.', '[']).map_or("", |end| &path[..end])
}

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// Where something stands in its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Such as `instance_groups[0].networks[1].name`.
    pub path: String,
    /// Line and column.
    pub position: Position,
}

impl Place {
    /// Of a value.
    pub fn of(at: &At<'_>) -> Self {
        Self { path: at.path(), position: at.node().position }
    }

    /// A problem here.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), position: self.position, message: message.into() }
    }
}

/// A value and where it stands, for checks that need more than its own document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    /// Where it stands.
    pub place: Place,
}

impl<T> Placed<T> {
    /// A problem with the value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        self.place.problem(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(path: &str) -> Problem {
        Problem { path: path.to_owned(), position: Position { line: 1, column: 1 }, message: "m".to_owned() }
    }

    /// Each warning was compared with each problem, which took minutes.
    #[test]
    fn ten_thousand_mistakes_are_told_at_once() {
        let mut findings = Findings::new();
        for number in 0..30_000 {
            findings.push(problem(&format!("instance_groups[{number}].vm_type")));
            findings.warn(problem(&format!("instance_groups[{}].vm_typ", number + 20_000)));
        }
        let (problems, begun) = (findings.problems().len(), std::time::Instant::now());
        let told = findings.warnings_beside_problems().count();
        assert!(problems > 20_000 && told == problems.saturating_sub(20_000), "{told} of {problems}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    /// `vm_typ` is named, and not only that `vm_type` is missing.
    #[test]
    fn a_misspelt_key_is_told_with_what_is_missing_because_of_it() {
        let mut findings = Findings::new();
        findings.push(problem("instance_groups[0]"));
        findings.push(problem("releases[0].version"));
        for path in ["instance_groups[0].vm_typ", "releases[0].versoin", "instance_groups[1].vm_typ", "updat"] {
            findings.warn(problem(path));
        }
        findings.begin("cloud config 'default'");
        findings.warn(problem("releases[0].versoin"));
        let told: Vec<_> = findings.warnings_beside_problems().map(|it| (&*it.document, &*it.path)).collect();
        assert_eq!(told, [("", "instance_groups[0].vm_typ"), ("", "releases[0].versoin")]);
    }
}
