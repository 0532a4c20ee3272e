//! What templates see: `spec`, `properties`, `name`, `index`, `p`, `if_p`, `link`, `if_link`.

use std::rc::Rc;

use super::blocks::Arguments;
use super::scope::Closure;
use super::{Answer, Evaluator, Flow};
use crate::check::Uses;
use crate::value::{ElseBlock, Failure, Heap, Key, Value};

/// The values that are there before a template starts.
#[derive(Debug)]
pub(super) struct Binding {
    spec: Value,
    properties: Value,
    raw_properties: Value,
    name: Value,
    index: Value,
    pub(super) links: Value,
}

impl Binding {
    pub(super) fn new(heap: &Heap, spec: &serde_json::Value, uses: Uses) -> Self {
        // Strings are shared between all that is made of the spec, so that it is either loaded as a whole or by parts.
        let raw = if uses.spec { heap.loaded(spec) } else { Value::Nil };
        let member = |name: &str| match &raw {
            Value::Hash(map) => map.entries.borrow().get(&Key::Str(name.into())).cloned().unwrap_or(Value::Nil),
            _ => spec.get(name).map_or(Value::Nil, |part| heap.loaded(part)),
        };
        let map_of = |value: Value| if value.is_true() { value } else { heap.hash(indexmap::IndexMap::new()) };
        let raw_properties = map_of(member("properties"));
        Self {
            spec: if uses.spec { heap.structs(&raw, true) } else { Value::Nil },
            properties: if uses.structs { heap.structs(&raw_properties, false) } else { Value::Nil },
            raw_properties,
            name: member("name"),
            index: member("index"),
            links: map_of(if uses.links { member("links") } else { Value::Nil }),
        }
    }
}

/// The names of what templates see; none of them can be defined anew.
pub(crate) const NAMES: &[&str] =
    &["spec", "properties", "raw_properties", "name", "index", "p", "if_p", "link", "if_link"];

impl Evaluator<'_> {
    pub(super) fn bound(&mut self, name: &str, arguments: &Arguments, block: Option<&Rc<Closure>>) -> Option<Answer> {
        let values = arguments.values.as_slice();
        Some(match (name, values) {
            ("spec", []) => Ok(self.binding.spec.clone()),
            ("properties", []) => Ok(self.binding.properties.clone()),
            ("raw_properties", []) => Ok(self.binding.raw_properties.clone()),
            ("name", []) => Ok(self.binding.name.clone()),
            ("index", []) => Ok(self.binding.index.clone()),
            ("p", _) => {
                let properties = self.binding.raw_properties.clone();
                self.property(&properties, values)
            }
            ("if_p", names) => {
                let properties = self.binding.raw_properties.clone();
                self.if_properties(&properties, names, block, ElseBlock::Active)
            }
            ("link", [name]) => self.link(name),
            ("if_link", [name]) => self.if_link(name, block),
            _ => return None,
        })
    }

    /// `p`: of the template, a link or an instance.
    pub(super) fn property(&mut self, properties: &Value, arguments: &[Value]) -> Answer {
        let names = match arguments.first() {
            None | Some(Value::Nil) => Vec::new(),
            Some(Value::Array(list)) => list.items.borrow().clone(),
            Some(name @ Value::Str(_)) => vec![name.clone()],
            Some(other) => return self.refuse(format!("a property named by {}", other.class_name())),
        };
        for name in &names {
            let found = self.lookup(properties, name)?;
            if !found.is_nil() {
                return Ok(found);
            }
        }
        if let [_, default] = arguments {
            return Ok(default.clone());
        }
        let names = self.list(names)?;
        let message = format!("Can't find property '{}'", self.display(&names)?);
        let failure = Failure { class: "UnknownProperty", message, line: self.line, name: Some(names) };
        Err(Box::new(Flow::Raise(failure)))
    }

    pub(super) fn if_properties(
        &mut self,
        properties: &Value,
        names: &[Value],
        block: Option<&Rc<Closure>>,
        otherwise: ElseBlock,
    ) -> Answer {
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            let value = self.lookup(properties, name)?;
            if value.is_nil() {
                return Ok(Value::Else(Rc::new(otherwise)));
            }
            values.push(value);
        }
        let Some(block) = block else { return self.refuse("'if_p' without a block") };
        self.invoke(block, values)?;
        Ok(Value::Else(Rc::new(ElseBlock::Inactive)))
    }

    /// A dotted name, walked through maps. Strings answer their own parts, as in BOSH.
    pub(super) fn lookup(&mut self, within: &Value, name: &Value) -> Answer {
        let Some(name) = name.as_text() else {
            return self.refuse(format!("a property named by {}", name.class_name()));
        };
        if within.is_nil() {
            return Ok(Value::Nil);
        }
        let mut found = within.clone();
        for part in name.trim_end_matches('.').split('.').filter(|_| !name.trim_end_matches('.').is_empty()) {
            found = match &found {
                Value::Hash(map) => map.entries.borrow().get(&Key::Str(part.into())).cloned().unwrap_or(Value::Nil),
                Value::Str(text) if text.content.borrow().contains(part) => Value::text(part),
                Value::Str(_) => Value::Nil,
                other => {
                    return self.refuse(format!("property '{name}' below a value of class {}", other.class_name()));
                }
            };
            if found.is_nil() {
                return Ok(Value::Nil);
            }
        }
        Ok(found)
    }

    /// `.else`, `.else_if_p` and `.else_if_link`.
    pub(super) fn otherwise(
        &mut self,
        state: &ElseBlock,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer {
        let values = arguments.values.as_slice();
        match (name, values, state) {
            ("else", [], ElseBlock::Inactive) => Ok(Value::Nil),
            ("else", [], _) => match block {
                Some(block) => self.invoke(block, Vec::new()),
                None => self.refuse("'else' without a block"),
            },
            ("else_if_p", _, ElseBlock::Inactive) | ("else_if_link", [_], ElseBlock::Inactive) => {
                Ok(Value::Else(Rc::new(ElseBlock::Inactive)))
            }
            ("else_if_p", names, ElseBlock::Active) => {
                let properties = self.binding.raw_properties.clone();
                self.if_properties(&properties, names, block, ElseBlock::Active)
            }
            ("else_if_p", names, ElseBlock::ActiveOf(properties)) => {
                let properties = properties.clone();
                self.if_properties(&properties, names, block, ElseBlock::ActiveOf(properties.clone()))
            }
            ("else_if_link", [name], ElseBlock::Active) => self.if_link(name, block),
            _ => self.refuse(format!("'{name}' after 'if_p' or 'if_link'")),
        }
    }
}
