//! Values as text: `to_s` and `inspect`, where all versions of Ruby write the same.

use crate::evaluate::{Answer, Evaluator};
use crate::value::{DEEPEST_DATA, Value};

impl Evaluator<'_> {
    /// `to_s`
    pub(crate) fn display(&mut self, value: &Value) -> Answer<String> {
        let text = match value {
            Value::Nil => String::new(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => match float(*value) {
                Some(text) => text,
                None => return self.refuse("a number that is written in several ways"),
            },
            Value::Str(text) => text.get(),
            Value::Symbol(name) => name.to_string(),
            Value::Error(error) => error.message.clone(),
            Value::Class(name) if !name.starts_with("Unknown") => (*name).to_owned(),
            Value::Range(range) => {
                let dots = if range.exclusive { "..." } else { ".." };
                format!("{}{dots}{}", self.display(&range.from)?, self.display(&range.to)?)
            }
            other => self.inspect(other, 0)?,
        };
        self.take(text.len())?;
        Ok(text)
    }

    pub(crate) fn inspect(&mut self, value: &Value, depth: usize) -> Answer<String> {
        self.work(1)?;
        if depth > DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        let text = match value {
            Value::Nil => "nil".to_owned(),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => self.display(value)?,
            Value::Str(text) => match quoted(&text.content.borrow()) {
                Some(text) => text,
                None => return self.refuse("'inspect' of this string"),
            },
            Value::Symbol(name) if is_plain(name) => format!(":{name}"),
            Value::Array(list) => {
                let items = list.items.borrow().clone();
                let mut shown = Vec::with_capacity(items.len());
                for item in &items {
                    shown.push(self.inspect(item, depth + 1)?);
                }
                format!("[{}]", shown.join(", "))
            }
            Value::Hash(map) if map.entries.borrow().is_empty() => "{}".to_owned(),
            Value::Hash(_) => return self.refuse("'inspect' of a map, which differs between versions of Ruby"),
            other => return self.refuse(format!("'inspect' of {}", other.class_name())),
        };
        self.take(text.len())?;
        Ok(text)
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

/// A string in quotes. Letters beyond ASCII depend on Ruby's settings.
fn quoted(text: &str) -> Option<String> {
    let mut quoted = String::from("\"");
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\u{1b}' => quoted.push_str("\\e"),
            '#' if matches!(letters.peek(), Some('{' | '$' | '@')) => quoted.push_str("\\#"),
            ' '..='~' => quoted.push(letter),
            _ => return None,
        }
    }
    quoted.push('"');
    Some(quoted)
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
