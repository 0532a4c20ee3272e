//! Reads an object key by key. What is wrong is noted and reading goes on, so that all problems are told at once; keys that
//! nobody knows are pointed out with the one that was probably meant.

use std::net::IpAddr;

use crate::findings::{Findings, Place, Placed};
use crate::{At, Content, Object, Problem};

/// How alike two words must be for one to be a slip of the other.
const SLIP: f64 = 0.7;

/// An object being read.
#[derive(Debug)]
pub struct Fields<'a, 'f> {
    at: At<'a>,
    findings: &'f mut Findings,
}

impl<'a, 'f> Fields<'a, 'f> {
    /// The object at `at`, of which these keys are known. Others are pointed out.
    pub fn of(at: &At<'a>, known: &[&str], findings: &'f mut Findings) -> Option<Self> {
        for (value, message) in unknown(at, known, findings)? {
            findings.warn(value.problem(format!("{message} and has no effect")));
        }
        Some(Self { at: at.clone(), findings })
    }

    /// The object at `at`, of which these keys are known. Others are problems: an author of a document for us alone has
    /// nobody else who might understand them.
    pub fn strictly(at: &At<'a>, known: &[&str], findings: &'f mut Findings) -> Option<Self> {
        for (value, message) in unknown(at, known, findings)? {
            findings.push(value.problem(message));
        }
        Some(Self { at: at.clone(), findings })
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        Place::of(&self.at)
    }

    /// What was found so far.
    pub fn findings(&mut self) -> &mut Findings {
        self.findings
    }

    /// A problem with the object itself.
    pub fn push(&mut self, message: impl Into<String>) {
        let problem = self.at.problem(message);
        self.findings.push(problem);
    }

    /// A value that may be missing or null.
    pub fn optional(&mut self, name: &str) -> Option<At<'a>> {
        let found = self.at.optional(name);
        self.findings.check(found).flatten()
    }

    /// A value that must be there.
    pub fn required(&mut self, name: &str) -> Option<At<'a>> {
        let found = self.at.field(name);
        self.findings.check(found)
    }

    /// Notes the problem.
    pub fn check<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        self.findings.check(result)
    }

    /// Text that must be there and not empty.
    pub fn text(&mut self, name: &str) -> Option<Placed<String>> {
        let at = self.required(name)?;
        self.check(placed_text(&at))
    }

    /// A name: text without what separates names from each other.
    pub fn name(&mut self) -> Option<Placed<String>> {
        let name = self.text("name")?;
        if name.value.contains('/') {
            self.findings.push(name.problem("a name must not contain '/'"));
            return None;
        }
        Some(name)
    }

    /// Text that may be missing.
    pub fn optional_text(&mut self, name: &str) -> Option<Placed<String>> {
        let at = self.optional(name)?;
        self.check(placed_text(&at))
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let given = self.optional_text(name)?;
        let found = words.iter().find(|(word, _)| *word == given.value).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
            self.findings.push(given.problem(format!("expected {}, found '{}'", words.join(" or "), given.value)));
        }
        found
    }

    /// The elements of a list that may be missing.
    pub fn list(&mut self, name: &str) -> Vec<At<'a>> {
        let list = self.at.optional_list(name);
        let mut list = self.findings.check(list).unwrap_or_default();
        if let (true, Some(at)) = (list.len() > MOST_LISTED, self.optional(name)) {
            let message = format!("a list may have {MOST_LISTED} elements, and this one has {}", list.len());
            self.findings.push(at.problem(message));
            list.truncate(MOST_LISTED);
        }
        list
    }

    /// A list of texts that may be missing.
    pub fn texts(&mut self, name: &str) -> Vec<Placed<String>> {
        self.list(name).iter().filter_map(|at| self.findings.check(placed_text(at))).collect()
    }

    /// A list of addresses that may be missing, as text.
    pub fn addresses(&mut self, name: &str) -> Vec<String> {
        let mut addresses = Vec::new();
        for text in self.texts(name) {
            match text.value.parse::<IpAddr>() {
                Ok(address) => addresses.push(address.to_string()),
                Err(_) => self.findings.push(text.problem(format!("'{}' is not an address", text.value))),
            }
        }
        addresses
    }

    /// An object that only somebody else understands.
    pub fn object(&mut self, name: &str) -> Object {
        self.optional(name).and_then(|at| self.check(at.object())).unwrap_or_default()
    }

    /// A number from `least` to `most` that must be there.
    pub fn number(&mut self, name: &str, least: u64, most: u64) -> Option<u64> {
        let at = self.required(name)?;
        self.check(number(&at, least, most))
    }

    /// A boolean that may be missing.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        let at = self.optional(name)?;
        self.check(at.boolean())
    }

    /// Refuses a key that is there.
    pub fn refuse(&mut self, name: &str, why: &str) {
        if let Some(at) = self.optional(name) {
            self.findings.push(at.problem(why));
        }
    }
}

/// Text. The original takes a number for it as well.
pub fn text(at: &At<'_>) -> Result<String, Problem> {
    match &at.node().content {
        Content::Number(number) => Ok(number.to_string()),
        _ => at.string().map(str::to_owned),
    }
}

fn placed_text(at: &At<'_>) -> Result<Placed<String>, Problem> {
    let value = text(at)?;
    if value.is_empty() {
        return Err(at.problem("must not be empty"));
    }
    Ok(Placed { value, place: Place::of(at) })
}

/// A number from `least` to `most`. A number beyond 64 bits is read as text, and called what it is.
pub fn number(at: &At<'_>, least: u64, most: u64) -> Result<u64, Problem> {
    let shown = match &at.node().content {
        Content::Number(number) => number.to_string(),
        Content::String(text) if is_huge_number(text) => text.clone(),
        other => other.kind().to_owned(),
    };
    let found = match &at.node().content {
        Content::Number(number) => number.as_u64(),
        _ => None,
    };
    found
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| at.problem(format!("expected a whole number from {least} to {most}, found {shown}")))
}

fn is_huge_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() > 18 && digits.chars().all(|c| c.is_ascii_digit())
}

/// How many elements a list of a document may have. Elements are compared with each other, so that time grows faster than they do.
const MOST_LISTED: usize = 10_000;

/// So many keys of one object are pointed out; each is compared with all that are known.
const MOST_UNKNOWN: usize = 1000;

/// Keys that nobody knows, each with what to say about it.
fn unknown<'a>(at: &At<'a>, known: &[&str], findings: &mut Findings) -> Option<Vec<(At<'a>, String)>> {
    let entries = findings.check(at.entries())?;
    let others = entries.into_iter().filter(|(key, _)| !known.contains(key)).take(MOST_UNKNOWN);
    let said = |key: &str| match meant(key, known) {
        Some(meant) => format!("the key '{key}' is not known (did you mean '{meant}'?)"),
        None => format!("the key '{key}' is not known"),
    };
    Some(others.map(|(key, value)| (value, said(key))).collect())
}

/// Comparing two names takes memory and time for each pair of their letters, so long ones are not compared, nor very many.
const LONGEST_COMPARED: usize = 128;
const MOST_COMPARED: usize = 1000;

/// The one of the names that somebody meant who wrote `key`, if one is alike.
pub fn meant<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let is_short = |name: &&str| name.len() <= LONGEST_COMPARED;
    let alike = |candidate: &&str| strsim::normalized_damerau_levenshtein(key, candidate);
    let known = known.iter().copied().take(MOST_COMPARED).filter(|name| is_short(&key) && is_short(name));
    let (best, alike) = known.map(|name| (name, alike(&name))).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (alike >= SLIP).then_some(best)
}

#[cfg(test)]
mod tests {
    use crate::Document;

    use super::*;

    #[test]
    fn a_misspelt_key_is_pointed_out_with_the_one_that_was_meant() {
        let document = Document::parse("persistant_disk: 5\nfoo: 1\n").unwrap();
        let mut findings = Findings::new();
        Fields::of(&document.root(), &["persistent_disk", "networks"], &mut findings).unwrap();
        let warnings: Vec<_> = findings.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "persistant_disk: the key 'persistant_disk' is not known (did you mean 'persistent_disk'?) and has no effect (line 1)",
                "foo: the key 'foo' is not known and has no effect (line 2)",
            ]
        );
        assert!(findings.is_clean(), "unknown keys stop nothing");
    }

    /// Two names of a megabyte each would take eight terabytes to compare.
    #[test]
    fn long_names_are_not_compared_and_many_keys_are_pointed_out_in_part() {
        let long = "n".repeat(1 << 20);
        assert_eq!(meant(&format!("{long}x"), &[&long, "short"]), None);
        assert_eq!(meant("shrt", &[&long, "short"]), Some("short"));
        let text: String = (0..20_000).map(|number| format!("key-{number}: 1\n")).collect();
        let (document, mut findings) = (Document::parse(&text).unwrap(), Findings::new());
        Fields::of(&document.root(), &["name"], &mut findings).unwrap();
        assert_eq!(findings.warnings().len(), MOST_UNKNOWN);
    }

    #[test]
    fn very_long_lists_are_refused() {
        let text = format!("few: [a]\nmany: [{}]\n", "a,".repeat(MOST_LISTED + 1));
        let (document, mut findings) = (Document::parse(&text).unwrap(), Findings::new());
        let mut fields = Fields::of(&document.root(), &["few", "many"], &mut findings).unwrap();
        assert_eq!((fields.list("few").len(), fields.list("many").len()), (1, MOST_LISTED));
        assert_eq!(findings.to_string(), "many: a list may have 10000 elements, and this one has 10001 (line 2)");
    }

    #[test]
    fn absurd_numbers_are_refused_with_what_was_found() {
        for (yaml, found) in [
            ("-1", "found -1"),
            ("1000000000000", "found 1000000000000"),
            ("99999999999999999999999", "found 99999999999999999999999"),
            ("1.5", "found 1.5"),
            ("many", "found a string"),
            ("[1]", "found a list"),
        ] {
            let document = Document::parse(yaml).unwrap();
            let problem = number(&document.root(), 0, 1000).unwrap_err().to_string();
            assert!(problem.contains("from 0 to 1000") && problem.contains(found), "{problem}");
        }
    }
}
