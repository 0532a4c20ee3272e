//! YAML as Ruby's psych writes it, as far as all its versions write the same: what may be folded, quoted in several ways or
//! left out is refused.

use std::collections::HashSet;

use super::show::float;
use crate::evaluate::{Answer, Evaluator};
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
    fn column(&self) -> usize {
        self.text.len() - self.text.rfind('\n').map_or(0, |feed| feed + 1)
    }
}

impl Evaluator<'_> {
    /// Starts an entry: on a new line, or on the line of the `-` before it.
    fn yaml_start(&self, writer: &mut Writer, indent: usize, first_in_line: bool) -> Answer<()> {
        self.write_times(&mut writer.text, " ", if first_in_line { 1 } else { indent })
    }

    pub(crate) fn yaml_text(&mut self, value: &Value) -> Answer<String> {
        if !matches!(value, Value::Array(_) | Value::Hash(_)) {
            return self.refuse(format!("YAML of {} alone", value.class_name()));
        }
        let mut writer = Writer { text: "---".to_owned(), ..Writer::default() };
        self.yaml_node(value, &mut writer, 0, 0, false)?;
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
        if depth > DEEPEST_DATA {
            return self.refuse("YAML that is nested this deeply");
        }
        let identity = match value {
            Value::Array(list) => list.identity(),
            Value::Hash(map) => map.identity(),
            _ => 0,
        };
        if identity != 0 {
            self.take(32)?;
            if !writer.seen.insert(identity) {
                return self.refuse("YAML in which something comes twice");
            }
        }
        match value {
            Value::Array(list) => {
                let items = list.items();
                if items.is_empty() {
                    return self.write(&mut writer.text, " []\n");
                }
                if !inline {
                    self.write(&mut writer.text, "\n")?;
                }
                for (index, item) in items.iter().enumerate() {
                    self.yaml_start(writer, indent, inline && index == 0)?;
                    self.write(&mut writer.text, "-")?;
                    self.yaml_node(item, writer, indent + 2, depth + 1, true)?;
                }
            }
            Value::Hash(map) => {
                let entries = map.entries();
                if entries.is_empty() {
                    return self.write(&mut writer.text, " {}\n");
                }
                if !inline {
                    self.write(&mut writer.text, "\n")?;
                }
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.yaml_start(writer, indent, inline && index == 0)?;
                    let key = self.key_value(key)?;
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
            Value::Int(number) => self.write(&mut writer.text, &number.to_string())?,
            Value::Str(_) | Value::Symbol(_) => {
                let text = self.yaml_line(key)?;
                if text.len() > 100 {
                    return self.refuse("YAML with a long key");
                }
                self.write(&mut writer.text, &text)?;
            }
            other => return self.refuse(format!("YAML with a key of class {}", other.class_name())),
        }
        self.write(&mut writer.text, ":")
    }

    fn yaml_scalar(&mut self, value: &Value, writer: &mut Writer, indent: usize) -> Answer<()> {
        if let Value::Str(text) = value
            && text.get().trim_end_matches('\n').contains('\n')
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
        self.write(&mut writer.text, " ")?;
        self.write(&mut writer.text, &line)?;
        self.write(&mut writer.text, "\n")
    }

    /// Text of several lines, such as a certificate.
    fn yaml_block(&mut self, text: &str, writer: &mut Writer, indent: usize) -> Answer<()> {
        let ends = text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(text);
        let is_plain = |line: &str| line.trim() == line && line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if body.ends_with('\n') || body.starts_with('\n') || !body.split('\n').all(is_plain) {
            return self.refuse("YAML of this text of several lines");
        }
        self.write(&mut writer.text, if ends { " |\n" } else { " |-\n" })?;
        for line in body.split('\n') {
            if !line.is_empty() {
                self.write_times(&mut writer.text, " ", indent)?;
                self.write(&mut writer.text, line)?;
            }
            self.write(&mut writer.text, "\n")?;
        }
        Ok(())
    }

    /// A string or symbol of one line, quoted as psych does.
    fn yaml_line(&mut self, value: &Value) -> Answer<String> {
        if let Value::Symbol(name) = value {
            let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_plain {
                return self.refuse("YAML of this symbol");
            }
            self.will_write(name.len())?;
            return Ok(format!(":{}", &**name));
        }
        let Some(text) = value.as_text() else { return self.refuse(format!("YAML of {}", value.class_name())) };
        // Quotes are doubled.
        self.will_write(text.len() * 2)?;
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.refuse("YAML of a string with other letters than ASCII's");
        }
        match quotes(&text) {
            Some(Quotes::None) => Ok(text.as_str().to_owned()),
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
