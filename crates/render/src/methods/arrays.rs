//! Arrays.

use std::rc::Rc;

use indexmap::IndexSet;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::{Kept, List, PLACE};
use crate::value::{Key, Value};

pub(crate) const NAMES: &[&str] = &[
    "[]",
    "+",
    "-",
    "*",
    "&",
    "|",
    "length",
    "size",
    "empty?",
    "first",
    "last",
    "at",
    "dig",
    "fetch",
    "values_at",
    "index",
    "find_index",
    "join",
    "reverse",
    "rotate",
    "compact",
    "flatten",
    "uniq",
    "each_index",
    "slice",
    "to_a",
    "to_ary",
    "entries",
    "intersect?",
    "union",
    "difference",
    "intersection",
];

impl Evaluator<'_> {
    pub(crate) fn array_method(
        &mut self,
        list: &Kept<List>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let values = arguments.values.as_slice();
        if let Some(value) = self.changed_array(list, name, values, block)? {
            return Ok(Some(value));
        }
        let items = list.items();
        self.work(items.len() / 8)?;
        if let Some(value) = self.asked_of_array(list, &items, name, values, block)? {
            return Ok(Some(value));
        }
        if let ("each" | "each_entry" | "reverse_each" | "each_with_index" | "each_index" | "each_slice", Some(block)) =
            (name, block)
        {
            list.busy.set(list.busy.get() + 1);
            let done = self.each(&items, name, values, block);
            list.busy.set(list.busy.get() - 1);
            return Ok(done?.then(|| Value::Array(list.clone())));
        }
        if block.is_none()
            && let Some(value) = self.enumerator(&Value::Array(list.clone()), &items, name, values)?
        {
            return Ok(Some(value));
        }
        list.busy.set(list.busy.get() + 1);
        let answer = self.enumerable(&items, name, arguments, block);
        list.busy.set(list.busy.get() - 1);
        answer
    }

    /// What answers the collection itself in the end.
    pub(crate) fn each(&mut self, items: &[Value], name: &str, values: &[Value], block: &Rc<Closure>) -> Answer<bool> {
        match (name, values) {
            ("each" | "each_entry", []) => {
                for item in items {
                    self.invoke(block, vec![item.clone()])?;
                }
            }
            ("reverse_each", []) => {
                for item in items.iter().rev() {
                    self.invoke(block, vec![item.clone()])?;
                }
            }
            ("each_with_index", []) => {
                for (index, item) in items.iter().enumerate() {
                    self.invoke(block, vec![item.clone(), Value::Int(index as i128)])?;
                }
            }
            ("each_index", []) => {
                for index in 0..items.len() {
                    self.invoke(block, vec![Value::Int(index as i128)])?;
                }
            }
            ("each_slice", [Value::Int(size @ 1..)]) => {
                for part in items.chunks(usize::try_from(*size).unwrap_or(usize::MAX)) {
                    let part = self.copied(part)?;
                    self.invoke(block, vec![part])?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn asked_of_array(
        &mut self,
        list: &Kept<List>,
        items: &[Value],
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let count = items.len();
        let at = |index: i128| place(index, count).and_then(|place| items.get(place)).cloned().unwrap_or(Value::Nil);
        let found = match (name, values) {
            ("[]" | "at" | "slice", [Value::Int(index)]) => at(*index),
            ("[]" | "slice", [Value::Int(from), Value::Int(length)]) => {
                let start = if *from < 0 { from + count as i128 } else { *from };
                if start < 0 || start > count as i128 || *length < 0 {
                    return Ok(Some(Value::Nil));
                }
                let start = usize::try_from(start).unwrap_or(count);
                let end = start.saturating_add(usize::try_from(*length).unwrap_or(count)).min(count);
                self.copied(&items[start..end])?
            }
            ("[]" | "slice", [Value::Range(range)]) => match self.bounds(range, count)? {
                Some((start, length)) => self.copied(&items[start..(start + length).min(count)])?,
                None => Value::Nil,
            },
            ("dig", [Value::Int(index), rest @ ..]) => {
                let found = at(*index);
                if rest.is_empty() || found.is_nil() {
                    return Ok(Some(found));
                }
                let rest = self.copy(rest)?;
                self.call_method(&found, "dig", rest.into(), None)?
            }
            ("fetch", [Value::Int(index)]) if block.is_none() => {
                match place(*index, count).and_then(|at| items.get(at)) {
                    Some(value) => value.clone(),
                    None => return self.refuse("'fetch' of a place that is not there"),
                }
            }
            ("fetch", [Value::Int(index), default]) => {
                place(*index, count).and_then(|at| items.get(at)).unwrap_or(default).clone()
            }
            ("length" | "size", []) => Value::Int(count as i128),
            ("empty?", []) => Value::Bool(items.is_empty()),
            ("last", []) => items.last().cloned().unwrap_or(Value::Nil),
            ("last", [Value::Int(some @ 0..)]) => {
                let some = usize::try_from(*some).unwrap_or(count).min(count);
                self.copied(&items[count - some..])?
            }
            ("+", [Value::Array(other)]) => {
                let other = other.items();
                self.take((items.len() + other.len()) * PLACE)?;
                self.list([items, &other].concat())?
            }
            ("-" | "difference", [Value::Array(other)]) => {
                let others = self.keys(&other.items())?;
                self.filtered(items, |key| !others.contains(key), false)?
            }
            ("&" | "intersection", [Value::Array(other)]) => {
                let others = self.keys(&other.items())?;
                self.filtered(items, |key| others.contains(key), true)?
            }
            ("|" | "union", [Value::Array(other)]) => {
                let other = other.items();
                self.take((items.len() + other.len()) * PLACE)?;
                self.filtered(&[items, &other].concat(), |_| true, true)?
            }
            ("uniq", []) if block.is_none() => self.filtered(items, |_| true, true)?,
            ("*", [Value::Str(separator)]) => self.joined(items, &separator.get())?,
            ("*", [Value::Int(times @ 0..)]) => {
                let times = usize::try_from(*times).unwrap_or(usize::MAX);
                let mut repeated = self.places(items.len().saturating_mul(times))?;
                std::iter::repeat_n(items, times).for_each(|items| repeated.extend_from_slice(items));
                self.list(repeated)?
            }
            ("join", []) | ("join", [Value::Nil]) => self.joined(items, "")?,
            ("join", [Value::Str(separator)]) => self.joined(items, &separator.get())?,
            ("reverse", []) => {
                let mut items = self.copy(items)?;
                items.reverse();
                self.list(items)?
            }
            ("rotate", []) => {
                let mut items = self.copy(items)?;
                items.rotate_left(usize::from(count > 0));
                self.list(items)?
            }
            ("compact", []) => {
                let mut kept = self.places(items.len())?;
                kept.extend(items.iter().filter(|item| !item.is_nil()).cloned());
                self.list(kept)?
            }
            ("flatten", []) => {
                let flat = self.flattened(items, i128::MAX, 0)?;
                self.list(flat)?
            }
            ("flatten", [Value::Int(depth @ 0..)]) => {
                let flat = self.flattened(items, *depth, 0)?;
                self.list(flat)?
            }
            ("values_at", indexes) if indexes.iter().all(|index| matches!(index, Value::Int(_))) => {
                let mut chosen = self.places(indexes.len())?;
                chosen.extend(
                    indexes.iter().map(|index| if let Value::Int(index) = index { at(*index) } else { Value::Nil }),
                );
                self.list(chosen)?
            }
            ("index" | "find_index", [value]) => {
                for (index, item) in items.iter().enumerate() {
                    if self.equal(item, value)? {
                        return Ok(Some(Value::Int(index as i128)));
                    }
                }
                Value::Nil
            }
            ("intersect?", [Value::Array(other)]) => {
                let others = self.keys(&other.items())?;
                Value::Bool(self.keys(items)?.iter().any(|key| others.contains(key)))
            }
            ("to_a" | "to_ary" | "entries", []) => Value::Array(list.clone()),
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// A list of the same elements.
    pub(crate) fn copied(&self, items: &[Value]) -> Answer {
        let items = self.copy(items)?;
        self.list(items)
    }

    pub(crate) fn copy(&self, items: &[Value]) -> Answer<Vec<Value>> {
        let mut copy = self.places(items.len())?;
        copy.extend_from_slice(items);
        Ok(copy)
    }

    fn keys(&mut self, items: &[Value]) -> Answer<IndexSet<Key>> {
        self.work(items.len())?;
        self.take(items.len() * size_of::<Key>() * 2)?;
        items.iter().map(|item| self.key(item)).collect()
    }

    /// Those whose key is wanted, each once if asked for.
    fn filtered(&mut self, items: &[Value], wanted: impl Fn(&Key) -> bool, once: bool) -> Answer {
        self.take(items.len() * size_of::<Key>() * 2)?;
        let mut seen = IndexSet::new();
        let mut kept = self.places(items.len())?;
        for item in items {
            let key = self.key(item)?;
            self.work(1)?;
            if wanted(&key) && (seen.insert(key) || !once) {
                kept.push(item.clone());
            }
        }
        self.list(kept)
    }

    fn joined(&mut self, items: &[Value], separator: &str) -> Answer {
        let mut text = String::new();
        for (index, item) in self.flattened(items, i128::MAX, 0)?.iter().enumerate() {
            if index > 0 {
                self.write(&mut text, separator)?;
            }
            let shown = self.display(item)?;
            self.write(&mut text, &shown)?;
        }
        self.text(text)
    }

    fn flattened(&mut self, items: &[Value], levels: i128, depth: usize) -> Answer<Vec<Value>> {
        if depth > crate::value::DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        let mut flat = self.places(items.len())?;
        for item in items {
            match item {
                Value::Array(inner) if levels > 0 => {
                    let inner = self.flattened(&inner.items(), levels - 1, depth + 1)?;
                    self.take(inner.len() * PLACE)?;
                    flat.extend(inner);
                }
                other => flat.push(other.clone()),
            }
        }
        self.work(flat.len())?;
        Ok(flat)
    }
}

pub(crate) fn place(index: i128, count: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + count as i128 } else { index }).ok()
}
