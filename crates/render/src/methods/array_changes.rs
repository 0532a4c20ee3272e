//! Arrays: changes in place.

use std::rc::Rc;

use super::arrays::place;
use crate::evaluate::{Answer, Closure, Evaluator};
use crate::memory::{Kept, List};
use crate::value::Value;

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
        list: &Kept<List>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let same = || Some(Value::Array(list.clone()));
        match name {
            "map!" | "collect!" | "select!" | "reject!" | "uniq!" | "compact!" | "flatten!" | "sort!" | "sort_by!"
            | "reverse!" | "delete_if" | "keep_if" => return self.replaced_array(list, name, values, block),
            "<<" | "push" | "append" | "pop" | "shift" | "unshift" | "prepend" | "concat" | "delete" | "delete_at"
            | "clear" | "[]=" => {}
            _ => return Ok(None),
        }
        self.changeable_list(list)?;
        Ok(match (name, values) {
            ("<<", [_]) | ("push" | "append", _) => {
                self.change_list(list, values.len(), |items| items.extend_from_slice(values))?;
                same()
            }
            ("pop", []) => Some(self.change_list(list, 0, Vec::pop)?.unwrap_or(Value::Nil)),
            ("shift", []) => Some(self.change_list(list, 0, |items| match items.is_empty() {
                true => Value::Nil,
                false => items.remove(0),
            })?),
            ("unshift" | "prepend", values) => {
                self.work(list.len())?;
                self.change_list(list, values.len(), |items| drop(items.splice(0..0, values.iter().cloned())))?;
                same()
            }
            ("concat", [Value::Array(other)]) if !other.is(list) => {
                let other = other.items();
                self.change_list(list, other.len(), |items| items.extend_from_slice(&other))?;
                same()
            }
            ("clear", []) => {
                self.replace_list(list, Rc::default());
                same()
            }
            ("delete_at", [Value::Int(index)]) => match place(*index, list.len()).filter(|place| *place < list.len()) {
                Some(place) => Some(self.change_list(list, 0, |items| items.remove(place))?),
                None => Some(Value::Nil),
            },
            ("delete", [value]) if block.is_none() => {
                let before = list.items();
                let mut deleted = Value::Nil;
                let mut kept = self.places(before.len())?;
                for item in before.iter() {
                    if self.equal(item, value)? {
                        deleted = item.clone();
                    } else {
                        kept.push(item.clone());
                    }
                }
                self.replace_list(list, kept.into());
                Some(deleted)
            }
            ("[]=", [Value::Int(index), value]) => {
                let count = list.len();
                let at = if *index < 0 { index + count as i128 } else { *index };
                let Ok(at) = usize::try_from(at) else { return self.refuse("a place before the start") };
                let added = (at + 1).saturating_sub(count);
                self.change_list(list, added, |items| {
                    if at >= count {
                        items.resize(at + 1, Value::Nil);
                    }
                    items[at] = value.clone();
                })?;
                Some(value.clone())
            }
            _ => None,
        })
    }

    /// Methods that exist without `!`, too.
    fn replaced_array(
        &mut self,
        list: &Kept<List>,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let plain = match name {
            "delete_if" => "reject",
            "keep_if" => "select",
            name => name.trim_end_matches('!'),
        };
        let before = list.len();
        let Some(Value::Array(new)) = self.array_method(list, plain, &values.to_vec().into(), block)? else {
            return Ok(None);
        };
        self.changeable_list(list)?;
        let new = new.items();
        let tells = matches!(name, "select!" | "reject!" | "uniq!" | "compact!");
        if name == "flatten!" && new.len() == before {
            return self.refuse("what 'flatten!' answers");
        }
        let unchanged = tells && new.len() == before;
        self.replace_list(list, new);
        Ok(Some(if unchanged { Value::Nil } else { Value::Array(list.clone()) }))
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
