//! Methods that all values have, and those of `nil` and errors.

use std::rc::Rc;

use super::json::Layout;
use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::{Kept, Text};
use crate::value::{Failure, Value};

pub(crate) const NAMES: &[&str] = &[
    "==",
    "!=",
    "!",
    "===",
    "eql?",
    "<=>",
    "=~",
    "!~",
    "nil?",
    "to_s",
    "inspect",
    "is_a?",
    "kind_of?",
    "instance_of?",
    "class",
    "freeze",
    "frozen?",
    "dup",
    "clone",
    "to_json",
    "to_yaml",
    "blank?",
    "present?",
    "presence",
    "tap",
    "then",
    "itself",
    "to_a",
    "to_h",
    "to_i",
    "to_f",
    "message",
    "name",
    "call",
    "&",
    "|",
    "respond_to?",
];

impl Evaluator<'_> {
    pub(crate) fn common_method(
        &mut self,
        receiver: &Value,
        name: &str,
        arguments: Arguments,
        block: Option<Rc<Closure>>,
    ) -> Answer {
        match (name, arguments.values.as_slice()) {
            ("==" | "eql?", [other])
                if name == "==" || std::mem::discriminant(receiver) == std::mem::discriminant(other) =>
            {
                Ok(Value::Bool(self.equal(receiver, other)?))
            }
            ("eql?", [_]) => Ok(Value::Bool(false)),
            ("!=", [other]) => Ok(Value::Bool(!self.equal(receiver, other)?)),
            ("!", []) => Ok(Value::Bool(!receiver.is_true())),
            ("===", [other]) => Ok(Value::Bool(self.case_matches(receiver, other)?)),
            ("<=>", [other]) => Ok(Value::Int(self.order(receiver, other)? as i128)),
            ("nil?", []) => Ok(Value::Bool(receiver.is_nil())),
            ("to_s", []) => {
                if let Value::Str(_) = receiver {
                    return Ok(receiver.clone());
                }
                let text = self.display(receiver)?;
                if receiver.is_nil() { self.frozen_text(text) } else { self.text(text) }
            }
            ("inspect", []) => {
                let text = self.inspected(receiver)?;
                self.text(text)
            }
            ("is_a?" | "kind_of?", [Value::Class(class)]) => Ok(Value::Bool(self.is_a(receiver, class)?)),
            ("instance_of?", [Value::Class(class)]) => Ok(Value::Bool(receiver.class_name() == *class)),
            ("class", []) => Ok(Value::Class(receiver.class_name())),
            ("frozen?", []) => self.is_frozen(receiver).map(Value::Bool),
            ("freeze", []) => {
                freeze(receiver);
                Ok(receiver.clone())
            }
            ("dup" | "clone", []) => self.duplicate(receiver, name == "clone"),
            ("to_json", []) => {
                let json = self.json_text(receiver, Layout::Compact)?;
                self.text(json)
            }
            ("to_yaml", []) => {
                let yaml = self.yaml_text(receiver)?;
                self.text(yaml)
            }
            ("ipv4?", []) if matches!(receiver, Value::Address(std::net::IpAddr::V4(_))) => Ok(Value::Bool(true)),
            ("ipv6?", []) if matches!(receiver, Value::Address(std::net::IpAddr::V6(_))) => Ok(Value::Bool(true)),
            ("ipv4?" | "ipv6?", []) if matches!(receiver, Value::Address(_)) => Ok(Value::Bool(false)),
            ("blank?", []) => self.is_blank(receiver).map(Value::Bool),
            ("present?", []) => self.is_blank(receiver).map(|blank| Value::Bool(!blank)),
            ("presence", []) => self.is_blank(receiver).map(|blank| if blank { Value::Nil } else { receiver.clone() }),
            ("itself", []) => Ok(receiver.clone()),
            ("tap", []) => {
                let block = self.needed(block)?;
                self.invoke(&block, vec![receiver.clone()])?;
                Ok(receiver.clone())
            }
            ("then", []) => {
                let block = self.needed(block)?;
                self.invoke(&block, vec![receiver.clone()])
            }
            ("&", [other]) if matches!(receiver, Value::Bool(_) | Value::Nil) => {
                Ok(Value::Bool(receiver.is_true() && other.is_true()))
            }
            ("|", [other]) if matches!(receiver, Value::Bool(_) | Value::Nil) => {
                Ok(Value::Bool(receiver.is_true() || other.is_true()))
            }
            ("^", [other]) if matches!(receiver, Value::Bool(_) | Value::Nil) => {
                Ok(Value::Bool(receiver.is_true() != other.is_true()))
            }
            _ => self.refuse(unlisted(name, receiver)),
        }
    }

    fn is_frozen(&mut self, value: &Value) -> Answer<bool> {
        Ok(match value {
            Value::Str(text) => text.frozen.get(),
            Value::Array(list) => list.frozen.get(),
            Value::Hash(map) => map.frozen.get(),
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Symbol(_) => true,
            other => return self.refuse(unlisted("frozen?", other)),
        })
    }

    fn duplicate(&mut self, value: &Value, is_clone: bool) -> Answer {
        if is_clone && self.is_frozen(value)? && matches!(value, Value::Str(_) | Value::Array(_) | Value::Hash(_)) {
            return self.refuse("'clone' of what is frozen");
        }
        match value {
            Value::Str(text) => {
                let text = text.get();
                self.text(text)
            }
            Value::Array(list) => {
                let items = list.items();
                self.copied(&items)
            }
            Value::Hash(map) => {
                let copy = self.copied_map(map)?;
                *copy.default.borrow_mut() = map.default.borrow().clone();
                Ok(Value::Hash(copy))
            }
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Symbol(_) => Ok(value.clone()),
            other => self.refuse(unlisted("dup", other)),
        }
    }

    fn is_blank(&mut self, value: &Value) -> Answer<bool> {
        Ok(match value {
            Value::Nil | Value::Bool(false) => true,
            Value::Bool(true) | Value::Int(_) | Value::Float(_) | Value::Struct(_) => false,
            Value::Str(text) => text.get().chars().all(char::is_whitespace),
            Value::Array(list) => list.items().is_empty(),
            Value::Hash(map) => map.entries().is_empty(),
            other => return self.refuse(unlisted("blank?", other)),
        })
    }

    pub(crate) fn nil_method(&mut self, name: &str, arguments: &Arguments) -> Answer<Option<Value>> {
        Ok(match (name, arguments.values.as_slice()) {
            ("to_a", []) => Some(self.list(Vec::new())?),
            ("to_h", []) => Some(self.map(indexmap::IndexMap::new())?),
            ("to_i", []) => Some(Value::Int(0)),
            ("to_f", []) => Some(Value::Float(0.0)),
            _ => None,
        })
    }

    pub(crate) fn error_method(
        &mut self,
        error: &Kept<Failure>,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        Ok(match (name, arguments.values.as_slice()) {
            ("message", []) => Some(self.text(error.message.clone())?),
            ("name", []) => error.name.clone(),
            _ => None,
        })
    }

    /// The string, if it may be changed.
    pub(crate) fn changeable(&self, text: &Text) -> Answer<()> {
        if text.frozen.get() { self.refuse("a change of a frozen string") } else { Ok(()) }
    }
}

/// What is said of a method that is not listed for a value.
pub(crate) fn unlisted(name: &str, receiver: &Value) -> String {
    match receiver {
        Value::Nil => format!("'{name}' of nil"),
        Value::Bool(value) => format!("'{name}' of {value}"),
        other => format!("'{name}' of {} with these arguments", other.class_name()),
    }
}

fn freeze(value: &Value) {
    match value {
        Value::Str(text) => text.frozen.set(true),
        Value::Array(list) => list.frozen.set(true),
        Value::Hash(map) => map.frozen.set(true),
        _ => {}
    }
}
