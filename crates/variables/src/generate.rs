//! How values are made, and when they are made once more.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A value to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Absolute.
    pub name: String,
    /// Such as `password`.
    pub kind: String,
    /// The options of its definition.
    pub parameters: Value,
    pub mode: Mode,
}

/// When a value is made although there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Never.
    #[default]
    NoOverwrite,
    /// If what it was made from is not what it would be made from now: its type, its options, or the CA that signs it.
    Converge,
    /// Every time, as CredHub does it; BOSH's own config server takes it for [`Mode::NoOverwrite`].
    Overwrite,
}

impl Mode {
    /// Every word and what it means.
    pub const WORDS: [(&'static str, Self); 3] =
        [("no-overwrite", Self::NoOverwrite), ("converge", Self::Converge), ("overwrite", Self::Overwrite)];

    /// As it is written in manifests and sent.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoOverwrite => "no-overwrite",
            Self::Converge => "converge",
            Self::Overwrite => "overwrite",
        }
    }
}

impl Generation {
    /// The CA that signs it.
    pub fn ca(&self) -> Option<&str> {
        self.parameters.get("ca").and_then(Value::as_str).filter(|ca| !ca.is_empty())
    }

    /// All that a value is made from; `ca` is the id of the CA's version. Keys are in order, so that the same is always written alike.
    pub fn recipe(&self, ca: Option<&str>) -> String {
        json!({"ca": ca, "parameters": in_order(&self.parameters), "type": self.kind}).to_string()
    }
}

fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().filter(|(_, member)| !member.is_null()).collect();
            members.sort_by_key(|(key, _)| *key);
            Value::Object(members.into_iter().map(|(key, member)| (key.clone(), in_order(member))).collect())
        }
        Value::Array(elements) => elements.iter().map(in_order).collect(),
        Value::Null => json!({}),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(parameters: Value, ca: Option<&str>) -> String {
        let (name, kind) = ("/a".to_owned(), "certificate".to_owned());
        Generation { name, kind, parameters, mode: Mode::Converge }.recipe(ca)
    }

    #[test]
    fn a_recipe_is_the_same_in_another_order_and_another_with_another_ca() {
        let one = json!({"ca": "/ca", "common_name": "a", "duration": null});
        let same = json!({"common_name": "a", "ca": "/ca"});
        assert_eq!(recipe(one.clone(), Some("1")), recipe(same, Some("1")));
        assert_ne!(recipe(one.clone(), Some("1")), recipe(one, Some("2")));
        assert_eq!(recipe(Value::Null, None), recipe(json!({}), None));
    }

    #[test]
    fn modes_have_the_words_of_manifests() {
        for (word, mode) in Mode::WORDS {
            assert_eq!((Mode::parse(word), mode.as_str()), (Some(mode), word));
        }
        assert_eq!(Mode::parse("sometimes"), None);
    }
}
