//! What arrays, maps and ranges have in common. Maps come as arrays of pairs.

use std::rc::Rc;

use indexmap::IndexMap;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
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
        items: Vec<Value>,
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
        items: Vec<Value>,
        name: &str,
        values: &[Value],
        block: &Rc<Closure>,
    ) -> Answer<Option<Value>> {
        let found = match (name, values) {
            ("map" | "collect", []) => {
                let mut mapped = Vec::with_capacity(items.len());
                for item in items {
                    mapped.push(self.invoke(block, vec![item])?);
                }
                self.list(mapped)?
            }
            ("flat_map" | "collect_concat", []) => {
                let mut mapped = Vec::new();
                for item in items {
                    match self.invoke(block, vec![item])? {
                        Value::Array(list) => mapped.extend(list.items.borrow().iter().cloned()),
                        other => mapped.push(other),
                    }
                    self.take(mapped.len())?;
                }
                self.list(mapped)?
            }
            ("filter_map", []) => {
                let mut mapped = Vec::new();
                for item in items {
                    let value = self.invoke(block, vec![item])?;
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
                for (index, item) in items.into_iter().enumerate() {
                    if self.invoke(block, vec![item.clone()])?.is_true() {
                        return Ok(Some(if name.ends_with("index") { Value::Int(index as i128) } else { item }));
                    }
                }
                Value::Nil
            }
            ("any?" | "all?" | "none?" | "count" | "one?", []) => self.counted_by(items, name, block)?,
            ("each_with_object", [memo]) => {
                for item in items {
                    self.invoke(block, vec![item, memo.clone()])?;
                }
                memo.clone()
            }
            ("inject" | "reduce", []) => self.reduced(items.into_iter(), None, block)?,
            ("inject" | "reduce", [first]) => self.reduced(items.into_iter(), Some(first.clone()), block)?,
            ("sum", []) => {
                let mapped = self.with_block(items, "map", &[], block)?;
                let Some(Value::Array(mapped)) = mapped else { return Ok(None) };
                let mapped = mapped.items.borrow().clone();
                self.added(mapped, Value::Int(0))?
            }
            ("group_by", []) => {
                let mut groups: IndexMap<Key, Vec<Value>> = IndexMap::new();
                for item in items {
                    let key = self.invoke(block, vec![item.clone()])?;
                    groups.entry(self.key(&key)?).or_default().push(item);
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
                let mut seen = IndexMap::new();
                for (key, item) in self.keyed(items, block)? {
                    seen.entry(self.key(&key)?).or_insert(item);
                }
                self.list(seen.into_values().collect())?
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
                self.list(if name == "take_while" { taken } else { left }.to_vec())?
            }
            ("to_h", []) => {
                let mut pairs = Vec::with_capacity(items.len());
                for item in items {
                    pairs.push(self.invoke(block, vec![item])?);
                }
                self.map_of_pairs(pairs)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    fn chosen(&mut self, items: Vec<Value>, block: &Rc<Closure>, wanted: bool) -> Answer<(Value, Value)> {
        let (mut yes, mut no) = (Vec::new(), Vec::new());
        for item in items {
            let fits = self.invoke(block, vec![item.clone()])?.is_true() == wanted;
            if fits { &mut yes } else { &mut no }.push(item);
        }
        Ok((self.list(yes)?, self.list(no)?))
    }

    fn counted_by(&mut self, items: Vec<Value>, name: &str, block: &Rc<Closure>) -> Answer {
        let mut count = 0;
        let all = items.len();
        for item in items {
            let fits = self.invoke(block, vec![item])?.is_true();
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

    fn keyed(&mut self, items: Vec<Value>, block: &Rc<Closure>) -> Answer<Vec<(Value, Value)>> {
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            keyed.push((self.invoke(block, vec![item.clone()])?, item));
        }
        Ok(keyed)
    }

    fn reduced(&mut self, mut items: std::vec::IntoIter<Value>, first: Option<Value>, block: &Rc<Closure>) -> Answer {
        let Some(mut sum) = first.or_else(|| items.next()) else { return Ok(Value::Nil) };
        for item in items {
            sum = self.invoke(block, vec![sum, item])?;
        }
        Ok(sum)
    }

    fn added(&mut self, items: Vec<Value>, first: Value) -> Answer {
        let mut sum = first;
        for item in items {
            // Ruby corrects sums of fractions for what is lost.
            if matches!(item, Value::Float(_)) {
                return self.refuse("a sum of numbers with fractions");
            }
            sum = self.call_method(&sum, "+", vec![item].into(), None)?;
        }
        Ok(sum)
    }

    fn without_block(&mut self, items: Vec<Value>, name: &str, values: &[Value]) -> Answer<Option<Value>> {
        let count = items.len();
        let some = |some: &i128| usize::try_from(*some).unwrap_or(count).min(count);
        let found = match (name, values) {
            ("first", []) => items.into_iter().next().unwrap_or(Value::Nil),
            ("first" | "take", [Value::Int(number @ 0..)]) => self.list(items[..some(number)].to_vec())?,
            ("drop", [Value::Int(number @ 0..)]) => self.list(items[some(number)..].to_vec())?,
            ("include?" | "member?", [value]) => {
                for item in &items {
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
                for item in &items {
                    count += i128::from(self.equal(item, value)?);
                }
                Value::Int(count)
            }
            ("inject" | "reduce", [Value::Symbol(operator)]) => {
                self.reduced(items.into_iter(), None, &Rc::new(Closure::Name(operator.clone())))?
            }
            ("inject" | "reduce", [first, Value::Symbol(operator)]) => {
                self.reduced(items.into_iter(), Some(first.clone()), &Rc::new(Closure::Name(operator.clone())))?
            }
            ("sum", []) => self.added(items, Value::Int(0))?,
            ("sum", [first]) => self.added(items, first.clone())?,
            ("sort", []) => {
                let sorted = self.sorted(items.into_iter().map(|item| (item.clone(), item)).collect())?;
                self.list(sorted)?
            }
            ("min" | "max", []) => {
                let mut items = items.into_iter();
                let Some(mut best) = items.next() else { return Ok(Some(Value::Nil)) };
                for item in items {
                    let order = self.order(&item, &best)?;
                    if (name == "min" && order.is_lt()) || (name == "max" && order.is_gt()) {
                        best = item;
                    }
                }
                best
            }
            ("to_a" | "entries", []) => self.list(items)?,
            ("to_h", []) => self.map_of_pairs(items)?,
            ("zip", [Value::Array(other)]) => {
                let other = other.items.borrow().clone();
                let mut pairs = Vec::with_capacity(count);
                for (index, item) in items.into_iter().enumerate() {
                    pairs.push(self.list(vec![item, other.get(index).cloned().unwrap_or(Value::Nil)])?);
                }
                self.list(pairs)?
            }
            ("tally", []) => {
                let mut counts: IndexMap<Key, i128> = IndexMap::new();
                for item in &items {
                    *counts.entry(self.key(item)?).or_default() += 1;
                }
                self.map(counts.into_iter().map(|(key, count)| (key, Value::Int(count))).collect())?
            }
            ("grep" | "grep_v", [pattern]) => {
                let mut kept = Vec::new();
                for item in items {
                    if self.case_equal(pattern, &item)? == (name == "grep") {
                        kept.push(item);
                    }
                }
                self.list(kept)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    pub(crate) fn map_of_pairs(&mut self, pairs: Vec<Value>) -> Answer {
        let mut entries = IndexMap::with_capacity(pairs.len());
        for pair in pairs {
            let pair = match &pair {
                Value::Array(pair) => pair.items.borrow().clone(),
                other => return self.refuse(format!("a map from {}", other.class_name())),
            };
            let [key, value] = pair.as_slice() else { return self.refuse("a map from such pairs") };
            entries.insert(self.key(key)?, value.clone());
        }
        self.map(entries)
    }
}
