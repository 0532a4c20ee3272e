//! What makes values: each is counted before it is there.

use std::rc::Rc;

use super::{Answer, BYTES, Evaluator, Flow};
use crate::memory::{Content, Entries, Full, Holds, IntoContent, Kept, LARGEST_TEXT, List, Map, PLACE, Text, reserve};
use crate::pattern::{Found, Pattern};
use crate::value::{Failure, Key, Value};

/// How many bytes a key may take.
const LARGEST_KEY: usize = 4 << 20;

impl Evaluator<'_> {
    fn counted<T>(&self, made: Result<T, Full>) -> Answer<T> {
        match made {
            Ok(made) => Ok(made),
            Err(Full) => self.stop(format!("the template was stopped when it had taken {} MiB of memory", BYTES >> 20)),
        }
    }

    /// Counts memory. What was given back counts, too.
    pub(crate) fn take(&self, bytes: usize) -> Answer<()> {
        self.counted(self.heap.take(bytes))
    }

    pub(crate) fn keep<T: Holds>(&self, value: T) -> Answer<Kept<T>> {
        self.counted(self.heap.keep(value))
    }

    pub(crate) fn content(&self, content: impl IntoContent) -> Answer<Content> {
        self.counted(content.into_content(&self.heap))
    }

    pub(crate) fn text(&self, content: impl IntoContent) -> Answer {
        self.counted(self.heap.text(content, false))
    }

    pub(crate) fn frozen_text(&self, content: impl IntoContent) -> Answer {
        self.counted(self.heap.text(content, true))
    }

    /// Each as a string, in an array.
    pub(crate) fn texts<'t>(&self, parts: impl IntoIterator<Item = &'t str>) -> Answer {
        let texts = parts.into_iter().map(|part| self.text(part)).collect::<Answer<Vec<_>>>()?;
        self.list(texts)
    }

    pub(crate) fn symbol(&self, name: &str) -> Answer {
        self.counted(self.heap.symbol(name)).map(Value::Symbol)
    }

    pub(crate) fn list(&self, items: Vec<Value>) -> Answer {
        self.counted(self.heap.list(items)).map(Value::Array)
    }

    pub(crate) fn map(&self, entries: Entries) -> Answer {
        self.new_map(entries).map(Value::Hash)
    }

    pub(crate) fn new_map(&self, entries: Entries) -> Answer<Kept<Map>> {
        self.counted(self.heap.map(entries))
    }

    /// Room for so many values.
    pub(crate) fn places(&self, count: usize) -> Answer<Vec<Value>> {
        self.take(count.saturating_mul(PLACE))?;
        Ok(Vec::with_capacity(count))
    }

    /// An error with its message.
    pub(crate) fn failure(&self, class: &'static str, message: impl IntoContent) -> Answer<Failure> {
        Ok(Failure { class, message: self.content(message)?, line: 0, name: None })
    }

    pub(crate) fn raise<T>(&self, class: &'static str, message: impl IntoContent) -> Answer<T> {
        let failure = self.failure(class, message)?;
        Err(Box::new(Flow::Raise(Failure { line: self.line, ..failure })))
    }

    pub(crate) fn key(&mut self, value: &Value) -> Answer<Key> {
        let mut room = LARGEST_KEY;
        let key = value.key(0, &mut room);
        self.work((LARGEST_KEY - room) / 64)?;
        // Strings share their content with the key.
        self.take(if let Value::Array(_) | Value::Hash(_) = value { LARGEST_KEY - room } else { 0 })?;
        match key {
            Some(key) => Ok(key),
            None => self.refuse(format!("a key of class {}", value.class_name())),
        }
    }

    pub(crate) fn key_value(&self, key: &Key) -> Answer {
        self.counted(self.heap.value(key))
    }

    /// Writes on. What is written is counted at once, and no text becomes longer than strings may.
    pub(crate) fn write(&self, text: &mut String, more: &str) -> Answer<()> {
        self.room(text, more.len())?;
        text.push_str(more);
        Ok(())
    }

    pub(crate) fn write_letter(&self, text: &mut String, letter: char) -> Answer<()> {
        self.write(text, letter.encode_utf8(&mut [0; 4]))
    }

    /// Writes the same text several times.
    pub(crate) fn write_times(&self, text: &mut String, more: &str, times: usize) -> Answer<()> {
        self.room(text, more.len().saturating_mul(times))?;
        text.push_str(&more.repeat(times));
        Ok(())
    }

    fn room(&self, text: &mut String, more: usize) -> Answer<()> {
        if text.len().saturating_add(more) > LARGEST_TEXT {
            return self.counted(Err(Full));
        }
        self.take(more)?;
        reserve(text, more);
        Ok(())
    }

    /// Counts a text that is made of others in one go.
    pub(crate) fn will_write(&self, bytes: usize) -> Answer<()> {
        if bytes > LARGEST_TEXT { self.counted(Err(Full)) } else { self.take(bytes) }
    }

    pub(crate) fn append(&self, text: &Text, more: &str) -> Answer<()> {
        self.counted(self.heap.append(text, more))
    }

    pub(crate) fn replace(&self, text: &Text, content: impl IntoContent) -> Answer<()> {
        self.counted(self.heap.replace(text, content))
    }

    /// Changes the elements of an array, to which so many are added.
    pub(crate) fn change_list<T>(
        &self,
        list: &List,
        added: usize,
        change: impl FnOnce(&mut Vec<Value>) -> T,
    ) -> Answer<T> {
        let mut items = self.counted(self.heap.change_list(list, added))?;
        Ok(change(&mut items))
    }

    pub(crate) fn replace_list(&self, list: &List, items: Rc<Vec<Value>>) {
        self.heap.replace_list(list, items);
    }

    /// Changes the entries of a map, to which so many are added.
    pub(crate) fn change_map<T>(&self, map: &Map, added: usize, change: impl FnOnce(&mut Entries) -> T) -> Answer<T> {
        let mut entries = self.counted(self.heap.change_map(map, added))?;
        Ok(change(&mut entries))
    }

    pub(crate) fn replace_map(&self, map: &Map, entries: Entries) -> Answer<()> {
        self.counted(self.heap.replace_map(map, entries))
    }

    /// All that a pattern finds; none where Ruby may find something else.
    pub(crate) fn searched_all(&mut self, pattern: &Pattern, text: &str) -> Answer<Option<Vec<Found>>> {
        let found = pattern.all(text, &mut self.searched, &self.heap);
        self.counted(found)
    }
}
