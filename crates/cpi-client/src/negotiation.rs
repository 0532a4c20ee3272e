//! Which version both sides speak.

use serde_json::Value;
use windlass_contract::ApiVersion;
use windlass_contract::cpi::CpiInfo;

/// What `info` said and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The CPI's answer.
    pub info: CpiInfo,
    /// The version of every request from here on.
    pub version: ApiVersion,
}

impl Negotiated {
    /// From the result of `info`; none when the CPI does not implement it, which is version 1. The error is what the CPI
    /// reports in place of a version.
    pub(crate) fn from_info(result: Option<Value>, preferred: ApiVersion) -> Result<Self, String> {
        let mut object = match result {
            None | Some(Value::Null) => serde_json::Map::new(),
            Some(Value::Object(object)) => object,
            Some(other) => return Err(format!("nothing but {other}")),
        };
        if let Some(reported) = object.get("api_version")
            && serde_json::from_value::<ApiVersion>(reported.clone()).is_err()
        {
            return Err(reported.to_string());
        }
        // Only the version decides how to talk; a list that is null or odd is read as "any format".
        let is_list = |formats: &Value| formats.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        if !object.get("stemcell_formats").is_some_and(is_list) {
            object.remove("stemcell_formats");
        }
        let info: CpiInfo = serde_json::from_value(Value::Object(object.clone())).or_else(|_| {
            object.remove("windlass");
            serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
        })?;
        let version = info.api_version.unwrap_or(ApiVersion::V1).clamp(ApiVersion::V1, preferred.max(ApiVersion::V1));
        Ok(Self { info, version })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(info: Value, preferred: u32) -> Result<u32, String> {
        Negotiated::from_info(Some(info), ApiVersion(preferred)).map(|negotiated| negotiated.version.0)
    }

    #[test]
    fn the_lower_of_both_versions_is_spoken() {
        for (info, preferred, expected) in [
            (json!({"api_version": 2, "stemcell_formats": ["x"]}), 2, 2),
            (json!({"api_version": 1}), 2, 1),
            (json!({"api_version": 2}), 1, 1),
            (json!({"api_version": 3}), 2, 2),
            (json!({"api_version": 0}), 2, 1),
            (json!({"stemcell_formats": []}), 2, 1),
            (json!({"stemcell_formats": null, "api_version": 2}), 2, 2),
            (json!({"windlass": "odd", "api_version": 2}), 2, 2),
            (json!({}), 2, 1),
            (json!(null), 2, 1),
        ] {
            assert_eq!(version(info.clone(), preferred).unwrap(), expected, "{info} with {preferred}");
        }
        assert_eq!(Negotiated::from_info(None, ApiVersion::V2).unwrap().version, ApiVersion::V1);
    }

    #[test]
    fn a_version_that_is_no_whole_number_is_refused_instead_of_guessed() {
        for odd in [json!(null), json!("2"), json!(2.0), json!(-1), json!([2])] {
            let error = version(json!({"api_version": odd}), 2).unwrap_err();
            assert_eq!(error, odd.to_string());
        }
        assert!(version(json!("info"), 2).is_err());
    }
}
