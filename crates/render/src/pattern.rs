//! Regular expressions, as far as they mean the same to Ruby and to us.

use std::ops::Range;
use std::rc::Rc;

use crate::memory::{Content, Full, Heap, Holds};

/// How large a regular expression may become, in KiB. Each copy that `{64}` makes takes some 100 bytes.
const LARGEST: usize = 64;
/// How many characters a template's patterns may look at, each counted as often as the pattern has [weight](Pattern::weight).
const MOST_SEARCHED: usize = 10_000_000;
/// Making a pattern takes as long as looking for it in so many characters.
const MADE: usize = 1000;

/// How much a template's patterns have searched.
#[derive(Debug, Default)]
pub(crate) struct Searched(usize);

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: regex_lite::Regex,
    names: Rc<[Option<String>]>,
    /// What it costs to look at a character: all that it consists of is tried there.
    weight: usize,
    is_literal: bool,
    pub(crate) source: String,
    /// Whether it looks at line starts, which Ruby does not see behind a last line feed.
    pub(crate) line_starts: bool,
    /// Whether upper and lower case are the same, which Ruby knows of letters beyond ASCII, too.
    folds: bool,
}

/// Where a pattern found something: the whole, and its groups.
#[derive(Debug, Clone)]
pub(crate) struct Found(Box<[Option<Range<usize>>]>);

/// What a pattern found, in the text that it looked at.
#[derive(Debug)]
pub(crate) struct Captures {
    text: Content,
    found: Found,
    names: Rc<[Option<String>]>,
}

impl Found {
    fn new(found: &regex_lite::Captures<'_>) -> Self {
        Self(found.iter().map(|group| group.map(|group| group.range())).collect())
    }

    pub(crate) fn whole(&self) -> Range<usize> {
        self.0.first().cloned().flatten().unwrap_or(0..0)
    }

    pub(crate) fn group(&self, number: usize) -> Option<Range<usize>> {
        self.0.get(number).cloned().flatten()
    }

    /// How many groups there are, the whole among them.
    pub(crate) fn groups(&self) -> usize {
        self.0.len()
    }
}

impl Captures {
    pub(crate) fn whole(&self) -> Range<usize> {
        self.found.whole()
    }

    pub(crate) fn groups(&self) -> usize {
        self.found.groups()
    }

    pub(crate) fn group(&self, number: usize) -> Option<&str> {
        self.found.group(number).map(|range| &self.text[range])
    }

    /// The number of the group with this name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known.as_deref() == Some(name))
    }

    pub(crate) fn before(&self) -> &str {
        &self.text[..self.whole().start]
    }

    pub(crate) fn after(&self) -> &str {
        &self.text[self.whole().end..]
    }
}

impl Holds for Captures {
    fn held(&self) -> usize {
        size_of_val(&*self.found.0)
    }
}

impl Holds for Pattern {
    fn held(&self) -> usize {
        (self.weight << 10) + self.source.len()
    }
}

impl Pattern {
    /// Takes what is written between the slashes; answers what is not understood.
    pub(crate) fn new(source: &str, options: &str) -> Result<Self, String> {
        let translated = translate(source)?;
        let mut flags = String::from("m");
        for option in options.chars() {
            match option {
                'i' if source.is_ascii() => flags.push('i'),
                'm' => flags.push('s'),
                'o' | 'u' => {}
                other => return Err(format!("option '{other}' of a regular expression")),
            }
        }
        let notation = format!("(?{flags}){translated}");
        let (regex, weight) = build(&notation, LARGEST).ok_or_else(|| format!("the regular expression /{source}/"))?;
        // With names, Ruby does not count the other groups.
        let named = regex.capture_names().flatten().count();
        if named > 0 && named + 1 < regex.captures_len() {
            return Err("groups with and without names in a regular expression".to_owned());
        }
        let line_starts = translated.contains('^');
        let (source, folds) = (source.to_owned(), options.contains('i'));
        let names = regex.capture_names().map(|name| name.map(str::to_owned)).collect();
        Ok(Self { regex, names, weight, is_literal: false, source, line_starts, folds })
    }

    /// A pattern that finds a string as it is.
    pub(crate) fn literal(text: &str) -> Option<Self> {
        let (regex, weight) = build(&regex_lite::escape(text), 16 * LARGEST)?;
        let names = Rc::new([None]);
        Some(Self { regex, names, weight, is_literal: true, source: String::new(), line_starts: false, folds: false })
    }

    /// Counts that so many characters are looked at; nothing if those are too many.
    fn search(&self, characters: usize, searched: &mut Searched) -> Option<()> {
        searched.0 = searched.0.saturating_add(characters.saturating_mul(self.weight));
        (searched.0 <= MOST_SEARCHED).then_some(())
    }

    /// Counts that it was made; nothing if that was too often.
    pub(crate) fn made(&self, searched: &mut Searched) -> Option<()> {
        self.search(MADE, searched)
    }

    /// Matches one after the other, as Ruby finds them; nothing where it may find others, or where it takes too long.
    pub(crate) fn all(&self, text: &str, searched: &mut Searched, heap: &Heap) -> Result<Option<Vec<Found>>, Full> {
        if self.search(text.len(), searched).is_none() || (self.folds && !text.is_ascii()) {
            return Ok(None);
        }
        let mut found = Vec::new();
        for next in self.regex.captures_iter(text) {
            let next = Found::new(&next);
            heap.take(size_of::<Found>() * 2 + size_of_val(&*next.0))?;
            // The next may look at all that is left, and find something right here. A string ends where it is found.
            if !self.is_literal && self.search(text.len() - next.whole().end, searched).is_none() {
                return Ok(None);
            }
            found.push(next);
        }
        let at_end = |found: &Found| found.whole().start == text.len();
        // Where Ruby finds nothing directly behind something, we do not.
        if self.regex.is_match("") && !found.iter().all(|found| found.whole().is_empty()) {
            return Ok(None);
        }
        let doubtful = self.line_starts && text.ends_with('\n') && found.iter().any(at_end);
        Ok(match (doubtful, self.source.as_str()) {
            (false, _) => Some(found),
            (true, "^") => Some(found.into_iter().filter(|found| !at_end(found)).collect()),
            (true, _) => None,
        })
    }

    /// The first match, with the same exceptions.
    pub(crate) fn first(&self, text: &str, searched: &mut Searched) -> Option<Option<Found>> {
        self.search(text.len(), searched)?;
        let found = self.regex.captures(text).map(|found| Found::new(&found));
        let at_end = found.as_ref().is_some_and(|found| found.whole().start == text.len());
        let doubtful = (self.line_starts && text.ends_with('\n') && at_end) || (self.folds && !text.is_ascii());
        if doubtful { None } else { Some(found) }
    }

    pub(crate) fn captures(&self, found: Found, text: &Content) -> Captures {
        Captures { text: text.clone(), found, names: Rc::clone(&self.names) }
    }
}

/// The expression and its weight, unless it becomes larger than so many KiB.
fn build(notation: &str, largest: usize) -> Option<(regex_lite::Regex, usize)> {
    let mut sizes = std::iter::successors(Some(1), |size| Some(size * 4)).take_while(|size| *size <= largest);
    let sized = |size: usize| {
        let regex = regex_lite::RegexBuilder::new(notation).size_limit(size << 10).build().ok()?;
        // What groups found is copied at each character.
        let weight = size * (1 + regex.captures_len() / 4);
        Some((regex, weight))
    };
    sizes.find_map(sized)
}

/// Ruby's notation in ours. Only what means the same is taken over.
fn translate(source: &str) -> Result<String, String> {
    let mut translated = String::new();
    let mut rest = source.chars().peekable();
    let mut in_class = false;
    let unknown = |what: &str| Err(format!("'{what}' in a regular expression"));
    while let Some(next) = rest.next() {
        match next {
            '\\' => match rest.next() {
                Some(letter @ ('d' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 't' | 'r')) => {
                    translated.extend(['\\', letter])
                }
                Some(letter @ ('A' | 'z')) if !in_class => translated.extend(['\\', letter]),
                // It matches before a last line feed, too.
                Some('Z') if !in_class => return unknown("\\Z"),
                Some('h') if in_class => translated.push_str("0-9a-fA-F"),
                Some('h') => translated.push_str("[0-9a-fA-F]"),
                Some(letter) if letter.is_ascii_punctuation() => push_literal(letter, &mut translated),
                Some(letter) => return unknown(&format!("\\{letter}")),
                None => return unknown("\\"),
            },
            '[' if in_class => return unknown("[ within ["),
            '[' => {
                in_class = true;
                translated.push('[');
                if rest.peek() == Some(&'^') {
                    translated.extend(rest.next());
                }
                if rest.peek() == Some(&']') {
                    return unknown("[]");
                }
            }
            ']' if in_class => {
                in_class = false;
                translated.push(']');
            }
            '&' if in_class && rest.peek() == Some(&'&') => return unknown("&&"),
            '~' if in_class && rest.peek() == Some(&'~') => translated.push_str("\\~"),
            '-' if in_class && rest.peek() == Some(&'-') => return unknown("--"),
            '(' if !in_class && rest.peek() == Some(&'?') => {
                rest.next();
                match rest.next() {
                    Some(':') => translated.push_str("(?:"),
                    Some('<') if rest.peek().is_some_and(char::is_ascii_alphabetic) => translated.push_str("(?P<"),
                    other => return unknown(&format!("(?{}", other.map(String::from).unwrap_or_default())),
                }
            }
            '*' | '+' | '?' | '}' if !in_class => {
                translated.push(next);
                if rest.peek() == Some(&'+') {
                    return unknown("a possessive quantifier");
                }
            }
            // Ruby reads a brace that is no quantifier as itself.
            '{' if !in_class => {
                let digits = rest.clone().take_while(|next| *next != '}').collect::<String>();
                let counts = digits.chars().all(|next| next.is_ascii_digit() || next == ',');
                let closed = rest.clone().any(|next| next == '}');
                if closed && counts && digits.starts_with(|first: char| first.is_ascii_digit()) {
                    translated.push('{');
                } else {
                    return unknown("{");
                }
            }
            '#' => translated.push_str("\\#"),
            other => translated.push(other),
        }
    }
    Ok(translated)
}

fn push_literal(letter: char, translated: &mut String) {
    translated.push_str(&regex_lite::escape(&letter.to_string()));
}
