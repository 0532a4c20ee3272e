//! Constants that templates may name, and what they answer.

use std::rc::Rc;

use indexmap::IndexMap;

use super::json::Layout;
use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::value::{Fallback, Value};

pub(crate) const NAMES: &[&str] = &["new", "dump", "generate", "pretty_generate", "parse", "escape"];

/// Classes and modules, each with the name that its values have.
const CONSTANTS: &[&str] = &[
    "Array",
    "Hash",
    "String",
    "Symbol",
    "Integer",
    "Float",
    "Numeric",
    "NilClass",
    "TrueClass",
    "FalseClass",
    "Range",
    "Regexp",
    "Proc",
    "Object",
    "Enumerable",
    "Comparable",
    "OpenStruct",
    "JSON",
    "YAML",
    "File",
    "Shellwords",
    "Base64",
    "IPAddr",
    "Exception",
    "StandardError",
    "RuntimeError",
    "ArgumentError",
    "TypeError",
    "NameError",
    "NoMethodError",
    "KeyError",
    "IndexError",
    "RangeError",
    "ZeroDivisionError",
    "IOError",
    "NotImplementedError",
    "UnknownProperty",
    "UnknownLink",
];
/// Those that only have functions.
const MODULES: &[&str] = &["JSON", "YAML", "File", "Shellwords", "Base64", "IPAddr"];

/// The constant of this name.
pub(crate) fn constant(name: &str) -> Option<&'static str> {
    CONSTANTS.iter().find(|known| **known == name).copied()
}

impl Evaluator<'_> {
    pub(crate) fn constant(&mut self, name: &str) -> Answer {
        match constant(name) {
            Some(class) => Ok(Value::Class(class)),
            None => self.refuse(format!("the constant '{name}'")),
        }
    }

    pub(crate) fn class_method(
        &mut self,
        class: &'static str,
        name: &str,
        arguments: Arguments,
        block: Option<Rc<Closure>>,
    ) -> Answer {
        match (class, name, arguments.values.as_slice()) {
            ("JSON", "dump" | "generate", [value]) => {
                let json = self.json_text(value, Layout::Compact)?;
                self.text(json)
            }
            ("JSON", "pretty_generate", [value]) => {
                let json = self.json_text(value, Layout::Pretty)?;
                self.text(json)
            }
            ("JSON", "parse", [Value::Str(text)]) => {
                let text = text.get();
                self.parse_json(&text, false)
            }
            ("JSON", "parse", [Value::Str(text), Value::Hash(options)]) => {
                let text = text.get();
                match (options.len(), options.member("symbolize_names")) {
                    (1, Some(Value::Bool(symbols))) => self.parse_json(&text, symbols),
                    _ => self.refuse("'JSON.parse' with these options"),
                }
            }
            ("YAML", "dump", [value]) => {
                let yaml = self.yaml_text(value)?;
                self.text(yaml)
            }
            ("Hash", "new", []) => {
                let map = self.new_map(IndexMap::new())?;
                if let Some(block) = block {
                    self.procedure(Rc::clone(&block))?;
                    *map.default.borrow_mut() = Some(Fallback::Block(block));
                }
                Ok(Value::Hash(map))
            }
            ("Hash", "new", [default]) if block.is_none() && !arguments.keywords => {
                let map = self.new_map(IndexMap::new())?;
                *map.default.borrow_mut() = Some(Fallback::Value(default.clone()));
                Ok(Value::Hash(map))
            }
            ("Array", "new", []) if block.is_none() => self.list(Vec::new()),
            ("Array", "new", [Value::Int(count @ 0..), fill @ ..]) if block.is_none() && fill.len() < 2 => {
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                let mut items = self.places(count)?;
                items.resize(count, fill.first().cloned().unwrap_or(Value::Nil));
                self.list(items)
            }
            ("String", "new", []) => self.text(""),
            ("String", "new", [Value::Str(text)]) => self.text(text.get()),
            (_, "new", []) if crate::evaluate::is_a(class, "Exception") => {
                let error = self.new_error(class, None)?;
                Ok(Value::Error(self.keep(error)?))
            }
            (_, "new", [message]) if crate::evaluate::is_a(class, "Exception") => {
                let error = self.new_error(class, Some(message))?;
                Ok(Value::Error(self.keep(error)?))
            }
            (_, "==" | "!=" | "===" | "nil?" | "to_s" | "!", _) if !MODULES.contains(&class) => {
                self.common_method(&Value::Class(class), name, arguments, block)
            }
            (_, "name", []) if !MODULES.contains(&class) && !class.starts_with("Unknown") => self.text(class),
            _ => match self.library(class, name, &arguments.values)? {
                Some(value) => Ok(value),
                None => self.refuse(format!("'{class}.{name}' with these arguments")),
            },
        }
    }
}
