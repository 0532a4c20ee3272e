//! Arrays: changes in place.

use std::rc::Rc;

use super::arrays::place;
use crate::evaluate::{Answer, Closure, Evaluator};
use crate::value::{List, Value};

pub(crate) const NAMES: &[&str] = &[
    "[]=",
    "<<",
    "push",
    "append",
    "pop",
    "shift",
    "unshift",
    "prepend",
    "concat",
    "delete",
    "delete_at",
    "delete_if",
    "keep_if",
    "clear",
    "sort!",
    "sort_by!",
    "map!",
    "collect!",
    "select!",
    "reject!",
    "uniq!",
    "compact!",
    "flatten!",
    "reverse!",
];

impl Evaluator<'_> {
    pub(crate) fn changed_array(
        &mut self,
        list: &Rc<List>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let same = || Some(Value::Array(Rc::clone(list)));
        match name {
            "map!" | "collect!" | "select!" | "reject!" | "uniq!" | "compact!" | "flatten!" | "sort!" | "sort_by!"
            | "reverse!" | "delete_if" | "keep_if" => return self.replaced_array(list, name, values, block),
            "<<" | "push" | "append" | "pop" | "shift" | "unshift" | "prepend" | "concat" | "delete" | "delete_at"
            | "clear" | "[]=" => {}
            _ => return Ok(None),
        }
        self.changeable_list(list)?;
        self.take(values.len() * 32)?;
        let mut items = list.items.borrow_mut();
        Ok(match (name, values) {
            ("<<", [value]) => {
                items.push(value.clone());
                same()
            }
            ("push" | "append", values) => {
                items.extend_from_slice(values);
                same()
            }
            ("pop", []) => Some(items.pop().unwrap_or(Value::Nil)),
            ("shift", []) => Some(if items.is_empty() { Value::Nil } else { items.remove(0) }),
            ("unshift" | "prepend", values) => {
                self.work(items.len())?;
                items.splice(0..0, values.iter().cloned());
                same()
            }
            ("concat", [Value::Array(other)]) if !Rc::ptr_eq(other, list) => {
                let other = other.items.borrow();
                self.take(other.len() * 32)?;
                items.extend(other.iter().cloned());
                same()
            }
            ("clear", []) => {
                items.clear();
                same()
            }
            ("delete_at", [Value::Int(index)]) => {
                let place = place(*index, items.len());
                Some(place.filter(|place| *place < items.len()).map_or(Value::Nil, |place| items.remove(place)))
            }
            ("delete", [value]) if block.is_none() => {
                let before = std::mem::take(&mut *items);
                drop(items);
                let mut deleted = Value::Nil;
                let mut kept = Vec::with_capacity(before.len());
                for item in before {
                    if self.equal(&item, value)? {
                        deleted = item;
                    } else {
                        kept.push(item);
                    }
                }
                list.items.replace(kept);
                Some(deleted)
            }
            ("[]=", [Value::Int(index), value]) => {
                let count = items.len();
                let at = if *index < 0 { index + count as i128 } else { *index };
                let Ok(at) = usize::try_from(at) else { return self.refuse("a place before the start") };
                if at >= count {
                    self.take((at - count).saturating_mul(32))?;
                    items.resize(at + 1, Value::Nil);
                }
                items[at] = value.clone();
                Some(value.clone())
            }
            _ => None,
        })
    }

    /// Methods that exist without `!`, too.
    fn replaced_array(
        &mut self,
        list: &Rc<List>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let plain = match name {
            "delete_if" => "reject",
            "keep_if" => "select",
            name => name.trim_end_matches('!'),
        };
        let before = list.items.borrow().len();
        let Some(Value::Array(new)) = self.array_method(list, plain, &values.to_vec().into(), block)? else {
            return Ok(None);
        };
        self.changeable_list(list)?;
        let new = new.items.borrow().clone();
        let tells = matches!(name, "select!" | "reject!" | "uniq!" | "compact!");
        if name == "flatten!" && new.len() == before {
            return self.refuse("what 'flatten!' answers");
        }
        let unchanged = tells && new.len() == before;
        list.items.replace(new);
        Ok(Some(if unchanged { Value::Nil } else { Value::Array(Rc::clone(list)) }))
    }

    fn changeable_list(&self, list: &List) -> Answer<()> {
        if list.frozen.get() {
            return self.refuse("a change of a frozen array");
        }
        if list.busy.get() > 0 {
            return self.refuse("a change of an array while it is walked through");
        }
        Ok(())
    }
}
