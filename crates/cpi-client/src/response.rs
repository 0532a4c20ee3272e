//! What a valid response is.

use serde::de::{Error, IgnoredAny};
use windlass_contract::cpi::{CpiError, Response};

/// The largest results are the networks of a VM and the disks that are attached to it. As JSON values, this much takes less
/// than twenty megabytes, whatever is in it.
pub(crate) const LONGEST_RESULT: usize = 256 * 1024;

/// A response whose result is not decoded yet: as JSON values, a result of a few megabytes would take hundreds.
#[derive(Debug)]
pub(crate) struct RawResponse<'a> {
    pub(crate) result: &'a str,
    pub(crate) error: Option<CpiError>,
    pub(crate) log: String,
}

/// Reads a response as strictly as the BOSH director: one JSON object with `result`, `error` and `log`, all present;
/// `error` null or complete; `log` text. The result has at most 256 KiB. The error says what is wrong.
pub fn parse(stdout: &[u8]) -> Result<Response, String> {
    let RawResponse { result, error, log } = read(stdout)?;
    if result.len() > LONGEST_RESULT {
        return Err(too_long(result));
    }
    let result = serde_json::from_str(result).map_err(|error| not_json(&error))?;
    Ok(Response { result, error, log })
}

/// [`parse`]s all but the result.
pub(crate) fn read(stdout: &[u8]) -> Result<RawResponse<'_>, String> {
    if stdout.trim_ascii().is_empty() {
        return Err("it wrote nothing to stdout".into());
    }
    let is_object = stdout.trim_ascii_start().starts_with(b"{");
    if !is_object && serde_json::from_slice::<IgnoredAny>(stdout).is_ok() {
        return Err("stdout is not a JSON object".into());
    }
    let Fields { result, error, log } = fields(stdout).map_err(|error| not_json(&error))?;
    let missing = |key| format!("the response has no '{key}'");
    let (result, error) = (result.ok_or_else(|| missing("result"))?, error.ok_or_else(|| missing("error"))?);
    let log = log.ok_or_else(|| missing("log"))?;
    let log = serde_json::from_str(log).map_err(|_| "the response's 'log' is not a string".to_owned())?;
    let error =
        serde_json::from_str(error).map_err(|error| format!("the response's 'error' is malformed ({error})"))?;
    Ok(RawResponse { result, error, log })
}

pub(crate) fn too_long(result: &str) -> String {
    format!("its result has {} bytes, and at most {LONGEST_RESULT} can be one", result.len())
}

fn not_json(error: &serde_json::Error) -> String {
    format!("stdout is not one JSON object ({error})")
}

/// The fields of a response where they stand in its text; of several with the same name the last one counts.
#[derive(Default)]
struct Fields<'a> {
    result: Option<&'a str>,
    error: Option<&'a str>,
    log: Option<&'a str>,
}

/// The fields of an object. serde_json can do that as well (`RawValue`), but then takes an object with a certain key for another document
/// wherever the program reads JSON.
fn fields(stdout: &[u8]) -> Result<Fields<'_>, serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(stdout)?;
    let text = std::str::from_utf8(stdout).map_err(serde_json::Error::custom)?;
    let mut fields = Fields::default();
    // It is a whole object, so whatever comes next is there.
    let mut rest = after(text, '{');
    while rest.starts_with('"') {
        let (key, after_key) = first_value(rest)?;
        let (value, after_value) = first_value(after(after_key, ':'))?;
        match serde_json::from_str::<String>(key)?.as_str() {
            "result" => fields.result = Some(value),
            "error" => fields.error = Some(value),
            "log" => fields.log = Some(value),
            _ => {}
        }
        rest = after(after_value, ',');
    }
    Ok(fields)
}

/// What follows this mark, and the spaces around it.
fn after(text: &str, mark: char) -> &str {
    let text = text.trim_ascii_start();
    text.strip_prefix(mark).unwrap_or(text).trim_ascii_start()
}

/// The first value in a text, and the rest of it.
fn first_value(text: &str) -> Result<(&str, &str), serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next().transpose()?;
    Ok(text.split_at(values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn responses_that_the_bosh_director_takes_are_taken() {
        assert_eq!(parse(br#" {"result":[1],"error":null,"log":"x"} "#).unwrap().result, json!([1]));
        assert!(parse(br#"{"result":null,"error":null,"log":"","extra":1}"#).is_ok());
        let failed = parse(br#"{"result":1,"error":{"type":"T","message":"m","ok_to_retry":true,"x":1},"log":""}"#);
        assert!(failed.unwrap().error.unwrap().ok_to_retry);
        let twice = parse(br#"{"result":1,"result":2,"error":null,"log":"a\nb"}"#).unwrap();
        assert_eq!((twice.result, twice.log.as_str()), (json!(2), "a\nb"));
        let spaced =
            parse(b"{ \"log\" :\"}\" ,\t\"\\u0072esult\":{ \"a,\" : [ -1.5e3 ] }\n, \"error\": null }").unwrap();
        assert_eq!((spaced.result, spaced.log.as_str()), (json!({"a,": [-1500.0]}), "}"));
    }

    #[test]
    fn a_result_that_takes_hundreds_of_megabytes_as_values_is_refused() {
        let result = format!("[{}0]", "0,".repeat(LONGEST_RESULT / 2));
        let error = parse(format!(r#"{{"result":{result},"error":null,"log":""}}"#).as_bytes()).unwrap_err();
        assert_eq!(error, "its result has 262147 bytes, and at most 262144 can be one");
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
            (r#"[1,null,""]"#, "not a JSON object"),
            (r#"{"error":null,"log":""}"#, "no 'result'"),
            (r#"{"result":1,"log":""}"#, "no 'error'"),
            (r#"{"result":1,"error":null}"#, "no 'log'"),
            (r#"{"result":1,"error":null,"log":null}"#, "'log' is not a string"),
            (r#"{"result":1,"error":null,"log":"",}"#, "not one JSON object"),
            ("{}", "no 'result'"),
            (r#"{"result":[1,,2],"error":null,"log":""}"#, "not one JSON object"),
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
