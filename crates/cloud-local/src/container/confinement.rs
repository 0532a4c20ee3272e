//! How much of the kernel the programs of a container may use.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;

/// The property of a VM that lets its programs make containers.
const NESTING: &str = "nesting";

/// How much of the kernel a container's programs may use; decided at `create_vm` and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Confinement {
    /// All that its rights allow. VMs whose record does not say were made before there was a filter, and stay as they were.
    #[default]
    Unfiltered,
    /// Not what reaches out of a container, and not what makes another one.
    Filtered,
    /// What makes containers, too, in control groups that it may write.
    Nesting,
}

impl Confinement {
    pub(crate) fn of(cloud_properties: &Object) -> Result<Self, CpiError> {
        match cloud_properties.get(NESTING) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(Self::Filtered),
            Some(Value::Bool(true)) => Ok(Self::Nesting),
            Some(other) => Err(CpiError::cloud(format!("the VM's '{NESTING}' is {other}; it must be true or false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nesting_is_asked_for_by_name_and_nothing_else_is_taken_for_it() {
        let of = |properties: Value| Confinement::of(properties.as_object().unwrap());
        for (properties, expected) in [
            (json!({}), Confinement::Filtered),
            (json!({"nesting": null}), Confinement::Filtered),
            (json!({"nesting": false}), Confinement::Filtered),
            (json!({"nesting": true}), Confinement::Nesting),
        ] {
            assert_eq!(of(properties).unwrap(), expected);
        }
        let error = of(json!({"nesting": "yes"})).unwrap_err().message;
        assert_eq!(error, "the VM's 'nesting' is \"yes\"; it must be true or false");
    }
}
