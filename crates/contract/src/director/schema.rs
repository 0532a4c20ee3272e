//! A JSON schema of a type, made by reading a sample of it: what the type asks for while it is read is what it is made of.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde_json::{Map, Value, json};

/// The schema of a type that has no reference to itself.
pub fn schema<T: DeserializeOwned>() -> Value {
    let mut schema = json!({});
    // A type that refuses the sample has told what it is made of all the same.
    let _ = T::deserialize(Reader(&mut schema));
    schema
}

/// Hands out a sample of whatever is asked for, and notes what that was.
struct Reader<'a>(&'a mut Value);

type Failure = serde::de::value::Error;

macro_rules! simple {
    ($($method:ident => $kind:literal, $visit:ident($sample:expr);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            *self.0 = json!({"type": $kind});
            visitor.$visit($sample)
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Failure;

    simple! {
        deserialize_bool => "boolean", visit_bool(true);
        deserialize_i8 => "integer", visit_i8(0);
        deserialize_i16 => "integer", visit_i16(0);
        deserialize_i32 => "integer", visit_i32(0);
        deserialize_i64 => "integer", visit_i64(0);
        deserialize_u8 => "integer", visit_u8(0);
        deserialize_u16 => "integer", visit_u16(0);
        deserialize_u32 => "integer", visit_u32(0);
        deserialize_u64 => "integer", visit_u64(0);
        deserialize_f32 => "number", visit_f32(0.0);
        deserialize_f64 => "number", visit_f64(0.0);
        deserialize_char => "string", visit_char('+');
        deserialize_str => "string", visit_str("text");
        deserialize_string => "string", visit_str("text");
        deserialize_bytes => "string", visit_bytes(b"text");
        deserialize_byte_buf => "string", visit_bytes(b"text");
        deserialize_identifier => "string", visit_str("text");
    }

    /// Anything: the schema without rules.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        *self.0 = json!({"type": "null"});
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let visited = visitor.visit_some(Reader(&mut *self.0));
        if let Some(kind) = self.0.get_mut("type").filter(|kind| kind.is_string()) {
            *kind = json!([kind.take(), "null"]);
        }
        visited
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let mut items = vec![json!({})];
        let visited = visitor.visit_seq(Items { items: &mut items, next: 0 });
        *self.0 = json!({"type": "array", "items": items.pop()});
        visited
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Failure> {
        let mut items = vec![json!({}); length];
        let visited = visitor.visit_seq(Items { items: &mut items, next: 0 });
        *self.0 = json!({"type": "array", "prefixItems": items});
        visited
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let mut values = Map::new();
        let visited = visitor.visit_map(Fields { names: &["key"], next: 0, schemas: &mut values });
        *self.0 = json!({"type": "object", "additionalProperties": values.remove("key")});
        visited
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let mut properties = Map::new();
        let visited = visitor.visit_map(Fields { names, next: 0, schemas: &mut properties });
        *self.0 = json!({"type": "object", "properties": properties});
        visited
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        *self.0 = json!({"type": "string", "enum": variants});
        visitor.visit_enum(Variant(variants.first().copied().unwrap_or_default()))
    }
}

/// As many items as there are schemas to be noted.
struct Items<'a> {
    items: &'a mut Vec<Value>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let Some(schema) = self.items.get_mut(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(Reader(schema)).map(Some)
    }
}

/// Every field of a struct, or the one key of a map.
struct Fields<'a> {
    names: &'static [&'static str],
    next: usize,
    schemas: &'a mut Map<String, Value>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let Some(name) = self.names.get(self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, Failure> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let mut schema = json!({});
        let name = self.names.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        let value = seed.deserialize(Reader(&mut schema));
        self.schemas.insert(name.to_owned(), schema);
        value
    }
}

/// The first variant of an enum.
struct Variant(&'static str);

impl<'de> EnumAccess<'de> for Variant {
    type Error = Failure;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Failure> {
        let name: StrDeserializer<'_, Failure> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Failure> {
        Err(Failure::custom("only names of variants are described"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Failure> {
        Err(Failure::custom("only names of variants are described"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Failure> {
        Err(Failure::custom("only names of variants are described"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::director::{Diff, InstanceInfo, Lock, Task};

    #[test]
    fn a_schema_has_the_fields_that_are_written_and_what_may_be_null() {
        let lock = schema::<Vec<Lock>>();
        let properties = &lock["items"]["properties"];
        assert_eq!(lock["type"], "array");
        assert_eq!(properties["type"], json!({"type": "string"}));
        assert_eq!(properties["resource"], json!({"type": "array", "items": {"type": "string"}}));

        let task = schema::<Task>();
        assert_eq!(task["properties"]["id"], json!({"type": "integer"}));
        assert_eq!(task["properties"]["deployment"], json!({"type": ["string", "null"]}));
        assert_eq!(task["properties"]["started_at"], json!({"type": ["integer", "null"]}));

        let diff = schema::<Diff>();
        let line = &diff["properties"]["diff"]["items"]["prefixItems"];
        assert_eq!(*line, json!([{"type": "string"}, {"type": ["string", "null"]}]));

        let instance = schema::<InstanceInfo>();
        let vitals = &instance["properties"]["vitals"]["properties"];
        assert_eq!(vitals["disk"]["additionalProperties"]["properties"]["percent"]["type"], json!(["string", "null"]));
        assert!(instance["properties"].get("is_errand").is_none(), "what is not written is not described");
    }

    /// A field that is written but not described would be one that this test does not find.
    #[test]
    fn everything_that_is_written_is_described() {
        let task = json!({"id": 1, "state": "done", "timestamp": null, "started_at": 2, "result": null});
        let written = serde_json::to_value(serde_json::from_value::<Task>(task).unwrap()).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&written), keys(&schema::<Task>()["properties"]), "in the same order");
    }
}
