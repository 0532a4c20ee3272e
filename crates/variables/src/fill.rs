//! Values in the places of placeholders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use windlass_manifest::placeholders::{self, Piece, Placeholder};

/// What relative names are relative to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    folder: String,
}

impl Scope {
    pub fn of(director: &str, deployment: &str) -> Self {
        Self { folder: format!("/{director}/{deployment}/") }
    }

    /// The name under which a config server knows a variable.
    pub fn absolute(&self, name: &str) -> String {
        if name.starts_with('/') { name.to_owned() } else { format!("{}{name}", self.folder) }
    }

    /// As it is written where this is the scope.
    pub fn relative<'n>(&self, absolute: &'n str) -> &'n str {
        absolute.strip_prefix(&self.folder).unwrap_or(absolute)
    }

    /// The names of all variables that something needs.
    pub fn names_in<'v>(&self, values: impl IntoIterator<Item = &'v Value>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for value in values {
            placeholders::each(value, &mut |placeholder| {
                names.insert(self.absolute(placeholder.name()));
            });
        }
        names
    }
}

/// How many bytes of values may be put into one document, roughly.
const MOST: usize = 16 << 20;

/// Values of variables in memory, by their absolute names. They do not print themselves.
#[derive(Clone, PartialEq)]
pub struct Values {
    scope: Scope,
    by_name: BTreeMap<String, Value>,
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// why a value cannot be put into its place; never with the value
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum FillError {
    /// there is no value
    #[error("Failed to find variable '{0}' from config server: HTTP Code '404', Error: 'Name '{0}' not found'")]
    Missing(String),
    /// the value has no such part
    #[error(
        "Failed to fetch variable '{name}' from config server: Expected parent '{parent}' hash to have key '{key}'"
    )]
    NoPart { name: String, parent: String, key: String },
    /// only text and integers can stand within text
    #[error(
        "Failed to substitute variable: Can not replace '(({0}))' within a text. The value should be a String or an Integer."
    )]
    WithinText(String),
    /// a short placeholder may stand for a long value, and stand there very often
    #[error("values of variables have more than 16 MiB in all of their places together; put '(({0}))' into fewer")]
    TooMuch(String),
    /// two keys that become one
    #[error("two keys of one object become the same with the value of '(({0}))'")]
    SameKey(String),
}

impl Values {
    pub fn new(scope: Scope) -> Self {
        Self { scope, by_name: BTreeMap::new() }
    }

    pub fn insert(&mut self, name: String, value: Value) {
        self.by_name.insert(name, value);
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The first variable of something that has no value here, as it is written.
    pub fn lacks<'v>(&self, value: &'v Value) -> Option<&'v str> {
        let mut lacking = None;
        placeholders::each(value, &mut |placeholder: Placeholder<'v>| {
            if lacking.is_none() && !self.by_name.contains_key(&self.scope.absolute(placeholder.name())) {
                lacking = Some(placeholder.name());
            }
        });
        lacking
    }

    /// The same with values in the places of placeholders, or everything that is in the way, each once.
    pub fn fill(&self, value: &Value) -> Result<Value, BTreeSet<FillError>> {
        let mut filling = Filling { errors: BTreeSet::new(), left: MOST };
        let filled = self.filled(value, &mut filling);
        if filling.errors.is_empty() { Ok(filled) } else { Err(filling.errors) }
    }

    fn filled(&self, value: &Value, filling: &mut Filling) -> Value {
        match value {
            Value::String(text) => self.filled_text(text, filling),
            Value::Array(elements) => elements.iter().map(|element| self.filled(element, filling)).collect(),
            Value::Object(members) => {
                let mut filled = Map::new();
                for (key, member) in members {
                    let member = self.filled(member, filling);
                    let name = match self.filled_text(key, filling) {
                        Value::String(name) => name,
                        other => other.to_string(),
                    };
                    if filled.contains_key(&name) && name != *key {
                        filling.errors.insert(FillError::SameKey(key.clone()));
                    }
                    filled.insert(name, member);
                }
                Value::Object(filled)
            }
            other => other.clone(),
        }
    }

    fn filled_text(&self, text: &str, filling: &mut Filling) -> Value {
        if !text.contains("((") {
            return Value::String(text.to_owned());
        }
        let pieces = placeholders::pieces(text);
        if let [Piece::Placeholder(only)] = pieces[..] {
            return self.part(only, filling).cloned().unwrap_or_default();
        }
        let mut filled = String::new();
        for piece in pieces {
            let placeholder = match piece {
                Piece::Text(text) => {
                    filled.push_str(text);
                    continue;
                }
                Piece::Placeholder(placeholder) => placeholder,
            };
            match self.part(placeholder, filling) {
                None => {}
                Some(Value::String(text)) => filled.push_str(text),
                Some(Value::Number(number)) if !number.is_f64() => filled.push_str(&number.to_string()),
                Some(_) => {
                    filling.errors.insert(FillError::WithinText(placeholder.text.to_owned()));
                }
            }
        }
        Value::String(filled)
    }

    fn part(&self, placeholder: Placeholder<'_>, filling: &mut Filling) -> Option<&Value> {
        let name = self.scope.absolute(placeholder.name());
        let Some(mut value) = self.by_name.get(&name) else {
            filling.errors.insert(FillError::Missing(name));
            return None;
        };
        let mut parent = name.clone();
        for key in placeholder.parts() {
            let found = match value {
                Value::Object(members) => members.get(key),
                Value::Array(elements) => key.parse::<usize>().ok().and_then(|at| elements.get(at)),
                _ => None,
            };
            let Some(found) = found else {
                filling.errors.insert(FillError::NoPart { name, parent, key: key.to_owned() });
                return None;
            };
            parent = format!("{parent}.{key}");
            value = found;
        }
        let Some(left) = filling.left.checked_sub(size(value)) else {
            filling.left = 0;
            if !filling.errors.iter().any(|error| matches!(error, FillError::TooMuch(_))) {
                filling.errors.insert(FillError::TooMuch(placeholder.text.to_owned()));
            }
            return None;
        };
        filling.left = left;
        Some(value)
    }
}

/// What is in the way so far, and how many bytes of values there is room for.
struct Filling {
    errors: BTreeSet<FillError>,
    left: usize,
}

/// How many bytes a value takes, roughly.
pub fn size(value: &Value) -> usize {
    32 + match value {
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(size).sum(),
        Value::Object(members) => members.iter().map(|(key, member)| 32 + key.len() + size(member)).sum(),
        _ => 0,
    }
}

/// The same with absolute names, for readers in another scope.
pub fn with_absolute_names(value: &Value, scope: &Scope) -> Value {
    let rewritten = |text: &str| {
        let written = |piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Placeholder(placeholder) => format!("(({}))", scope.absolute(placeholder.text)),
        };
        placeholders::pieces(text).into_iter().map(written).collect::<String>()
    };
    match value {
        Value::String(text) if text.contains("((") => Value::String(rewritten(text)),
        Value::Array(elements) => elements.iter().map(|element| with_absolute_names(element, scope)).collect(),
        Value::Object(members) => {
            let member = |(key, member): (&String, &Value)| (rewritten(key), with_absolute_names(member, scope));
            Value::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values() -> Values {
        let mut values = Values::new(Scope::of("boss", "shop"));
        values.insert("/boss/shop/password".into(), json!("hunter2"));
        values.insert("/boss/shop/port".into(), json!(80));
        values.insert("/cert".into(), json!({"ca": "CA", "list": ["zero", "one"]}));
        values
    }

    #[test]
    fn values_keep_their_kind_where_they_stand_alone() {
        let given = json!({
            "a": "((password))", "b": ["((!port))", "x-((port))-((password))"], "c": "((/cert))", "d": "((/cert.list.1))",
            "((port))": 1, "e": "((not a name))",
        });
        let expected = json!({
            "a": "hunter2", "b": [80, "x-80-hunter2"], "c": {"ca": "CA", "list": ["zero", "one"]}, "d": "one",
            "80": 1, "e": "((not a name))",
        });
        assert_eq!(values().fill(&given).unwrap(), expected);
    }

    #[test]
    fn all_that_is_missing_is_named_at_once_and_no_value() {
        let given = json!(["((nothing))", "((/cert.key))", "a ((/cert))", "((nothing)) again", "((password.part))"]);
        let errors: Vec<_> = values().fill(&given).unwrap_err().iter().map(FillError::to_string).collect();
        let whole = errors.join("\n");
        assert_eq!(errors.len(), 4, "{whole}");
        assert!(whole.contains("'/boss/shop/nothing'") && whole.contains("hash to have key 'key'"), "{whole}");
        assert!(whole.contains("Can not replace '((/cert))'"), "{whole}");
        assert!(!whole.contains("hunter2") && !format!("{:?}", values()).contains("hunter2"));
        assert_eq!(values().lacks(&given), Some("nothing"));
    }

    /// 200 KB of placeholders for a password of 64 KiB would become 2.6 GB.
    #[test]
    fn values_in_very_many_places_are_refused_before_they_take_all_memory() {
        let mut values = values();
        values.insert("/boss/shop/long".into(), json!("x".repeat(1 << 16)));
        let often = json!({"text": "((long))".repeat(40_000), "list": vec!["((long))"; 40_000]});
        let errors: Vec<_> = values.fill(&often).unwrap_err().iter().map(FillError::to_string).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("more than 16 MiB") && errors[0].contains("((long))"), "{errors:?}");
        assert!(values.fill(&json!(vec!["((long))"; 200])).is_ok());
    }

    #[test]
    fn what_others_read_names_variables_absolutely() {
        let scope = Scope::of("boss", "shop");
        let given = json!({"a": "x ((password)) ((/cert.ca))"});
        assert_eq!(with_absolute_names(&given, &scope), json!({"a": "x ((/boss/shop/password)) ((/cert.ca))"}));
        assert_eq!(scope.names_in([&given]), BTreeSet::from(["/boss/shop/password".into(), "/cert".into()]));
    }
}
