//! Methods without their block: `each_with_index.map`, `map.with_index`, `times.map`.

use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::Kept;
use crate::value::{Enumerator, Value};

pub(crate) const NAMES: &[&str] = &["with_index", "each_with_index", "with_object", "each_slice", "each_cons"];

impl Evaluator<'_> {
    /// The enumerator that a method of a collection gives without a block.
    pub(crate) fn enumerator(
        &mut self,
        origin: &Value,
        items: &Rc<Vec<Value>>,
        name: &str,
        values: &[Value],
    ) -> Answer<Option<Value>> {
        let (of, items) = match (name, values) {
            ("each" | "each_entry", []) => ("each", Rc::clone(items)),
            ("map" | "collect", []) => ("map", Rc::clone(items)),
            ("select" | "filter", []) if matches!(origin, Value::Array(_)) => ("select", Rc::clone(items)),
            ("each_with_index", []) => {
                let mut pairs = self.places(items.len())?;
                for (index, item) in items.iter().enumerate() {
                    pairs.push(self.list(vec![item.clone(), Value::Int(index as i128)])?);
                }
                ("each", pairs.into())
            }
            ("each_slice" | "each_cons", [Value::Int(size @ 1..)]) => {
                let size = usize::try_from(*size).unwrap_or(usize::MAX);
                let mut parts = self.places(items.len())?;
                if name == "each_slice" {
                    for slice in items.chunks(size) {
                        parts.push(self.copied(slice)?);
                    }
                } else {
                    for slice in items.windows(size) {
                        parts.push(self.copied(slice)?);
                    }
                }
                ("each", parts.into())
            }
            _ => return Ok(None),
        };
        if items.iter().any(|item| matches!(item, Value::Enumerator(_))) {
            return self.refuse("an enumerator of enumerators");
        }
        let indexed = name == "each_with_index";
        self.keep(Enumerator { items, of, indexed, origin: origin.clone() }).map(Value::Enumerator).map(Some)
    }

    pub(crate) fn enumerator_method(
        &mut self,
        enumerator: &Kept<Enumerator>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let items = &enumerator.items;
        let from = match (name, arguments.values.as_slice()) {
            ("with_index" | "each_with_index", []) => Some(0),
            ("with_index", [Value::Int(from)]) => Some(*from),
            _ => None,
        };
        if enumerator.indexed && from.is_none() && block.is_some_and(|block| !block.takes_pairs_apart()) {
            return self.refuse("a block that takes an element and its index as one");
        }
        match (from, enumerator.of, block) {
            (Some(from), of, Some(block)) => {
                let mut answers = self.places(items.len())?;
                for (index, item) in items.iter().enumerate() {
                    let answer = self.invoke(block, vec![item.clone(), Value::Int(from + index as i128)])?;
                    match of {
                        "map" => answers.push(answer),
                        "select" if answer.is_true() => answers.push(item.clone()),
                        _ => {}
                    }
                }
                if of == "each" { Ok(Some(enumerator.origin.clone())) } else { self.list(answers).map(Some) }
            }
            (Some(from), "each", None) => {
                let mut pairs = self.places(items.len())?;
                for (index, item) in items.iter().enumerate() {
                    pairs.push(self.list(vec![item.clone(), Value::Int(from + index as i128)])?);
                }
                let origin = enumerator.origin.clone();
                let pairs = Enumerator { items: pairs.into(), of: "each", indexed: true, origin };
                self.keep(pairs).map(Value::Enumerator).map(Some)
            }
            (None, "each", Some(block)) if name == "each" => {
                for item in items.iter() {
                    self.invoke(block, vec![item.clone()])?;
                }
                Ok(Some(enumerator.origin.clone()))
            }
            (None, "each", _) if !matches!(name, "size" | "inspect" | "to_s" | "==" | "to_json") => {
                self.enumerable(items, name, arguments, block)
            }
            _ => Ok(None),
        }
    }
}
