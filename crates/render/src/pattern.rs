//! Regular expressions, as far as they mean the same to Ruby and to us.

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: regex_lite::Regex,
    pub(crate) source: String,
    /// Whether it looks at line starts, which Ruby does not see behind a last line feed.
    pub(crate) line_starts: bool,
    /// Whether upper and lower case are the same, which Ruby knows of letters beyond ASCII, too.
    folds: bool,
}

/// What a pattern found.
#[derive(Debug)]
pub(crate) struct Captures {
    pub(crate) groups: Vec<Option<String>>,
    pub(crate) names: Vec<Option<String>>,
    pub(crate) before: String,
    pub(crate) after: String,
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
        let regex = regex_lite::RegexBuilder::new(&format!("(?{flags}){translated}"))
            .size_limit(1 << 20)
            .build()
            .map_err(|_| format!("the regular expression /{source}/"))?;
        // With names, Ruby does not count the other groups.
        let named = regex.capture_names().flatten().count();
        if named > 0 && named + 1 < regex.captures_len() {
            return Err("groups with and without names in a regular expression".to_owned());
        }
        let line_starts = translated.contains('^');
        Ok(Self { regex, source: source.to_owned(), line_starts, folds: options.contains('i') })
    }

    /// A pattern that finds a string as it is.
    pub(crate) fn literal(text: &str) -> Option<Self> {
        let regex = regex_lite::Regex::new(&regex_lite::escape(text)).ok()?;
        Some(Self { regex, source: String::new(), line_starts: false, folds: false })
    }

    /// Matches one after the other, as Ruby finds them; nothing where it may find others.
    pub(crate) fn all<'t>(&self, text: &'t str) -> Option<Vec<regex_lite::Captures<'t>>> {
        let found: Vec<_> = self.regex.captures_iter(text).collect();
        let at_end = |found: &regex_lite::Captures<'_>| found.get(0).is_some_and(|whole| whole.start() == text.len());
        if self.folds && !text.is_ascii() {
            return None;
        }
        // Where Ruby finds nothing directly behind something, we do not.
        let is_empty = |found: &regex_lite::Captures<'_>| found.get(0).is_some_and(|whole| whole.is_empty());
        if self.regex.is_match("") && !found.iter().all(is_empty) {
            return None;
        }
        let doubtful = self.line_starts && text.ends_with('\n') && found.iter().any(at_end);
        match (doubtful, self.source.as_str()) {
            (false, _) => Some(found),
            (true, "^") => Some(found.into_iter().filter(|found| !at_end(found)).collect()),
            (true, _) => None,
        }
    }

    pub(crate) fn first<'t>(&self, text: &'t str) -> Option<Option<regex_lite::Captures<'t>>> {
        let found = self.regex.captures(text);
        let at_end = found.as_ref().and_then(|found| found.get(0)).is_some_and(|whole| whole.start() == text.len());
        let doubtful = (self.line_starts && text.ends_with('\n') && at_end) || (self.folds && !text.is_ascii());
        if doubtful { None } else { Some(found) }
    }

    pub(crate) fn captures(&self, found: &regex_lite::Captures<'_>, text: &str) -> Captures {
        let whole = found.get(0).map_or(0..0, |whole| whole.range());
        Captures {
            groups: found.iter().map(|group| group.map(|group| group.as_str().to_owned())).collect(),
            names: self.regex.capture_names().map(|name| name.map(str::to_owned)).collect(),
            before: text[..whole.start].to_owned(),
            after: text[whole.end..].to_owned(),
        }
    }
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
