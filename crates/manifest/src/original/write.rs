//! Values as YAML, byte by byte as the original writes them.

use serde_json::Value;

use super::{key, order, scalar};
use crate::Object;
use crate::emit::{Blocks, Style};

/// A key with more bytes does not stand before its `:`.
const LONGEST_KEY: usize = 128;

/// Where lines are broken, if there is a space to break them at.
const WIDTH: usize = 80;

/// Block style, keys sorted.
pub fn to_yaml(value: &Value) -> String {
    Blocks(&Original).document(value)
}

struct Original;

impl Style for Original {
    const ROOT_INDENT: usize = 2;

    fn in_order<'a>(&self, entries: &'a Object) -> Vec<(&'a String, &'a Value)> {
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| order::compare(a, b));
        sorted
    }

    fn key(&self, key: &str) -> String {
        if let Some(scalar) = key::scalar(key) {
            return scalar.to_owned();
        }
        let mut text = String::new();
        match Quoting::of(key) {
            Quoting::Plain => text.push_str(key),
            Quoting::Single => single_quoted(&mut text, key, None),
            Quoting::Double | Quoting::Literal => double_quoted(&mut text, key, None),
        }
        text
    }

    fn is_explicit(&self, key: &str) -> bool {
        key.len() > LONGEST_KEY || key.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
    }

    fn explicit_key(&self, yaml: &mut String, key: &str, indent: usize) {
        text(yaml, key, indent);
    }

    fn scalar(&self, yaml: &mut String, value: &Value, indent: usize) {
        match value {
            Value::Null => yaml.push_str("null"),
            Value::Bool(boolean) => yaml.push_str(if *boolean { "true" } else { "false" }),
            Value::Number(number) => yaml.push_str(&scalar::number_text(number)),
            Value::String(value) => text(yaml, value, indent),
            Value::Array(_) => yaml.push_str("[]"),
            Value::Object(_) => yaml.push_str("{}"),
        }
    }
}

/// Writes text in the way that fits it.
fn text(yaml: &mut String, text: &str, indent: usize) {
    match Quoting::of(text) {
        Quoting::Plain => folded(yaml, text, indent, |_, _| true),
        Quoting::Single => single_quoted(yaml, text, Some(indent)),
        Quoting::Double => double_quoted(yaml, text, Some(indent)),
        Quoting::Literal => literal(yaml, text, indent),
    }
}

enum Quoting {
    Plain,
    Single,
    Double,
    Literal,
}

impl Quoting {
    fn of(text: &str) -> Self {
        let is_odd = |c: char| !is_printable(c);
        let is_space_before_break = text.contains(" \n");
        if text.contains('\n') {
            let blockable = !text.ends_with(' ') && !is_space_before_break && !text.contains(is_odd);
            return if blockable { Self::Literal } else { Self::Double };
        }
        if scalar::needs_quotes(text) || text.contains(is_odd) {
            return Self::Double;
        }
        if text.starts_with(' ') || text.ends_with(' ') || has_indicator(text) { Self::Single } else { Self::Plain }
    }
}

/// Whether something in text without line breaks would mean something in YAML.
fn has_indicator(text: &str) -> bool {
    let followed_by_space = |at: usize| text[at + 1..].chars().next().is_none_or(|next| next == ' ');
    text.starts_with("---")
        || text.starts_with("...")
        || text.starts_with(['#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`'])
        || text.starts_with(['?', '-']) && followed_by_space(0)
        || text.match_indices(':').any(|(at, _)| followed_by_space(at))
        || text.contains(" #")
}

/// What stands in YAML as it is; everything beyond the first plane does not, to the original.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn column(yaml: &str) -> usize {
    yaml.chars().rev().take_while(|c| *c != '\n').count()
}

fn new_line(yaml: &mut String, indent: usize) {
    yaml.push('\n');
    yaml.extend(std::iter::repeat_n(' ', indent));
}

/// Writes text, and breaks lines at single spaces where `may_break` of the space's place and the length says so.
fn folded(yaml: &mut String, text: &str, indent: usize, may_break: impl Fn(usize, usize) -> bool) {
    let mut at_column = column(yaml);
    let mut after_space = false;
    let bytes = text.as_bytes();
    for (at, letter) in text.char_indices() {
        let single = letter == ' ' && !after_space && bytes.get(at + 1) != Some(&b' ');
        if single && at_column > WIDTH && may_break(at, text.len()) {
            new_line(yaml, indent);
            at_column = indent;
        } else {
            yaml.push(letter);
            at_column += 1;
        }
        after_space = letter == ' ';
    }
}

/// Keys are never broken: they have no indent.
fn single_quoted(yaml: &mut String, text: &str, indent: Option<usize>) {
    yaml.push('\'');
    let escaped = text.replace('\'', "''");
    folded(yaml, &escaped, indent.unwrap_or(0), |at, length| indent.is_some() && at > 0 && at + 1 < length);
    yaml.push('\'');
}

fn double_quoted(yaml: &mut String, text: &str, indent: Option<usize>) {
    yaml.push('"');
    let mut at_column = column(yaml);
    let mut after_space = false;
    for (at, letter) in text.char_indices() {
        let next = text.as_bytes().get(at + 1);
        let inside = at > 0 && at + 1 < text.len();
        match (letter, indent) {
            (' ', Some(indent)) if !after_space && at_column > WIDTH && inside => {
                new_line(yaml, indent);
                at_column = indent;
                if next == Some(&b' ') {
                    yaml.push('\\');
                    at_column += 1;
                }
            }
            _ => {
                let escaped = escape(letter);
                at_column += escaped.chars().count();
                yaml.push_str(&escaped);
            }
        }
        after_space = letter == ' ';
    }
    yaml.push('"');
}

fn escape(letter: char) -> String {
    match letter {
        '\0' => "\\0".into(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\r' => "\\r".into(),
        '\u{1b}' => "\\e".into(),
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\u{85}' => "\\N".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        letter if is_printable(letter) => letter.into(),
        letter => match letter as u32 {
            code @ ..=0xff => format!("\\x{code:02X}"),
            code @ 0x100..=0xffff => format!("\\u{code:04X}"),
            code => format!("\\U{code:08X}"),
        },
    }
}

fn literal(yaml: &mut String, text: &str, indent: usize) {
    yaml.push('|');
    if text.starts_with([' ', '\n']) {
        yaml.push('2');
    }
    match (text.strip_suffix('\n'), text) {
        (None, _) => yaml.push('-'),
        (Some(rest), _) if rest.is_empty() || rest.ends_with('\n') => yaml.push('+'),
        _ => {}
    }
    yaml.push('\n');
    for line in text.split_inclusive('\n') {
        if line != "\n" {
            yaml.extend(std::iter::repeat_n(' ', indent));
        }
        yaml.push_str(line);
    }
}
