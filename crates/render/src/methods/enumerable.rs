//! What arrays, maps and ranges have in common. Maps come as arrays of pairs.

use std::rc::Rc;

use indexmap::map::Entry;
use indexmap::{IndexMap, IndexSet};

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::{ENTRY, PLACE};
use crate::value::{Key, Value};

pub(crate) const NAMES: &[&str] = &[
    "each",
    "each_with_index",
    "each_with_object",
    "each_slice",
    "each_entry",
    "reverse_each",
    "map",
    "collect",
    "flat_map",
    "collect_concat",
    "select",
    "filter",
    "reject",
    "find",
    "detect",
    "find_all",
    "filter_map",
    "inject",
    "reduce",
    "sum",
    "count",
    "any?",
    "all?",
    "none?",
    "one?",
    "include?",
    "member?",
    "first",
    "take",
    "drop",
    "take_while",
    "drop_while",
    "group_by",
    "partition",
    "min",
    "max",
    "min_by",
    "max_by",
    "sort",
    "sort_by",
    "uniq",
    "zip",
    "to_a",
    "entries",
    "to_h",
    "tally",
    "with_index",
    "each_cons",
    "find_index",
];

impl Evaluator<'_> {
    pub(crate) fn enumerable(
        &mut self,
        items: &[Value],
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        self.work(items.len())?;
        match block {
            Some(block) => self.with_block(items, name, &arguments.values, block),
            None => self.without_block(items, name, &arguments.values),
        }
    }

    fn with_block(
        &mut self,
        items: &[Value],
        name: &str,
        values: &[Value],
        block: &Rc<Closure>,
    ) -> Answer<Option<Value>> {
        let found = match (name, values) {
            ("map" | "collect", []) => {
                let mapped = self.mapped(items, block)?;
                self.list(mapped)?
            }
            ("flat_map" | "collect_concat", []) => {
                let mut mapped = Vec::new();
                for item in items {
                    match self.invoke(block, vec![item.clone()])? {
                        Value::Array(list) => {
                            let items = list.items();
                            self.take(items.len() * PLACE)?;
                            mapped.extend_from_slice(&items);
                        }
                        other => {
                            self.take(PLACE)?;
                            mapped.push(other);
                        }
                    }
                }
                self.list(mapped)?
            }
            ("filter_map", []) => {
                let mut mapped = self.places(items.len())?;
                for item in items {
                    let value = self.invoke(block, vec![item.clone()])?;
                    mapped.extend(value.is_true().then_some(value));
                }
                self.list(mapped)?
            }
            ("select" | "filter" | "find_all", []) => self.chosen(items, block, true)?.0,
            ("reject", []) => self.chosen(items, block, false)?.0,
            ("partition", []) => {
                let (yes, no) = self.chosen(items, block, true)?;
                self.list(vec![yes, no])?
            }
            ("find" | "detect" | "find_index" | "index", []) => {
                for (index, item) in items.iter().enumerate() {
                    if self.invoke(block, vec![item.clone()])?.is_true() {
                        return Ok(Some(match name.ends_with("index") {
                            true => Value::Int(index as i128),
                            false => item.clone(),
                        }));
                    }
                }
                Value::Nil
            }
            ("any?" | "all?" | "none?" | "count" | "one?", []) => self.counted_by(items, name, block)?,
            ("each_with_object", [memo]) => {
                for item in items {
                    self.invoke(block, vec![item.clone(), memo.clone()])?;
                }
                memo.clone()
            }
            ("inject" | "reduce", []) => self.reduced(items, None, block)?,
            ("inject" | "reduce", [first]) => self.reduced(items, Some(first.clone()), block)?,
            ("sum", []) => {
                let mapped = self.mapped(items, block)?;
                self.added(&mapped, Value::Int(0))?
            }
            ("group_by", []) => {
                let mut groups: IndexMap<Key, Vec<Value>> = IndexMap::new();
                for item in items {
                    let key = self.invoke(block, vec![item.clone()])?;
                    self.take(PLACE)?;
                    let group = match groups.entry(self.key(&key)?) {
                        Entry::Occupied(group) => group.into_mut(),
                        Entry::Vacant(group) => {
                            self.take(ENTRY)?;
                            group.insert(Vec::new())
                        }
                    };
                    group.push(item.clone());
                }
                let mut entries = IndexMap::new();
                for (key, group) in groups {
                    entries.insert(key, self.list(group)?);
                }
                self.map(entries)?
            }
            ("sort_by", []) => {
                let keyed = self.keyed(items, block)?;
                let sorted = self.sorted(keyed)?;
                self.list(sorted)?
            }
            ("min_by" | "max_by", []) => {
                let mut best: Option<(Value, Value)> = None;
                for (key, item) in self.keyed(items, block)? {
                    let better = match &best {
                        None => true,
                        Some((known, _)) if name == "min_by" => self.order(&key, known)?.is_lt(),
                        Some((known, _)) => self.order(&key, known)?.is_gt(),
                    };
                    if better {
                        best = Some((key, item));
                    }
                }
                best.map_or(Value::Nil, |(_, item)| item)
            }
            ("uniq", []) => {
                let mut seen = IndexSet::new();
                let mut kept = self.places(items.len())?;
                self.take(items.len() * ENTRY)?;
                for (key, item) in self.keyed(items, block)? {
                    if seen.insert(self.key(&key)?) {
                        kept.push(item);
                    }
                }
                self.list(kept)?
            }
            ("take_while" | "drop_while", []) => {
                let mut end = items.len();
                for (index, item) in items.iter().enumerate() {
                    if !self.invoke(block, vec![item.clone()])?.is_true() {
                        end = index;
                        break;
                    }
                }
                let (taken, left) = items.split_at(end);
                self.copied(if name == "take_while" { taken } else { left })?
            }
            ("to_h", []) => {
                let pairs = self.mapped(items, block)?;
                self.map_of_pairs(&pairs)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn mapped(&mut self, items: &[Value], block: &Rc<Closure>) -> Answer<Vec<Value>> {
        let mut mapped = self.places(items.len())?;
        for item in items {
            mapped.push(self.invoke(block, vec![item.clone()])?);
        }
        Ok(mapped)
    }

    fn chosen(&mut self, items: &[Value], block: &Rc<Closure>, wanted: bool) -> Answer<(Value, Value)> {
        let (mut yes, mut no) = (Vec::new(), Vec::new());
        for item in items {
            let fits = self.invoke(block, vec![item.clone()])?.is_true() == wanted;
            self.take(PLACE)?;
            if fits { &mut yes } else { &mut no }.push(item.clone());
        }
        Ok((self.list(yes)?, self.list(no)?))
    }

    fn counted_by(&mut self, items: &[Value], name: &str, block: &Rc<Closure>) -> Answer {
        let mut count = 0;
        let all = items.len();
        for item in items {
            let fits = self.invoke(block, vec![item.clone()])?.is_true();
            count += usize::from(fits);
            match (name, fits) {
                ("any?", true) => return Ok(Value::Bool(true)),
                ("all?", false) | ("none?", true) => return Ok(Value::Bool(false)),
                _ => {}
            }
        }
        Ok(match name {
            "count" => Value::Int(count as i128),
            "all?" => Value::Bool(count == all),
            "none?" => Value::Bool(count == 0),
            "one?" => Value::Bool(count == 1),
            _ => Value::Bool(count > 0),
        })
    }

    fn keyed(&mut self, items: &[Value], block: &Rc<Closure>) -> Answer<Vec<(Value, Value)>> {
        self.take(items.len() * PLACE * 2)?;
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            keyed.push((self.invoke(block, vec![item.clone()])?, item.clone()));
        }
        Ok(keyed)
    }

    fn reduced(&mut self, items: &[Value], first: Option<Value>, block: &Rc<Closure>) -> Answer {
        let mut items = items.iter().cloned();
        let Some(mut sum) = first.or_else(|| items.next()) else { return Ok(Value::Nil) };
        for item in items {
            sum = self.invoke(block, vec![sum, item])?;
        }
        Ok(sum)
    }

    fn added(&mut self, items: &[Value], first: Value) -> Answer {
        let mut sum = first;
        for item in items {
            // Ruby corrects sums of fractions for what is lost.
            if matches!(item, Value::Float(_)) {
                return self.refuse("a sum of numbers with fractions");
            }
            sum = self.call_method(&sum, "+", vec![item.clone()].into(), None)?;
        }
        Ok(sum)
    }

    fn without_block(&mut self, items: &[Value], name: &str, values: &[Value]) -> Answer<Option<Value>> {
        let count = items.len();
        let some = |some: &i128| usize::try_from(*some).unwrap_or(count).min(count);
        let found = match (name, values) {
            ("first", []) => items.first().cloned().unwrap_or(Value::Nil),
            ("first" | "take", [Value::Int(number @ 0..)]) => self.copied(&items[..some(number)])?,
            ("drop", [Value::Int(number @ 0..)]) => self.copied(&items[some(number)..])?,
            ("include?" | "member?", [value]) => {
                for item in items {
                    if self.equal(item, value)? {
                        return Ok(Some(Value::Bool(true)));
                    }
                }
                Value::Bool(false)
            }
            ("any?", []) => Value::Bool(items.iter().any(Value::is_true)),
            ("all?", []) => Value::Bool(items.iter().all(Value::is_true)),
            ("none?", []) => Value::Bool(!items.iter().any(Value::is_true)),
            ("one?", []) => Value::Bool(items.iter().filter(|item| item.is_true()).count() == 1),
            ("count", []) => Value::Int(count as i128),
            ("count", [value]) => {
                let mut count = 0;
                for item in items {
                    count += i128::from(self.equal(item, value)?);
                }
                Value::Int(count)
            }
            ("inject" | "reduce", [Value::Symbol(operator)]) => {
                self.reduced(items, None, &Rc::new(Closure::Name(operator.name().clone())))?
            }
            ("inject" | "reduce", [first, Value::Symbol(operator)]) => {
                self.reduced(items, Some(first.clone()), &Rc::new(Closure::Name(operator.name().clone())))?
            }
            ("sum", []) => self.added(items, Value::Int(0))?,
            ("sum", [first]) => self.added(items, first.clone())?,
            ("sort", []) => {
                self.take(items.len() * PLACE * 2)?;
                let sorted = self.sorted(items.iter().map(|item| (item.clone(), item.clone())).collect())?;
                self.list(sorted)?
            }
            ("min" | "max", []) => {
                let mut items = items.iter();
                let Some(mut best) = items.next() else { return Ok(Some(Value::Nil)) };
                for item in items {
                    let order = self.order(item, best)?;
                    if (name == "min" && order.is_lt()) || (name == "max" && order.is_gt()) {
                        best = item;
                    }
                }
                best.clone()
            }
            ("to_a" | "entries", []) => self.copied(items)?,
            ("to_h", []) => self.map_of_pairs(items)?,
            ("zip", [Value::Array(other)]) => {
                let other = other.items();
                let mut pairs = self.places(count)?;
                for (index, item) in items.iter().enumerate() {
                    pairs.push(self.list(vec![item.clone(), other.get(index).cloned().unwrap_or(Value::Nil)])?);
                }
                self.list(pairs)?
            }
            ("tally", []) => {
                self.take(items.len() * ENTRY)?;
                let mut counts: IndexMap<Key, i128> = IndexMap::new();
                for item in items {
                    *counts.entry(self.key(item)?).or_default() += 1;
                }
                self.map(counts.into_iter().map(|(key, count)| (key, Value::Int(count))).collect())?
            }
            ("grep" | "grep_v", [pattern]) => {
                let mut kept = self.places(items.len())?;
                for item in items {
                    if self.case_equal(pattern, item)? == (name == "grep") {
                        kept.push(item.clone());
                    }
                }
                self.list(kept)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    pub(crate) fn map_of_pairs(&mut self, pairs: &[Value]) -> Answer {
        self.take(pairs.len() * ENTRY)?;
        let mut entries = IndexMap::with_capacity(pairs.len());
        for pair in pairs {
            let pair = match pair {
                Value::Array(pair) => pair.items(),
                other => return self.refuse(format!("a map from {}", other.class_name())),
            };
            let [key, value] = pair.as_slice() else { return self.refuse("a map from such pairs") };
            entries.insert(self.key(key)?, value.clone());
        }
        self.map(entries)
    }
}
