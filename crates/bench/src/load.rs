//! Load over kept connections: each sends a request, waits for the answer, and sends the next.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;
use windlass_contract::Secret;

/// A server and the way to it.
#[derive(Clone)]
pub(crate) struct Load {
    address: SocketAddr,
    tls: Option<TlsConnector>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// From the beginning of each exchange to its end.
    pub(crate) times: Vec<Duration>,
    elapsed: Duration,
}

impl Measured {
    pub(crate) fn add(&mut self, more: Self) {
        self.times.extend(more.times);
        self.elapsed += more.elapsed;
    }

    /// Exchanges per second.
    pub(crate) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Makes requests with credentials.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    host: String,
    credentials: Secret,
}

impl Requests {
    pub(crate) fn new(host: impl ToString, user: &str, password: &str) -> Self {
        let credentials = Secret::new(BASE64_STANDARD.encode(format!("{user}:{password}")));
        Self { host: host.to_string(), credentials }
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        self.with_body("GET", path, "")
    }

    pub(crate) fn with_body(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let (host, credentials) = (&self.host, self.credentials.reveal());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {credentials}\r\n{length}");
        format!("{head}\r\n{body}").into_bytes()
    }
}

/// Sends one of these requests; all connections together go through them again and again.
pub(crate) async fn one_of(requests: &[Vec<u8>], connection: &mut Connection, number: usize) -> io::Result<()> {
    connection.ok(&requests[number % requests.len()]).await.map(drop)
}

impl Load {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// Over TLS, trusting this CA.
    pub(crate) fn over_tls(address: SocketAddr, ca: &str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address, tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// Has exchanges for so long. Each is told the connection that it is over and its number.
    pub(crate) async fn run(
        &self,
        connections: usize,
        time: Duration,
        exchange: impl AsyncFn(&mut Connection, usize) -> io::Result<()> + 'static,
    ) -> io::Result<Measured> {
        let end = Instant::now() + time;
        self.converse(connections, move |_| Instant::now() < end, exchange).await
    }

    pub(crate) async fn send_each_once(&self, connections: usize, requests: Vec<Vec<u8>>) -> io::Result<()> {
        let all = requests.len();
        let send = async move |connection: &mut Connection, number| one_of(&requests, connection, number).await;
        self.converse(connections, move |number| number < all, send).await.map(drop)
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(ServerName::from(self.address.ip()), stream).await?),
            None => Box::new(stream),
        };
        Ok(Connection { stream, buffer: vec![0; 64 * 1024], filled: 0 })
    }

    async fn converse(
        &self,
        connections: usize,
        more: impl Fn(usize) -> bool + 'static,
        exchange: impl AsyncFn(&mut Connection, usize) -> io::Result<()> + 'static,
    ) -> io::Result<Measured> {
        // Connections are made before the clock starts: what they cost is not what is measured.
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(self.connect().await?);
        }
        let tasks = LocalSet::new();
        let shared = Rc::new((more, exchange));
        let started = Instant::now();
        let senders: Vec<_> = (0..)
            .zip(open)
            .map(|(first, mut connection)| {
                let shared = shared.clone();
                tasks.spawn_local(async move {
                    let (more, exchange) = &*shared;
                    let mut times = Vec::new();
                    let mut number = first;
                    while more(number) {
                        let started = Instant::now();
                        exchange(&mut connection, number).await?;
                        times.push(started.elapsed());
                        number += connections;
                    }
                    io::Result::Ok(times)
                })
            })
            .collect();
        tasks.await;
        let mut measured = Measured { times: Vec::new(), elapsed: started.elapsed() };
        for sender in senders {
            measured.times.extend(sender.await.map_err(io::Error::other)??);
        }
        Ok(measured)
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    filled: usize,
}

pub(crate) struct Answer<'a> {
    head: String,
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    fn status(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// What stands under a name in its head.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    fn must_be(self, status: &str) -> io::Result<Self> {
        match self.status().strip_prefix("HTTP/1.1 ") {
            Some(line) if line.starts_with(status) => Ok(self),
            _ => Err(io::Error::other(format!("the server answered '{}'", self.status()))),
        }
    }
}

impl Connection {
    /// The answer to a request, which must say that all is well.
    pub(crate) async fn ok(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.ask(request).await?.must_be("200")
    }

    /// The answer to a request, which must say that what was asked for is elsewhere.
    pub(crate) async fn found(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.ask(request).await?.must_be("302")
    }

    async fn ask(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.filled = 0;
        let (head, body) = loop {
            self.read().await?;
            if let Some(end) = self.buffer[..self.filled].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&self.buffer[..end]).into_owned(), end + 4);
            }
        };
        let length: usize = header(&head, "content-length")
            .and_then(|length| length.parse().ok())
            .ok_or_else(|| io::Error::other("the server's answer has no length"))?;
        while self.filled < body + length {
            self.read().await?;
        }
        Ok(Answer { head, body: &self.buffer[body..body + length] })
    }

    async fn read(&mut self) -> io::Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]).await? {
            0 => Err(io::Error::other("the server closed the connection")),
            read => {
                self.filled += read;
                Ok(())
            }
        }
    }
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: &str) -> Answer<'static> {
        Answer { head: head.to_owned(), body: b"" }
    }

    #[test]
    fn only_answers_that_say_what_they_should_are_counted() {
        assert!(answer("HTTP/1.1 200 OK\r\nDate: x").must_be("200").is_ok());
        assert!(answer("HTTP/1.1 401 Unauthorized\r\nContent-Length: 17").must_be("200").is_err());
        assert!(answer("HTTP/1.1 200 OK").must_be("302").is_err());
        assert_eq!(answer("HTTP/1.1 302 Found\r\nlocation: /tasks/7").header("Location"), Some("/tasks/7"));
    }
}
