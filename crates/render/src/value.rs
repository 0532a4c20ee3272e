//! Values of a running program.
//!
//! Strings, arrays and maps are shared and change in place, as in Ruby. Every array, map and captured scope is known to a
//! [`Heap`], which empties them at the end: programs can tie knots that reference counting alone would keep.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::evaluate::{Closure, Scope};
use crate::pattern::{Captures, Pattern};

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Rc<Text>),
    Symbol(Arc<str>),
    Array(Rc<List>),
    Hash(Rc<Map>),
    Range(Rc<Span>),
    Proc(Rc<Closure>),
    /// What `spec` and `properties` are made of.
    Struct(Rc<Struct>),
    Link(Rc<Link>),
    Instance(Rc<Instance>),
    Else(Rc<ElseBlock>),
    Error(Rc<Failure>),
    Class(&'static str),
    Pattern(Rc<Pattern>),
    Match(Rc<Captures>),
    Address(std::net::IpAddr),
    Enumerator(Rc<Enumerator>),
}

#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) content: RefCell<String>,
    pub(crate) frozen: Cell<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) items: RefCell<Vec<Value>>,
    pub(crate) frozen: Cell<bool>,
    /// How many iterations are under way: what changes it now is not native.
    pub(crate) busy: Cell<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Map {
    pub(crate) entries: RefCell<IndexMap<Key, Value>>,
    /// What a missing key gives.
    pub(crate) default: RefCell<Option<Fallback>>,
    pub(crate) frozen: Cell<bool>,
    pub(crate) busy: Cell<usize>,
}

/// `Hash.new(x)` and `Hash.new { }`.
#[derive(Debug, Clone)]
pub(crate) enum Fallback {
    Value(Value),
    Block(Rc<Closure>),
}

/// A map's key, and what stands for a value where equal ones are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Nil,
    Bool(bool),
    Int(i128),
    Str(Arc<str>),
    Symbol(Arc<str>),
    List(Vec<Key>),
    /// Sorted.
    Map(Vec<(Key, Key)>),
}

/// A range of numbers or strings.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) from: Value,
    pub(crate) to: Value,
    pub(crate) exclusive: bool,
}

#[derive(Debug)]
pub(crate) struct Struct {
    /// Members by symbol.
    pub(crate) table: Rc<Map>,
    /// Whether it is below `spec`, where `methods(false)` lists the members.
    pub(crate) of_spec: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) instances: Value,
    pub(crate) properties: Value,
    pub(crate) address: LinkAddress,
}

/// What a method gives that was called without the block that it needs.
#[derive(Debug)]
pub(crate) struct Enumerator {
    pub(crate) items: Vec<Value>,
    /// What the block's answers would have become.
    pub(crate) of: &'static str,
    /// Whether the items are elements with their index, which Ruby hands to blocks now as two values and now as one.
    pub(crate) indexed: bool,
    pub(crate) origin: Value,
}

/// What the name of a link's group is made of.
#[derive(Debug)]
pub(crate) struct GroupQuery {
    /// Everything after the first part.
    pub(crate) group: String,
    /// The network's number, where the name says it.
    pub(crate) network: Option<String>,
    /// The numbers of zones by name; none where the director serves no names.
    pub(crate) azs: Option<Value>,
}

/// What `link.address` gives.
#[derive(Debug)]
pub(crate) enum LinkAddress {
    /// That of a manual link.
    Given(Value),
    /// A query for a group.
    Group(GroupQuery),
    /// A query that needs numbers which only the director has.
    Numbered,
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) members: [(&'static str, Value); 7],
}

/// What `if_p` and `if_link` answer.
#[derive(Debug)]
pub(crate) enum ElseBlock {
    Inactive,
    /// Of the template itself.
    Active,
    /// Of a link or instance with these properties.
    ActiveOf(Value),
}

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) class: &'static str,
    pub(crate) message: String,
    /// Zero until it is raised.
    pub(crate) line: usize,
    /// `UnknownProperty#name`
    pub(crate) name: Option<Value>,
}

impl Value {
    pub(crate) fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    pub(crate) fn text(content: impl Into<String>) -> Self {
        Self::Str(Rc::new(Text { content: RefCell::new(content.into()), frozen: Cell::new(false) }))
    }

    pub(crate) fn frozen_text(content: impl Into<String>) -> Self {
        Self::Str(Rc::new(Text { content: RefCell::new(content.into()), frozen: Cell::new(true) }))
    }

    /// The content of a string.
    pub(crate) fn as_text(&self) -> Option<String> {
        match self {
            Self::Str(text) => Some(text.get()),
            _ => None,
        }
    }

    /// The content of a string or symbol.
    pub(crate) fn as_name(&self) -> Option<String> {
        match self {
            Self::Str(text) => Some(text.get()),
            Self::Symbol(name) => Some(name.to_string()),
            _ => None,
        }
    }

    /// The name of its class, where Ruby has always called it so.
    pub(crate) fn class_name(&self) -> &'static str {
        match self {
            Self::Nil => "NilClass",
            Self::Bool(true) => "TrueClass",
            Self::Bool(false) => "FalseClass",
            Self::Int(_) => "Integer",
            Self::Float(_) => "Float",
            Self::Str(_) => "String",
            Self::Symbol(_) => "Symbol",
            Self::Array(_) => "Array",
            Self::Hash(_) => "Hash",
            Self::Range(_) => "Range",
            Self::Proc(_) => "Proc",
            Self::Struct(_) => "OpenStruct",
            Self::Link(_) => "EvaluationLink",
            Self::Instance(_) => "EvaluationLinkInstance",
            Self::Else(_) => "ElseBlock",
            Self::Error(error) => error.class,
            Self::Class(_) => "Class",
            Self::Pattern(_) => "Regexp",
            Self::Match(_) => "MatchData",
            Self::Address(_) => "IPAddr",
            Self::Enumerator(_) => "Enumerator",
        }
    }

    /// What stands for it among keys, if that takes no more than `room` bytes. Numbers with fractions do not.
    pub(crate) fn key(&self, depth: usize, room: &mut usize) -> Option<Key> {
        let size = if let Self::Str(text) = self { text.content.borrow().len() } else { 0 };
        *room = room.checked_sub(32 + size).filter(|_| depth <= DEEPEST_DATA)?;
        Some(match self {
            Self::Nil => Key::Nil,
            Self::Bool(value) => Key::Bool(*value),
            Self::Int(value) => Key::Int(*value),
            Self::Str(text) => Key::Str(text.content.borrow().as_str().into()),
            Self::Symbol(name) => Key::Symbol(name.clone()),
            Self::Array(list) => {
                Key::List(list.items.borrow().iter().map(|item| item.key(depth + 1, room)).collect::<Option<_>>()?)
            }
            Self::Hash(map) => {
                let entries = map.entries.borrow();
                let pairs = entries.iter().map(|(key, value)| Some((key.clone(), value.key(depth + 1, room)?)));
                let mut pairs = pairs.collect::<Option<Vec<_>>>()?;
                pairs.sort();
                Key::Map(pairs)
            }
            _ => return None,
        })
    }
}

/// How deep data may be that is walked through: that of JSON's own limit in Ruby.
pub(crate) const DEEPEST_DATA: usize = 100;

impl Text {
    pub(crate) fn get(&self) -> String {
        self.content.borrow().clone()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.content.borrow())
    }
}

/// All arrays, maps and captured scopes of one run.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    lists: RefCell<Vec<Rc<List>>>,
    maps: RefCell<Vec<Rc<Map>>>,
    scopes: RefCell<Vec<Rc<Scope>>>,
}

impl Heap {
    pub(crate) fn list(&self, items: Vec<Value>) -> Value {
        let list = Rc::new(List { items: RefCell::new(items), ..List::default() });
        self.lists.borrow_mut().push(Rc::clone(&list));
        Value::Array(list)
    }

    pub(crate) fn map(&self, entries: IndexMap<Key, Value>) -> Rc<Map> {
        let map = Rc::new(Map { entries: RefCell::new(entries), ..Map::default() });
        self.maps.borrow_mut().push(Rc::clone(&map));
        map
    }

    pub(crate) fn hash(&self, entries: IndexMap<Key, Value>) -> Value {
        Value::Hash(self.map(entries))
    }

    /// Remembers a scope that a block keeps, and those around it.
    pub(crate) fn captured(&self, scope: &Rc<Scope>) {
        let mut scopes = self.scopes.borrow_mut();
        let mut next = Some(scope);
        while let Some(scope) = next {
            if scope.captured.replace(true) {
                return;
            }
            scopes.push(Rc::clone(scope));
            next = scope.parent.as_ref();
        }
    }

    /// A key as a value. Strings that are keys are frozen.
    pub(crate) fn value(&self, key: &Key) -> Value {
        match key {
            Key::Nil => Value::Nil,
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Str(text) => Value::frozen_text(&**text),
            Key::Symbol(name) => Value::Symbol(name.clone()),
            Key::List(items) => self.list(items.iter().map(|item| self.value(item)).collect()),
            Key::Map(pairs) => self.hash(pairs.iter().map(|(key, value)| (key.clone(), self.value(value))).collect()),
        }
    }

    pub(crate) fn loaded(&self, json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value.into()),
                (None, Some(value)) => Value::Int(value.into()),
                _ => Value::Float(number.as_f64().unwrap_or_default()),
            },
            serde_json::Value::String(text) => Value::text(text.as_str()),
            serde_json::Value::Array(items) => self.list(items.iter().map(|item| self.loaded(item)).collect()),
            serde_json::Value::Object(members) => {
                let entry = |(name, value): (&String, _)| (Key::Str(name.as_str().into()), self.loaded(value));
                self.hash(members.iter().map(entry).collect())
            }
        }
    }

    /// What maps become in `spec` and `properties`.
    pub(crate) fn structs(&self, value: &Value, of_spec: bool) -> Value {
        match value {
            Value::Hash(map) => {
                let member = |(key, value): (&Key, &Value)| {
                    let name = match key {
                        Key::Str(name) | Key::Symbol(name) => name.clone(),
                        _ => "".into(),
                    };
                    (Key::Symbol(name), self.structs(value, of_spec))
                };
                let table = self.map(map.entries.borrow().iter().map(member).collect());
                Value::Struct(Rc::new(Struct { table, of_spec }))
            }
            Value::Array(list) => {
                self.list(list.items.borrow().iter().map(|item| self.structs(item, of_spec)).collect())
            }
            other => other.clone(),
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // What is taken out is kept until everything is empty, so that nothing is dropped within another.
        let mut taken: Vec<Value> = Vec::new();
        for list in self.lists.borrow().iter() {
            taken.append(&mut list.items.borrow_mut());
        }
        for map in self.maps.borrow().iter() {
            taken.extend(map.entries.borrow_mut().drain(..).map(|(_, value)| value));
            if let Some(Fallback::Value(value)) = map.default.borrow_mut().take() {
                taken.push(value);
            }
        }
        for scope in self.scopes.borrow().iter() {
            taken.append(&mut scope.slots.borrow_mut());
        }
    }
}
