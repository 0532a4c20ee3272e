//! A request's bytes, read liberally and refused clearly.
//!
//! Versions as numbers with a zero fraction, nulls and absent fields are understood; everything else that is odd gets an
//! error that names the field, never its value (which may be a secret).

use serde_json::Value;
use windlass_contract::cpi::envelope::{ContextStemcell, ContextVm};
use windlass_contract::cpi::{Context, CpiError, Request};
use windlass_contract::{ApiVersion, Object, RequestId};

pub(crate) fn request(bytes: &[u8]) -> Result<Request, CpiError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(bad("there was nothing on stdin"));
    }
    let value = serde_json::from_slice(bytes).map_err(|error| bad(&format!("it is not JSON: {}", reason(&error))))?;
    let Value::Object(mut fields) = value else {
        return Err(bad(&format!("it is {}, not an object", kind(&value))));
    };
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        other => return Err(wrong("method", "a string", other.as_ref())),
    };
    let arguments = match fields.remove("arguments") {
        Some(Value::Array(arguments)) => arguments,
        other => return Err(wrong("arguments", "an array", other.as_ref())),
    };
    let api_version = version("api_version", fields.get("api_version"))?;
    let context = context(fields.remove("context"))?;
    Ok(Request { method, arguments, context, api_version })
}

fn context(value: Option<Value>) -> Result<Context, CpiError> {
    let mut fields = object("context", value)?;
    let director_uuid = match fields.remove("director_uuid") {
        Some(Value::String(uuid)) => uuid,
        None | Some(Value::Null) => String::new(),
        other => return Err(wrong("context.director_uuid", "a string", other.as_ref())),
    };
    let request_id = match fields.remove("request_id") {
        Some(Value::String(id)) => RequestId::new(id).ok(),
        None | Some(Value::Null) => None,
        other => return Err(wrong("context.request_id", "a string", other.as_ref())),
    };
    let mut vm = object("context.vm", fields.remove("vm"))?;
    let stemcell = object("context.vm.stemcell", vm.remove("stemcell"))?;
    let api_version = version("context.vm.stemcell.api_version", stemcell.get("api_version"))?;
    let vm = Some(ContextVm { stemcell: Some(ContextStemcell { api_version }) });
    Ok(Context { director_uuid, request_id, vm, properties: fields })
}

fn object(field: &str, value: Option<Value>) -> Result<Object, CpiError> {
    match value {
        Some(Value::Object(object)) => Ok(object),
        None | Some(Value::Null) => Ok(Object::new()),
        other => Err(wrong(field, "an object", other.as_ref())),
    }
}

/// Absent and null say nothing; zero and less count as 1; what is too large stays too large.
pub(crate) fn version(field: &str, value: Option<&Value>) -> Result<Option<ApiVersion>, CpiError> {
    let number = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_f64().filter(|number| number.fract() == 0.0),
        Some(_) => None,
    };
    // The cast saturates at both ends.
    number.map(|number| Some(ApiVersion((number as u32).max(1)))).ok_or_else(|| wrong(field, "an integer", value))
}

fn wrong(field: &str, expected: &str, value: Option<&Value>) -> CpiError {
    match value {
        None => bad(&format!("'{field}' is missing; it must be {expected}")),
        Some(value) => bad(&format!("'{field}' is {}, it must be {expected}", kind(value))),
    }
}

fn bad(problem: &str) -> CpiError {
    CpiError::cpi(format!("the request cannot be used: {problem}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// What serde says, without the values that it quotes.
pub(crate) fn reason(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut kept = String::with_capacity(text.len());
    let mut quoted = false;
    let mut escaped = false;
    for letter in text.chars() {
        match letter {
            '"' if !escaped => {
                quoted = !quoted;
                kept.push_str(if quoted { "\"…" } else { "\"" });
            }
            _ if quoted => escaped = letter == '\\' && !escaped,
            _ => kept.push(letter),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(value: Value) -> Result<Request, CpiError> {
        request(value.to_string().as_bytes())
    }

    #[test]
    fn versions_in_odd_clothes_are_understood_or_refused_but_never_guessed() {
        let version = |value: Value| {
            decode(json!({"method": "info", "arguments": [], "api_version": value})).map(|request| request.api_version)
        };
        assert_eq!(version(Value::Null).unwrap(), None);
        assert_eq!(version(json!(2)).unwrap(), Some(ApiVersion(2)));
        assert_eq!(version(json!(2.0)).unwrap(), Some(ApiVersion(2)));
        assert_eq!(version(json!(0)).unwrap(), Some(ApiVersion(1)));
        assert_eq!(version(json!(-7)).unwrap(), Some(ApiVersion(1)));
        assert_eq!(version(json!(1e30)).unwrap(), Some(ApiVersion(u32::MAX)));
        for odd in [json!("2"), json!(2.5), json!([2]), json!(true)] {
            assert!(version(odd).unwrap_err().message.contains("'api_version'"));
        }
    }

    #[test]
    fn a_missing_context_is_fine_and_a_wrong_one_is_named() {
        assert_eq!(decode(json!({"method": "info", "arguments": []})).unwrap().context.director_uuid, "");
        for (context, field) in [
            (json!(7), "'context'"),
            (json!({"director_uuid": 7}), "'context.director_uuid'"),
            (json!({"request_id": {}}), "'context.request_id'"),
            (json!({"vm": "x"}), "'context.vm'"),
            (json!({"vm": {"stemcell": {"api_version": "2"}}}), "'context.vm.stemcell.api_version'"),
        ] {
            let error = decode(json!({"method": "info", "arguments": [], "context": context})).unwrap_err();
            assert!(error.message.contains(field), "{error}");
        }
    }

    #[test]
    fn a_value_that_serde_quotes_does_not_reach_the_message() {
        let error = serde_json::from_value::<Object>(json!("hunter\"2")).unwrap_err();
        assert_eq!(reason(&error), "invalid type: string \"…\", expected a map");
    }
}
