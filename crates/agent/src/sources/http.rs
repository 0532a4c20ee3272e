//! Metadata services: plain HTTP at an address that only the VM reaches, as EC2 and OpenStack have them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use windlass_durable::kill_point;

/// How often a service is asked before it counts as silent: it may come up after the VM.
const TRIES: u32 = 10;
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one answer may take.
const TRY: Duration = Duration::from_secs(10);
/// Settings are small; more than this is not read.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;

/// A metadata service that gives user data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpMetadata {
    /// Where it is; the paths come behind.
    pub(crate) uri: String,
    /// What every request says.
    pub(crate) headers: BTreeMap<String, String>,
    /// The settings, or where they are.
    pub(crate) user_data_path: String,
    /// What the cloud calls this VM.
    pub(crate) instance_id_path: Option<String>,
    /// The public key of the ssh user.
    pub(crate) ssh_keys_path: Option<String>,
    /// Where a token is to be had, if requests need one.
    pub(crate) token_path: Option<String>,
}

/// A metadata service that gives settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstanceMetadata {
    /// Where it is; the path comes behind.
    pub(crate) uri: String,
    /// What every request says.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) settings_path: String,
}

impl HttpMetadata {
    pub(super) fn user_data_url(&self) -> String {
        format!("{}{}", self.uri, self.user_data_path)
    }

    pub(super) fn user_data(&self) -> Result<Vec<u8>, String> {
        self.get(&self.user_data_path)
    }

    pub(super) fn instance_id(&self) -> Result<String, String> {
        let path = self.instance_id_path.as_deref().ok_or("the source of type 'HTTP' has no InstanceIDPath")?;
        Ok(String::from_utf8_lossy(&self.get(path)?).trim().to_owned())
    }

    /// A cloud that knows no key has nothing at this path, which is no failure.
    pub(super) fn public_key(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.ssh_keys_path else { return Ok(None) };
        let (status, key) = self.ask(path, |status| status.is_success() || status == StatusCode::NOT_FOUND)?;
        let key = String::from_utf8_lossy(&key).trim().to_owned();
        Ok(Some(key).filter(|key| status.is_success() && !key.is_empty()))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        Ok(self.ask(path, |status| status.is_success())?.1)
    }

    fn ask(&self, path: &str, is_answer: fn(StatusCode) -> bool) -> Result<(StatusCode, Vec<u8>), String> {
        let url = format!("{}{path}", self.uri);
        let mut headers = self.headers.clone();
        block_on(async {
            if let Some(token) = self.token().await {
                headers.insert("X-aws-ec2-metadata-token".to_owned(), token);
            }
            ask(&url, &headers, PAUSE, is_answer).await
        })
    }

    /// A service without tokens refuses to give one, which is no failure.
    async fn token(&self) -> Option<String> {
        let url = format!("{}{}", self.uri, self.token_path.as_ref()?);
        let mut headers = self.headers.clone();
        headers.insert("X-aws-ec2-metadata-token-ttl-seconds".to_owned(), "300".to_owned());
        let (status, body) = once(Method::PUT, &url, &headers).await.ok()?;
        (status == StatusCode::OK).then(|| String::from_utf8_lossy(&body).trim().to_owned())
    }
}

impl InstanceMetadata {
    pub(super) fn settings_url(&self) -> String {
        format!("{}{}", self.uri, self.settings_path)
    }

    pub(super) fn settings(&self) -> Result<Vec<u8>, String> {
        Ok(block_on(ask(&self.settings_url(), &self.headers, PAUSE, |status| status.is_success()))?.1)
    }
}

/// Settings are loaded on threads that may wait.
fn block_on<T>(asking: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot ask a metadata service ({error})"))?.block_on(asking)
}

/// Asks until the status is an answer, or has been none too often.
async fn ask(
    url: &str,
    headers: &BTreeMap<String, String>,
    pause: Duration,
    is_answer: fn(StatusCode) -> bool,
) -> Result<(StatusCode, Vec<u8>), String> {
    let mut tries = 1;
    loop {
        let failure = match once(Method::GET, url, headers).await {
            Ok((status, body)) if is_answer(status) => return Ok((status, body.into())),
            Ok((status, _)) => format!("it answered {}", status.as_u16()),
            Err(error) => error.to_string(),
        };
        if tries == TRIES {
            return Err(format!("{url} cannot be read, tried {TRIES} times ({failure})"));
        }
        tokio::time::sleep(pause).await;
        tries += 1;
    }
}

async fn once(method: Method, url: &str, headers: &BTreeMap<String, String>) -> io::Result<(StatusCode, Bytes)> {
    kill_point("before a metadata service is asked");
    match tokio::time::timeout(TRY, exchange(method, url, headers)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {TRY:?}"))),
    }
}

async fn exchange(method: Method, url: &str, headers: &BTreeMap<String, String>) -> io::Result<(StatusCode, Bytes)> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let authority = uri.authority().ok_or_else(|| io::Error::other("the URI has no host"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(method).uri(path).header(HOST, authority.as_str());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map_err(io::Error::other)?;
        Ok((status, body.to_bytes()))
    };
    let answer = answer.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A service that gives these answers, one after the other, and what it was asked.
    async fn service(answers: Vec<&'static str>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                heard.lock().unwrap().push(String::from_utf8(request).unwrap().to_lowercase());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (uri, asked)
    }

    #[tokio::test]
    async fn a_service_that_comes_up_late_is_asked_again_and_a_silent_one_not_for_ever() {
        let late = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
        let (uri, asked) = service(vec![late, late, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"]).await;
        let headers = BTreeMap::from([("Metadata-Flavor".to_owned(), "Ours".to_owned())]);
        let pause = Duration::from_millis(1);
        let is_success = |status: StatusCode| status.is_success();
        let answer = ask(&format!("{uri}/a?b=c"), &headers, pause, is_success).await.unwrap();
        assert_eq!(answer, (StatusCode::OK, b"hi".to_vec()));
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 3);
        assert!(asked[0].starts_with("get /a?b=c http/1.1\r\n") && asked[0].contains("metadata-flavor: ours"));
        let error = ask(&uri, &headers, pause, is_success).await.unwrap_err();
        assert!(error.contains("cannot be read, tried 10 times"), "{error}");
    }

    #[tokio::test]
    async fn a_token_is_fetched_where_there_are_tokens() {
        let (uri, asked) = service(vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntok",
            "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
        ])
        .await;
        let token_path = Some("/latest/api/token".to_owned());
        let user_data_path = "/latest/user-data".to_owned();
        let metadata = HttpMetadata {
            uri,
            headers: BTreeMap::new(),
            user_data_path,
            instance_id_path: None,
            ssh_keys_path: None,
            token_path,
        };
        assert_eq!(metadata.token().await.as_deref(), Some("tok"));
        assert_eq!(metadata.token().await, None);
        let asked = asked.lock().unwrap().clone();
        assert!(asked[0].starts_with("put /latest/api/token http/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].contains("x-aws-ec2-metadata-token-ttl-seconds: 300"));
    }
}
