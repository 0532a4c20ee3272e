//! Maps.

use std::rc::Rc;

use indexmap::{IndexMap, IndexSet};

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::{ENTRY, Entries, Kept, Map};
use crate::value::{Fallback, Value};

pub(crate) const NAMES: &[&str] = &[
    "[]",
    "[]=",
    "store",
    "fetch",
    "dig",
    "key?",
    "has_key?",
    "include?",
    "member?",
    "value?",
    "has_value?",
    "key",
    "keys",
    "values",
    "values_at",
    "length",
    "size",
    "count",
    "empty?",
    "each",
    "each_pair",
    "each_key",
    "each_value",
    "map",
    "select",
    "filter",
    "reject",
    "merge",
    "merge!",
    "update",
    "delete",
    "delete_if",
    "keep_if",
    "select!",
    "reject!",
    "transform_values",
    "transform_keys",
    "transform_values!",
    "invert",
    "sort",
    "sort_by",
    "min_by",
    "to_h",
    "to_a",
    "to_hash",
    "clear",
    "compact",
    "slice",
    "except",
    "any?",
    "find",
    "first",
    "filter_map",
    "sum",
    "group_by",
    "partition",
];

impl Evaluator<'_> {
    /// Entries as arrays of two.
    pub(crate) fn pairs(&mut self, map: &Map) -> Answer<Vec<Value>> {
        let entries = map.entries();
        let mut pairs = self.places(entries.len())?;
        for (key, value) in entries.iter() {
            let key = self.key_value(key)?;
            pairs.push(self.list(vec![key, value.clone()])?);
        }
        Ok(pairs)
    }

    pub(crate) fn map_method(
        &mut self,
        map: &Kept<Map>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let values = arguments.values.as_slice();
        self.work(1)?;
        if let Some(value) = self.asked_of_map(map, name, values, block)? {
            return Ok(Some(value));
        }
        if let Some(value) = self.changed_map(map, name, values, block)? {
            return Ok(Some(value));
        }
        map.busy.set(map.busy.get() + 1);
        let answer = self.walked_map(map, name, arguments, block);
        map.busy.set(map.busy.get() - 1);
        answer
    }

    /// The value of a key, or what the map has instead.
    fn entry(&mut self, map: &Kept<Map>, key: &Value) -> Answer {
        let found = self.key(key)?;
        if let Some(value) = map.get(&found) {
            return Ok(value);
        }
        let default = map.default.borrow().clone();
        match default {
            None => Ok(Value::Nil),
            Some(Fallback::Value(value)) => Ok(value),
            Some(Fallback::Block(block)) => self.invoke(&block, vec![Value::Hash(map.clone()), key.clone()]),
        }
    }

    fn asked_of_map(
        &mut self,
        map: &Kept<Map>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let found = match (name, values) {
            ("[]", [key]) => self.entry(map, key)?,
            ("dig", [key, rest @ ..]) => {
                let found = self.entry(map, key)?;
                if rest.is_empty() || found.is_nil() {
                    return Ok(Some(found));
                }
                let rest = self.copy(rest)?;
                self.call_method(&found, "dig", rest.into(), None)?
            }
            ("fetch", [key, rest @ ..]) if rest.len() < 2 => {
                let found = map.get(&self.key(key)?);
                match (found, rest, block) {
                    (Some(value), _, _) => value,
                    (None, [default], None) => default.clone(),
                    (None, [], Some(block)) => self.invoke(block, vec![key.clone()])?,
                    _ => return self.refuse("'fetch' of a key that is not there"),
                }
            }
            ("key?" | "has_key?" | "include?" | "member?", [key]) => Value::Bool(map.get(&self.key(key)?).is_some()),
            ("value?" | "has_value?", [value]) => {
                let entries = map.entries();
                let mut values = self.places(entries.len())?;
                values.extend(entries.values().cloned());
                return self.enumerable(&values, "include?", &vec![value.clone()].into(), None);
            }
            ("key", [value]) => {
                let entries = map.entries();
                for (key, other) in entries.iter() {
                    if self.equal(other, value)? {
                        return self.key_value(key).map(Some);
                    }
                }
                Value::Nil
            }
            ("keys", []) => self.keys_of(map)?,
            ("values", []) => {
                let entries = map.entries();
                let mut values = self.places(entries.len())?;
                values.extend(entries.values().cloned());
                self.list(values)?
            }
            ("values_at", keys) => {
                let mut values = self.places(keys.len())?;
                for key in keys {
                    values.push(self.entry(map, key)?);
                }
                self.list(values)?
            }
            ("length" | "size", []) => Value::Int(map.len() as i128),
            ("count", []) if block.is_none() => Value::Int(map.len() as i128),
            ("empty?", []) => Value::Bool(map.len() == 0),
            ("any?", []) if block.is_none() => Value::Bool(map.len() > 0),
            ("to_h" | "to_hash", []) if block.is_none() => Value::Hash(map.clone()),
            ("to_a", []) => {
                let pairs = self.pairs(map)?;
                self.list(pairs)?
            }
            ("slice" | "except", keys) => {
                let keys = keys.iter().map(|key| self.key(key)).collect::<Answer<IndexSet<_>>>()?;
                let entries = map.entries();
                self.take((keys.len() + entries.len()) * ENTRY)?;
                let chosen: Entries = if name == "slice" {
                    keys.into_iter()
                        .filter_map(|key| entries.get_key_value(&key).map(|(key, value)| (key.clone(), value.clone())))
                        .collect()
                } else {
                    let others = entries.iter().filter(|(key, _)| !keys.contains(*key));
                    others.map(|(key, value)| (key.clone(), value.clone())).collect()
                };
                self.map(chosen)?
            }
            ("compact", []) => {
                let entries = map.entries();
                self.take(entries.len() * ENTRY)?;
                let kept = entries.iter().filter(|(_, value)| !value.is_nil());
                self.map(kept.map(|(key, value)| (key.clone(), value.clone())).collect())?
            }
            ("invert", []) => {
                let mut entries = IndexMap::new();
                for (key, value) in map.entries().iter() {
                    self.take(ENTRY)?;
                    entries.insert(self.key(value)?, self.key_value(key)?);
                }
                self.map(entries)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn walked_map(
        &mut self,
        map: &Kept<Map>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let entries = map.entries();
        self.work(entries.len())?;
        let found = match (name, arguments.values.as_slice(), block) {
            ("each" | "each_pair" | "each_with_index", [], Some(block)) => {
                let pairs = self.pairs(map)?;
                let name = if name == "each_pair" { "each" } else { name };
                return Ok(self.each(&pairs, name, &[], block)?.then(|| Value::Hash(map.clone())));
            }
            ("each" | "each_pair" | "each_with_index", [], None) => {
                let pairs = self.pairs(map)?;
                let name = if name == "each_pair" { "each" } else { name };
                return self.enumerator(&Value::Hash(map.clone()), &pairs.into(), name, &[]);
            }
            ("each_key" | "each_value", [], Some(block)) => {
                for (key, value) in entries.iter() {
                    let given = if name == "each_key" { self.key_value(key)? } else { value.clone() };
                    self.invoke(block, vec![given])?;
                }
                Value::Hash(map.clone())
            }
            ("select" | "filter" | "reject", [], Some(block)) => {
                let kept = self.kept(&entries, block, name != "reject")?;
                self.map(kept)?
            }
            ("transform_values", [], Some(block)) => {
                let transformed = self.transformed(&entries, block)?;
                self.map(transformed)?
            }
            ("transform_keys", [], Some(block)) => {
                self.take(entries.len() * ENTRY)?;
                let mut transformed = IndexMap::with_capacity(entries.len());
                for (key, value) in entries.iter() {
                    let key = self.key_value(key)?;
                    let key = self.invoke(block, vec![key])?;
                    transformed.insert(self.key(&key)?, value.clone());
                }
                self.map(transformed)?
            }
            ("to_h", [], Some(block)) => {
                let mut pairs = self.places(entries.len())?;
                for (key, value) in entries.iter() {
                    let key = self.key_value(key)?;
                    pairs.push(self.invoke(block, vec![key, value.clone()])?);
                }
                self.map_of_pairs(&pairs)?
            }
            ("merge", maps, _) => {
                let merged = self.merged(&entries, maps, block)?;
                let merged = self.new_map(merged)?;
                *merged.default.borrow_mut() = map.default.borrow().clone();
                Value::Hash(merged)
            }
            (
                "filter_map" | "map" | "collect" | "flat_map" | "find" | "detect" | "find_all" | "any?" | "all?"
                | "none?" | "count" | "each_with_object" | "inject" | "reduce" | "sum" | "group_by" | "partition"
                | "sort_by" | "sort" | "min_by" | "max_by" | "first" | "take" | "drop" | "uniq" | "zip" | "each_slice"
                | "entries",
                _,
                _,
            ) => {
                let pairs = self.pairs(map)?.into();
                if block.is_none()
                    && let Some(value) = self.enumerator(&Value::Hash(map.clone()), &pairs, name, &arguments.values)?
                {
                    return Ok(Some(value));
                }
                return self.enumerable(&pairs, name, arguments, block);
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Keys as values, in an array.
    pub(crate) fn keys_of(&self, map: &Map) -> Answer {
        let entries = map.entries();
        let mut keys = self.places(entries.len())?;
        for key in entries.keys() {
            keys.push(self.key_value(key)?);
        }
        self.list(keys)
    }

    /// A map of the same entries.
    pub(crate) fn copied_map(&self, map: &Map) -> Answer<Kept<Map>> {
        let entries = map.entries();
        self.take(entries.len() * ENTRY)?;
        self.new_map((*entries).clone())
    }

    fn transformed(&mut self, entries: &Entries, block: &Rc<Closure>) -> Answer<Entries> {
        self.take(entries.len() * ENTRY)?;
        let mut transformed = IndexMap::with_capacity(entries.len());
        for (key, value) in entries {
            transformed.insert(key.clone(), self.invoke(block, vec![value.clone()])?);
        }
        Ok(transformed)
    }

    fn kept(&mut self, entries: &Entries, block: &Rc<Closure>, wanted: bool) -> Answer<Entries> {
        let mut kept = IndexMap::new();
        for (key, value) in entries {
            let name = self.key_value(key)?;
            if self.invoke(block, vec![name, value.clone()])?.is_true() == wanted {
                self.take(ENTRY)?;
                kept.insert(key.clone(), value.clone());
            }
        }
        Ok(kept)
    }

    fn merged(&mut self, entries: &Entries, maps: &[Value], block: Option<&Rc<Closure>>) -> Answer<Entries> {
        self.take(entries.len() * ENTRY)?;
        let mut entries = entries.clone();
        for other in maps {
            let Value::Hash(other) = other else { return self.refuse(format!("'merge' of {}", other.class_name())) };
            let other = other.entries();
            self.work(other.len())?;
            self.take(other.len() * ENTRY)?;
            for (key, value) in other.iter() {
                let value = match (entries.get(key).cloned(), block) {
                    (Some(old), Some(block)) => {
                        let name = self.key_value(key)?;
                        self.invoke(block, vec![name, old, value.clone()])?
                    }
                    _ => value.clone(),
                };
                entries.insert(key.clone(), value);
            }
        }
        Ok(entries)
    }

    fn changed_map(
        &mut self,
        map: &Kept<Map>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let same = Some(Value::Hash(map.clone()));
        match (name, values, block) {
            ("[]=" | "store", [key, value], None) => {
                self.changeable_map(map)?;
                let key = self.key(key)?;
                self.change_map(map, 1, |entries| entries.insert(key, value.clone()))?;
                Ok(Some(value.clone()))
            }
            ("delete", [key], None) => {
                self.changeable_map(map)?;
                let key = self.key(key)?;
                let removed = self.change_map(map, 0, |entries| entries.shift_remove(&key))?;
                Ok(Some(removed.unwrap_or(Value::Nil)))
            }
            ("clear", [], None) => {
                self.changeable_map(map)?;
                self.replace_map(map, IndexMap::new())?;
                Ok(same)
            }
            ("merge!" | "update", maps, _) => {
                self.changeable_map(map)?;
                let merged = self.merged(&map.entries(), maps, block)?;
                self.replace_map(map, merged)?;
                Ok(same)
            }
            ("delete_if" | "reject!" | "keep_if" | "select!", [], Some(block)) => {
                self.changeable_map(map)?;
                let entries = map.entries();
                let before = entries.len();
                let kept = self.kept(&entries, block, matches!(name, "keep_if" | "select!"))?;
                let unchanged = kept.len() == before && name.ends_with('!');
                self.replace_map(map, kept)?;
                Ok(if unchanged { Some(Value::Nil) } else { same })
            }
            ("transform_values!", [], Some(block)) => {
                self.changeable_map(map)?;
                let transformed = self.transformed(&map.entries(), block)?;
                self.replace_map(map, transformed)?;
                Ok(same)
            }
            _ => Ok(None),
        }
    }

    fn changeable_map(&self, map: &Map) -> Answer<()> {
        if map.frozen.get() {
            return self.refuse("a change of a frozen map");
        }
        if map.busy.get() > 0 {
            return self.refuse("a change of a map while it is walked through");
        }
        Ok(())
    }
}
