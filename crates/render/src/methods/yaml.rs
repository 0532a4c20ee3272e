//! YAML as Ruby's psych writes it, as far as all its versions write the same: what may be folded, quoted in several ways or
//! left out is refused.

use std::collections::HashSet;
use std::rc::Rc;

use super::show::float;
use crate::evaluate::{Answer, Evaluator, LARGEST_TEXT};
use crate::value::{DEEPEST_DATA, Value};

/// Where psych begins to fold lines.
const WIDTH: usize = 80;

#[derive(Default)]
struct Writer {
    text: String,
    /// Arrays and maps that were written: psych refers to them when they come again.
    seen: HashSet<usize>,
}

impl Writer {
    /// Starts an entry: on a new line, or on the line of the `-` before it.
    fn start(&mut self, indent: usize, first_in_line: bool) {
        if first_in_line {
            self.text.push(' ');
        } else {
            self.text.push_str(&" ".repeat(indent));
        }
    }

    fn column(&self) -> usize {
        self.text.len() - self.text.rfind('\n').map_or(0, |feed| feed + 1)
    }
}

impl Evaluator<'_> {
    pub(crate) fn yaml_text(&mut self, value: &Value) -> Answer<String> {
        if !matches!(value, Value::Array(_) | Value::Hash(_)) {
            return self.refuse(format!("YAML of {} alone", value.class_name()));
        }
        let mut writer = Writer { text: "---".to_owned(), ..Writer::default() };
        self.yaml_node(value, &mut writer, 0, 0, false)?;
        self.take(writer.text.len())?;
        Ok(writer.text)
    }

    /// What comes behind `---`, `key:` or `-`, up to the end of its last line. `inline` says that maps and arrays start on
    /// the line of a `-`.
    fn yaml_node(
        &mut self,
        value: &Value,
        writer: &mut Writer,
        indent: usize,
        depth: usize,
        inline: bool,
    ) -> Answer<()> {
        self.work(1)?;
        if depth > DEEPEST_DATA || writer.text.len() > LARGEST_TEXT {
            return self.refuse("YAML that is nested this deeply");
        }
        let identity = match value {
            Value::Array(list) => Rc::as_ptr(list) as usize,
            Value::Hash(map) => Rc::as_ptr(map) as usize,
            _ => 0,
        };
        if identity != 0 && !writer.seen.insert(identity) {
            return self.refuse("YAML in which something comes twice");
        }
        match value {
            Value::Array(list) => {
                let items = list.items.borrow().clone();
                if items.is_empty() {
                    writer.text.push_str(" []\n");
                    return Ok(());
                }
                if !inline {
                    writer.text.push('\n');
                }
                for (index, item) in items.iter().enumerate() {
                    writer.start(indent, inline && index == 0);
                    writer.text.push('-');
                    self.yaml_node(item, writer, indent + 2, depth + 1, true)?;
                }
            }
            Value::Hash(map) => {
                let entries = map.entries.borrow().clone();
                if entries.is_empty() {
                    writer.text.push_str(" {}\n");
                    return Ok(());
                }
                if !inline {
                    writer.text.push('\n');
                }
                for (index, (key, value)) in entries.iter().enumerate() {
                    writer.start(indent, inline && index == 0);
                    let key = self.heap.value(key);
                    self.yaml_key(&key, writer)?;
                    // Arrays in maps stand as far left as their key.
                    let below = if matches!(value, Value::Array(_)) { indent } else { indent + 2 };
                    self.yaml_node(value, writer, below, depth + 1, false)?;
                }
            }
            scalar => self.yaml_scalar(scalar, writer, indent)?,
        }
        Ok(())
    }

    fn yaml_key(&mut self, key: &Value, writer: &mut Writer) -> Answer<()> {
        match key {
            Value::Int(number) => writer.text.push_str(&number.to_string()),
            Value::Str(_) | Value::Symbol(_) => {
                let text = self.yaml_line(key)?;
                if text.len() > 100 {
                    return self.refuse("YAML with a long key");
                }
                writer.text.push_str(&text);
            }
            other => return self.refuse(format!("YAML with a key of class {}", other.class_name())),
        }
        writer.text.push(':');
        Ok(())
    }

    fn yaml_scalar(&mut self, value: &Value, writer: &mut Writer, indent: usize) -> Answer<()> {
        if let Value::Str(text) = value
            && text.content.borrow().trim_end_matches('\n').contains('\n')
        {
            let text = text.get();
            return self.yaml_block(&text, writer, indent);
        }
        let line = match value {
            Value::Bool(value) => value.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => match float(*number).filter(|text| number.is_finite() && !text.contains('e')) {
                Some(text) => text,
                None => return self.refuse("YAML of a number that is written in several ways"),
            },
            Value::Nil => return self.refuse("YAML of nil, which differs between versions of psych"),
            Value::Str(_) | Value::Symbol(_) => self.yaml_line(value)?,
            other => return self.refuse(format!("YAML of {}", other.class_name())),
        };
        if line.contains(' ') && writer.column() + 1 + line.len() > WIDTH {
            return self.refuse("YAML with a long line, which psych folds");
        }
        writer.text.push(' ');
        writer.text.push_str(&line);
        writer.text.push('\n');
        Ok(())
    }

    /// Text of several lines, such as a certificate.
    fn yaml_block(&mut self, text: &str, writer: &mut Writer, indent: usize) -> Answer<()> {
        let ends = text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(text);
        let is_plain = |line: &str| line.trim() == line && line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if body.ends_with('\n') || body.starts_with('\n') || !body.split('\n').all(is_plain) {
            return self.refuse("YAML of this text of several lines");
        }
        writer.text.push_str(if ends { " |\n" } else { " |-\n" });
        for line in body.split('\n') {
            if !line.is_empty() {
                writer.text.push_str(&" ".repeat(indent));
                writer.text.push_str(line);
            }
            writer.text.push('\n');
        }
        Ok(())
    }

    /// A string or symbol of one line, quoted as psych does.
    fn yaml_line(&mut self, value: &Value) -> Answer<String> {
        if let Value::Symbol(name) = value {
            let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return if is_plain { Ok(format!(":{name}")) } else { self.refuse("YAML of this symbol") };
        }
        let text = value.as_text().unwrap_or_default();
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.refuse("YAML of a string with other letters than ASCII's");
        }
        match quotes(&text) {
            Some(Quotes::None) => Ok(text),
            Some(Quotes::Single) => Ok(format!("'{}'", text.replace('\'', "''"))),
            Some(Quotes::Double) => Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))),
            None => self.refuse("YAML of a string that may be a number or a time"),
        }
    }
}

enum Quotes {
    None,
    Single,
    Double,
}

/// The quotes that psych puts around a string of printable letters; nothing where its versions might differ.
fn quotes(text: &str) -> Option<Quotes> {
    let first = match text.bytes().next() {
        None => return Some(Quotes::Single),
        Some(first) => first,
    };
    if matches!(text, "y" | "Y" | "n" | "N") {
        return Some(Quotes::Double);
    }
    if !(first.is_ascii_alphanumeric() || first == b'_') {
        // Psych leaves those with a quote in them to the emitter.
        return if text[1..].contains('"') { None } else { Some(Quotes::Double) };
    }
    if first.is_ascii_digit() {
        return of_digits(text);
    }
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "null" | "yes" | "true" | "on" | "no" | "false" | "off") {
        return Some(Quotes::Single);
    }
    Some(if needs_quotes(text) { Quotes::Single } else { Quotes::None })
}

/// Strings that start with a digit: whole numbers, addresses, versions, and such with a unit.
fn of_digits(text: &str) -> Option<Quotes> {
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && (text == "0" || !text.starts_with('0')) {
        return Some(Quotes::Single);
    }
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if host.matches('.').count() >= 2 && host.split('.').all(is_number) && is_number(port) {
        return Some(Quotes::None);
    }
    let has_unit =
        text.bytes().any(|byte| matches!(byte.to_ascii_lowercase(), b'g'..=b'n' | b'p'..=b'w' | b'y' | b'z'));
    let is_simple = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/'));
    (has_unit && is_simple).then_some(Quotes::None)
}

/// Whether YAML would read it as something else.
fn needs_quotes(text: &str) -> bool {
    text.ends_with([':', ' ']) || text.contains(": ") || text.contains(" #")
}
