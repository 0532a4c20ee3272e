//! What a sender in Go writes for something that it does not have: `null` means the same as no key at all.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::DiskHint;
use crate::disk_hint::NoHint;

/// The default for `null`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A map without the keys that are `null`.
pub(crate) fn or_absent<'de, D, K, T>(deserializer: D) -> Result<BTreeMap<K, T>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    T: Deserialize<'de>,
{
    let map = Option::<BTreeMap<K, Option<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(map.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

/// No hint for `null`, and for one that is empty.
pub(crate) fn hint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DiskHint>, D::Error> {
    match DiskHint::try_from(Value::deserialize(deserializer)?) {
        Ok(hint) => Ok(Some(hint)),
        Err(NoHint::Empty) => Ok(None),
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

/// Hints without those that [`hint`] takes for none.
pub(crate) fn hints<'de, D, K>(deserializer: D) -> Result<BTreeMap<K, DiskHint>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
{
    #[derive(Deserialize)]
    struct Hint(#[serde(deserialize_with = "hint")] Option<DiskHint>);
    let map: BTreeMap<K, Option<Hint>> = or_default(deserializer)?;
    Ok(map.into_iter().filter_map(|(key, hint)| Some((key, hint?.0?))).collect())
}

/// Text that is written as `null` where it is empty, and read as empty where it is `null`.
pub(crate) mod text {
    use serde::{Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        Some(text).filter(|text| !text.is_empty()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        super::or_default(deserializer)
    }
}
