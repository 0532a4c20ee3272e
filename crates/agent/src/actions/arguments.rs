//! Positional arguments. Surplus ones are ignored, as callers of all ages expect.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::settings::without_values;

/// The arguments of a message.
#[derive(Debug)]
pub(crate) struct Arguments(Vec<Value>);

/// why arguments are not what an action takes
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("Not enough arguments, expected {expected}, got {got}")]
    TooFew { expected: usize, got: usize },
    /// one has the wrong type
    #[error("Unmarshalling action argument: argument {position}: {problem}")]
    WrongType { position: usize, problem: String },
}

impl Arguments {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self(values)
    }

    /// Fails if there are fewer than `expected`.
    pub(crate) fn require(&self, expected: usize) -> Result<(), ArgumentError> {
        let got = self.0.len();
        if got < expected { Err(ArgumentError::TooFew { expected, got }) } else { Ok(()) }
    }

    /// Takes the argument at `position`, counted from 0; one that is missing is null.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, position: usize) -> Result<T, ArgumentError> {
        let value = self.0.get_mut(position).map(Value::take).unwrap_or_default();
        serde_json::from_value(value)
            .map_err(|error| ArgumentError::WrongType { position: position + 1, problem: without_values(&error) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_caller_reads_what_is_wrong_with_its_arguments() {
        let mut arguments = Arguments::new(vec![json!("cid"), json!(7)]);
        assert_eq!(arguments.require(3).unwrap_err().to_string(), "Not enough arguments, expected 3, got 2");
        assert_eq!(arguments.take::<String>(0).unwrap(), "cid");
        assert_eq!(arguments.take::<Option<Value>>(2).unwrap(), None);
        let wrong = arguments.take::<String>(1).unwrap_err().to_string();
        assert!(wrong.starts_with("Unmarshalling action argument: argument 2: invalid type"), "{wrong}");
    }
}
