//! Whole `serde` types from a node, with errors that say where.

use serde::Deserializer;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, Unexpected, Visitor};

use crate::{Content, Node, Position, Problem};

impl Node {
    /// This node as a `T`. A type that gathers unknown fields (`flatten`) or tries alternatives (`untagged`) is decoded
    /// from a copy, and its errors name the object instead of the field.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        T::deserialize(self).map_err(|error| Problem {
            path: error.path,
            position: error.position.unwrap_or(self.position),
            message: error.message,
        })
    }
}

/// An error on its way up, to which each level adds its part of the path.
#[derive(Debug)]
pub struct DecodeError {
    message: String,
    path: String,
    position: Option<Position>,
}

impl DecodeError {
    fn within(mut self, step: &str, node: &Node) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{separator}{}", self.path);
        self.position.get_or_insert(node.position);
        self
    }
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), path: String::new(), position: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "a boolean".to_owned(),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Str(_) => "a string".to_owned(),
            Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "an object".to_owned(),
            other => other.to_string(),
        };
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { message: "is required, but missing".into(), path: field.into(), position: None }
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.content {
            Content::Null => visitor.visit_unit(),
            Content::Boolean(boolean) => visitor.visit_bool(*boolean),
            Content::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Content::String(text) => visitor.visit_borrowed_str(text),
            Content::List(nodes) => visitor.visit_seq(Elements { nodes: nodes.iter().enumerate() }),
            Content::Object(entries) => visitor.visit_map(Entries { entries: entries.iter(), current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.content {
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, v: V) -> Result<V::Value, DecodeError> {
        v.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.content {
            Content::String(variant) => visitor.visit_enum(variant.as_str().into_deserializer()),
            Content::Object(entries) => {
                let entries = Entries { entries: entries.iter(), current: None };
                visitor.visit_enum(MapAccessDeserializer::new(entries))
            }
            other => Err(de::Error::custom(format_args!("expected a string or an object, found {}", other.kind()))),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Elements<'de> {
    nodes: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> de::SeqAccess<'de> for Elements<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, node)) = self.nodes.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|error| error.within(&format!("[{index}]"), node))
    }
}

struct Entries<'de> {
    entries: indexmap::map::Iter<'de, String, Node>,
    current: Option<(&'de str, &'de Node)>,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, node)) = self.entries.next() else { return Ok(None) };
        self.current = Some((key, node));
        seed.deserialize(key.as_str().into_deserializer())
            .map(Some)
            .map_err(|error: DecodeError| error.within(key, node))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let (key, node) = self.current.take().ok_or_else(|| de::Error::custom("a value without its key"))?;
        seed.deserialize(node).map_err(|error| error.within(key, node))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use crate::Document;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Group {
        name: String,
        #[serde(default)]
        lifecycle: Lifecycle,
        #[serde(default)]
        jobs: Vec<Job>,
        instances: Option<u32>,
        ratio: Option<f64>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Lifecycle {
        #[default]
        Service,
        Errand,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Job {
        release: String,
    }

    fn decode(text: &str) -> Result<Vec<Group>, crate::Problem> {
        Document::parse(text).unwrap().root().field("groups").unwrap().decode()
    }

    #[test]
    fn a_type_is_decoded() {
        let groups =
            decode("groups:\n- {name: a, lifecycle: errand, jobs: [{release: r}], instances: 0x2, ratio: 2}\n");
        let group = Group {
            name: "a".into(),
            lifecycle: Lifecycle::Errand,
            jobs: vec![Job { release: "r".into() }],
            instances: Some(2),
            ratio: Some(2.0),
        };
        assert_eq!(groups.unwrap(), [group]);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_path_and_line() {
        for (text, message) in [
            (
                "groups:\n- name: a\n  jobs:\n  - release: [x]\n",
                "groups[0].jobs[0].release: expected a string, found a list (line 4)",
            ),
            ("groups:\n- jobs: []\n", "groups[0].name: is required, but missing (line 2)"),
            ("groups:\n- name: a\n  instances: x\n", "groups[0].instances: expected u32, found a string (line 3)"),
            ("groups:\n  a: 1\n", "groups: expected a sequence, found an object (line 2)"),
        ] {
            assert_eq!(decode(text).unwrap_err().to_string(), message);
        }
        let unknown = decode("groups:\n- name: a\n  lifecycle: never\n").unwrap_err().to_string();
        assert!(unknown.starts_with("groups[0].lifecycle: unknown variant `never`"), "{unknown}");
    }
}
