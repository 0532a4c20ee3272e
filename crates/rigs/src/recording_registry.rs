//! A registry for tests: real HTTP on a port of its own, settings in memory, and a record of every request. It answers as
//! BOSH's does, and can be told to fail.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// What the registry was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub method: String,
    pub id: String,
    pub user: String,
    pub password: String,
    /// What a PUT stored.
    pub settings: Value,
}

#[derive(Debug, Default)]
struct State {
    asked: Vec<Asked>,
    settings: BTreeMap<String, String>,
    failures: Vec<u16>,
}

/// A running registry; its thread ends with the test's process.
#[derive(Debug, Clone)]
pub struct RecordingRegistry {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl RecordingRegistry {
    /// A registry that takes plain connections.
    pub fn start() -> Self {
        Self::start_with(answer)
    }

    /// A registry behind TLS.
    pub fn start_tls(config: rustls::ServerConfig) -> Self {
        let config = Arc::new(config);
        Self::start_with(move |stream, state| {
            let session = rustls::ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            answer(rustls::StreamOwned::new(session, stream), state)
        })
    }

    fn start_with(serve: impl Fn(TcpStream, &Mutex<State>) -> io::Result<()> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let kept = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = serve(stream, &kept);
            }
        });
        Self { address, state }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked since the last time.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    /// The settings that it has for `id`.
    pub fn settings(&self, id: &str) -> Option<Value> {
        self.state.lock().unwrap().settings.get(id).map(|text| serde_json::from_str(text).unwrap())
    }

    /// Stores `text` as settings, whatever it is.
    pub fn store(&self, id: &str, text: &str) {
        self.state.lock().unwrap().settings.insert(id.to_owned(), text.to_owned());
    }

    /// Answers the next requests with these statuses, without any effect.
    pub fn fail_with(&self, statuses: &[u16]) {
        self.state.lock().unwrap().failures = statuses.to_vec();
    }
}

fn answer(stream: impl Read + Write, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let header = |name: &str| {
        head.iter().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let credentials = header("authorization")
        .and_then(|value| BASE64_STANDARD.decode(value.strip_prefix("Basic ")?).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    let (user, password) = credentials.split_once(':').unwrap_or_default();
    let mut words = head.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let id = path.strip_prefix("/instances/").and_then(|rest| rest.strip_suffix("/settings")).unwrap_or_default();

    let mut state = state.lock().unwrap();
    state.asked.push(Asked {
        method: method.to_owned(),
        id: id.to_owned(),
        user: user.to_owned(),
        password: password.to_owned(),
        settings: serde_json::from_str(&body).unwrap_or_default(),
    });
    let failure = (!state.failures.is_empty()).then(|| state.failures.remove(0));
    let (status, answer) = match (failure, method) {
        (Some(status), _) => (status, json!({"status": "error"})),
        (_, "PUT") => {
            state.settings.insert(id.to_owned(), body);
            (200, json!({"status": "ok"}))
        }
        (_, "DELETE") => {
            let status = if state.settings.remove(id).is_some() { 200 } else { 404 };
            (status, json!({"status": "ok"}))
        }
        _ => match state.settings.get(id) {
            Some(settings) => (200, json!({"status": "ok", "settings": settings})),
            None => (404, json!({"status": "not_found"})),
        },
    };
    drop(state);
    let answer = answer.to_string();
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}", answer.len())?;
    stream.flush()
}
