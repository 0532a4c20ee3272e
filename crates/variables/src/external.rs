//! A config server somewhere else, with version 1 of the API of BOSH's, over HTTPS.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_contract::{Secret, has_more_values_than};

use crate::generate::Generation;
use crate::server::{ConfigServer, ServerError, Version};

/// How often a server is tried that cannot be reached.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_TRIES: Duration = Duration::from_millis(200);
/// How much of a refusal is told.
const LONGEST_REASON: usize = 1000;
/// How many bytes an answer may have, and how many values. The director's own values have a quarter of it.
const LARGEST_ANSWER: usize = 1 << 20;
const MOST_VALUES: usize = 20_000;
/// How long an id and a name may be: as long as CredHub's names.
const LONGEST_ID: usize = 1024;

/// Where a config server is, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalSettings {
    /// Without `/v1/data`.
    pub url: String,
    /// The CAs that it is believed by, as PEM; none for those of the system.
    pub ca_cert: Option<String>,
    pub authorization: Authorization,
}

/// What a config server is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    Nothing,
    /// A user and password, as another director takes them.
    Basic {
        client: String,
        secret: Secret,
    },
    /// A token of a UAA for a client.
    Uaa {
        url: String,
        client: String,
        secret: Secret,
        ca_cert: Option<String>,
    },
}

/// why a config server cannot be used
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// its CA is no certificate
    #[error("the CA of {url} cannot be used")]
    Client {
        url: String,
        #[source]
        source: reqwest::Error,
    },
}

/// A config server that is asked over HTTPS.
#[derive(Debug)]
pub struct External {
    http: reqwest::Client,
    uaa: reqwest::Client,
    settings: ExternalSettings,
    token: tokio::sync::Mutex<Option<Secret>>,
}

#[derive(Deserialize)]
struct Found {
    data: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    id: Id,
    name: String,
    value: Value,
}

/// Text, and a number with some versions of BOSH's own.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(i64),
}

#[derive(Deserialize)]
struct Token {
    access_token: Secret,
}

impl Answer {
    /// The version that it is about, if it names one as it should.
    fn version(self, name: &str) -> Result<Version, ServerError> {
        let id = match self.id {
            Id::Text(id) => id,
            Id::Number(number) => number.to_string(),
        };
        if id.len() > LONGEST_ID || self.name.len() > LONGEST_ID {
            return Err(ServerError::Unreachable { name: name.to_owned(), source: OddAnswer::Id.into() });
        }
        Ok(Version { id, name: self.name, value: self.value })
    }
}

fn client(url: &str, ca_cert: Option<&str>) -> Result<reqwest::Client, ExternalError> {
    // Only the first one in a process counts, and all of them are the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let failed = |source| ExternalError::Client { url: url.to_owned(), source };
    let mut builder =
        reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).no_proxy();
    if let Some(pem) = ca_cert {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(failed)?);
    }
    builder.build().map_err(failed)
}

fn unreachable(name: &str, error: reqwest::Error) -> ServerError {
    // Its URL has the name only; what was sent and answered is not in it.
    ServerError::Unreachable { name: name.to_owned(), source: error.into() }
}

/// what a config server answers cannot be used; never quoted, because it may be a value
#[derive(Debug, thiserror::Error)]
enum OddAnswer {
    /// it has too many bytes
    #[error("its answer has more than {LARGEST_ANSWER} bytes")]
    Bytes,
    /// it would take very much memory
    #[error("its answer has more than {MOST_VALUES} values")]
    Values,
    /// each id and name is kept with every deployment that uses the variable
    #[error("its answer has an id or a name of more than {LONGEST_ID} bytes")]
    Id,
    /// it is something else
    #[error("its answer is not what a config server says (at byte {0})")]
    Form(usize),
}

/// The body of an answer. A server that never ends one, or whose values are huge, would take the memory of all.
async fn read<T: DeserializeOwned>(name: &str, mut answer: Response) -> Result<T, ServerError> {
    let odd = |source: OddAnswer| ServerError::Unreachable { name: name.to_owned(), source: source.into() };
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| unreachable(name, error))? {
        if body.len() + part.len() > LARGEST_ANSWER {
            return Err(odd(OddAnswer::Bytes));
        }
        body.extend_from_slice(&part);
    }
    if has_more_values_than(&body, MOST_VALUES) {
        return Err(odd(OddAnswer::Values));
    }
    serde_json::from_slice(&body).map_err(|error| odd(OddAnswer::Form(error.column())))
}

impl External {
    pub fn new(settings: ExternalSettings) -> Result<Self, ExternalError> {
        let http = client(&settings.url, settings.ca_cert.as_deref())?;
        let uaa = match &settings.authorization {
            Authorization::Uaa { url, ca_cert, .. } => client(url, ca_cert.as_deref())?,
            _ => http.clone(),
        };
        Ok(Self { http, uaa, settings, token: tokio::sync::Mutex::default() })
    }

    /// Sends a request; with a new token if the one that is known is refused, and again if nobody answers.
    async fn send(
        &self,
        name: &str,
        method: Method,
        path: &str,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ServerError> {
        let url = format!("{}/v1/data{path}", self.settings.url.trim_end_matches('/'));
        let mut has_new_token = false;
        let mut tries = 1;
        loop {
            let request = fill(self.http.request(method.clone(), &url));
            let request = self.authorized(name, request, has_new_token).await?;
            match request.send().await {
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED && !has_new_token => has_new_token = true,
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_connect() && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                Err(error) => return Err(unreachable(name, error)),
            }
        }
    }

    async fn authorized(&self, name: &str, request: RequestBuilder, anew: bool) -> Result<RequestBuilder, ServerError> {
        match &self.settings.authorization {
            Authorization::Nothing => Ok(request),
            Authorization::Basic { client, secret } => Ok(request.basic_auth(client, Some(secret.reveal()))),
            Authorization::Uaa { url, client, secret, .. } => {
                let mut known = self.token.lock().await;
                if anew || known.is_none() {
                    let form = "grant_type=client_credentials";
                    let asked = self.uaa.post(format!("{}/oauth/token", url.trim_end_matches('/')));
                    let asked = asked.basic_auth(client, Some(secret.reveal()));
                    let asked = asked.header("Content-Type", "application/x-www-form-urlencoded").body(form).send();
                    let answer = asked.await.and_then(Response::error_for_status);
                    let answer = answer.map_err(|error| unreachable(name, error))?;
                    let token: Token = read(name, answer).await?;
                    *known = Some(token.access_token);
                }
                Ok(match &*known {
                    Some(token) => request.bearer_auth(token.reveal()),
                    None => request,
                })
            }
        }
    }
}

/// Why it says no, as far as it should be told.
async fn refusal(name: &str, answer: Response) -> ServerError {
    #[derive(Deserialize)]
    struct Reason {
        error: String,
    }
    let status = answer.status();
    let reason = read::<Reason>(name, answer).await.map(|reason| reason.error).unwrap_or_default();
    let reason: String =
        format!("HTTP Code '{}', Error: '{reason}'", status.as_u16()).chars().take(LONGEST_REASON).collect();
    ServerError::Refused { name: name.to_owned(), reason }
}

#[async_trait]
impl ConfigServer for External {
    async fn current(&self, name: &str) -> Result<Option<Version>, ServerError> {
        let answer = self.send(name, Method::GET, "", |it| it.query(&[("name", name), ("current", "true")])).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let found: Found = read(name, answer).await?;
                found.data.into_iter().next().map(|found| found.version(name)).transpose()
            }
            _ => Err(refusal(name, answer).await),
        }
    }

    async fn version(&self, name: &str, id: &str) -> Result<Option<Version>, ServerError> {
        let is_plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_plain {
            return Ok(None);
        }
        let answer = self.send(name, Method::GET, &format!("/{id}"), |it| it).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let found: Answer = read(name, answer).await?;
                Ok(Some(found.version(name)?).filter(|version| version.name == name))
            }
            _ => Err(refusal(name, answer).await),
        }
    }

    async fn generate(&self, request: &Generation) -> Result<Version, ServerError> {
        let name = &request.name;
        let parameters = if request.parameters.is_null() { json!({}) } else { request.parameters.clone() };
        let body = json!({"name": name, "type": request.kind, "parameters": parameters, "mode": request.mode.as_str()});
        let answer = self.send(name, Method::POST, "", |it| it.json(&body)).await?;
        if !answer.status().is_success() {
            return Err(refusal(name, answer).await);
        }
        let made: Answer = read(name, answer).await?;
        made.version(name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::generate::Mode;

    /// Answers requests one after the other, and remembers them.
    async fn server(answers: Vec<(u16, Value)>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            let mut answers = VecDeque::from(answers);
            while let Some((status, body)) = answers.pop_front() {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                loop {
                    let mut part = [0; 4096];
                    let length = stream.read(&mut part).await.unwrap();
                    request.extend(&part[..length]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let head = head.to_lowercase();
                    let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    if body.len() >= wanted.map_or(0, |length| length.parse().unwrap()) {
                        break;
                    }
                }
                seen.lock().unwrap().push(String::from_utf8(request).unwrap());
                let body = body.to_string();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                // A client that has read enough hangs up.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (url, asked)
    }

    fn version(id: Value) -> Value {
        json!({"id": id, "name": "/a", "value": "hunter2"})
    }

    #[tokio::test]
    async fn a_token_that_is_refused_is_made_anew_once() {
        let (uaa, tokens) =
            server(vec![(200, json!({"access_token": "one"})), (200, json!({"access_token": "two"}))]).await;
        let found = json!({"data": [version(json!("12"))]});
        let refused = json!({"error": "no"});
        let (url, asked) = server(vec![
            (200, found.clone()),
            (401, refused.clone()),
            (200, found),
            (401, refused.clone()),
            (401, refused),
        ])
        .await;
        let (client, secret) = ("director".to_owned(), Secret::new("pass"));
        let authorization = Authorization::Uaa { url: uaa, client, secret, ca_cert: None };
        let server =
            External::new(ExternalSettings { url: format!("{url}/api/"), ca_cert: None, authorization }).unwrap();
        for _ in 0..2 {
            let current = server.current("/a").await.unwrap().unwrap();
            assert_eq!((current.id.as_str(), &current.value), ("12", &json!("hunter2")));
        }
        let asked = asked.lock().unwrap().clone();
        assert!(asked[0].starts_with("GET /api/v1/data?name=%2Fa&current=true "), "{}", asked[0]);
        let token = |request: &String| {
            request.to_lowercase().lines().find(|line| line.starts_with("authorization")).unwrap().to_owned()
        };
        assert_eq!(
            asked.iter().map(token).collect::<Vec<_>>(),
            ["authorization: bearer one", "authorization: bearer one", "authorization: bearer two"]
        );
        assert!(tokens.lock().unwrap()[0].contains("grant_type=client_credentials"));
    }

    #[tokio::test]
    async fn values_are_asked_for_and_made_as_bosh_does_it() {
        let answers = vec![
            (404, json!({"error": "Name '/a' not found"})),
            (201, version(json!(7))),
            (200, version(json!("7"))),
            (400, json!({"error": "Unknown type"})),
        ];
        let (url, asked) = server(answers).await;
        let authorization = Authorization::Basic { client: "eve".into(), secret: Secret::new("pass") };
        let server = External::new(ExternalSettings { url, ca_cert: None, authorization }).unwrap();
        assert_eq!(server.current("/a").await.unwrap(), None);
        let request =
            Generation { name: "/a".into(), kind: "password".into(), parameters: Value::Null, mode: Mode::Converge };
        assert_eq!(server.generate(&request).await.unwrap().id, "7");
        assert_eq!(server.version("/a", "7").await.unwrap().unwrap().id, "7");
        let refused = server.generate(&request).await.unwrap_err().to_string();
        assert_eq!(refused, "the config server refuses '/a': HTTP Code '400', Error: 'Unknown type'");
        assert_eq!(server.version("/a", "../x").await.unwrap(), None, "no other path is asked for");
        let asked = asked.lock().unwrap().clone();
        let body = asked[1].split_once("\r\n\r\n").unwrap().1;
        let expected = json!({"name": "/a", "type": "password", "parameters": {}, "mode": "converge"});
        assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);
        assert!(asked[2].starts_with("GET /v1/data/7 "), "{}", asked[2]);
    }

    /// A server that was taken over, or is none, would take the director's memory with one answer, and have values in logs.
    #[tokio::test]
    async fn answers_that_are_huge_or_odd_are_given_up_and_never_quoted() {
        let huge = json!({"data": [{"id": "1", "name": "/a", "value": "x".repeat(LARGEST_ANSWER)}]});
        let many = json!({"data": [{"id": "1", "name": "/a", "value": vec![0; MOST_VALUES]}]});
        let long_id = json!({"data": [{"id": "1".repeat(LONGEST_ID + 1), "name": "/a", "value": "x"}]});
        let large = json!({"data": [{"id": "1", "name": "/a", "value": "x".repeat(256 << 10)}]});
        for (status, answer, expected) in [
            (200, huge.clone(), "more than 1048576 bytes"),
            (200, many, "more than 20000 values"),
            (200, long_id, "an id or a name of more than 1024 bytes"),
            (200, json!({"data": "hunter2"}), "not what a config server says"),
            (400, huge, "HTTP Code '400', Error: ''"),
        ] {
            let (url, _) = server(vec![(status, answer)]).await;
            let settings = ExternalSettings { url, ca_cert: None, authorization: Authorization::Nothing };
            let error = External::new(settings).unwrap().current("/a").await.unwrap_err();
            let told = windlass_contract::explain(&error);
            assert!(told.contains(expected) && !told.contains("hunter2"), "{told:.300}");
        }
        let (url, _) = server(vec![(200, large)]).await;
        let settings = ExternalSettings { url, ca_cert: None, authorization: Authorization::Nothing };
        assert!(External::new(settings).unwrap().current("/a").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_told_with_the_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let settings = ExternalSettings { url, ca_cert: None, authorization: Authorization::Nothing };
        let refused = External::new(settings).unwrap().current("/a").await.unwrap_err();
        assert_eq!(refused.to_string(), "the config server cannot be asked for '/a'");
    }
}
