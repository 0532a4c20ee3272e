//! Where a disk is found inside the VM: the contract between CPI and agent, which the director passes on untouched.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Object;

/// A disk hint, exactly as the CPI gave it: a string (path and volume id at once) or an object. Unknown keys are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct DiskHint(Hint);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hint {
    Text(String),
    Object(Object),
}

/// why a value is no disk hint
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoHint {
    /// the hint is empty; a CPI must say where the disk is
    #[error("the disk hint is empty; a CPI must say where the disk is")]
    Empty,
    /// a hint is a string or an object
    #[error("a disk hint is a string or an object, not {0}")]
    WrongType(&'static str),
    /// agents take only strings inside a hint
    #[error("the disk hint's value at '{0}' is not a string, and agents take only strings there")]
    NotAString(String),
}

impl DiskHint {
    /// A hint that is an object with `path`.
    pub fn path(path: impl Into<String>) -> Self {
        let mut object = Object::new();
        object.insert("path".into(), Value::String(path.into()));
        Self(Hint::Object(object))
    }

    /// A hint that is a string.
    pub fn text(text: impl Into<String>) -> Result<Self, NoHint> {
        Self::try_from(Value::String(text.into()))
    }

    /// The value at `key`. A string hint is path and volume id at once.
    pub fn get(&self, key: &str) -> Option<&str> {
        match &self.0 {
            Hint::Text(text) if key == "path" || key == "volume_id" => Some(text),
            Hint::Text(_) => None,
            Hint::Object(object) => object.get(key).and_then(Value::as_str),
        }
    }
}

impl TryFrom<Value> for DiskHint {
    type Error = NoHint;

    fn try_from(value: Value) -> Result<Self, NoHint> {
        match value {
            Value::String(text) if !text.is_empty() => Ok(Self(Hint::Text(text))),
            Value::Object(object) if !object.is_empty() => {
                check_leaves(&object, "")?;
                Ok(Self(Hint::Object(object)))
            }
            Value::String(_) | Value::Object(_) | Value::Null => Err(NoHint::Empty),
            Value::Bool(_) => Err(NoHint::WrongType("a boolean")),
            Value::Number(_) => Err(NoHint::WrongType("a number")),
            Value::Array(_) => Err(NoHint::WrongType("an array")),
        }
    }
}

/// A number inside a hint crashes the original agent, so it is stopped here.
fn check_leaves(object: &Object, path: &str) -> Result<(), NoHint> {
    for (key, value) in object {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match value {
            Value::String(_) => {}
            Value::Object(inner) => check_leaves(inner, &path)?,
            _ => return Err(NoHint::NotAString(path)),
        }
    }
    Ok(())
}

impl From<DiskHint> for Value {
    fn from(hint: DiskHint) -> Value {
        match hint.0 {
            Hint::Text(text) => Value::String(text),
            Hint::Object(object) => Value::Object(object),
        }
    }
}

impl std::fmt::Display for DiskHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Hint::Text(text) => f.write_str(text),
            Hint::Object(object) => f.write_str(&serde_json::to_string(object).map_err(|_| std::fmt::Error)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_of_the_seeds_survives_the_round_trip() {
        for shape in [
            json!("/dev/sdc"),
            json!("3"),
            json!({"path": "/dev/sdc"}),
            json!({"volume_id": "3"}),
            json!({"lun": "0", "host_device_id": "{host-device-id}"}),
            json!({"iscsi_settings": {"initiator_name": "i", "username": "u", "password": "p", "target": "t"}}),
            json!({"path": "/dev/sdc", "later": "kept"}),
        ] {
            let hint = DiskHint::try_from(shape.clone()).unwrap();
            assert_eq!(Value::from(hint), shape);
        }
    }

    #[test]
    fn a_string_is_path_and_volume_id_at_once() {
        let hint = DiskHint::text("/dev/sdc").unwrap();
        assert_eq!(
            (hint.get("path"), hint.get("volume_id"), hint.get("lun")),
            (Some("/dev/sdc"), Some("/dev/sdc"), None)
        );
    }

    #[test]
    fn empty_hints_and_numbers_are_refused() {
        for nothing in [json!(null), json!(""), json!({})] {
            assert_eq!(DiskHint::try_from(nothing), Err(NoHint::Empty));
        }
        assert_eq!(DiskHint::try_from(json!({"lun": 3})), Err(NoHint::NotAString("lun".into())));
        assert_eq!(DiskHint::try_from(json!(3)), Err(NoHint::WrongType("a number")));
    }
}
