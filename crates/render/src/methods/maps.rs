//! Maps.

use std::rc::Rc;

use indexmap::IndexMap;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::value::{Fallback, Key, Map, Value};

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
        let entries = map.entries.borrow().clone();
        let mut pairs = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.heap.value(&key);
            pairs.push(self.list(vec![key, value])?);
        }
        Ok(pairs)
    }

    pub(crate) fn map_method(
        &mut self,
        map: &Rc<Map>,
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
    fn entry(&mut self, map: &Rc<Map>, key: &Value) -> Answer {
        let found = self.key(key)?;
        let found = map.entries.borrow().get(&found).cloned();
        if let Some(value) = found {
            return Ok(value);
        }
        let default = map.default.borrow().clone();
        match default {
            None => Ok(Value::Nil),
            Some(Fallback::Value(value)) => Ok(value),
            Some(Fallback::Block(block)) => self.invoke(&block, vec![Value::Hash(Rc::clone(map)), key.clone()]),
        }
    }

    fn asked_of_map(
        &mut self,
        map: &Rc<Map>,
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
                self.call_method(&found, "dig", rest.to_vec().into(), None)?
            }
            ("fetch", [key, rest @ ..]) if rest.len() < 2 => {
                let found = map.entries.borrow().get(&self.key(key)?).cloned();
                match (found, rest, block) {
                    (Some(value), _, _) => value,
                    (None, [default], None) => default.clone(),
                    (None, [], Some(block)) => self.invoke(block, vec![key.clone()])?,
                    _ => return self.refuse("'fetch' of a key that is not there"),
                }
            }
            ("key?" | "has_key?" | "include?" | "member?", [key]) => {
                Value::Bool(map.entries.borrow().contains_key(&self.key(key)?))
            }
            ("value?" | "has_value?", [value]) => {
                let values = map.entries.borrow().values().cloned().collect::<Vec<_>>();
                return self.enumerable(values, "include?", &vec![value.clone()].into(), None);
            }
            ("key", [value]) => {
                let entries = map.entries.borrow().clone();
                for (key, other) in &entries {
                    if self.equal(other, value)? {
                        return Ok(Some(self.heap.value(key)));
                    }
                }
                Value::Nil
            }
            ("keys", []) => {
                let keys = map.entries.borrow().keys().map(|key| self.heap.value(key)).collect();
                self.list(keys)?
            }
            ("values", []) => {
                let values = map.entries.borrow().values().cloned().collect();
                self.list(values)?
            }
            ("values_at", keys) => {
                let mut values = Vec::with_capacity(keys.len());
                for key in keys {
                    values.push(self.entry(map, key)?);
                }
                self.list(values)?
            }
            ("length" | "size", []) => Value::Int(map.entries.borrow().len() as i128),
            ("count", []) if block.is_none() => Value::Int(map.entries.borrow().len() as i128),
            ("empty?", []) => Value::Bool(map.entries.borrow().is_empty()),
            ("any?", []) if block.is_none() => Value::Bool(!map.entries.borrow().is_empty()),
            ("to_h" | "to_hash", []) if block.is_none() => Value::Hash(Rc::clone(map)),
            ("to_a", []) => {
                let pairs = self.pairs(map)?;
                self.list(pairs)?
            }
            ("slice" | "except", keys) => {
                let keys = keys.iter().map(|key| self.key(key)).collect::<Answer<Vec<_>>>()?;
                let entries = map.entries.borrow().clone();
                let chosen: IndexMap<_, _> = if name == "slice" {
                    keys.into_iter()
                        .filter_map(|key| entries.get_key_value(&key).map(|(key, value)| (key.clone(), value.clone())))
                        .collect()
                } else {
                    entries.into_iter().filter(|(key, _)| !keys.contains(key)).collect()
                };
                self.map(chosen)?
            }
            ("compact", []) => {
                let entries = map.entries.borrow().clone();
                self.map(entries.into_iter().filter(|(_, value)| !value.is_nil()).collect())?
            }
            ("invert", []) => {
                let mut entries = IndexMap::new();
                for (key, value) in map.entries.borrow().clone() {
                    entries.insert(self.key(&value)?, self.heap.value(&key));
                }
                self.map(entries)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn walked_map(
        &mut self,
        map: &Rc<Map>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let entries = map.entries.borrow().clone();
        self.work(entries.len())?;
        let found = match (name, arguments.values.as_slice(), block) {
            ("each" | "each_pair" | "each_with_index", [], Some(block)) => {
                let pairs = self.pairs(map)?;
                let name = if name == "each_pair" { "each" } else { name };
                return Ok(self.each(pairs, name, &[], block)?.then(|| Value::Hash(Rc::clone(map))));
            }
            ("each" | "each_pair" | "each_with_index", [], None) => {
                let pairs = self.pairs(map)?;
                let name = if name == "each_pair" { "each" } else { name };
                return self.enumerator(&Value::Hash(Rc::clone(map)), &pairs, name, &[]);
            }
            ("each_key" | "each_value", [], Some(block)) => {
                for (key, value) in entries {
                    let given = if name == "each_key" { self.heap.value(&key) } else { value };
                    self.invoke(block, vec![given])?;
                }
                Value::Hash(Rc::clone(map))
            }
            ("select" | "filter" | "reject", [], Some(block)) => {
                let kept = self.kept(entries, block, name != "reject")?;
                self.map(kept)?
            }
            ("transform_values", [], Some(block)) => {
                let mut transformed = IndexMap::with_capacity(entries.len());
                for (key, value) in entries {
                    transformed.insert(key, self.invoke(block, vec![value])?);
                }
                self.map(transformed)?
            }
            ("transform_keys", [], Some(block)) => {
                let mut transformed = IndexMap::with_capacity(entries.len());
                for (key, value) in entries {
                    let key = self.heap.value(&key);
                    let key = self.invoke(block, vec![key])?;
                    transformed.insert(self.key(&key)?, value);
                }
                self.map(transformed)?
            }
            ("to_h", [], Some(block)) => {
                let mut pairs = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let key = self.heap.value(&key);
                    pairs.push(self.invoke(block, vec![key, value])?);
                }
                self.map_of_pairs(pairs)?
            }
            ("merge", maps, _) => {
                let merged = self.merged(entries, maps, block)?;
                let merged = self.map(merged)?;
                if let Value::Hash(new) = &merged {
                    *new.default.borrow_mut() = map.default.borrow().clone();
                }
                merged
            }
            (
                "filter_map" | "map" | "collect" | "flat_map" | "find" | "detect" | "find_all" | "any?" | "all?"
                | "none?" | "count" | "each_with_object" | "inject" | "reduce" | "sum" | "group_by" | "partition"
                | "sort_by" | "sort" | "min_by" | "max_by" | "first" | "take" | "drop" | "uniq" | "zip" | "each_slice"
                | "entries",
                _,
                _,
            ) => {
                let pairs = self.pairs(map)?;
                if block.is_none()
                    && let Some(value) =
                        self.enumerator(&Value::Hash(Rc::clone(map)), &pairs, name, &arguments.values)?
                {
                    return Ok(Some(value));
                }
                return self.enumerable(pairs, name, arguments, block);
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn kept(
        &mut self,
        entries: IndexMap<Key, Value>,
        block: &Rc<Closure>,
        wanted: bool,
    ) -> Answer<IndexMap<Key, Value>> {
        let mut kept = IndexMap::new();
        for (key, value) in entries {
            let name = self.heap.value(&key);
            if self.invoke(block, vec![name, value.clone()])?.is_true() == wanted {
                kept.insert(key, value);
            }
        }
        Ok(kept)
    }

    fn merged(
        &mut self,
        mut entries: IndexMap<Key, Value>,
        maps: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<IndexMap<Key, Value>> {
        for other in maps {
            let Value::Hash(other) = other else { return self.refuse(format!("'merge' of {}", other.class_name())) };
            let other = other.entries.borrow().clone();
            self.work(other.len())?;
            for (key, value) in other {
                let value = match (entries.get(&key).cloned(), block) {
                    (Some(old), Some(block)) => {
                        let name = self.heap.value(&key);
                        self.invoke(block, vec![name, old, value])?
                    }
                    _ => value,
                };
                entries.insert(key, value);
            }
        }
        Ok(entries)
    }

    fn changed_map(
        &mut self,
        map: &Rc<Map>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let same = Some(Value::Hash(Rc::clone(map)));
        match (name, values, block) {
            ("[]=" | "store", [key, value], None) => {
                self.changeable_map(map)?;
                self.take(96)?;
                let key = self.key(key)?;
                map.entries.borrow_mut().insert(key, value.clone());
                Ok(Some(value.clone()))
            }
            ("delete", [key], None) => {
                self.changeable_map(map)?;
                let key = self.key(key)?;
                Ok(Some(map.entries.borrow_mut().shift_remove(&key).unwrap_or(Value::Nil)))
            }
            ("clear", [], None) => {
                self.changeable_map(map)?;
                map.entries.borrow_mut().clear();
                Ok(same)
            }
            ("merge!" | "update", maps, _) => {
                self.changeable_map(map)?;
                let entries = map.entries.borrow().clone();
                let merged = self.merged(entries, maps, block)?;
                self.take(merged.len() * 96)?;
                map.entries.replace(merged);
                Ok(same)
            }
            ("delete_if" | "reject!" | "keep_if" | "select!", [], Some(block)) => {
                self.changeable_map(map)?;
                let entries = map.entries.borrow().clone();
                let before = entries.len();
                let kept = self.kept(entries, block, matches!(name, "keep_if" | "select!"))?;
                let unchanged = kept.len() == before && name.ends_with('!');
                map.entries.replace(kept);
                Ok(if unchanged { Some(Value::Nil) } else { same })
            }
            ("transform_values!", [], Some(_)) => {
                self.changeable_map(map)?;
                if let Some(Value::Hash(new)) =
                    self.walked_map(map, "transform_values", &Arguments::default(), block)?
                {
                    map.entries.replace(new.entries.borrow().clone());
                }
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
