//! `((variables))` in documents.
//!
//! [`interpolate`] puts the values of a [`Source`] in their places. A source may also make values: the document says how
//! in its `variables`, and definitions whose value is known are taken out of it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::original::key;
use crate::patch::{self, PatchError, Path, Token};
use crate::{Content, original};

/// Where the values of variables come from.
pub trait Source {
    /// The value; none if there is none and none can be made.
    fn get(&mut self, definition: &Definition) -> Result<Option<Value>, SourceError>;

    /// The names that a document is expected to use.
    fn names(&self) -> Vec<String>;
}

/// why a source failed
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// How a value is made, if it has to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definition {
    pub name: String,
    /// Such as `password`; none for a variable that cannot be made.
    pub kind: Option<String>,
    /// What the kind needs.
    pub options: Value,
}

/// What is a mistake.
#[derive(Debug, Clone, Copy, Default)]
pub struct Strictness {
    /// A variable without a value.
    pub missing: bool,
    /// A value that is not used.
    pub unused: bool,
}

/// a document whose variables cannot be put in
#[derive(Debug, thiserror::Error)]
pub enum InterpolateError {
    /// variables without a value
    #[error("no value for {}", quoted(.0))]
    Missing(Vec<String>),
    /// values that nothing uses
    #[error("nothing uses {}", quoted(.0))]
    Unused(Vec<String>),
    #[error("no value for {}, and nothing uses {}", quoted(.missing), quoted(.unused))]
    MissingAndUnused {
        /// Without a value.
        missing: Vec<String>,
        /// Without a use.
        unused: Vec<String>,
    },
    /// a part of a value that is not there
    #[error("'(({name}))' names a part that the variable's value does not have")]
    Part {
        /// The variable with its path.
        name: String,
        #[source]
        source: PatchError,
    },
    /// something that cannot stand within text
    #[error("'(({name}))' stands within text, but its value is {found}; only text and integers can")]
    WithinText {
        name: String,
        /// What its value is.
        found: &'static str,
    },
    /// something that cannot be a key
    #[error("'(({name}))' is a key, but its value is {found}")]
    Key {
        name: String,
        /// What its value is.
        found: &'static str,
    },
    /// two keys that become one
    #[error("two keys of one object become '{0}'")]
    SameKey(String),
    /// definitions that lead to themselves
    #[error("the definition of the variable '{0}' needs the variable itself")]
    Recursion(String),
    /// no value and no way to make one
    #[error("the variable '{name}' cannot be had")]
    Source {
        name: String,
        #[source]
        source: SourceError,
    },
    /// definitions that cannot be read
    #[error("variables[{index}] must have a 'name', and 'name' and 'type' must be text")]
    Definition {
        /// Which, from 0.
        index: usize,
    },
    /// definitions that cannot be read
    #[error("'variables' must be a list of definitions, not {found}")]
    Definitions { found: &'static str },
    /// a definition that stands twice
    #[error("the variable '{0}' is defined more than once; remove all definitions but one")]
    Twice(String),
}

fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    quoted.join(", ")
}

/// The document with values in the places of its variables. A variable without a value stays as it is, unless that
/// is a mistake.
pub fn interpolate(
    document: Value,
    source: &mut dyn Source,
    strictness: Strictness,
) -> Result<Value, InterpolateError> {
    let definitions = definitions(&document)?;
    let mut variables = Variables { source, definitions, missing: BTreeSet::new(), used: BTreeSet::new() };
    // In their order, so that a certificate comes after its authority.
    for definition in variables.definitions.clone() {
        if definition.kind.is_some() {
            variables.whole(&definition.name, &[])?;
        }
    }
    let mut document = variables.put_in(document, &[])?;
    for definition in variables.definitions.clone() {
        if variables.whole(&definition.name, &[])?.is_some() {
            take_out(&mut document, definition.name)?;
        }
    }
    variables.check(strictness)?;
    Ok(document)
}

fn definitions(document: &Value) -> Result<Vec<Definition>, InterpolateError> {
    let listed = match document.get("variables") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(InterpolateError::Definitions { found: kind_of(other) }),
    };
    let read = |(index, listed): (usize, &Value)| {
        let text = |name: &str| match listed.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(InterpolateError::Definition { index }),
        };
        let name = text("name")?.ok_or(InterpolateError::Definition { index })?;
        let kind = text("type")?.filter(|kind| !kind.is_empty());
        Ok(Definition { name, kind, options: listed.get("options").cloned().unwrap_or_default() })
    };
    listed.iter().enumerate().map(read).collect()
}

fn take_out(document: &mut Value, name: String) -> Result<(), InterpolateError> {
    let path = Path::from_tokens(vec![
        Token::Key { key: "variables".to_owned(), optional: true },
        Token::Matching { key: "name".to_owned(), value: name.clone(), optional: false, steps: Vec::new() },
    ]);
    patch::remove(document, &path).map_err(|_| InterpolateError::Twice(name))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

struct Variables<'a> {
    source: &'a mut dyn Source,
    definitions: Vec<Definition>,
    missing: BTreeSet<String>,
    used: BTreeSet<String>,
}

impl Variables<'_> {
    /// Puts values into everything below `value`. `within` are the variables whose definitions are being looked at.
    fn put_in(&mut self, value: Value, within: &[&str]) -> Result<Value, InterpolateError> {
        match value {
            Value::String(text) => self.put_into_text(text, within),
            Value::Array(values) => {
                let values = values.into_iter().map(|value| self.put_in(value, within));
                values.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Value::Object(entries) => {
                let mut object = serde_json::Map::new();
                for (name, value) in entries {
                    let value = self.put_in(value, within)?;
                    let name = self.put_into_key(name, within)?;
                    if object.contains_key(&name) {
                        return Err(InterpolateError::SameKey(key::name(&name).to_owned()));
                    }
                    object.insert(name, value);
                }
                Ok(Value::Object(object))
            }
            other => Ok(other),
        }
    }

    fn put_into_key(&mut self, name: String, within: &[&str]) -> Result<String, InterpolateError> {
        if !name.contains("((") {
            return Ok(name);
        }
        let content = match self.put_into_text(name.clone(), within)? {
            Value::String(text) => Content::String(text),
            Value::Null => Content::Null,
            Value::Bool(boolean) => Content::Boolean(boolean),
            Value::Number(number) => Content::Number(number),
            other => return Err(InterpolateError::Key { name: bare(&name), found: kind_of(&other) }),
        };
        original::key_of(&content).ok_or_else(|| InterpolateError::Key { name: bare(&name), found: "no possible key" })
    }

    fn put_into_text(&mut self, text: String, within: &[&str]) -> Result<Value, InterpolateError> {
        let mut text = text;
        for reference in references(&text) {
            let Some(value) = self.part(&reference.name, within)? else { continue };
            // A value keeps its kind where it is all there is.
            if reference.whole {
                return Ok(value);
            }
            let inserted = match &value {
                Value::String(text) => text.clone(),
                Value::Number(number) if !number.is_f64() => number.to_string(),
                other => {
                    return Err(InterpolateError::WithinText { name: reference.name, found: kind_of(other) });
                }
            };
            text = text.replace(&format!("(({}))", reference.name), &inserted);
            text = text.replace(&format!("((!{}))", reference.name), &inserted);
        }
        Ok(Value::String(text))
    }

    /// The value of `a`, or what `b` names in it for `a.b`.
    fn part(&mut self, name: &str, within: &[&str]) -> Result<Option<Value>, InterpolateError> {
        let (whole, rest) = name.split_once('.').map_or((name, None), |(whole, rest)| (whole, Some(rest)));
        let Some(value) = self.whole(whole, within)? else { return Ok(None) };
        let Some(rest) = rest else { return Ok(Some(value)) };
        // What may stand in a name can be no mistake in a path.
        let path: Path = format!("/{}", rest.replace('.', "/")).parse().unwrap_or_default();
        patch::find(&value, &path)
            .or_else(|_| patch::find(&value, &path.with_numbers_as_keys()))
            .map(Some)
            .map_err(|source| InterpolateError::Part { name: name.to_owned(), source })
    }

    fn whole(&mut self, name: &str, within: &[&str]) -> Result<Option<Value>, InterpolateError> {
        self.used.insert(name.to_owned());
        if within.contains(&name) {
            return Err(InterpolateError::Recursion(name.to_owned()));
        }
        let defined = self.definitions.iter().find(|definition| definition.name == name).cloned();
        let mut definition = defined.unwrap_or_else(|| Definition { name: name.to_owned(), ..Definition::default() });
        let missing_before = self.missing.len();
        let within: Vec<&str> = within.iter().copied().chain([name]).collect();
        definition.options = self.put_in(definition.options, &within)?;
        let incomplete = self.missing.len() > missing_before || has_missing(&definition.options, &self.missing);
        if incomplete {
            return Ok(None);
        }
        let value = self.source.get(&definition);
        let value = value.map_err(|source| InterpolateError::Source { name: name.to_owned(), source })?;
        if value.is_none() {
            self.missing.insert(name.to_owned());
        }
        Ok(value)
    }

    fn check(&self, strictness: Strictness) -> Result<(), InterpolateError> {
        let missing: Vec<_> = self.missing.iter().filter(|_| strictness.missing).cloned().collect();
        let unused: BTreeSet<_> = self.source.names().into_iter().filter(|name| !self.used.contains(name)).collect();
        let unused: Vec<_> = unused.into_iter().filter(|_| strictness.unused).collect();
        match (missing.is_empty(), unused.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => Err(InterpolateError::Missing(missing)),
            (true, false) => Err(InterpolateError::Unused(unused)),
            (false, false) => Err(InterpolateError::MissingAndUnused { missing, unused }),
        }
    }
}

/// Whether options still hold a variable that is known to be missing.
fn has_missing(options: &Value, missing: &BTreeSet<String>) -> bool {
    match options {
        Value::String(text) => references(text)
            .iter()
            .any(|reference| missing.contains(reference.name.split('.').next().unwrap_or_default())),
        Value::Array(values) => values.iter().any(|value| has_missing(value, missing)),
        Value::Object(entries) => entries.values().any(|value| has_missing(value, missing)),
        _ => false,
    }
}

/// A variable in text.
struct Reference {
    /// With its path, without `!`.
    name: String,
    /// Whether there is nothing else in the text.
    whole: bool,
}

/// `((name))`, `(( name ))`, `((!name))`, `((name.part))`, `((/absolute/name))`.
fn references(text: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("((").map(|at| at + from) {
        match reference_at(&text[at + 2..]) {
            Some((name, length)) => {
                let end = at + 2 + length;
                found.push(Reference { name, whole: at == 0 && end == text.len() });
                from = end;
            }
            None => from = at + 1,
        }
    }
    found
}

/// The name behind `((`, and how much of the text it takes with its `))`.
fn reference_at(text: &str) -> Option<(String, usize)> {
    let inner = text.strip_prefix(' ').unwrap_or(text);
    let named = inner.strip_prefix('!').unwrap_or(inner);
    let in_name = |c: char| c.is_alphanumeric() || "-/._".contains(c);
    let length = named.find(|c| !in_name(c)).unwrap_or(named.len());
    let (name, rest) = named.split_at(length);
    let rest = rest.strip_prefix(' ').unwrap_or(rest).strip_prefix("))")?;
    (!name.is_empty()).then(|| (name.to_owned(), text.len() - rest.len()))
}

fn bare(text: &str) -> String {
    references(text).into_iter().next().map_or_else(|| text.to_owned(), |reference| reference.name)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use serde_json::json;

    use super::*;

    /// Knows some values and makes up the rest.
    struct Known(serde_json::Map<String, Value>);

    impl Source for Known {
        fn get(&mut self, definition: &Definition) -> Result<Option<Value>, SourceError> {
            if let Some(kind) = &definition.kind {
                let made = json!(format!("a {kind} with {}", definition.options));
                self.0.entry(&definition.name).or_insert(made);
            }
            Ok(self.0.get(&definition.name).cloned())
        }

        fn names(&self) -> Vec<String> {
            self.0.keys().cloned().collect()
        }
    }

    fn known(values: Value) -> Known {
        Known(values.as_object().cloned().unwrap_or_default())
    }

    fn put_in(document: Value, values: Value) -> Result<Value, InterpolateError> {
        interpolate(document, &mut known(values), Strictness::default())
    }

    fn explain(error: &InterpolateError) -> String {
        error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
    }

    #[test]
    fn values_keep_their_kind_and_join_text() {
        let document = json!({
            "whole": "((list))", "spaced": "(( port ))", "bang": "((!port))", "text": "http://((host)):((port))/((!host))",
            "part": "((tls.ca))", "numbered": "((list.1))", "by_number": "((map.7))", "((host))": "key", "unknown": "((x))-((host))",
            "not": ["((a b))", "((", "(())", "(((host))"],
        });
        let values = json!({"list": [1, 2], "port": 8080, "host": "h", "tls": {"ca": "CA"}, "map": {"7": "seven"}});
        let expected = json!({
            "whole": [1, 2], "spaced": 8080, "bang": 8080, "text": "http://h:8080/h", "part": "CA", "numbered": 2,
            "by_number": "seven", "h": "key", "unknown": "((x))-h", "not": ["((a b))", "((", "(())", "(h"],
        });
        assert_eq!(put_in(document, values).unwrap(), expected);
    }

    #[test]
    fn definitions_are_made_in_order_and_taken_out() {
        let document = json!({
            "a": "((b))",
            "variables": [
                {"name": "a", "type": "ca", "options": {"cn": "((cn))"}},
                {"name": "b", "type": "leaf", "options": {"ca": "((a))"}},
                {"name": "c"},
            ],
        });
        let made = put_in(document, json!({"cn": "x"})).unwrap();
        assert_eq!(made["variables"], json!([{"name": "c"}]));
        assert_eq!(made["a"], r#"a leaf with {"ca":"a ca with {\"cn\":\"x\"}"}"#);
    }

    #[test]
    fn what_is_missing_or_unused_can_be_a_mistake() {
        let strict = Strictness { missing: true, unused: true };
        let document = json!({"a": "((b)) ((c)) ((d))", "variables": [{"name": "c", "type": "t", "options": "((e))"}]});
        let error = interpolate(document, &mut known(json!({"b": "x", "f": 1})), strict).unwrap_err();
        assert_eq!(error.to_string(), "no value for 'd', 'e', and nothing uses 'f'");
    }

    #[test]
    fn mistakes_are_named() {
        let refusal = |document, values| explain(&put_in(document, values).unwrap_err());
        assert_eq!(
            refusal(json!("x((a))"), json!({"a": [1]})),
            "'((a))' stands within text, but its value is a list; only text and integers can"
        );
        assert_eq!(
            refusal(json!("((a.b))"), json!({"a": {"c": 1}})),
            "'((a.b))' names a part that the variable's value does not have: there is no key 'b' for '/b' (there are 'c')"
        );
        assert_eq!(
            refusal(json!({"variables": [{"name": "a", "type": "t", "options": "((a))"}]}), json!({})),
            "the definition of the variable 'a' needs the variable itself"
        );
        assert_eq!(
            refusal(json!({"variables": {}}), json!({})),
            "'variables' must be a list of definitions, not an object"
        );
        assert_eq!(refusal(json!({"((a))": 1, "b": 2}), json!({"a": "b"})), "two keys of one object become 'b'");
    }
}
