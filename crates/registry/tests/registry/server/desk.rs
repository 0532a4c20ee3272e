//! A registry with its database, and a client that sees the bytes.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_contract::Secret;
use windlass_database::PrivatePostgres;
use windlass_registry::server::{Config, Registry};
use windlass_registry::{Client, Credentials};

pub(crate) const USER: &str = "cpi";
pub(crate) const PASSWORD: &str = "hunter2";
/// Far more than any step takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A database of its own; dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) enum Base {
    Sqlite(tempfile::TempDir),
    Postgres(PrivatePostgres),
}

impl Base {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(PrivatePostgres::start().unwrap())
    }

    /// One of each kind.
    pub(crate) fn each() -> [Self; 2] {
        [Self::sqlite(), Self::postgres()]
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("registry.db").display()),
            Self::Postgres(server) => server.url(),
        }
    }

    pub(crate) fn config(&self) -> Config {
        let writer = Credentials { user: USER.into(), password: Secret::new(PASSWORD) };
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Config { count_instances: true, ..Config::new(listen, Secret::new(self.url()), vec![writer]) }
    }

    pub(crate) async fn registry(&self) -> Registry {
        Registry::start(self.config()).await.unwrap()
    }
}

/// A client that may write.
pub(crate) fn writer(registry: &Registry) -> Client {
    Client::new(&Secret::new(registry.endpoint())).unwrap().with_credentials(USER, Secret::new(PASSWORD))
}

/// The credentials in a request's head.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// The writer's credentials in a request's head.
pub(crate) fn as_writer() -> String {
    basic(USER, PASSWORD)
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends these bytes, and reads until the registry closes.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A registry may answer and close before it has read everything.
    let _ = stream.write_all(request).await;
    read_answer(&mut stream).await
}

pub(crate) async fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the connection stays open");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// One request with these header lines.
pub(crate) async fn ask(registry: &Registry, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    exchange(registry.address(), &request(method, path, headers, body)).await
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: r\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// Polls until it is so.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
