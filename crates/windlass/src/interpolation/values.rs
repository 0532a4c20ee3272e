//! The values of variables, from wherever the flags say.

use std::path::Path;

use serde_json::{Map, Value};
use windlass_manifest::interpolate::{Definition, Source, SourceError};
use windlass_manifest::{Content, Document, original};

use super::store::Store;
use super::{InterpolationArgs, InterpolationError, expand_home, read};

/// What is given comes before what is stored or made.
#[derive(Debug)]
pub(super) struct Values {
    given: Map<String, Value>,
    store: Option<Store>,
}

impl Values {
    /// A single variable comes before a file of them, and a file before the environment.
    pub(super) fn read(flags: &InterpolationArgs) -> Result<Self, InterpolationError> {
        let mut given = Map::new();
        for prefix in &flags.vars_envs {
            given.extend(from_environment(prefix, std::env::vars())?);
        }
        for path in &flags.vars_files {
            given.extend(read_variables(path, &read(path)?)?);
        }
        for pair in &flags.var_files {
            let (name, path) = split(pair, "--var-file", "PATH")?;
            given.insert(name.to_owned(), Value::String(read(path.as_ref())?));
        }
        for pair in &flags.vars {
            let (name, text) = split(pair.reveal(), "--var", "VALUE")?;
            given.insert(name.to_owned(), value(name, text)?);
        }
        let open = |path| Store::open(path, !flags.only_look);
        let store = flags.vars_store.as_deref().map(expand_home).map(open).transpose()?;
        Ok(Self { given: nested(given)?, store })
    }
}

impl Source for Values {
    fn get(&mut self, definition: &Definition) -> Result<Option<Value>, SourceError> {
        let Self { given, store } = self;
        match (given.get(&definition.name), store) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, Some(store)) => Ok(store.get(definition, given)?),
            (None, None) => Ok(None),
        }
    }

    fn names(&self) -> Vec<String> {
        let stored = self.store.iter().flat_map(Store::names);
        self.given.keys().map(String::as_str).chain(stored).map(str::to_owned).collect()
    }
}

fn split<'a>(pair: &'a str, flag: &'static str, value: &'static str) -> Result<(&'a str, &'a str), InterpolationError> {
    let parts = pair.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    parts.ok_or(InterpolationError::Pair { flag, value })
}

/// YAML, except that text stays as it was typed, without the quotes around it.
fn value(name: &str, text: &str) -> Result<Value, InterpolationError> {
    let parsed = original::parse(text).map_err(|source| InterpolationError::Value { name: name.to_owned(), source })?;
    if !parsed.is_string() {
        return Ok(parsed);
    }
    let unquoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    Ok(Value::String(unquoted.unwrap_or(text).to_owned()))
}

/// The variables in a YAML file. The name of a variable is text, whatever it looks like.
pub(super) fn read_variables(path: &Path, text: &str) -> Result<Map<String, Value>, InterpolationError> {
    let invalid = |source| InterpolationError::Yaml { path: path.to_owned(), source };
    let named = Document::parse(text).map_err(invalid)?;
    match (&named.node().content, original::parse(text).map_err(invalid)?) {
        (Content::Null, _) => Ok(Map::new()),
        (Content::Object(names), Value::Object(values)) => {
            Ok(names.keys().cloned().zip(values.into_iter().map(|(_, value)| value)).collect())
        }
        _ => Err(InterpolationError::NoVariables { path: path.to_owned() }),
    }
}

fn from_environment(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Map<String, Value>, InterpolationError> {
    if prefix.is_empty() {
        return Err(InterpolationError::EmptyPrefix);
    }
    let prefix = format!("{prefix}_");
    let named = variables.filter_map(|(name, text)| Some((name.strip_prefix(&prefix)?.to_owned(), text)));
    let read = |(name, text): (String, String)| match original::parse(&text) {
        Ok(value) => Ok((name, value)),
        Err(source) => Err(InterpolationError::Value { name, source }),
    };
    named.map(read).collect()
}

/// A name such as `a.b` is a part of the variable `a`.
fn nested(given: Map<String, Value>) -> Result<Map<String, Value>, InterpolationError> {
    let (parts, mut whole): (Map<_, _>, Map<_, _>) = given.into_iter().partition(|(name, _)| name.contains('.'));
    for (name, value) in parts {
        let mut pieces: Vec<&str> = name.split('.').collect();
        let last = pieces.pop().unwrap_or_default();
        let mut object = &mut whole;
        for piece in pieces {
            let below = object.entry(piece).or_insert_with(|| Value::Object(Map::new()));
            let in_the_way = || InterpolationError::PartOfScalar { outer: piece.to_owned(), name: name.clone() };
            object = below.as_object_mut().ok_or_else(in_the_way)?;
        }
        object.insert(last.to_owned(), value);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::Secret;

    use super::*;

    fn from(flags: &InterpolationArgs) -> Value {
        Value::Object(Values::read(flags).unwrap().given)
    }

    #[test]
    fn a_single_variable_comes_before_files_and_they_before_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let flags = InterpolationArgs {
            vars: vec![Secret::new("a=1"), Secret::new("b.c=\"x\ny\""), Secret::new("d={e: f}")],
            var_files: vec![format!("key={}", path("key", "line\n").display())],
            vars_files: vec![path("1.yml", "a: 2\ng: 2\n8080: 2\nn: 2\n"), path("2.yml", "g: 3\nb: {h: 3}\n")],
            ..InterpolationArgs::default()
        };
        let expected = json!({
            "a": 1, "g": 3, "8080": 2, "n": 2, "b": {"h": 3, "c": "x\ny"}, "key": "line\n", "d": {"e": "f"},
        });
        assert_eq!(from(&flags), expected);
    }

    #[test]
    fn the_environment_gives_variables_by_their_prefix() {
        let variables = [("MY_a", "1"), ("MY_b", "[x]"), ("MYa", "2"), ("OTHER", "3")];
        let variables = variables.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(Value::Object(from_environment("MY", variables).unwrap()), json!({"a": 1, "b": ["x"]}));
    }

    #[test]
    fn a_wrong_flag_is_named_without_its_value() {
        let flags = InterpolationArgs { vars: vec![Secret::new("hunter2")], ..InterpolationArgs::default() };
        let message = Values::read(&flags).unwrap_err().to_string();
        assert_eq!(message, "'--var' takes NAME=VALUE, both not empty");
    }
}
