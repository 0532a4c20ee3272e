//! JSON as Ruby writes and reads it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::show::float;
use crate::evaluate::{Answer, Evaluator, Flow};
use crate::memory::{ENTRY, Entries, PLACE};
use crate::value::{DEEPEST_DATA, Value};

/// How JSON is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Compact,
    Pretty,
}

impl Evaluator<'_> {
    pub(crate) fn json_text(&mut self, value: &Value, layout: Layout) -> Answer<String> {
        let mut json = String::new();
        self.write_json(value, layout, 0, &mut json)?;
        Ok(json)
    }

    fn write_json(&mut self, value: &Value, layout: Layout, depth: usize, json: &mut String) -> Answer<()> {
        self.work(1)?;
        if depth >= DEEPEST_DATA {
            return self.refuse("JSON that is nested this deeply");
        }
        match value {
            Value::Nil => self.write(json, "null"),
            Value::Bool(value) => self.write(json, if *value { "true" } else { "false" }),
            Value::Int(value) => self.write(json, &value.to_string()),
            // Versions of Ruby's JSON differ in how they write exponents.
            Value::Float(value) => match float(*value).filter(|_| value.is_finite()).filter(|text| !text.contains('e'))
            {
                Some(text) => self.write(json, &text),
                None => self.refuse("JSON of a number that is written in several ways"),
            },
            Value::Str(text) => self.quote(&text.get(), json),
            Value::Symbol(name) => self.quote(name, json),
            Value::Array(list) => {
                let items = list.items();
                self.write(json, "[")?;
                for (index, item) in items.iter().enumerate() {
                    self.next_json(index, layout, depth, json)?;
                    self.write_json(item, layout, depth + 1, json)?;
                }
                self.end_json("]", items.len(), layout, depth, json)
            }
            Value::Hash(map) => {
                let entries = map.entries();
                self.write(json, "{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.next_json(index, layout, depth, json)?;
                    let key = self.key_value(key)?;
                    let name = self.display(&key)?;
                    self.quote(&name, json)?;
                    self.write(json, if layout == Layout::Pretty { ": " } else { ":" })?;
                    self.write_json(value, layout, depth + 1, json)?;
                }
                self.end_json("}", entries.len(), layout, depth, json)
            }
            other => self.refuse(format!("JSON of {}", other.class_name())),
        }
    }

    /// What comes before each element.
    fn next_json(&self, index: usize, layout: Layout, depth: usize, json: &mut String) -> Answer<()> {
        if index > 0 {
            self.write(json, ",")?;
        }
        self.feed_json(layout, depth + 1, json)
    }

    fn end_json(&self, close: &str, count: usize, layout: Layout, depth: usize, json: &mut String) -> Answer<()> {
        if count > 0 {
            self.feed_json(layout, depth, json)?;
        }
        self.write(json, close)
    }

    fn feed_json(&self, layout: Layout, depth: usize, json: &mut String) -> Answer<()> {
        if layout == Layout::Compact {
            return Ok(());
        }
        self.write(json, "\n")?;
        self.write_times(json, "  ", depth)
    }

    fn quote(&self, text: &str, json: &mut String) -> Answer<()> {
        self.write(json, "\"")?;
        let mut plain = 0;
        for (at, letter) in text.bytes().enumerate() {
            let numbered;
            let escaped = match letter {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                b'\n' => "\\n",
                b'\r' => "\\r",
                b'\t' => "\\t",
                0x8 => "\\b",
                0xc => "\\f",
                0..=0x1f => {
                    numbered = format!("\\u{letter:04x}");
                    &numbered
                }
                _ => continue,
            };
            self.write(json, &text[plain..at])?;
            self.write(json, escaped)?;
            plain = at + 1;
        }
        self.write(json, &text[plain..])?;
        self.write(json, "\"")
    }

    pub(crate) fn parse_json(&mut self, text: &str, symbols: bool) -> Answer {
        self.work(text.len() / 8)?;
        // A copy without its strings is looked through.
        self.take(text.len())?;
        let mut refused = None;
        let mut reader = serde_json::Deserializer::from_str(text);
        let part = Part { evaluator: self, symbols, depth: 0, refused: &mut refused };
        let read = part.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
        match (read, refused) {
            (_, Some(refused)) => Err(refused),
            (Ok(value), None) if is_exact(text) => Ok(value),
            _ => self.refuse("JSON that is read in several ways"),
        }
    }
}

/// JSON becomes values while it is read, so that nothing is made that is not counted.
struct Part<'p, 'a> {
    evaluator: &'p mut Evaluator<'a>,
    symbols: bool,
    depth: usize,
    /// Why reading ended early, if not because of the text.
    refused: &'p mut Option<Box<Flow>>,
}

impl<'a> Part<'_, 'a> {
    fn inner(&mut self) -> Part<'_, 'a> {
        let Self { evaluator, symbols, depth, refused } = self;
        Part { evaluator, symbols: *symbols, depth: *depth + 1, refused }
    }

    /// Ends the reading with what the evaluator says.
    fn told<T, E: Error>(&mut self, answer: Answer<T>) -> Result<T, E> {
        answer.map_err(|flow| {
            *self.refused = Some(flow);
            E::custom("stopped")
        })
    }

    fn is_shallow<E: Error>(&mut self) -> Result<(), E> {
        if self.depth < DEEPEST_DATA {
            return Ok(());
        }
        let refused = self.evaluator.refuse("JSON that is nested this deeply");
        self.told(refused)
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(mut self) -> Result<Value, E> {
        self.is_shallow()?;
        Ok(Value::Nil)
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Value, E> {
        self.is_shallow()?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Value, E> {
        self.is_shallow()?;
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Value, E> {
        self.is_shallow()?;
        Ok(Value::Int(value.into()))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Value, E> {
        self.is_shallow()?;
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        self.is_shallow()?;
        let text = self.evaluator.text(text);
        self.told(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.is_shallow()?;
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self.inner())? {
            let counted = self.evaluator.take(PLACE);
            self.told(counted)?;
            values.push(value);
        }
        let list = self.evaluator.list(values);
        self.told(list)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        self.is_shallow()?;
        let mut entries = Entries::new();
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            let key = match self.symbols {
                true => self.evaluator.symbol(&name),
                false => self.evaluator.text(&*name),
            };
            let key = key.and_then(|key| self.evaluator.key(&key));
            let key = self.told(key)?;
            let value = members.next_value_seed(self.inner())?;
            let counted = self.evaluator.take(ENTRY);
            self.told(counted)?;
            entries.insert(key, value);
        }
        let map = self.evaluator.map(entries);
        self.told(map)
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
