//! What a valid response is.

use serde_json::Value;
use windlass_contract::cpi::Response;

/// Reads a response as strictly as the original director: one JSON object with `result`, `error` and `log`, all
/// present; `error` null or complete; `log` text. The error says what is wrong.
pub fn parse(stdout: &[u8]) -> Result<Response, String> {
    if stdout.trim_ascii().is_empty() {
        return Err("it wrote nothing to stdout".into());
    }
    let value: Value =
        serde_json::from_slice(stdout).map_err(|error| format!("stdout is not one JSON object ({error})"))?;
    let Value::Object(object) = &value else {
        return Err("stdout is not a JSON object".into());
    };
    if let Some(missing) = ["result", "error", "log"].into_iter().find(|key| !object.contains_key(*key)) {
        return Err(format!("the response has no '{missing}'"));
    }
    if !object["log"].is_string() {
        return Err("the response's 'log' is not a string".into());
    }
    serde_json::from_value(value).map_err(|error| format!("the response's 'error' is malformed ({error})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn responses_that_the_original_director_takes_are_taken() {
        assert_eq!(parse(br#" {"result":[1],"error":null,"log":"x"} "#).unwrap().result, json!([1]));
        assert!(parse(br#"{"result":null,"error":null,"log":"","extra":1}"#).is_ok());
        let failed = parse(br#"{"result":1,"error":{"type":"T","message":"m","ok_to_retry":true,"x":1},"log":""}"#);
        assert!(failed.unwrap().error.unwrap().ok_to_retry);
    }

    #[test]
    fn responses_that_it_refuses_are_refused_with_the_reason() {
        for (stdout, reason) in [
            ("", "wrote nothing"),
            (" \n", "wrote nothing"),
            ("debug\n{}", "not one JSON object"),
            (r#"{"result":1,"error":null,"log":""}{}"#, "not one JSON object"),
            ("\u{feff}{}", "not one JSON object"),
            ("[]", "not a JSON object"),
            (r#"{"error":null,"log":""}"#, "no 'result'"),
            (r#"{"result":1,"log":""}"#, "no 'error'"),
            (r#"{"result":1,"error":null}"#, "no 'log'"),
            (r#"{"result":1,"error":null,"log":null}"#, "'log' is not a string"),
            (r#"{"result":1,"error":{"type":"T","message":"m"},"log":""}"#, "ok_to_retry"),
            (
                r#"{"result":1,"error":{"type":"T","message":null,"ok_to_retry":false},"log":""}"#,
                "'error' is malformed",
            ),
            (r#"{"result":1,"error":"text","log":""}"#, "'error' is malformed"),
        ] {
            let error = parse(stdout.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{stdout}: {error}");
        }
    }
}
