//! JSON as Ruby writes and reads it.

use indexmap::IndexMap;

use super::show::float;
use crate::evaluate::{Answer, Evaluator};
use crate::value::{DEEPEST_DATA, Key, Value};

/// How JSON is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Compact,
    Pretty,
}

impl Evaluator<'_> {
    pub(crate) fn json_text(&mut self, value: &Value, layout: Layout) -> Answer<String> {
        let mut json = String::new();
        self.write(value, layout, 0, &mut json)?;
        Ok(json)
    }

    fn write(&mut self, value: &Value, layout: Layout, depth: usize, json: &mut String) -> Answer<()> {
        self.work(1)?;
        if depth >= DEEPEST_DATA {
            return self.refuse("JSON that is nested this deeply");
        }
        let before = json.len();
        match value {
            Value::Nil => json.push_str("null"),
            Value::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
            Value::Int(value) => json.push_str(&value.to_string()),
            // Versions of Ruby's JSON differ in how they write exponents.
            Value::Float(value) => match float(*value).filter(|_| value.is_finite()).filter(|text| !text.contains('e'))
            {
                Some(text) => json.push_str(&text),
                None => return self.refuse("JSON of a number that is written in several ways"),
            },
            Value::Str(text) => quote(&text.content.borrow(), json),
            Value::Symbol(name) => quote(name, json),
            Value::Array(list) => {
                let items = list.items.borrow().clone();
                self.write_all(items.into_iter().map(|item| (None, item)), ['[', ']'], layout, depth, json)?;
            }
            Value::Hash(map) => {
                let entries = map.entries.borrow().clone();
                self.write_all(
                    entries.into_iter().map(|(key, value)| (Some(key), value)),
                    ['{', '}'],
                    layout,
                    depth,
                    json,
                )?;
            }
            other => return self.refuse(format!("JSON of {}", other.class_name())),
        }
        let written = json.len().saturating_sub(before);
        if depth == 0 { self.take(written) } else { Ok(()) }
    }

    fn write_all(
        &mut self,
        items: impl ExactSizeIterator<Item = (Option<Key>, Value)>,
        [open, close]: [char; 2],
        layout: Layout,
        depth: usize,
        json: &mut String,
    ) -> Answer<()> {
        json.push(open);
        let count = items.len();
        let feed = |json: &mut String, depth: usize| {
            if layout == Layout::Pretty && count > 0 {
                json.push('\n');
                json.push_str(&"  ".repeat(depth));
            }
        };
        for (index, (key, value)) in items.enumerate() {
            if index > 0 {
                json.push(',');
            }
            feed(json, depth + 1);
            if let Some(key) = key {
                let key = self.heap.value(&key);
                let name = self.display(&key)?;
                quote(&name, json);
                json.push_str(if layout == Layout::Pretty { ": " } else { ":" });
            }
            self.write(&value, layout, depth + 1, json)?;
            // What is shared is written each time, so that little data can become much text.
            if json.len() > crate::evaluate::LARGEST_TEXT {
                return self.take(usize::MAX);
            }
        }
        feed(json, depth);
        json.push(close);
        Ok(())
    }

    pub(crate) fn parse_json(&mut self, text: &str, symbols: bool) -> Answer {
        self.work(text.len() / 8)?;
        self.take(text.len() * 8)?;
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(json) if is_exact(text) => self.parsed(&json, symbols, 0),
            _ => self.refuse("JSON that is read in several ways"),
        }
    }

    fn parsed(&mut self, json: &serde_json::Value, symbols: bool, depth: usize) -> Answer {
        if depth >= DEEPEST_DATA {
            return self.refuse("JSON that is nested this deeply");
        }
        match json {
            serde_json::Value::Array(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(self.parsed(item, symbols, depth + 1)?);
                }
                self.list(values)
            }
            serde_json::Value::Object(members) => {
                let mut entries = IndexMap::with_capacity(members.len());
                for (name, value) in members {
                    let name = name.as_str().into();
                    let key = if symbols { Key::Symbol(name) } else { Key::Str(name) };
                    entries.insert(key, self.parsed(value, symbols, depth + 1)?);
                }
                self.map(entries)
            }
            other => Ok(self.heap.loaded(other)),
        }
    }
}

/// Whether numbers are short enough to be read without loss, and none is a negative zero.
fn is_exact(text: &str) -> bool {
    let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+' | 'e' | 'E');
    let mut in_string = false;
    let mut escaped = false;
    let outside: String = text
        .chars()
        .map(|letter| {
            let was_string = in_string;
            match letter {
                '"' if !escaped => in_string = !in_string,
                '\\' if in_string && !escaped => {
                    escaped = true;
                    return ' ';
                }
                _ => {}
            }
            escaped = false;
            if was_string { ' ' } else { letter }
        })
        .collect();
    let mut numbers = outside.split(|letter| !is_number(letter));
    numbers.all(|number| number.len() <= 15 && !number.starts_with("-0"))
}

fn quote(text: &str, json: &mut String) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\0'..='\u{1f}' => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => json.push(letter),
        }
    }
    json.push('"');
}
