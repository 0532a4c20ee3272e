//! The three shapes of an answer, as all versions of both servers write them.

use serde::Deserialize;
use serde_json::Value;
use windlass_contract::has_more_values_than;

use super::ClientError;

/// How many values an answer may have: an instance has some hundred. Each takes far more memory than it has letters.
const MOST_VALUES: usize = 2_000_000;

/// How many letters of a message are told.
const LONGEST: usize = 4000;

/// What the daemon answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done {
        /// What was asked for.
        metadata: Value,
        /// What the object is at, for a conditional change.
        etag: Option<String>,
    },
    Begun {
        /// The path of the operation, without its query.
        operation: String,
        /// What it tells at its beginning.
        told: Value,
    },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    error_code: Option<i64>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    metadata: Option<Value>,
}

impl Answer {
    /// Reads an answer with this HTTP status.
    pub(crate) fn read(doing: &str, status: u16, etag: Option<String>, body: &[u8]) -> Result<Self, ClientError> {
        if has_more_values_than(body, MOST_VALUES) {
            let reason = format!("status {status}, more than {MOST_VALUES} values");
            return Err(ClientError::NotUnderstood { doing: doing.to_owned(), reason });
        }
        let envelope: Envelope = serde_json::from_slice(body).map_err(|error| ClientError::NotUnderstood {
            doing: doing.to_owned(),
            reason: format!("status {status}, {} bytes, {error}", body.len()),
        })?;
        let mut metadata = envelope.metadata.unwrap_or_default();
        match envelope.kind.as_str() {
            "sync" => Ok(Self::Done { metadata, etag }),
            "async" => match envelope.operation.as_deref().and_then(operation_path) {
                Some(operation) => Ok(Self::Begun { operation, told: metadata["metadata"].take() }),
                None => Err(ClientError::NotUnderstood {
                    doing: doing.to_owned(),
                    reason: "it names no operation".to_owned(),
                }),
            },
            "error" => {
                let code = envelope.error_code.and_then(|code| u16::try_from(code).ok()).filter(|code| *code != 0);
                let text = one_line(&envelope.error.unwrap_or_default());
                match code.unwrap_or(status) {
                    // Incus 7.0 says this code of one member, too.
                    503 if !text.contains("is offline") => Err(ClientError::NoQuorum { text }),
                    code => Err(ClientError::Refused { doing: doing.to_owned(), code, text }),
                }
            }
            other => Err(ClientError::NotUnderstood {
                doing: doing.to_owned(),
                reason: format!("its type is '{other}', not sync, async or error"),
            }),
        }
    }
}

/// The path alone: some versions add a query, to which nothing can be appended.
fn operation_path(operation: &str) -> Option<String> {
    let path = operation.split('?').next().unwrap_or_default();
    let id = path.strip_prefix("/1.0/operations/")?;
    (!id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')).then(|| path.to_owned())
}

/// Messages of a CPI are one line, and no longer than somebody reads.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split_whitespace().take(LONGEST).collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, body: &str) -> Result<Answer, ClientError> {
        Answer::read("look", status, None, body.as_bytes())
    }

    #[test]
    fn the_three_shapes_are_read() {
        let done = read(200, r#"{"type":"sync","status":"Success","status_code":200,"metadata":[1]}"#).unwrap();
        assert_eq!(done, Answer::Done { metadata: json!([1]), etag: None });
        for operation in ["/1.0/operations/a-1", "/1.0/operations/a-1?project=bosh-d1"] {
            let begun = read(202, &format!(r#"{{"type":"async","operation":"{operation}","metadata":null}}"#)).unwrap();
            assert_eq!(begun, Answer::Begun { operation: "/1.0/operations/a-1".to_owned(), told: Value::Null });
        }
        let refused = read(404, r#"{"type":"error","error_code":404,"error":"Instance\n not found"}"#).unwrap_err();
        assert!(refused.is_missing() && refused.says("INSTANCE not found"), "{refused}");
        assert_eq!(refused.to_string(), "cannot look: Instance not found");
    }

    #[test]
    fn half_an_answer_and_what_is_none_is_an_unknown_effect() {
        for (status, body) in [
            (200, r#"{"type":"sync","metadata":{"na"#),
            (200, ""),
            (502, "<html>Bad Gateway</html>"),
            (200, r#"{"type":"later"}"#),
            (202, r#"{"type":"async","operation":"/1.0/elsewhere/x"}"#),
            (202, r#"{"type":"async","operation":"/1.0/operations/../instances"}"#),
        ] {
            let error = read(status, body).unwrap_err();
            assert!(error.is_unknown_effect() && error.is_transient(), "{body}: {error}");
        }
    }

    #[test]
    fn an_answer_that_would_take_all_memory_is_not_read_and_a_long_message_is_cut() {
        let many = format!(r#"{{"type":"sync","metadata":[{}0]}}"#, "0,".repeat(MOST_VALUES));
        let error = read(200, &many).unwrap_err();
        assert!(error.is_unknown_effect() && error.to_string().contains("more than 2000000 values"), "{error}");
        let text = format!(r#"{{"type":"sync","metadata":"{}\"{}"}}"#, ",".repeat(MOST_VALUES), ":[{".repeat(10));
        assert!(read(200, &text).is_ok(), "the letters of a text are no values");
        let long = format!(r#"{{"type":"error","error_code":400,"error":"{}"}}"#, "no ".repeat(1_000_000));
        let error = read(400, &long).unwrap_err().to_string();
        assert!(error.contains("no no") && error.len() < LONGEST + 100, "{}", error.len());
    }

    #[test]
    fn refusals_are_told_apart() {
        let refused = |code: u16, text: &str| {
            read(code, &json!({"type": "error", "error_code": code, "error": text}).to_string()).unwrap_err()
        };
        assert!(matches!(refused(503, "no available dqlite leader server found"), ClientError::NoQuorum { .. }));
        assert!(refused(412, "ETag doesn't match: a vs b").is_stale());
        assert!(refused(500, r#"Instance "a-1" already exists"#).is_taken());
        assert!(refused(500, "UNIQUE constraint failed: instances.project_id, instances.name").is_taken());
        assert!(refused(409, "Volume by that name already exists").is_taken());
        assert!(refused(400, r#"Instance is busy running a "create" operation"#).is_busy());
        assert!(refused(500, "A matching non-reusable operation has now succeeded").is_busy());
        for (code, text) in [
            (500, "Missing event connection with target cluster member"),
            (500, "Target cluster member is unavailable"),
            (503, r#"Cluster member "n2" is offline"#),
        ] {
            let error = refused(code, text);
            assert!(error.is_member_down() && error.is_transient() && !error.is_missing(), "{error}");
        }
    }
}
