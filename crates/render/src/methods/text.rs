//! Strings and symbols: what can be asked of them.

use std::rc::Rc;

use super::kernel::decimal;
use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::{Content, Kept, Symbol, Text};
use crate::value::Value;

pub(crate) const NAMES: &[&str] = &[
    "+",
    "*",
    "%",
    "<",
    ">",
    "<=",
    ">=",
    "length",
    "size",
    "bytesize",
    "empty?",
    "include?",
    "start_with?",
    "end_with?",
    "[]",
    "slice",
    "index",
    "to_sym",
    "intern",
    "to_str",
    "to_i",
    "to_f",
    "chars",
    "lines",
    "each_line",
    "each_char",
    "split",
    "ord",
    "hex",
    "casecmp?",
    "between?",
    "to_proc",
];

impl Evaluator<'_> {
    pub(crate) fn text_method(
        &mut self,
        text: &Kept<Text>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let content = text.get();
        self.work(content.len() / 64)?;
        if let ("each_line" | "each_char", [], Some(block)) = (name, arguments.values.as_slice(), block) {
            let by_line = name == "each_line";
            for part in content.split_inclusive(|letter| !by_line || letter == '\n') {
                let part = self.text(part)?;
                self.invoke(block, vec![part])?;
            }
            return Ok(Some(Value::Str(text.clone())));
        }
        if let Some(value) = self.asked_of_text(&content, name, arguments, block)? {
            return Ok(Some(value));
        }
        if let Some(value) = self.text_with_pattern(text, &content, name, &arguments.values, block)? {
            return Ok(Some(value));
        }
        self.changed_text(text, &content, name, &arguments.values)
    }

    fn asked_of_text(
        &mut self,
        content: &Content,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let found = match (name, arguments.values.as_slice()) {
            ("+", [Value::Str(other)]) => {
                let both = self.both(content, &other.get())?;
                self.text(both)?
            }
            ("*", [Value::Int(times)]) if *times >= 0 => {
                let times = usize::try_from(*times).unwrap_or(usize::MAX);
                let mut text = String::new();
                self.write_times(&mut text, content, times)?;
                self.text(text)?
            }
            ("%", [Value::Array(values)]) => {
                let values = values.items();
                let text = self.formatted(content, &values)?;
                self.text(text)?
            }
            ("%", [value]) => {
                let text = self.formatted(content, std::slice::from_ref(value))?;
                self.text(text)?
            }
            ("<" | ">" | "<=" | ">=", [Value::Str(other)]) => {
                let order = content.as_str().cmp(&other.get());
                Value::Bool(super::numbers::holds(name, order))
            }
            ("length" | "size", []) => Value::Int(content.chars().count() as i128),
            ("bytesize", []) => Value::Int(content.len() as i128),
            ("empty?", []) => Value::Bool(content.is_empty()),
            ("include?", [Value::Str(part)]) => Value::Bool(content.contains(&*part.get())),
            ("start_with?" | "end_with?", parts) if parts.iter().all(|part| matches!(part, Value::Str(_))) => {
                let mut is_one = false;
                for part in parts.iter().filter_map(Value::as_text) {
                    self.work(1 + part.len() / 64)?;
                    is_one |=
                        if name == "start_with?" { content.starts_with(&*part) } else { content.ends_with(&*part) };
                }
                Value::Bool(is_one)
            }
            ("[]" | "slice", [Value::Str(part)]) => match content.contains(&*part.get()) {
                true => self.text(part.get())?,
                false => Value::Nil,
            },
            ("[]" | "slice", [Value::Int(index)]) => self.part_of_text(content, *index, Some(1), false)?,
            ("[]" | "slice", [Value::Int(index), Value::Int(length)]) => {
                self.part_of_text(content, *index, Some(*length), true)?
            }
            ("[]" | "slice", [Value::Range(range)]) => {
                let count = content.chars().count();
                match self.bounds(range, count)? {
                    Some((start, length)) => self.part_of_text(content, start as i128, Some(length as i128), true)?,
                    None => Value::Nil,
                }
            }
            ("index", [Value::Str(part)]) => match content.find(&*part.get()) {
                Some(at) => Value::Int(content[..at].chars().count() as i128),
                None => Value::Nil,
            },
            ("to_sym" | "intern", []) => self.symbol(content)?,
            ("to_str", []) => self.text(content.clone())?,
            ("to_i", []) => match leading_int(content) {
                Some(value) => Value::Int(value),
                None => return self.refuse("'to_i' of this string"),
            },
            ("to_f", []) => match leading_float(content) {
                Some(value) => Value::Float(value),
                None => return self.refuse("'to_f' of this string"),
            },
            ("chars", []) if block.is_none() => self.texts(content.split_inclusive(|_| true))?,
            ("lines", []) if block.is_none() => self.texts(content.split_inclusive('\n'))?,
            ("split", []) => self.split(content, None, 0)?,
            ("split", [Value::Str(by)]) => self.split(content, Some(&by.get()), 0)?,
            ("split", [Value::Str(by), Value::Int(limit)]) => self.split(content, Some(&by.get()), *limit)?,
            ("casecmp?", [Value::Str(other)]) if content.is_ascii() && other.get().is_ascii() => {
                Value::Bool(content.eq_ignore_ascii_case(&other.get()))
            }
            ("hex", []) => match i128::from_str_radix(content.strip_prefix("0x").unwrap_or(content), 16) {
                Ok(value) if !content.starts_with(['-', '+']) => Value::Int(value),
                _ => return self.refuse("'hex' of this string"),
            },
            ("ord", []) => match content.chars().next() {
                Some(letter) => Value::Int(u32::from(letter).into()),
                None => return self.refuse("'ord' of an empty string"),
            },
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn part_of_text(&mut self, content: &str, index: i128, length: Option<i128>, at_end: bool) -> Answer {
        let count = content.chars().count() as i128;
        self.work(content.len() / 16)?;
        let start = if index < 0 { index + count } else { index };
        let length = length.unwrap_or(0);
        let past = if at_end { start > count } else { start >= count };
        if start < 0 || past || length < 0 {
            return Ok(Value::Nil);
        }
        let skip = usize::try_from(start).unwrap_or(usize::MAX);
        let take = usize::try_from(length).unwrap_or(usize::MAX);
        let mut ends = content.char_indices().map(|(at, _)| at).skip(skip);
        let from = ends.next().unwrap_or(content.len());
        let to = match take.checked_sub(1) {
            None => from,
            Some(more) => ends.nth(more).unwrap_or(content.len()),
        };
        self.text(&content[from..to])
    }

    pub(crate) fn split(&mut self, content: &str, by: Option<&str>, limit: i128) -> Answer {
        if limit < 0 || (limit > 0 && matches!(by, None | Some(" " | ""))) {
            return self.refuse("'split' with this limit");
        }
        match by {
            None | Some(" ") => self.texts(content.split(is_space).filter(|part| !part.is_empty())),
            Some("") => self.texts(content.split_inclusive(|_| true)),
            Some(_) if content.is_empty() => self.list(Vec::new()),
            Some(by) if limit > 0 => self.texts(content.splitn(usize::try_from(limit).unwrap_or(usize::MAX), by)),
            Some(by) => {
                // What is empty at the end is left out.
                let last = content.split(by).enumerate().filter(|(_, part)| !part.is_empty()).last();
                self.texts(content.split(by).take(last.map_or(0, |(index, _)| index + 1)))
            }
        }
    }

    pub(crate) fn symbol_method(
        &mut self,
        symbol: &Symbol,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        Ok(match (name, arguments.values.as_slice()) {
            ("to_sym", []) => Some(Value::Symbol(symbol.clone())),
            ("length" | "size", []) => Some(Value::Int(symbol.chars().count() as i128)),
            ("to_proc", []) => Some(self.procedure(Rc::new(Closure::Name(symbol.name().clone())))?),
            _ => None,
        })
    }
}

/// What Ruby takes for white space.
pub(crate) fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// The number that a string starts with.
fn leading_int(text: &str) -> Option<i128> {
    let text = text.trim_start_matches(is_space);
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    // Underscores and prefixes have rules of their own.
    if digits[end..].starts_with('_') {
        return None;
    }
    if end == 0 { Some(0) } else { digits[..end].parse::<i128>().ok().map(|value| sign * value) }
}

fn leading_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let is_whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    match (is_whole, is_fraction) {
        (true, true) => text.parse().ok(),
        _ => decimal(text).map(|value| value as f64),
    }
}
