//! Finding, replacing and removing what a path leads to.

use serde_json::{Map, Value, json};

use super::path::{Path, Step, Token};
use crate::original::key;

/// a path that does not fit the document
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// something of another kind
    #[error("there must be {expected} for '{path}', but there is {found}")]
    Kind {
        /// The path up to the part that needs it.
        path: String,
        /// What it needs.
        expected: &'static str,
        found: &'static str,
    },
    #[error("there is no key '{key}' for '{path}' ({})", siblings(.others))]
    NoKey {
        /// The path up to the key.
        path: String,
        key: String,
        /// The keys that there are.
        others: Vec<String>,
    },
    #[error("there is no element {index} for '{path}'; the list has {length}")]
    NoElement {
        /// The path up to the element.
        path: String,
        index: i64,
        /// How many there are.
        length: usize,
    },
    /// none or several elements match
    #[error("exactly one element must match '{path}', but {found} do")]
    Matches {
        /// The path up to the element.
        path: String,
        /// How many do.
        found: usize,
    },
    /// a step that leads nowhere here
    #[error("':{step}' has no meaning in '{path}'; it can only stand last, where something is added")]
    Step {
        /// The path up to the step.
        path: String,
        step: String,
    },
    /// `-` where nothing is added
    #[error("'-' in '{path}' is a place for something new, where nothing can be found or removed")]
    AfterLast { path: String },
    /// a number below something that is not there
    #[error("'{path}' counts elements of a list that does not exist; use '-' or KEY=VALUE to make one")]
    NothingToCount { path: String },
    #[error("a whole document cannot be removed")]
    Root,
    /// a test that failed
    #[error("the value at '{path}' is not the expected one")]
    Unexpected { path: String },
    /// a test that failed
    #[error("there is something at '{path}', although nothing is expected")]
    NotAbsent { path: String },
}

impl PatchError {
    /// Whether it is only the end of the path that is missing.
    pub(super) fn is_absence_of(&self, whole: &Path) -> bool {
        match self {
            Self::NoKey { path, .. } | Self::NoElement { path, .. } => *path == whole.to_string(),
            _ => false,
        }
    }
}

fn siblings(keys: &[String]) -> String {
    if keys.is_empty() { "there are no keys".to_owned() } else { format!("there are '{}'", keys.join("', '")) }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A place on the way along a path.
#[derive(Clone, Copy)]
struct Walk<'a> {
    path: &'a Path,
    at: usize,
}

impl<'a> Walk<'a> {
    fn token(self) -> Option<&'a Token> {
        self.path.tokens().get(self.at)
    }

    fn next(self) -> Self {
        Self { at: self.at + 1, ..self }
    }

    fn is_last(self) -> bool {
        self.at + 1 == self.path.tokens().len()
    }

    /// The path up to here, for messages.
    fn here(self) -> String {
        self.path.start(self.at + 1).to_string()
    }

    fn list(self, value: &mut Value) -> Result<&mut Vec<Value>, PatchError> {
        let found = kind(value);
        value.as_array_mut().ok_or_else(|| PatchError::Kind { path: self.here(), expected: "a list", found })
    }

    fn object(self, value: &mut Value) -> Result<&mut Map<String, Value>, PatchError> {
        let found = kind(value);
        value.as_object_mut().ok_or_else(|| PatchError::Kind { path: self.here(), expected: "an object", found })
    }

    fn no_key(self, name: &str, object: &Map<String, Value>) -> PatchError {
        let mut others: Vec<String> = object.keys().filter(|name| key::scalar(name).is_none()).cloned().collect();
        others.sort();
        PatchError::NoKey { path: self.here(), key: name.to_owned(), others }
    }

    /// The one element that matches; none if there is none and none is needed.
    fn matching(self, list: &[Value], name: &str, value: &str, optional: bool) -> Result<Option<i64>, PatchError> {
        let matches = |element: &Value| element.get(name).and_then(Value::as_str) == Some(value);
        let found: Vec<usize> = (0..list.len()).filter(|index| matches(&list[*index])).collect();
        match found[..] {
            [] if optional => Ok(None),
            [index] => Ok(i64::try_from(index).ok()),
            _ => Err(PatchError::Matches { path: self.here(), found: found.len() }),
        }
    }

    /// The element that an index and steps from it lead to.
    fn element(self, list: &[Value], index: i64, steps: &[Step]) -> Result<usize, PatchError> {
        let mut index = index;
        for step in steps {
            match step {
                Step::Previous => index -= 1,
                Step::Next => index += 1,
                Step::Before | Step::After => {
                    return Err(PatchError::Step { path: self.here(), step: step.to_string() });
                }
            }
        }
        let length = list.len();
        let counted = if index < 0 { index.checked_add_unsigned(length as u64) } else { Some(index) };
        counted
            .and_then(|index| usize::try_from(index).ok())
            .filter(|index| *index < length)
            .ok_or(PatchError::NoElement { path: self.here(), index, length })
    }

    /// Puts `value` in the place of an element or, with `:before` and `:after`, beside it.
    fn put(self, list: &mut Vec<Value>, index: i64, steps: &[Step], value: Value) -> Result<(), PatchError> {
        let (beside, steps) = match steps.split_last() {
            Some((step @ (Step::Before | Step::After), steps)) => (Some(step), steps),
            _ => (None, steps),
        };
        let element = self.element(list, index, steps)?;
        match beside {
            None => list[element] = value,
            Some(Step::After) => list.insert(element + 1, value),
            Some(_) => list.insert(element, value),
        }
        Ok(())
    }

    /// What is made for a key that is missing, so that the path can go on.
    fn made(self) -> Result<Value, PatchError> {
        match self.next().token() {
            Some(Token::AfterLast | Token::Matching { .. }) => Ok(json!([])),
            Some(Token::Key { .. }) => Ok(json!({})),
            _ => Err(PatchError::NothingToCount { path: self.next().here() }),
        }
    }
}

/// The value that a path leads to. What may be missing, and is, is null.
pub fn find(document: &Value, path: &Path) -> Result<Value, PatchError> {
    let mut value = document.clone();
    let mut walk = Walk { path, at: 0 };
    while let Some(token) = walk.token() {
        value = match token {
            Token::Key { key, optional } => {
                let object = walk.object(&mut value)?;
                match object.remove(key) {
                    Some(found) => found,
                    None if *optional && walk.is_last() => Value::Null,
                    None if *optional => walk.made()?,
                    None => return Err(walk.no_key(key, object)),
                }
            }
            Token::Index { index, steps } => {
                let list = walk.list(&mut value)?;
                let element = walk.element(list, *index, steps)?;
                list.swap_remove(element)
            }
            Token::Matching { key, value: wanted, optional, steps } => {
                let list = walk.list(&mut value)?;
                match walk.matching(list, key, wanted, *optional)? {
                    Some(index) => {
                        let element = walk.element(list, index, steps)?;
                        list.swap_remove(element)
                    }
                    None => json!({ key: wanted }),
                }
            }
            Token::AfterLast => return Err(PatchError::AfterLast { path: path.to_string() }),
        };
        walk = walk.next();
    }
    Ok(value)
}

/// Puts `value` where a path leads to, and makes what may be missing on the way.
pub fn replace(document: &mut Value, path: &Path, value: Value) -> Result<(), PatchError> {
    replace_at(document, Walk { path, at: 0 }, value)
}

fn replace_at(here: &mut Value, walk: Walk<'_>, value: Value) -> Result<(), PatchError> {
    let Some(token) = walk.token() else {
        *here = value;
        return Ok(());
    };
    match token {
        Token::Key { key, optional } => {
            let object = walk.object(here)?;
            if !object.contains_key(key) {
                if !optional {
                    return Err(walk.no_key(key, object));
                }
                let made = if walk.is_last() { Value::Null } else { walk.made()? };
                object.insert(key.clone(), made);
            }
            replace_at(&mut object[key], walk.next(), value)
        }
        Token::AfterLast => {
            walk.list(here)?.push(value);
            Ok(())
        }
        Token::Index { index, steps } => replace_element(walk.list(here)?, walk, *index, steps, value),
        Token::Matching { key, value: wanted, optional, steps } => {
            let list = walk.list(here)?;
            match walk.matching(list, key, wanted, *optional)? {
                Some(index) => replace_element(list, walk, index, steps, value),
                None if walk.is_last() => {
                    list.push(value);
                    Ok(())
                }
                None => {
                    let mut made = json!({ key: wanted });
                    replace_at(&mut made, walk.next(), value)?;
                    list.push(made);
                    Ok(())
                }
            }
        }
    }
}

fn replace_element(
    list: &mut Vec<Value>,
    walk: Walk<'_>,
    index: i64,
    steps: &[Step],
    value: Value,
) -> Result<(), PatchError> {
    if walk.is_last() {
        return walk.put(list, index, steps, value);
    }
    let element = walk.element(list, index, steps)?;
    replace_at(&mut list[element], walk.next(), value)
}

/// Removes what a path leads to. What may be missing, and is, is no mistake.
pub fn remove(document: &mut Value, path: &Path) -> Result<(), PatchError> {
    if path.tokens().is_empty() {
        return Err(PatchError::Root);
    }
    remove_at(document, Walk { path, at: 0 })
}

fn remove_at(here: &mut Value, walk: Walk<'_>) -> Result<(), PatchError> {
    let Some(token) = walk.token() else { return Ok(()) };
    match token {
        Token::Key { key, optional } => {
            let object = walk.object(here)?;
            match object.get_mut(key) {
                None if *optional => Ok(()),
                None => Err(walk.no_key(key, object)),
                Some(_) if walk.is_last() => {
                    object.shift_remove(key);
                    Ok(())
                }
                Some(below) => remove_at(below, walk.next()),
            }
        }
        Token::AfterLast => Err(PatchError::AfterLast { path: walk.path.to_string() }),
        Token::Index { index, steps } => remove_element(walk.list(here)?, walk, *index, steps),
        Token::Matching { key, value, optional, steps } => {
            let list = walk.list(here)?;
            match walk.matching(list, key, value, *optional)? {
                Some(index) => remove_element(list, walk, index, steps),
                None => Ok(()),
            }
        }
    }
}

fn remove_element(list: &mut Vec<Value>, walk: Walk<'_>, index: i64, steps: &[Step]) -> Result<(), PatchError> {
    let element = walk.element(list, index, steps)?;
    if walk.is_last() {
        list.remove(element);
        return Ok(());
    }
    remove_at(&mut list[element], walk.next())
}
