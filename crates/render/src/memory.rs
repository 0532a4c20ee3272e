//! What a program keeps, and the count of it.
//!
//! Texts, arrays, maps and everything else that values hold is made here and nowhere else: their constructors are private to this
//! file, and the functions that use them count first. What comes from the spec is bounded where it comes from, and not counted.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::evaluate::Scope;
use crate::value::{Fallback, Key, Struct, Value};

/// The longest string.
pub(crate) const LARGEST_TEXT: usize = 32 << 20;
/// A place in an array, and an entry of a map.
pub(crate) const PLACE: usize = size_of::<Value>();
pub(crate) const ENTRY: usize = 96;
/// What the allocator and the counts of references add to a value.
const SHARE: usize = 32;

/// There is no memory left for what was asked.
#[derive(Debug)]
pub(crate) struct Full;

/// A value that was counted.
#[derive(Debug)]
pub(crate) struct Kept<T>(Rc<T>);

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Kept<T> {
    fn new(value: T) -> Self {
        Self(Rc::new(value))
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// What tells it from others while it exists.
    pub(crate) fn identity(&self) -> usize {
        Rc::as_ptr(&self.0) as usize
    }
}

/// How many bytes something holds beside its own size.
pub(crate) trait Holds {
    fn held(&self) -> usize {
        0
    }
}

/// The content of strings, which is copied when one that others have, too, changes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Content(Rc<String>);

impl Content {
    fn new(content: String) -> Self {
        Self(Rc::new(content))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Content {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self)
    }
}

/// What becomes the content of a string. Borrowed text is counted before it is copied.
pub(crate) trait IntoContent {
    fn into_content(self, heap: &Heap) -> Result<Content, Full>;
}

impl IntoContent for &str {
    fn into_content(self, heap: &Heap) -> Result<Content, Full> {
        heap.take(self.len() + SHARE)?;
        Ok(Content::new(self.to_owned()))
    }
}

impl IntoContent for String {
    fn into_content(mut self, heap: &Heap) -> Result<Content, Full> {
        // What was reserved and is not used is kept as well.
        if self.capacity() - self.len() > 4096 + self.len() / 4 {
            self.shrink_to_fit();
        }
        heap.take(self.len() + SHARE)?;
        Ok(Content::new(self))
    }
}

impl IntoContent for Content {
    fn into_content(self, _: &Heap) -> Result<Content, Full> {
        Ok(self)
    }
}

/// A symbol's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Symbol(Arc<str>);

impl Symbol {
    /// One that stands in the program.
    pub(crate) fn written(name: &Arc<str>) -> Self {
        Self(Arc::clone(name))
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl Deref for Symbol {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Text {
    content: RefCell<Content>,
    pub(crate) frozen: Cell<bool>,
}

impl Text {
    fn new(content: Content, frozen: bool) -> Self {
        Self { content: RefCell::new(content), frozen: Cell::new(frozen) }
    }

    pub(crate) fn get(&self) -> Content {
        self.content.borrow().clone()
    }
}

impl Holds for Text {}

#[derive(Debug, Default)]
pub(crate) struct List {
    items: RefCell<Rc<Vec<Value>>>,
    pub(crate) frozen: Cell<bool>,
    /// How many iterations are under way: what changes it now is not native.
    pub(crate) busy: Cell<usize>,
}

impl List {
    /// What is in it now. A change copies what is still in use.
    pub(crate) fn items(&self) -> Rc<Vec<Value>> {
        Rc::clone(&self.items.borrow())
    }

    pub(crate) fn len(&self) -> usize {
        self.items.borrow().len()
    }
}

impl Holds for List {
    fn held(&self) -> usize {
        self.len() * PLACE + SHARE
    }
}

pub(crate) type Entries = IndexMap<Key, Value>;

#[derive(Debug, Default)]
pub(crate) struct Map {
    entries: RefCell<Rc<Entries>>,
    /// What a missing key gives.
    pub(crate) default: RefCell<Option<Fallback>>,
    pub(crate) frozen: Cell<bool>,
    pub(crate) busy: Cell<usize>,
}

impl Map {
    /// What is in it now. A change copies what is still in use.
    pub(crate) fn entries(&self) -> Rc<Entries> {
        Rc::clone(&self.entries.borrow())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    /// The value of a string.
    pub(crate) fn named(&self, name: &str) -> Option<Value> {
        self.get(&Key::Str(Content::new(name.to_owned())))
    }

    /// The value of a symbol.
    pub(crate) fn member(&self, name: &str) -> Option<Value> {
        self.get(&Key::Symbol(Symbol(name.into())))
    }
}

impl Holds for Map {
    fn held(&self) -> usize {
        self.len() * ENTRY + SHARE
    }
}

/// All arrays, maps and captured scopes of one run, which it empties at the end: programs can tie knots that reference counting
/// alone would keep. It counts what they and all others take.
#[derive(Debug)]
pub(crate) struct Heap {
    left: Cell<usize>,
    lists: RefCell<Vec<Kept<List>>>,
    maps: RefCell<Vec<Kept<Map>>>,
    scopes: RefCell<Vec<Rc<Scope>>>,
}

impl Heap {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: Cell::new(bytes), lists: RefCell::default(), maps: RefCell::default(), scopes: RefCell::default() }
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.get()
    }

    /// Counts memory. What was given back counts, too.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Full> {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Full)
    }

    pub(crate) fn keep<T: Holds>(&self, value: T) -> Result<Kept<T>, Full> {
        self.take(size_of::<T>() + SHARE + value.held())?;
        Ok(Kept::new(value))
    }

    pub(crate) fn text(&self, content: impl IntoContent, frozen: bool) -> Result<Value, Full> {
        let content = content.into_content(self)?;
        Ok(Value::Str(self.keep(Text::new(content, frozen))?))
    }

    pub(crate) fn symbol(&self, name: &str) -> Result<Symbol, Full> {
        self.take(name.len() + SHARE)?;
        Ok(Symbol(name.into()))
    }

    pub(crate) fn list(&self, items: Vec<Value>) -> Result<Kept<List>, Full> {
        let list = self.keep(List { items: RefCell::new(Rc::new(items)), ..List::default() })?;
        Ok(self.known_list(list))
    }

    pub(crate) fn map(&self, entries: Entries) -> Result<Kept<Map>, Full> {
        let map = self.keep(Map { entries: RefCell::new(Rc::new(entries)), ..Map::default() })?;
        Ok(self.known_map(map))
    }

    fn known_list(&self, list: Kept<List>) -> Kept<List> {
        self.lists.borrow_mut().push(list.clone());
        list
    }

    fn known_map(&self, map: Kept<Map>) -> Kept<Map> {
        self.maps.borrow_mut().push(map.clone());
        map
    }

    /// A key as a value. Strings that are keys are frozen.
    pub(crate) fn value(&self, key: &Key) -> Result<Value, Full> {
        Ok(match key {
            Key::Nil => Value::Nil,
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Str(content) => self.text(content.clone(), true)?,
            Key::Symbol(name) => Value::Symbol(name.clone()),
            Key::List(items) => {
                Value::Array(self.list(items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?)?)
            }
            Key::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| Ok((key.clone(), self.value(value)?)));
                Value::Hash(self.map(pairs.collect::<Result<_, _>>()?)?)
            }
        })
    }

    /// The content of a string that gets so many bytes more.
    pub(crate) fn append(&self, text: &Text, more: &str) -> Result<(), Full> {
        let mut content = text.content.borrow_mut();
        let known = content.len();
        self.take(more.len())?;
        if known + more.len() > LARGEST_TEXT {
            return Err(Full);
        }
        if Rc::get_mut(&mut content.0).is_none() {
            self.take(known)?;
        }
        let content = Rc::make_mut(&mut content.0);
        reserve(content, more.len());
        content.push_str(more);
        Ok(())
    }

    pub(crate) fn replace(&self, text: &Text, content: impl IntoContent) -> Result<(), Full> {
        let content = content.into_content(self)?;
        text.content.replace(content);
        Ok(())
    }

    /// The elements of an array, to which so many are added.
    pub(crate) fn change_list<'l>(&self, list: &'l List, added: usize) -> Result<RefMut<'l, Vec<Value>>, Full> {
        self.take(added.saturating_mul(PLACE))?;
        let mut items = list.items.borrow_mut();
        if Rc::get_mut(&mut items).is_none() {
            self.take(items.len() * PLACE)?;
        }
        Ok(RefMut::map(items, Rc::make_mut))
    }

    pub(crate) fn replace_list(&self, list: &List, items: Rc<Vec<Value>>) {
        list.items.replace(items);
    }

    /// The entries of a map, to which so many are added.
    pub(crate) fn change_map<'m>(&self, map: &'m Map, added: usize) -> Result<RefMut<'m, Entries>, Full> {
        self.take(added.saturating_mul(ENTRY))?;
        let mut entries = map.entries.borrow_mut();
        if Rc::get_mut(&mut entries).is_none() {
            self.take(entries.len() * ENTRY)?;
        }
        Ok(RefMut::map(entries, Rc::make_mut))
    }

    pub(crate) fn replace_map(&self, map: &Map, entries: Entries) -> Result<(), Full> {
        self.take(entries.len() * ENTRY)?;
        map.entries.replace(Rc::new(entries));
        Ok(())
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

    /// A part of the spec.
    pub(crate) fn loaded(&self, json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => number_of(number),
            serde_json::Value::String(text) => Value::Str(Kept::new(Text::new(Content::new(text.clone()), false))),
            serde_json::Value::Array(items) => {
                let items = items.iter().map(|item| self.loaded(item)).collect();
                let list = List { items: RefCell::new(Rc::new(items)), ..List::default() };
                Value::Array(self.known_list(Kept::new(list)))
            }
            serde_json::Value::Object(members) => {
                self.loaded_map(members.iter().map(|(name, value)| (name.as_str(), self.loaded(value))))
            }
        }
    }

    /// A map of parts of the spec.
    pub(crate) fn loaded_map<'n>(&self, members: impl Iterator<Item = (&'n str, Value)>) -> Value {
        let entries = members.map(|(name, value)| (Key::Str(Content::new(name.to_owned())), value)).collect();
        Value::Hash(self.known_map(Kept::new(Map { entries: RefCell::new(Rc::new(entries)), ..Map::default() })))
    }

    /// What maps of the spec become in `spec` and `properties`.
    pub(crate) fn structs(&self, value: &Value, of_spec: bool) -> Value {
        match value {
            Value::Hash(map) => {
                let member = |(key, value): (&Key, &Value)| {
                    let name = match key {
                        Key::Str(name) => Symbol(name.as_str().into()),
                        Key::Symbol(name) => name.clone(),
                        _ => Symbol("".into()),
                    };
                    (Key::Symbol(name), self.structs(value, of_spec))
                };
                let entries = map.entries().iter().map(member).collect();
                let table = Kept::new(Map { entries: RefCell::new(Rc::new(entries)), ..Map::default() });
                Value::Struct(Kept::new(Struct { table: self.known_map(table), of_spec }))
            }
            Value::Array(list) => {
                let items = list.items().iter().map(|item| self.structs(item, of_spec)).collect();
                let list = List { items: RefCell::new(Rc::new(items)), ..List::default() };
                Value::Array(self.known_list(Kept::new(list)))
            }
            other => other.clone(),
        }
    }
}

pub(crate) fn number_of(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(value), _) => Value::Int(value.into()),
        (None, Some(value)) => Value::Int(value.into()),
        _ => Value::Float(number.as_f64().unwrap_or_default()),
    }
}

/// Room for so many bytes more: long texts grow by a quarter, and not to twice their length.
pub(crate) fn reserve(text: &mut String, more: usize) {
    if text.capacity() - text.len() < more {
        text.reserve_exact(more.max(if text.len() > 1 << 20 { text.len() / 4 } else { text.len() }).max(8));
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // What is taken out is kept until everything is empty, so that nothing is dropped within another.
        let lists: Vec<_> = self.lists.borrow().iter().map(|list| list.items.take()).collect();
        let maps: Vec<_> = self.maps.borrow().iter().map(|map| (map.entries.take(), map.default.take())).collect();
        let scopes: Vec<_> = self.scopes.borrow().iter().map(|scope| scope.slots.take()).collect();
        drop((lists, maps, scopes));
    }
}
