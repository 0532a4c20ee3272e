//! The envelope: one JSON object on stdin, one on stdout.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CpiError;
use crate::{ApiVersion, Object, RequestId};

/// A request to a CPI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Snake case, as in [`super::methods`].
    pub method: String,
    /// Positional.
    pub arguments: Vec<Value>,
    /// Who asks, and what else the CPI should know.
    #[serde(default)]
    pub context: Context,
    /// Absent on the `info` that discovers the version, and from callers older than version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
}

/// The context of a request. Keys that are not typed here are the properties of a cpi-config entry, laid over the
/// CPI's own configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// The caller.
    #[serde(default)]
    pub director_uuid: String,
    /// Unique only when it is a UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The VM that the call is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<ContextVm>,
    /// Properties of the cpi-config entry.
    #[serde(flatten)]
    pub properties: Object,
}

/// `context.vm`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextVm {
    /// The stemcell that the VM is, or will be, made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stemcell: Option<ContextStemcell>,
}

/// `context.vm.stemcell`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextStemcell {
    /// The stemcell's version; absent or null counts as 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
}

impl Context {
    /// A context with the stemcell's version, where one is known.
    pub fn with_stemcell(mut self, version: Option<ApiVersion>) -> Self {
        if version.is_some() {
            self.vm = Some(ContextVm { stemcell: Some(ContextStemcell { api_version: version }) });
        }
        self
    }

    /// The stemcell's version; absent counts as 1.
    pub fn stemcell_version(&self) -> ApiVersion {
        self.vm.and_then(|vm| vm.stemcell).and_then(|stemcell| stemcell.api_version).unwrap_or(ApiVersion::V1)
    }
}

/// The response of a CPI. All three keys are always present, and `log` is a string: the original director refuses
/// anything else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Null when there is nothing to say or an error.
    pub result: Value,
    /// Wins over any result.
    pub error: Option<CpiError>,
    /// What the CPI wants to be logged.
    pub log: String,
}

impl Response {
    pub fn success(result: Value) -> Self {
        Self { result, error: None, log: String::new() }
    }

    pub fn failure(error: CpiError) -> Self {
        Self { result: Value::Null, error: Some(error), log: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_written_as_the_original_director_writes_it() {
        let request = Request {
            method: "attach_disk".into(),
            arguments: vec![json!("vm-7"), json!("disk-3")],
            context: Context {
                director_uuid: "d-1".into(),
                request_id: Some(RequestId::new("cpi-482913").unwrap()),
                ..Context::default()
            }
            .with_stemcell(Some(ApiVersion(3))),
            api_version: Some(ApiVersion::V2),
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"method":"attach_disk","arguments":["vm-7","disk-3"],"context":{"director_uuid":"d-1","request_id":"cpi-482913","vm":{"stemcell":{"api_version":3}}},"api_version":2}"#
        );
    }

    #[test]
    fn a_missing_or_empty_stemcell_counts_as_version_1() {
        for context in [json!({}), json!({"vm": {"stemcell": {}}}), json!({"vm": {"stemcell": {"api_version": null}}})]
        {
            let context: Context = serde_json::from_value(context).unwrap();
            assert_eq!(context.stemcell_version(), ApiVersion::V1);
        }
    }

    #[test]
    fn a_response_always_has_its_three_keys() {
        assert_eq!(
            serde_json::to_string(&Response::success(Value::Null)).unwrap(),
            r#"{"result":null,"error":null,"log":""}"#
        );
        assert!(serde_json::from_value::<Response>(json!({"result": null, "error": null})).is_err());
        assert!(serde_json::from_value::<Response>(json!({"result": null, "error": null, "log": null})).is_err());
    }
}
