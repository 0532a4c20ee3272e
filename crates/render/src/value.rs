//! Values of a running program.
//!
//! Strings, arrays and maps are shared and change in place, as in Ruby. What is [`Kept`] was counted: [`memory`](crate::memory)
//! makes it.

use std::ops::Deref;
use std::rc::Rc;

use crate::evaluate::Closure;
use crate::memory::{Content, Holds, Kept, List, Map, PLACE, Symbol, Text};
use crate::pattern::{Captures, Pattern};

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Kept<Text>),
    Symbol(Symbol),
    Array(Kept<List>),
    Hash(Kept<Map>),
    Range(Kept<Span>),
    Proc(Kept<Rc<Closure>>),
    /// What `spec` and `properties` are made of.
    Struct(Kept<Struct>),
    Link(Kept<Link>),
    Instance(Kept<Instance>),
    Else(Kept<ElseBlock>),
    Error(Kept<Failure>),
    Class(&'static str),
    Pattern(Kept<Pattern>),
    Match(Kept<Captures>),
    Address(std::net::IpAddr),
    Enumerator(Kept<Enumerator>),
}

/// What strings and symbols say.
#[derive(Debug)]
pub(crate) enum Name {
    Text(Content),
    Symbol(Symbol),
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Text(content) => content,
            Self::Symbol(name) => name,
        }
    }
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
    Str(Content),
    Symbol(Symbol),
    List(Rc<[Key]>),
    /// Sorted.
    Map(Rc<[(Key, Key)]>),
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
    pub(crate) table: Kept<Map>,
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
    pub(crate) items: Rc<Vec<Value>>,
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
    pub(crate) message: Content,
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

    /// The content of a string.
    pub(crate) fn as_text(&self) -> Option<Content> {
        match self {
            Self::Str(text) => Some(text.get()),
            _ => None,
        }
    }

    /// The content of a string or symbol.
    pub(crate) fn as_name(&self) -> Option<Name> {
        match self {
            Self::Str(text) => Some(Name::Text(text.get())),
            Self::Symbol(name) => Some(Name::Symbol(name.clone())),
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

    /// What stands for it among keys, if looking at it takes no more than `room` bytes. Numbers with fractions do not.
    pub(crate) fn key(&self, depth: usize, room: &mut usize) -> Option<Key> {
        let content = self.as_text();
        let size = content.as_ref().map_or(0, |content| content.len());
        *room = room.checked_sub(32 + size).filter(|_| depth <= DEEPEST_DATA)?;
        Some(match self {
            Self::Nil => Key::Nil,
            Self::Bool(value) => Key::Bool(*value),
            Self::Int(value) => Key::Int(*value),
            Self::Str(_) => Key::Str(content?),
            Self::Symbol(name) => Key::Symbol(name.clone()),
            Self::Array(list) => {
                Key::List(list.items().iter().map(|item| item.key(depth + 1, room)).collect::<Option<_>>()?)
            }
            Self::Hash(map) => {
                let entries = map.entries();
                let pairs = entries.iter().map(|(key, value)| Some((key.clone(), value.key(depth + 1, room)?)));
                let mut pairs = pairs.collect::<Option<Vec<_>>>()?;
                pairs.sort();
                Key::Map(pairs.into())
            }
            _ => return None,
        })
    }
}

/// How deep data may be that is walked through: that of JSON's own limit in Ruby.
pub(crate) const DEEPEST_DATA: usize = 100;

impl Holds for Span {}
impl Holds for Struct {}
impl Holds for Instance {}
impl Holds for ElseBlock {}
impl Holds for Failure {}
impl Holds for Rc<Closure> {
    fn held(&self) -> usize {
        size_of::<Closure>()
    }
}

impl Holds for Enumerator {
    fn held(&self) -> usize {
        self.items.len() * PLACE
    }
}

impl Holds for Link {
    fn held(&self) -> usize {
        match &self.address {
            LinkAddress::Group(query) => query.group.len() + query.network.as_ref().map_or(0, String::len),
            LinkAddress::Given(_) | LinkAddress::Numbered => 0,
        }
    }
}
