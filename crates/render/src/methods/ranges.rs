//! Ranges of whole numbers, and of strings as far as they only ask what is between.

use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::Kept;
use crate::value::{Span, Value};

pub(crate) const NAMES: &[&str] = &[
    "to_a",
    "entries",
    "first",
    "last",
    "begin",
    "end",
    "min",
    "max",
    "size",
    "include?",
    "cover?",
    "member?",
    "each",
    "exclude_end?",
];

impl Evaluator<'_> {
    pub(crate) fn range_method(
        &mut self,
        range: &Kept<Span>,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let found = match (name, arguments.values.as_slice()) {
            ("begin", []) => range.from.clone(),
            ("end", []) => range.to.clone(),
            ("first", []) if matches!(range.from, Value::Int(_)) => range.from.clone(),
            ("last", []) if matches!(range.to, Value::Int(_)) => range.to.clone(),
            ("exclude_end?", []) => Value::Bool(range.exclusive),
            ("to_a" | "entries", []) => {
                let elements = self.elements(range)?;
                self.list(elements)?
            }
            ("size" | "count", []) if block.is_none() => Value::Int(self.elements(range)?.len() as i128),
            ("include?" | "cover?" | "member?" | "===", [value @ Value::Int(_)]) => {
                Value::Bool(self.covers(range, value)?)
            }
            ("each" | "each_with_index" | "reverse_each" | "each_slice", values) => {
                let elements = self.elements(range)?;
                let Some(block) = block else {
                    return self.enumerator(&Value::Range(range.clone()), &elements.into(), name, values);
                };
                let done = self.each(&elements, name, values, block)?;
                return Ok(done.then(|| Value::Range(range.clone())));
            }
            ("to_s" | "==" | "!=" | "nil?" | "inspect", _) => return Ok(None),
            _ => {
                let elements = self.elements(range)?.into();
                if block.is_none()
                    && let Some(value) =
                        self.enumerator(&Value::Range(range.clone()), &elements, name, &arguments.values)?
                {
                    return Ok(Some(value));
                }
                return self.enumerable(&elements, name, arguments, block);
            }
        };
        Ok(Some(found))
    }

    /// The numbers of a range.
    pub(crate) fn elements(&mut self, range: &Span) -> Answer<Vec<Value>> {
        match (&range.from, &range.to) {
            (Value::Int(from), Value::Int(to)) if from.abs() < 1 << 60 && to.abs() < 1 << 60 => {
                self.numbers(*from, *to - i128::from(range.exclusive), 1)
            }
            _ => self.refuse("a range that is not of whole numbers"),
        }
    }

    /// Whether a value is between the ends.
    pub(crate) fn covers(&mut self, range: &Span, value: &Value) -> Answer<bool> {
        let comparable = |value: &Value| matches!(value, Value::Int(_) | Value::Float(_));
        match (&range.from, &range.to) {
            (from, to) if comparable(from) && comparable(to) => {
                if !comparable(value) {
                    return Ok(false);
                }
                let above = self.order(from, value)?.is_le();
                let order = self.order(value, to)?;
                Ok(above && if range.exclusive { order.is_lt() } else { order.is_le() })
            }
            _ => self.refuse("a range that is not of numbers"),
        }
    }

    /// Where a range of places starts in something of that length, and how long it is.
    pub(crate) fn bounds(&mut self, range: &Span, length: usize) -> Answer<Option<(usize, usize)>> {
        let length = length as i128;
        let from = match range.from {
            Value::Int(from) => from,
            Value::Nil => 0,
            _ => return self.refuse("a part by this range"),
        };
        let (to, exclusive) = match range.to {
            Value::Int(to) => (to, range.exclusive),
            Value::Nil => (-1, false),
            _ => return self.refuse("a part by this range"),
        };
        let start = if from < 0 { from + length } else { from };
        if start < 0 || start > length {
            return Ok(None);
        }
        let end = if to < 0 { to + length } else { to };
        let end = (end + i128::from(!exclusive)).clamp(start, length.max(start));
        match (usize::try_from(start), usize::try_from(end - start)) {
            (Ok(start), Ok(count)) => Ok(Some((start, count))),
            _ => self.refuse("a part by this range"),
        }
    }
}
