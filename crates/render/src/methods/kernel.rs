//! Calls without a receiver that every Ruby program has.

use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator, Flow, is_a};
use crate::value::{Failure, Value};

pub(crate) const NAMES: &[&str] = &[
    "raise",
    "abort",
    "require",
    "format",
    "sprintf",
    "Integer",
    "Float",
    "String",
    "Array",
    "Hash",
    "loop",
    "block_given?",
];

/// What BOSH's director has loaded.
const LIBRARIES: &[&str] = &[
    "json",
    "yaml",
    "erb",
    "ostruct",
    "openssl",
    "digest",
    "digest/sha1",
    "securerandom",
    "time",
    "date",
    "zlib",
    "tmpdir",
    "pathname",
    "fileutils",
    "logger",
    "forwardable",
    "shellwords",
    "base64",
    "net/http",
    "uri",
    "ipaddr",
    "set",
    "active_support",
];

impl Evaluator<'_> {
    pub(crate) fn kernel(&mut self, name: &str, arguments: Arguments, block: Option<Rc<Closure>>) -> Answer {
        match (name, arguments.values.as_slice()) {
            ("raise", values) => self.raised(values),
            ("abort", [Value::Str(message)]) => self.raise("SystemExit", message.get()),
            ("require", [library]) => match library.as_text() {
                Some(library) if LIBRARIES.contains(&&*library) => Ok(Value::Bool(false)),
                Some(library) => self.refuse(format!("the library '{library}'")),
                None => self.refuse("the library ''"),
            },
            ("format" | "sprintf", [Value::Str(template), values @ ..]) => {
                let template = template.get();
                let text = self.formatted(&template, values)?;
                self.text(text)
            }
            ("String", [value]) => {
                let text = self.display(value)?;
                self.text(text)
            }
            ("Array", [Value::Nil]) => self.list(Vec::new()),
            ("Array", [value @ Value::Array(_)]) => Ok(value.clone()),
            ("Array", [Value::Hash(map)]) => {
                let pairs = self.pairs(map)?;
                self.list(pairs)
            }
            (
                "Array",
                [value @ (Value::Str(_) | Value::Int(_) | Value::Bool(_) | Value::Symbol(_) | Value::Float(_))],
            ) => self.list(vec![value.clone()]),
            ("Hash", [Value::Nil]) => self.map(indexmap::IndexMap::new()),
            ("Hash", [value @ Value::Hash(_)]) => Ok(value.clone()),
            ("Integer", [Value::Int(value)]) => Ok(Value::Int(*value)),
            ("Integer", [Value::Float(value)]) if value.abs() < 1e15 => Ok(Value::Int(value.trunc() as i128)),
            ("Integer", [Value::Str(text)]) => match decimal(text.get().trim()) {
                Some(value) => Ok(Value::Int(value)),
                None => self.refuse("'Integer' of this string"),
            },
            ("Float", [Value::Int(value)]) if value.abs() < 1 << 53 => Ok(Value::Float(*value as f64)),
            ("Float", [Value::Float(value)]) => Ok(Value::Float(*value)),
            ("loop", []) => {
                let block = self.needed(block)?;
                loop {
                    self.invoke(&block, Vec::new())?;
                }
            }
            ("block_given?", []) => Ok(Value::Bool(self.scope.given_block().is_some())),
            _ => self.refuse(format!("'{name}'")),
        }
    }

    fn raised(&mut self, values: &[Value]) -> Answer {
        let failure = match values {
            [Value::Str(message)] => self.failure("RuntimeError", message.get())?,
            [Value::Error(error)] => (**error).clone(),
            [Value::Class(class)] => self.new_error(class, None)?,
            [Value::Class(class), message] => self.new_error(class, Some(message))?,
            _ => return self.refuse("this 'raise'"),
        };
        let line = if failure.line == 0 { self.line } else { failure.line };
        Err(Box::new(Flow::Raise(Failure { line, ..failure })))
    }

    /// An error of a class, with its message.
    pub(crate) fn new_error(&mut self, class: &'static str, message: Option<&Value>) -> Answer<Failure> {
        if !is_a(class, "Exception") || class.starts_with("Unknown") {
            return self.refuse(format!("'raise' of {class}"));
        }
        let message = match message {
            None => self.content(class)?,
            Some(Value::Str(message)) => message.get(),
            Some(other) => return self.refuse(format!("an error with a message of class {}", other.class_name())),
        };
        Ok(Failure { class, message, line: 0, name: None })
    }
}

/// Digits with a sign, which every notation reads as decimal.
pub(crate) fn decimal(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if plain && (digits == "0" || !digits.starts_with('0')) { text.parse().ok() } else { None }
}
