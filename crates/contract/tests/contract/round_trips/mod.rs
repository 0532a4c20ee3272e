//! Whatever one side means is what the other side understands: every request and every answer of every method, and every
//! document that travels, comes back from its JSON text as it was.
//!
//! - `words`: arbitrary ids, properties, networks and hints.
//! - `methods`: requests and answers, in every version.
//! - `documents`: settings, the registry's envelope, stemcell manifests and agent messages.

mod documents;
mod methods;
mod words;

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Through JSON text and back, as the value and as the text.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    let text = serde_json::to_string(value).unwrap();
    let back: T = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error} in {text}")))?;
    prop_assert_eq!(&back, value);
    prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
    Ok(())
}
