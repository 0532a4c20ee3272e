//! The director, over HTTPS.

use std::error::Error;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION, RANGE};
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_contract::Secret;
use windlass_durable::kill_point;

use crate::environment::Environment;

/// A connection to a director.
#[derive(Debug)]
pub struct DirectorClient {
    http: Client,
    url: String,
    user: Option<(String, Secret)>,
    /// Once it answered, an interruption is worth waiting for: a director may be restarted under a task.
    answered: AtomicBool,
}

/// why the director did not do what was asked
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the director's CA certificate cannot be used; --ca-cert takes a file or PEM text")]
    Ca(#[source] Cause),
    #[error(
        "{}cannot reach the director at {url}; check that it runs and that -e, BOSH_ENVIRONMENT or --state-dir names it",
        no_alias(url)
    )]
    Unreachable { url: String, source: Cause },
    #[error("the certificate of the director at {url} is not trusted; --ca-cert or BOSH_CA_CERT names its CA")]
    Untrusted { url: String, source: Cause },
    #[error("the director at {url} refuses these credentials; check BOSH_CLIENT and BOSH_CLIENT_SECRET")]
    Unauthorized { url: String },
    #[error(
        "the director at {url} wants to know who you are; 'windlass log-in' tells it, or BOSH_CLIENT and BOSH_CLIENT_SECRET"
    )]
    Anonymous { url: String },
    #[error("{}", refused(*status, message))]
    Refused { status: StatusCode, message: String },
    #[error("the director's answer cannot be understood; is it of another version?")]
    Answer(#[source] Cause),
    #[error("the director's answer is longer than {} MiB; nothing that a director lists is", LONGEST >> 20)]
    TooLong,
    #[error("the director began no task, although it should have; is it of another version?")]
    NoTask,
    #[error("cannot read '{path}'")]
    File { path: String, source: std::io::Error },
}

/// The innermost cause of a failure, which is the one that helps.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cause(String);

/// An answer as it came.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl RawAnswer {
    /// The body, if the director did what was asked.
    pub fn accepted(self) -> Result<Vec<u8>, ClientError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        Err(refusal(self.status, &String::from_utf8_lossy(&self.body)))
    }
}

/// A word without dots is more often a name that `alias-env` was to give than that of a machine.
fn no_alias(url: &str) -> String {
    let host = url.trim_start_matches("https://").split(':').next().unwrap_or_default();
    match host.contains(['.', '[']) || host == "localhost" {
        true => String::new(),
        false => format!("no director has the name '{host}' here ('windlass environments' lists them); "),
    }
}

/// What the director says of a request is what people need to know. Where it failed itself, they need to know that.
fn refused(status: StatusCode, message: &str) -> String {
    match (status.is_server_error(), message.is_empty()) {
        (false, false) => message.to_owned(),
        (false, true) => format!("the director answered {status}"),
        (true, _) => {
            format!("{message} (the director answered {status}; 'windlass status' on its machine names its log)")
        }
    }
}

fn refusal(status: StatusCode, body: &str) -> ClientError {
    let described = serde_json::from_str::<Value>(body).ok();
    let described = described.as_ref().and_then(|body| body.get("description")?.as_str());
    ClientError::Refused { status, message: described.unwrap_or(body.trim()).to_owned() }
}

impl ClientError {
    /// The status with which the director refused.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// For JSON that came in another way than as an answer.
    pub fn from_json(error: serde_json::Error) -> Self {
        Self::Answer(Cause(error.to_string()))
    }
}

impl Cause {
    fn of(error: &dyn Error) -> Self {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Self(innermost.to_string())
    }
}

/// Longer than a director takes to start again; the original gives up after 2.5 seconds.
const INTERRUPTION: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(300);
/// How much of an answer is kept in memory, of an output of a task at a time, and of the reason of a refusal.
pub(crate) const LONGEST: usize = 256 << 20;
pub(crate) const PIECE: usize = 16 << 20;
const REASON: usize = 64 << 10;

/// Everything except what RFC 3986 leaves alone.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'*');

/// A query with its `?`, escaped; nothing if there is nothing to ask.
pub fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{}={}", escape(name), escape(&value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// A path or a value of a query, escaped.
pub fn escape(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

impl DirectorClient {
    /// For a director; nothing is sent yet.
    pub fn new(environment: &Environment) -> Result<Self, ClientError> {
        install_cryptography();
        let unusable = |error: reqwest::Error| ClientError::Ca(Cause::of(&error));
        // Proxies of other programs are not meant for the director, as with the original.
        let mut http = Client::builder()
            .redirect(redirect::Policy::none())
            .https_only(true)
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(SILENCE);
        if let Some(ca) = &environment.ca {
            let certificates = reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(unusable)?;
            if certificates.is_empty() {
                return Err(ClientError::Ca(Cause("it holds no certificate".into())));
            }
            http = http.tls_certs_only(certificates);
        }
        let user = environment.client.clone().zip(environment.client_secret.clone());
        let http = http.build().map_err(unusable)?;
        Ok(Self { http, url: environment.url.clone(), user, answered: AtomicBool::new(false) })
    }

    /// The same director for somebody who works beside.
    pub fn twin(&self) -> Self {
        let (http, url, user) = (self.http.clone(), self.url.clone(), self.user.clone());
        Self { http, url, user, answered: AtomicBool::new(false) }
    }

    /// A POST of a body that comes by and by, and is answered while it comes.
    pub async fn stream(&self, path: &str, body: Body) -> Result<Response, ClientError> {
        kill_point("before the director is called");
        let sent = self.request(Method::POST, path).body(body).send().await;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        kill_point("after the director was called");
        self.check(response).await
    }

    /// What a GET answers.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read_json(self.send(Method::GET, path, |request| request).await?).await
    }

    /// What a POST of JSON answers.
    pub async fn post_json<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, ClientError> {
        read_json(self.send(Method::POST, path, |request| request.json(body)).await?).await
    }

    /// What a POST of YAML answers.
    pub async fn post_yaml<T: DeserializeOwned>(&self, path: &str, yaml: &str) -> Result<T, ClientError> {
        read_json(self.send(Method::POST, path, |request| as_yaml(request, yaml)).await?).await
    }

    /// A POST of YAML whose answer says nothing.
    pub async fn store_yaml(&self, path: &str, yaml: &str) -> Result<(), ClientError> {
        self.send(Method::POST, path, |request| as_yaml(request, yaml)).await.map(|_| ())
    }

    /// A PUT of JSON whose answer says nothing.
    pub async fn put_json(&self, path: &str, body: &Value) -> Result<(), ClientError> {
        self.send(Method::PUT, path, |request| request.json(body)).await.map(|_| ())
    }

    /// A POST of JSON that may begin a task, for which nobody waits.
    pub async fn send_json(&self, path: &str, body: &Value) -> Result<(), ClientError> {
        self.send(Method::POST, path, |request| request.json(body)).await.map(|_| ())
    }

    /// A DELETE whose answer says nothing.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, |request| request).await.map(|_| ())
    }

    /// The number of the task that a call begins.
    pub async fn begin(&self, method: Method, path: &str, yaml: Option<&str>) -> Result<u64, ClientError> {
        let with_body = |request| yaml.into_iter().fold(request, as_yaml);
        task_of(&self.send(method, path, with_body).await?)
    }

    /// The number of the task that a call with JSON begins.
    pub async fn begin_json(&self, method: Method, path: &str, body: &Value) -> Result<u64, ClientError> {
        task_of(&self.send(method, path, |request| request.json(body)).await?)
    }

    /// Whatever a request is answered with, whether that is good or not.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<RawAnswer, ClientError> {
        let mut request = self.request(method, path).headers(headers.clone());
        if let Some(body) = body {
            request = request.body(body);
        }
        kill_point("before the director is called");
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        kill_point("after the director was called");
        let (status, headers) = (response.status(), response.headers().clone());
        let (body, is_whole) = read_up_to(LONGEST, response).await.map_err(|error| self.unreachable(&error))?;
        if is_whole { Ok(RawAnswer { status, headers, body }) } else { Err(ClientError::TooLong) }
    }

    /// Writes what a GET answers to a file.
    pub async fn download(&self, path: &str, file: &mut std::fs::File) -> Result<(), ClientError> {
        use std::io::Write;
        let mut response = self.send(Method::GET, path, |request| request).await?;
        let lost = |source: std::io::Error| ClientError::File { path: path.to_owned(), source };
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            file.write_all(&chunk).map_err(lost)?;
        }
        file.sync_all().map_err(lost)
    }

    /// The number of the task that takes an uploaded file. `progress` hears how many bytes are sent.
    pub async fn upload(
        &self,
        path: &str,
        file: &Path,
        progress: impl FnMut(u64) + Send + 'static,
    ) -> Result<u64, ClientError> {
        let unreadable = |source| ClientError::File { path: file.display().to_string(), source };
        let opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
        let size = opened.metadata().await.map_err(unreadable)?.len();
        let request = self.request(Method::POST, path);
        let request = request.header(CONTENT_TYPE, "application/x-compressed").header(CONTENT_LENGTH, size);
        kill_point("before a file is uploaded to the director");
        let sent = request.body(Body::wrap_stream(chunks(opened, progress))).send().await;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        kill_point("after a file was uploaded to the director");
        task_of(&self.check(response).await?)
    }

    /// The output of a task from `offset` on, or a part of it; empty if there is nothing more yet.
    pub async fn output(&self, task: u64, kind: &str, offset: u64) -> Result<Vec<u8>, ClientError> {
        let path = format!("/tasks/{task}/output?type={kind}");
        let range = format!("bytes={offset}-");
        let answer = self.send(Method::GET, &path, |request| request.header(RANGE, &range)).await;
        match answer {
            Ok(response) => Ok(read_up_to(PIECE, response).await.map_err(|error| self.unreachable(&error))?.0),
            Err(ClientError::Refused { status: StatusCode::RANGE_NOT_SATISFIABLE, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.user {
            Some((user, password)) => request.basic_auth(user, Some(password.reveal())),
            None => request,
        }
    }

    /// Sends a call. What only reads is sent again after an interruption; what changes something is sent again only if it
    /// cannot have arrived.
    async fn send(
        &self,
        method: Method,
        path: &str,
        with_body: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        let began = Instant::now();
        let is_patient = || self.answered.load(Ordering::Relaxed) && began.elapsed() < INTERRUPTION;
        loop {
            kill_point("before the director is called");
            match with_body(self.request(method.clone(), path)).send().await {
                // Its database starts again, for example.
                Ok(response)
                    if response.status() == StatusCode::SERVICE_UNAVAILABLE
                        && method == Method::GET
                        && is_patient() =>
                {
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                Ok(response) => {
                    kill_point("after the director was called");
                    let is_here = response.status() != StatusCode::SERVICE_UNAVAILABLE;
                    self.answered.fetch_or(is_here, Ordering::Relaxed);
                    return self.check(response).await;
                }
                Err(error) => {
                    let repeatable = method == Method::GET || error.is_connect();
                    if !(repeatable && is_patient()) {
                        return Err(self.unreachable(&error));
                    }
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
            }
        }
    }

    async fn check(&self, response: Response) -> Result<Response, ClientError> {
        let status = response.status();
        if status.is_success() || status == StatusCode::FOUND {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED {
            let url = self.url.clone();
            return Err(match self.user {
                Some(_) => ClientError::Unauthorized { url },
                None => ClientError::Anonymous { url },
            });
        }
        let (reason, _) = read_up_to(REASON, response).await.unwrap_or_default();
        Err(refusal(status, &String::from_utf8_lossy(&reason)))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let (url, cause) = (self.url.clone(), Cause::of(error));
        if error.source().is_some_and(is_distrust) {
            return ClientError::Untrusted { url, source: cause };
        }
        ClientError::Unreachable { url, source: cause }
    }
}

/// The library takes its cryptography from the process; a second client finds it there.
fn install_cryptography() {
    static CRYPTOGRAPHY: Once = Once::new();
    CRYPTOGRAPHY.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
}

/// Whether TLS broke off because of the director's certificate.
fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return true;
    }
    // I/O errors do not name what they wrap as their source.
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(wrapped) => is_distrust(wrapped),
        None => error.source().is_some_and(is_distrust),
    }
}

fn as_yaml(request: RequestBuilder, yaml: &str) -> RequestBuilder {
    request.header(CONTENT_TYPE, "text/yaml").body(yaml.to_owned())
}

/// The body of an answer, or the first `most` bytes of it, and whether it is whole. A director may be hostile, and never end one.
async fn read_up_to(most: usize, mut response: Response) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = most - body.len();
        if chunk.len() > room {
            body.extend_from_slice(&chunk[..room]);
            return Ok((body, false));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((body, true))
}

async fn read_json<T: DeserializeOwned>(response: Response) -> Result<T, ClientError> {
    let (body, is_whole) =
        read_up_to(LONGEST, response).await.map_err(|error| ClientError::Answer(Cause::of(&error)))?;
    if !is_whole {
        return Err(ClientError::TooLong);
    }
    serde_json::from_slice(&body).map_err(ClientError::from_json)
}

fn task_of(response: &Response) -> Result<u64, ClientError> {
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    location.and_then(|location| location.rsplit_once("/tasks/")?.1.parse().ok()).ok_or(ClientError::NoTask)
}

/// The contents of a file, read as they are sent.
fn chunks(
    file: tokio::fs::File,
    progress: impl FnMut(u64) + Send + 'static,
) -> impl futures_util::Stream<Item = std::io::Result<Vec<u8>>> + Send + 'static {
    futures_util::stream::try_unfold((file, progress, 0), |(mut file, mut progress, sent)| async move {
        use tokio::io::AsyncReadExt;
        let mut chunk = vec![0; 256 * 1024];
        let length = file.read(&mut chunk).await?;
        chunk.truncate(length);
        let sent = sent + length as u64;
        progress(sent);
        Ok((length > 0).then_some((chunk, (file, progress, sent))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_the_path() {
        assert_eq!(escape("a/../b?c"), "a%2F..%2Fb%3Fc");
        assert_eq!(escape("*"), "*");
    }

    /// A hostile director had the client take all memory of the operator's machine.
    #[tokio::test]
    async fn of_an_endless_answer_only_the_beginning_is_kept() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = listener.accept().await.unwrap().0;
            let _request = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(b"HTTP/1.1 500 No\r\n\r\n").await.unwrap();
            while stream.write_all(&[b'x'; 1000]).await.is_ok() {}
        });
        install_cryptography();
        let answer = Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap();
        let (body, is_whole) = read_up_to(REASON, answer).await.unwrap();
        assert_eq!((body.len(), is_whole), (REASON, false));
    }

    #[tokio::test]
    async fn a_director_that_does_not_run_is_explained_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        drop(listener);
        let environment = Environment { url: url.clone(), ca: None, client: None, client_secret: None };
        let error = DirectorClient::new(&environment).unwrap().get::<Value>("/info").await.unwrap_err();
        assert!(error.to_string().contains(&url), "{error}");
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("refused"), "{cause}");
    }

    #[test]
    fn a_ca_that_is_none_is_refused_before_anything_is_sent() {
        let ca = Some("-----BEGIN nonsense".to_owned());
        let environment = Environment { url: "https://127.0.0.1:1".into(), ca, client: None, client_secret: None };
        assert!(matches!(DirectorClient::new(&environment), Err(ClientError::Ca(_))));
    }
}
