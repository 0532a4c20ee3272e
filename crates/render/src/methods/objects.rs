//! Structs: what `spec` and `properties` are made of.

use std::rc::Rc;

use super::common::unlisted;
use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::value::{Key, Struct, Value};

pub(crate) const NAMES: &[&str] =
    &["marshal_dump", "to_h", "[]", "respond_to?", "dig", "each_pair", "methods", "send", "public_send", "table"];

/// What Ruby's own structs answer without a member of that name, and we do not.
const BUILT_IN: &[&str] = &[
    "__id__",
    "__send__",
    "clone",
    "define_singleton_method",
    "delete_field",
    "display",
    "dup",
    "encode_with",
    "enum_for",
    "equal?",
    "extend",
    "freeze",
    "frozen?",
    "hash",
    "init_with",
    "inspect",
    "instance_eval",
    "instance_exec",
    "instance_of?",
    "instance_variable_defined?",
    "instance_variable_get",
    "instance_variable_set",
    "instance_variables",
    "itself",
    "method",
    "methods",
    "object_id",
    "private_methods",
    "protected_methods",
    "public_method",
    "public_methods",
    "public_send",
    "remove_instance_variable",
    "send",
    "singleton_class",
    "singleton_method",
    "singleton_methods",
    "table",
    "taint",
    "tainted?",
    "tap",
    "then",
    "to_enum",
    "to_json",
    "to_s",
    "to_yaml",
    "trust",
    "untaint",
    "untrust",
    "untrusted?",
    "yield_self",
    "to_openstruct",
    "html_safe?",
    "to_param",
    "to_query",
    "try",
    "try!",
    "in?",
    "instance_values",
    "instance_variable_names",
    "with_options",
    "acts_like?",
    "duplicable?",
    "deep_dup",
    "as_json",
    "presence_in",
    "psych_to_yaml",
    "pretty_print",
    "pretty_inspect",
    "is_a?",
    "kind_of?",
    "class",
    "respond_to?",
    "to_a",
    "to_ary",
    "to_str",
    "to_hash",
    "to_proc",
    "to_io",
    "to_i",
    "to_f",
];

impl Evaluator<'_> {
    pub(crate) fn struct_method(
        &mut self,
        object: &Rc<Struct>,
        receiver: &Value,
        name: &str,
        arguments: Arguments,
        block: Option<Rc<Closure>>,
    ) -> Answer {
        let values = arguments.values.as_slice();
        let member = |name: &str| object.table.entries.borrow().get(&Key::Symbol(name.into())).cloned();
        let is_protected = name.ends_with('!') || (object.of_spec && name == "methods");
        if let (Some(value), [], false) = (member(name), values, is_protected) {
            return Ok(value);
        }
        match (name, values) {
            ("methods", [Value::Bool(false)]) if object.of_spec => {
                let names = object.table.entries.borrow().keys().map(|key| self.heap.value(key)).collect();
                self.list(names)
            }
            ("send" | "public_send", [name, rest @ ..]) if name.as_name().is_some() => {
                let name = name.as_name().unwrap_or_default();
                self.struct_method(object, receiver, &name, rest.to_vec().into(), block)
            }
            ("marshal_dump", []) => Ok(Value::Hash(Rc::clone(&object.table))),
            ("to_h", []) if block.is_none() => self.map(object.table.entries.borrow().clone()),
            ("[]", [name]) if name.as_name().is_some() => {
                Ok(member(&name.as_name().unwrap_or_default()).unwrap_or(Value::Nil))
            }
            ("dig", [name, rest @ ..]) if name.as_name().is_some() => {
                let found = member(&name.as_name().unwrap_or_default()).unwrap_or(Value::Nil);
                if rest.is_empty() || found.is_nil() {
                    return Ok(found);
                }
                self.call_method(&found, "dig", rest.to_vec().into(), None)
            }
            ("respond_to?", [name]) if name.as_name().is_some() => {
                let name = name.as_name().unwrap_or_default();
                let known = BUILT_IN.contains(&name.as_str()) || super::is_known(&name);
                match member(&name) {
                    Some(_) => Ok(Value::Bool(true)),
                    None if known => self.refuse(format!("'respond_to?' with '{name}'")),
                    None => Ok(Value::Bool(false)),
                }
            }
            ("each_pair", []) => {
                let block = self.needed(block)?;
                for pair in self.pairs(&object.table)? {
                    self.invoke(&block, vec![pair])?;
                }
                Ok(receiver.clone())
            }
            ("is_a?" | "kind_of?" | "class" | "instance_of?", _) if object.of_spec => {
                self.refuse("the class of a part of 'spec'")
            }
            ("==" | "!=" | "!" | "nil?" | "blank?" | "present?" | "presence" | "is_a?" | "kind_of?" | "===", _) => {
                self.common_method(receiver, name, arguments, block)
            }
            (_, []) if !BUILT_IN.contains(&name) && block.is_none() && is_member_name(name) => Ok(Value::Nil),
            _ => self.refuse(unlisted(name, receiver)),
        }
    }
}

fn is_member_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && !name.ends_with(['!', '='])
}
