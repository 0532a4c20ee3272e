//! The three shapes of an answer, as all versions of both servers write them.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_contract::has_more_values_than;

use super::ClientError;

/// How many values an answer may have that lists everything of a kind: an instance has some hundred. Each takes far more memory
/// than it has letters.
pub(crate) const MOST_OF_LIST: usize = 2_000_000;
/// And one about a single thing. What a large machine has of processors and devices is the longest.
pub(crate) const MOST_OF_ONE: usize = 200_000;

/// How many letters of a message are told.
const LONGEST: usize = 4000;

/// What the daemon answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done {
        /// What was asked for.
        metadata: Metadata,
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

/// What was asked for, as it came. It is read once it is known what it should be, so what nobody asks for takes no memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata(Bytes);

impl Metadata {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        #[derive(Deserialize)]
        struct Whole<T> {
            metadata: T,
        }
        serde_json::from_slice::<Whole<T>>(&self.0).map(|whole| whole.metadata)
    }
}

/// What an operation tells at its beginning.
#[derive(Default, Deserialize)]
struct Told {
    #[serde(default)]
    metadata: Value,
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
}

impl Answer {
    /// Reads an answer with this HTTP status, of so many values.
    pub(crate) fn read(
        doing: &str,
        status: u16,
        etag: Option<String>,
        body: Bytes,
        most: usize,
    ) -> Result<Self, ClientError> {
        let not_understood = |reason: String| ClientError::NotUnderstood { doing: doing.to_owned(), reason };
        if has_more_values_than(&body, most) {
            return Err(not_understood(format!("status {status}, more than {most} values")));
        }
        let envelope: Envelope = serde_json::from_slice(&body)
            .map_err(|error| not_understood(format!("status {status}, {} bytes, {error}", body.len())))?;
        match envelope.kind.as_str() {
            "sync" => Ok(Self::Done { metadata: Metadata(body), etag }),
            "async" => match envelope.operation.as_deref().and_then(operation_path) {
                // One that tells nothing, or something else, is waited for all the same.
                Some(operation) => {
                    let told: Option<Told> = Metadata(body).read().unwrap_or_default();
                    Ok(Self::Begun { operation, told: told.unwrap_or_default().metadata })
                }
                None => Err(not_understood("it names no operation".to_owned())),
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
            other => Err(not_understood(format!("its type is '{other}', not sync, async or error"))),
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
        Answer::read("look", status, None, body.to_owned().into(), MOST_OF_ONE)
    }

    #[test]
    fn the_three_shapes_are_read() {
        let done = read(200, r#"{"type":"sync","status":"Success","status_code":200,"metadata":[1]}"#).unwrap();
        let Answer::Done { metadata, etag: None } = done else { panic!("{done:?}") };
        assert_eq!(metadata.read::<Vec<u8>>().unwrap(), [1]);
        for operation in ["/1.0/operations/a-1", "/1.0/operations/a-1?project=bosh-d1"] {
            let begun = read(202, &format!(r#"{{"type":"async","operation":"{operation}","metadata":null}}"#)).unwrap();
            assert_eq!(begun, Answer::Begun { operation: "/1.0/operations/a-1".to_owned(), told: Value::Null });
        }
        let refused = read(404, r#"{"type":"error","error_code":404,"error":"Instance\n not found"}"#).unwrap_err();
        assert!(refused.is_missing() && refused.says("INSTANCE not found"), "{refused}");
        assert_eq!(refused.to_string(), "cannot look: Instance not found");
    }

    #[test]
    fn what_an_operation_tells_is_known_and_what_it_should_not_tell_is_ignored() {
        let told = |metadata: Value| {
            let body = json!({"type": "async", "operation": "/1.0/operations/a", "metadata": metadata}).to_string();
            let Answer::Begun { told, .. } = read(202, &body).unwrap() else { panic!("{body}") };
            told
        };
        assert_eq!(told(json!({"id": "a", "metadata": {"control": "secret"}})), json!({"control": "secret"}));
        for nothing in [json!(null), json!({}), json!("x")] {
            assert_eq!(told(nothing), Value::Null);
        }
    }

    /// It took 339 MB when all of an answer was kept.
    #[test]
    fn what_nobody_asks_for_takes_no_memory() {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let body =
            format!(r#"{{"type":"sync","metadata":[{{"name":"a","more":[{}0]}}]}}"#, "0,".repeat(MOST_OF_LIST - 20));
        let read = Answer::read("list", 200, None, body.clone().into(), MOST_OF_LIST).unwrap();
        let Answer::Done { metadata, .. } = read else { panic!("{read:?}") };
        assert_eq!(metadata.read::<Vec<Named>>().unwrap()[0].name, "a");
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
        let kib: u64 = most.trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 100 << 10, "{most}");
        Answer::read("look", 200, None, body.into(), MOST_OF_ONE).unwrap_err();
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
        let many = format!(r#"{{"type":"sync","metadata":[{}0]}}"#, "0,".repeat(MOST_OF_ONE));
        let error = read(200, &many).unwrap_err();
        assert!(error.is_unknown_effect() && error.to_string().contains("more than 200000 values"), "{error}");
        let text = format!(r#"{{"type":"sync","metadata":"{}\"{}"}}"#, ",".repeat(MOST_OF_ONE), ":[{".repeat(10));
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
