//! Structs: what `spec` and `properties` are made of.

use std::rc::Rc;

use super::common::unlisted;
use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::memory::Kept;
use crate::value::{Struct, Value};

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
        object: &Kept<Struct>,
        receiver: &Value,
        name: &str,
        arguments: Arguments,
        block: Option<Rc<Closure>>,
    ) -> Answer {
        let values = arguments.values.as_slice();
        let member = |name: &str| object.table.member(name);
        let is_protected = name.ends_with('!') || (object.of_spec && name == "methods");
        if let (Some(value), [], false) = (member(name), values, is_protected) {
            return Ok(value);
        }
        match (name, values) {
            ("methods", [Value::Bool(false)]) if object.of_spec => self.keys_of(&object.table),
            ("send" | "public_send", [asked @ (Value::Str(_) | Value::Symbol(_)), rest @ ..]) => {
                let Some(name) = asked.as_name() else { return self.refuse(unlisted(name, receiver)) };
                let rest = self.copy(rest)?;
                self.struct_method(object, receiver, &name, rest.into(), block)
            }
            ("marshal_dump", []) => Ok(Value::Hash(object.table.clone())),
            ("to_h", []) if block.is_none() => self.copied_map(&object.table).map(Value::Hash),
            ("[]", [name @ (Value::Str(_) | Value::Symbol(_))]) => {
                Ok(name.as_name().and_then(|name| member(&name)).unwrap_or(Value::Nil))
            }
            ("dig", [name @ (Value::Str(_) | Value::Symbol(_)), rest @ ..]) => {
                let found = name.as_name().and_then(|name| member(&name)).unwrap_or(Value::Nil);
                if rest.is_empty() || found.is_nil() {
                    return Ok(found);
                }
                let rest = self.copy(rest)?;
                self.call_method(&found, "dig", rest.into(), None)
            }
            ("respond_to?", [asked @ (Value::Str(_) | Value::Symbol(_))]) => {
                let Some(name) = asked.as_name() else { return self.refuse(unlisted(name, receiver)) };
                let known = BUILT_IN.contains(&&*name) || super::is_known(&name);
                match member(&name) {
                    Some(_) => Ok(Value::Bool(true)),
                    None if known => self.refuse(format!("'respond_to?' with '{}'", &*name)),
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
