//! Which method answers a call.

use std::rc::Rc;

use super::blocks::Arguments;
use super::scope::Closure;
use super::{Answer, Evaluator};
use crate::value::Value;

impl Evaluator<'_> {
    /// A call without a receiver.
    pub(super) fn call_own(&mut self, name: &str, arguments: Arguments, block: Option<Rc<Closure>>) -> Answer {
        if let Some(method) = self.methods.get(name).cloned() {
            return self.call_defined(&method, arguments, block);
        }
        if let Some(answer) = self.bound(name, &arguments, block.as_ref()) {
            return answer;
        }
        self.kernel(name, arguments, block)
    }

    pub(crate) fn call_method(
        &mut self,
        receiver: &Value,
        name: &str,
        arguments: Arguments,
        block: Option<Rc<Closure>>,
    ) -> Answer {
        self.work(1)?;
        // Members and methods of these come before those that all values have.
        match receiver {
            Value::Struct(object) => return self.struct_method(object, receiver, name, arguments, block),
            Value::Link(link) => return self.link_method(link, name, &arguments, block.as_ref()),
            Value::Instance(instance) => return self.instance_method(instance, name, &arguments, block.as_ref()),
            Value::Else(state) => return self.otherwise(state, name, &arguments, block.as_ref()),
            Value::Class(class) => return self.class_method(class, name, arguments, block),
            _ => {}
        }
        let own = match receiver {
            Value::Str(text) => self.text_method(text, name, &arguments, block.as_ref())?,
            Value::Symbol(symbol) => self.symbol_method(symbol, name, &arguments)?,
            Value::Int(int) => self.int_method(*int, name, &arguments, block.as_ref())?,
            Value::Float(float) => self.float_method(*float, name, &arguments)?,
            Value::Array(list) => self.array_method(list, name, &arguments, block.as_ref())?,
            Value::Hash(map) => self.map_method(map, name, &arguments, block.as_ref())?,
            Value::Range(range) => self.range_method(range, name, &arguments, block.as_ref())?,
            Value::Proc(closure) => match name {
                "call" | "()" | "yield" | "===" | "[]" => {
                    return self.invoke_with(closure, arguments);
                }
                _ => None,
            },
            Value::Error(error) => self.error_method(error, name, &arguments)?,
            Value::Pattern(pattern) => self.pattern_method(pattern, name, &arguments)?,
            Value::Match(found) => self.match_method(found, name, &arguments)?,
            Value::Enumerator(enumerator) => self.enumerator_method(enumerator, name, &arguments, block.as_ref())?,
            Value::Nil => self.nil_method(name, &arguments)?,
            _ => None,
        };
        match own {
            Some(value) => Ok(value),
            None => self.common_method(receiver, name, arguments, block),
        }
    }
}
