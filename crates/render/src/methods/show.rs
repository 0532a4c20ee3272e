//! Values as text: `to_s` and `inspect`, where all versions of Ruby write the same.

use crate::evaluate::{Answer, Evaluator};
use crate::memory::Content;
use crate::value::{DEEPEST_DATA, Value};

impl Evaluator<'_> {
    /// `to_s`
    pub(crate) fn display(&mut self, value: &Value) -> Answer<Content> {
        match value {
            Value::Nil => self.content(""),
            Value::Bool(value) => self.content(if *value { "true" } else { "false" }),
            Value::Int(value) => self.content(value.to_string()),
            Value::Float(value) => match float(*value) {
                Some(text) => self.content(text),
                None => self.refuse("a number that is written in several ways"),
            },
            Value::Str(text) => Ok(text.get()),
            Value::Symbol(name) => self.content(&**name),
            Value::Error(error) => Ok(error.message.clone()),
            Value::Class(name) if !name.starts_with("Unknown") => self.content(*name),
            Value::Range(range) => {
                let mut text = String::new();
                let (from, to) = (self.display(&range.from)?, self.display(&range.to)?);
                self.write(&mut text, &from)?;
                self.write(&mut text, if range.exclusive { "..." } else { ".." })?;
                self.write(&mut text, &to)?;
                self.content(text)
            }
            other => {
                let text = self.inspected(other)?;
                self.content(text)
            }
        }
    }

    pub(crate) fn inspected(&mut self, value: &Value) -> Answer<String> {
        let mut text = String::new();
        self.inspect(value, 0, &mut text)?;
        Ok(text)
    }

    /// Writes as `inspect` does.
    fn inspect(&mut self, value: &Value, depth: usize, text: &mut String) -> Answer<()> {
        self.work(1)?;
        if depth > DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        match value {
            Value::Nil => self.write(text, "nil"),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let shown = self.display(value)?;
                self.write(text, &shown)
            }
            Value::Str(content) => self.quoted(&content.get(), text),
            Value::Symbol(name) if is_plain(name) => {
                self.write(text, ":")?;
                self.write(text, name)
            }
            Value::Array(list) => {
                self.write(text, "[")?;
                for (index, item) in list.items().iter().enumerate() {
                    if index > 0 {
                        self.write(text, ", ")?;
                    }
                    self.inspect(item, depth + 1, text)?;
                }
                self.write(text, "]")
            }
            Value::Hash(map) if map.len() == 0 => self.write(text, "{}"),
            Value::Hash(_) => self.refuse("'inspect' of a map, which differs between versions of Ruby"),
            other => self.refuse(format!("'inspect' of {}", other.class_name())),
        }
    }

    /// Writes a string in quotes. Letters beyond ASCII depend on Ruby's settings.
    fn quoted(&self, content: &str, text: &mut String) -> Answer<()> {
        self.write(text, "\"")?;
        let mut plain = 0;
        for (at, letter) in content.char_indices() {
            let escaped = match letter {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\t' => "\\t",
                '\r' => "\\r",
                '\u{1b}' => "\\e",
                '#' if content[at + 1..].starts_with(['{', '$', '@']) => "\\#",
                ' '..='~' => continue,
                _ => return self.refuse("'inspect' of this string"),
            };
            self.write(text, &content[plain..at])?;
            self.write(text, escaped)?;
            plain = at + 1;
        }
        self.write(text, &content[plain..])?;
        self.write(text, "\"")
    }
}

/// A number with a fraction. Those between 10¹⁵ and 10¹⁶ are left to Ruby.
pub(crate) fn float(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    if value.is_infinite() {
        return Some(if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned());
    }
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    match exponent {
        _ if value == 0.0 => Some(if value.is_sign_negative() { "-0.0" } else { "0.0" }.to_owned()),
        -4..=14 => {
            let plain = format!("{value}");
            Some(if plain.contains('.') { plain } else { format!("{plain}.0") })
        }
        15 => None,
        _ => {
            let mantissa = if mantissa.contains('.') { mantissa.to_owned() } else { format!("{mantissa}.0") };
            let sign = if exponent < 0 { '-' } else { '+' };
            Some(format!("{mantissa}e{sign}{:02}", exponent.abs()))
        }
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
