//! A request, as the director or the command line writes it, or in any other form.

use serde_json::{Map, Value, json};
use uuid::Uuid;

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: String,
    arguments: Value,
    version: Option<Value>,
    context: Map<String, Value>,
    extra: Map<String, Value>,
}

impl Ask {
    /// As the director asks: request and stemcell in version 2.
    pub(crate) fn new(method: &str, arguments: Value, properties: &Map<String, Value>) -> Self {
        let number = Uuid::new_v4().as_u128() % 1_000_000;
        let mut context = Map::new();
        context.insert("director_uuid".into(), json!("11111111-2222-4333-8444-555555555555"));
        context.insert("request_id".into(), json!(format!("cpi-{number:06}")));
        context.insert("vm".into(), json!({"stemcell": {"api_version": 2}}));
        context.extend(properties.clone());
        Self { method: method.into(), arguments, version: Some(json!(2)), context, extra: Map::new() }
    }

    pub(crate) fn version(mut self, version: impl Into<Value>) -> Self {
        self.version = Some(version.into());
        self
    }

    pub(crate) fn no_version(mut self) -> Self {
        self.version = None;
        self
    }

    /// The stemcell's version; null leaves it out.
    pub(crate) fn stemcell(mut self, version: impl Into<Value>) -> Self {
        match version.into() {
            Value::Null => self.context.shift_remove("vm"),
            version => self.context.insert("vm".into(), json!({"stemcell": {"api_version": version}})),
        };
        self
    }

    pub(crate) fn context(mut self, key: &str, value: Value) -> Self {
        self.context.insert(key.into(), value);
        self
    }

    pub(crate) fn overlaid(mut self, properties: &Map<String, Value>) -> Self {
        self.context.extend(properties.clone());
        self
    }

    pub(crate) fn without_context(mut self, key: &str) -> Self {
        self.context.shift_remove(key);
        self
    }

    /// A top-level key.
    pub(crate) fn key(mut self, key: &str, value: Value) -> Self {
        self.extra.insert(key.into(), value);
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut request = Map::new();
        request.insert("method".into(), json!(self.method));
        request.insert("arguments".into(), self.arguments.clone());
        request.insert("context".into(), Value::Object(self.context.clone()));
        request.extend(self.version.iter().map(|version| ("api_version".to_owned(), version.clone())));
        request.extend(self.extra.clone());
        Value::Object(request)
    }

    /// Compact, without a line break at the end.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.to_json().to_string().into_bytes()
    }
}
