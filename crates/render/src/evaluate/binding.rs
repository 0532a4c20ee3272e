//! What templates see: `spec`, `properties`, `name`, `index`, `p`, `if_p`, `link`, `if_link`.

use std::rc::Rc;

use super::blocks::Arguments;
use super::scope::Closure;
use super::{Answer, Evaluator, Flow};
use crate::check::Uses;
use crate::memory::{Content, Heap};
use crate::value::{ElseBlock, Failure, Value};

/// The values that are there before a template starts.
#[derive(Debug)]
pub(super) struct Binding<'a> {
    spec: Value,
    properties: Value,
    raw_properties: RawProperties<'a>,
    name: Value,
    index: Value,
    pub(super) links: Value,
}

/// Properties. Most templates look at few of them, and only those are made.
#[derive(Debug)]
enum RawProperties<'a> {
    Whole(Value),
    /// What was looked at so far, which stays the same values.
    Parts {
        all: &'a serde_json::Map<String, serde_json::Value>,
        made: Vec<(&'a str, Value)>,
    },
}

impl RawProperties<'_> {
    /// A property at the top.
    fn part(&mut self, heap: &Heap, name: &str) -> Value {
        match self {
            Self::Whole(Value::Hash(map)) => map.named(name),
            Self::Whole(_) => None,
            Self::Parts { all, made } => match made.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => Some(value.clone()),
                None => all.get_key_value(name).map(|(known, value)| {
                    let value = heap.loaded(value);
                    made.push((known, value.clone()));
                    value
                }),
            },
        }
        .unwrap_or(Value::Nil)
    }

    fn whole(&mut self, heap: &Heap) -> Value {
        if let Self::Parts { all, .. } = self {
            let all = *all;
            let members = all.keys().map(|name| (name.as_str(), self.part(heap, name)));
            *self = Self::Whole(heap.loaded_map(members));
        }
        match self {
            Self::Whole(value) => value.clone(),
            Self::Parts { .. } => Value::Nil,
        }
    }
}

impl<'a> Binding<'a> {
    pub(super) fn new(heap: &Heap, spec: &'a serde_json::Value, uses: Uses) -> Self {
        // Strings are shared between all that is made of the spec, so that it is either loaded as a whole or by parts.
        let raw = if uses.spec { heap.loaded(spec) } else { Value::Nil };
        let member = |name: &str| match &raw {
            Value::Hash(map) => map.named(name).unwrap_or(Value::Nil),
            _ => spec.get(name).map_or(Value::Nil, |part| heap.loaded(part)),
        };
        let map_of = |value: Value| if value.is_true() { value } else { heap.loaded_map(std::iter::empty()) };
        let parts = spec.get("properties").and_then(serde_json::Value::as_object);
        let mut raw_properties = match parts.filter(|_| !uses.spec) {
            Some(all) => RawProperties::Parts { all, made: Vec::new() },
            None => RawProperties::Whole(map_of(member("properties"))),
        };
        Self {
            spec: if uses.spec { heap.structs(&raw, true) } else { Value::Nil },
            properties: if uses.structs { heap.structs(&raw_properties.whole(heap), false) } else { Value::Nil },
            raw_properties,
            name: member("name"),
            index: member("index"),
            links: map_of(if uses.links { member("links") } else { Value::Nil }),
        }
    }
}

/// The names of what templates see; templates cannot define them again.
pub(crate) const NAMES: &[&str] =
    &["spec", "properties", "raw_properties", "name", "index", "p", "if_p", "link", "if_link"];

impl Evaluator<'_> {
    pub(super) fn bound(&mut self, name: &str, arguments: &Arguments, block: Option<&Rc<Closure>>) -> Option<Answer> {
        let values = arguments.values.as_slice();
        Some(match (name, values) {
            ("spec", []) => Ok(self.binding.spec.clone()),
            ("properties", []) => Ok(self.binding.properties.clone()),
            ("raw_properties", []) => Ok(self.binding.raw_properties.whole(&self.heap)),
            ("name", []) => Ok(self.binding.name.clone()),
            ("index", []) => Ok(self.binding.index.clone()),
            ("p", _) => self.property(None, values),
            ("if_p", names) => self.if_properties(None, names, block, ElseBlock::Active),
            ("link", [name]) => self.link(name),
            ("if_link", [name]) => self.if_link(name, block),
            _ => return None,
        })
    }

    /// `p`: of the template, or of a link or an instance with these properties.
    pub(super) fn property(&mut self, properties: Option<&Value>, arguments: &[Value]) -> Answer {
        let names = match arguments.first() {
            None | Some(Value::Nil) => Rc::default(),
            Some(Value::Array(list)) => list.items(),
            Some(name @ Value::Str(_)) => vec![name.clone()].into(),
            Some(other) => return self.refuse(format!("a property named by {}", other.class_name())),
        };
        for name in names.iter() {
            let found = self.lookup_property(properties, name)?;
            if !found.is_nil() {
                return Ok(found);
            }
        }
        if let [_, default] = arguments {
            return Ok(default.clone());
        }
        let names = self.list(names.to_vec())?;
        let shown = self.display(&names)?;
        self.will_write(shown.len())?;
        let failure = self.failure("UnknownProperty", format!("Can't find property '{shown}'"))?;
        let failure = Failure { line: self.line, name: Some(names), ..failure };
        Err(Box::new(Flow::Raise(failure)))
    }

    pub(super) fn if_properties(
        &mut self,
        properties: Option<&Value>,
        names: &[Value],
        block: Option<&Rc<Closure>>,
        otherwise: ElseBlock,
    ) -> Answer {
        let mut values = self.places(names.len())?;
        for name in names {
            let value = self.lookup_property(properties, name)?;
            if value.is_nil() {
                return self.keep(otherwise).map(Value::Else);
            }
            values.push(value);
        }
        let Some(block) = block else { return self.refuse("'if_p' without a block") };
        self.invoke(block, values)?;
        self.keep(ElseBlock::Inactive).map(Value::Else)
    }

    /// A dotted name, walked through maps. Strings answer their own parts, as in BOSH.
    pub(super) fn lookup(&mut self, within: &Value, name: &Value) -> Answer {
        let name = self.property_name(name)?;
        if within.is_nil() {
            return Ok(Value::Nil);
        }
        self.walk(within.clone(), parts(&name), &name)
    }

    /// The same in properties: those of the template itself if no others are given.
    fn lookup_property(&mut self, properties: Option<&Value>, name: &Value) -> Answer {
        if let Some(properties) = properties {
            return self.lookup(properties, name);
        }
        let name = self.property_name(name)?;
        let mut parts = parts(&name);
        let found = match parts.next() {
            Some(first) => self.binding.raw_properties.part(&self.heap, first),
            None => self.binding.raw_properties.whole(&self.heap),
        };
        self.walk(found, parts, &name)
    }

    fn property_name(&self, name: &Value) -> Answer<Content> {
        match name.as_text() {
            Some(name) => Ok(name),
            None => self.refuse(format!("a property named by {}", name.class_name())),
        }
    }

    fn walk<'n>(&self, mut found: Value, parts: impl Iterator<Item = &'n str>, name: &str) -> Answer {
        for part in parts {
            if found.is_nil() {
                return Ok(Value::Nil);
            }
            found = match &found {
                Value::Hash(map) => map.named(part).unwrap_or(Value::Nil),
                Value::Str(text) if text.get().contains(part) => self.text(part)?,
                Value::Str(_) => Value::Nil,
                other => {
                    return self.refuse(format!("property '{name}' below a value of class {}", other.class_name()));
                }
            };
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
                self.keep(ElseBlock::Inactive).map(Value::Else)
            }
            ("else_if_p", names, ElseBlock::Active) => self.if_properties(None, names, block, ElseBlock::Active),
            ("else_if_p", names, ElseBlock::ActiveOf(properties)) => {
                let properties = properties.clone();
                self.if_properties(Some(&properties), names, block, ElseBlock::ActiveOf(properties.clone()))
            }
            ("else_if_link", [name], ElseBlock::Active) => self.if_link(name, block),
            _ => self.refuse(format!("'{name}' after 'if_p' or 'if_link'")),
        }
    }
}

/// The parts of a dotted name, as Ruby splits it.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let name = name.trim_end_matches('.');
    name.split('.').filter(move |_| !name.is_empty())
}
