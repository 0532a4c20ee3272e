//! Operations on documents: what stands in the files that `-o` takes.
//!
//! ```
//! use windlass_manifest::patch::Operations;
//! let operations = Operations::parse("- {type: replace, path: /groups/name=web/size?, value: 3}")?;
//! let changed = operations.apply(serde_json::json!({"groups": [{"name": "web"}]}))?;
//! assert_eq!(changed, serde_json::json!({"groups": [{"name": "web", "size": 3}]}));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod path;

use serde_json::Value;

use crate::{At, Document, ParseError, Problem, original};
pub use apply::{PatchError, find, remove, replace};
pub(crate) use path::Token;
pub use path::{Path, PathError};

/// Operations, in the order in which they are carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operations(Vec<Operation>);

#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Replace { path: Path, value: Value },
    Remove { path: Path },
    Test { path: Path, expected: Expected },
}

#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Value(Value),
    Absence,
}

/// a file of operations that cannot be used
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationsError {
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// an operation without a part that it needs
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// an operation that does not fit the document
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} does not fit the document")]
pub struct OperationFailed {
    /// Which one, from 0.
    pub index: usize,
    #[source]
    pub source: PatchError,
}

impl Operations {
    /// Reads a file of operations.
    pub fn parse(text: &str) -> Result<Self, OperationsError> {
        let document = Document::parse(text)?;
        // Values mean what the original takes them for; the tree with positions is for the mistakes.
        let values = original::parse(text)?;
        let list = match document.node().content {
            crate::Content::Null => Vec::new(),
            _ => document.root().list()?,
        };
        let value_of = |index: usize| values.get(index).and_then(|operation| operation.get("value")).cloned();
        let read = |(index, at): (usize, &At<'_>)| operation(at, value_of(index).filter(|value| !value.is_null()));
        Ok(Self(list.iter().enumerate().map(read).collect::<Result<_, _>>()?))
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Carries them out, one after the other.
    pub fn apply(&self, document: Value) -> Result<Value, OperationFailed> {
        let mut document = document;
        for (index, operation) in self.0.iter().enumerate() {
            operation.apply(&mut document).map_err(|source| OperationFailed { index, source })?;
        }
        Ok(document)
    }
}

fn operation(at: &At<'_>, value: Option<Value>) -> Result<Operation, Problem> {
    let kind = at.field("type")?;
    let path_at = at.field("path")?;
    let path: Path = path_at.string()?.parse().map_err(|error: PathError| path_at.problem(error.to_string()))?;
    let missing = |what: &str| at.problem(format!("has no {what}"));
    match kind.string()? {
        "replace" => Ok(Operation::Replace { path, value: value.ok_or_else(|| missing("'value'"))? }),
        "remove" if value.is_some() => Err(at.problem("removes something, so it can have no 'value'")),
        "remove" => Ok(Operation::Remove { path }),
        "test" => {
            let absent = at.optional("absent")?.map(|absent| absent.boolean()).transpose()?;
            let expected = match (absent, value) {
                (Some(true), _) => Expected::Absence,
                (_, Some(value)) => Expected::Value(value),
                (Some(false), None) => Expected::Value(Value::Null),
                (None, None) => return Err(missing("'value' and no 'absent'")),
            };
            Ok(Operation::Test { path, expected })
        }
        other => Err(kind.problem(format!("'{other}' is none of 'replace', 'remove' and 'test'"))),
    }
}

impl Operation {
    fn apply(&self, document: &mut Value) -> Result<(), PatchError> {
        match self {
            Self::Replace { path, value } => replace(document, path, value.clone()),
            Self::Remove { path } => remove(document, path),
            Self::Test { path, expected: Expected::Value(expected) } => match find(document, path)? {
                found if found == *expected => Ok(()),
                _ => Err(PatchError::Unexpected { path: path.to_string() }),
            },
            Self::Test { path, expected: Expected::Absence } => match find(document, path) {
                Ok(_) => Err(PatchError::NotAbsent { path: path.to_string() }),
                Err(error) if error.is_absence_of(path) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_mistake_is_refused_with_the_line() {
        let refusal = |text: &str| Operations::parse(text).unwrap_err().to_string();
        assert_eq!(
            refusal("- type: replace\n  path: /a\n  value: 1\n- type: move\n  path: /a\n"),
            "[1].type: 'move' is none of 'replace', 'remove' and 'test' (line 4)"
        );
        assert_eq!(refusal("- type: replace\n  path: /a\n"), "[0]: has no 'value' (line 1)");
        assert_eq!(refusal("- {type: remove, path: a}"), "[0].path: the path 'a' does not start with '/' (line 1)");
        assert_eq!(refusal("type: remove"), "expected a list, found an object (line 1)");
        assert!(Operations::parse("").unwrap().is_empty());
    }
}
