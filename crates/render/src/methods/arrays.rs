//! Arrays.

use std::rc::Rc;

use indexmap::IndexSet;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::value::{Key, List, Value};

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
        list: &Rc<List>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let values = arguments.values.as_slice();
        if let Some(value) = self.changed_array(list, name, values, block)? {
            return Ok(Some(value));
        }
        let items = list.items.borrow().clone();
        self.work(items.len() / 8)?;
        if let Some(value) = self.asked_of_array(list, &items, name, values, block)? {
            return Ok(Some(value));
        }
        if let ("each" | "each_entry" | "reverse_each" | "each_with_index" | "each_index" | "each_slice", Some(block)) =
            (name, block)
        {
            list.busy.set(list.busy.get() + 1);
            let done = self.each(items, name, values, block);
            list.busy.set(list.busy.get() - 1);
            return Ok(done?.then(|| Value::Array(Rc::clone(list))));
        }
        if block.is_none()
            && let Some(value) = self.enumerator(&Value::Array(Rc::clone(list)), &items, name, values)?
        {
            return Ok(Some(value));
        }
        list.busy.set(list.busy.get() + 1);
        let answer = self.enumerable(items, name, arguments, block);
        list.busy.set(list.busy.get() - 1);
        answer
    }

    /// What answers the collection itself in the end.
    pub(crate) fn each(
        &mut self,
        items: Vec<Value>,
        name: &str,
        values: &[Value],
        block: &Rc<Closure>,
    ) -> Answer<bool> {
        match (name, values) {
            ("each" | "each_entry", []) => {
                for item in items {
                    self.invoke(block, vec![item])?;
                }
            }
            ("reverse_each", []) => {
                for item in items.into_iter().rev() {
                    self.invoke(block, vec![item])?;
                }
            }
            ("each_with_index", []) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.invoke(block, vec![item, Value::Int(index as i128)])?;
                }
            }
            ("each_index", []) => {
                for index in 0..items.len() {
                    self.invoke(block, vec![Value::Int(index as i128)])?;
                }
            }
            ("each_slice", [Value::Int(size @ 1..)]) => {
                for part in items.chunks(usize::try_from(*size).unwrap_or(usize::MAX)) {
                    let part = self.list(part.to_vec())?;
                    self.invoke(block, vec![part])?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn asked_of_array(
        &mut self,
        list: &Rc<List>,
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
                self.list(items[start..end].to_vec())?
            }
            ("[]" | "slice", [Value::Range(range)]) => match self.bounds(range, count)? {
                Some((start, length)) => self.list(items[start..(start + length).min(count)].to_vec())?,
                None => Value::Nil,
            },
            ("dig", [Value::Int(index), rest @ ..]) => {
                let found = at(*index);
                if rest.is_empty() || found.is_nil() {
                    return Ok(Some(found));
                }
                self.call_method(&found, "dig", rest.to_vec().into(), None)?
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
                self.list(items[count - some..].to_vec())?
            }
            ("+", [Value::Array(other)]) => {
                let both = [items, &other.items.borrow()].concat();
                self.list(both)?
            }
            ("-" | "difference", [Value::Array(other)]) => {
                let others = self.keys(&other.items.borrow().clone())?;
                self.filtered(items, |key| !others.contains(key), false)?
            }
            ("&" | "intersection", [Value::Array(other)]) => {
                let others = self.keys(&other.items.borrow().clone())?;
                self.filtered(items, |key| others.contains(key), true)?
            }
            ("|" | "union", [Value::Array(other)]) => {
                let both = [items, &other.items.borrow()].concat();
                self.filtered(&both, |_| true, true)?
            }
            ("uniq", []) if block.is_none() => self.filtered(items, |_| true, true)?,
            ("*", [Value::Str(separator)]) => self.joined(items, &separator.get())?,
            ("*", [Value::Int(times @ 0..)]) => {
                let times = usize::try_from(*times).unwrap_or(usize::MAX);
                self.take(items.len().saturating_mul(times).saturating_mul(32))?;
                self.list(std::iter::repeat_n(items, times).flatten().cloned().collect())?
            }
            ("join", []) | ("join", [Value::Nil]) => self.joined(items, "")?,
            ("join", [Value::Str(separator)]) => self.joined(items, &separator.get())?,
            ("reverse", []) => self.list(items.iter().rev().cloned().collect())?,
            ("rotate", []) => {
                let mut items = items.to_vec();
                items.rotate_left(usize::from(count > 0));
                self.list(items)?
            }
            ("compact", []) => self.list(items.iter().filter(|item| !item.is_nil()).cloned().collect())?,
            ("flatten", []) => {
                let flat = self.flattened(items, i128::MAX, 0)?;
                self.list(flat)?
            }
            ("flatten", [Value::Int(depth @ 0..)]) => {
                let flat = self.flattened(items, *depth, 0)?;
                self.list(flat)?
            }
            ("values_at", indexes) if indexes.iter().all(|index| matches!(index, Value::Int(_))) => {
                let chosen =
                    indexes.iter().map(|index| if let Value::Int(index) = index { at(*index) } else { Value::Nil });
                self.list(chosen.collect())?
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
                let others = self.keys(&other.items.borrow().clone())?;
                Value::Bool(self.keys(items)?.iter().any(|key| others.contains(key)))
            }
            ("to_a" | "to_ary" | "entries", []) => Value::Array(Rc::clone(list)),
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn keys(&mut self, items: &[Value]) -> Answer<IndexSet<Key>> {
        self.work(items.len())?;
        items.iter().map(|item| self.key(item)).collect()
    }

    /// Those whose key is wanted, each once if asked for.
    fn filtered(&mut self, items: &[Value], wanted: impl Fn(&Key) -> bool, once: bool) -> Answer {
        let mut seen = IndexSet::new();
        let mut kept = Vec::new();
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
                text.push_str(separator);
            }
            text.push_str(&self.display(item)?);
            self.take(separator.len())?;
        }
        self.text(text)
    }

    fn flattened(&mut self, items: &[Value], levels: i128, depth: usize) -> Answer<Vec<Value>> {
        if depth > crate::value::DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        let mut flat = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Array(inner) if levels > 0 => {
                    let inner = inner.items.borrow().clone();
                    flat.extend(self.flattened(&inner, levels - 1, depth + 1)?);
                    self.take(flat.len())?;
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
