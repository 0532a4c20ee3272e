//! A server on loopback that answers as it is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a server answers to one request.
#[derive(Clone)]
pub(crate) struct Answer {
    status: &'static str,
    headers: Vec<String>,
    content: Vec<u8>,
    tag: Option<&'static str>,
    announced: Option<u64>,
    /// After how many bytes it ends.
    most: usize,
    /// Whether it is silent then, rather than gone.
    stalls: bool,
    /// Whether it sends a byte from time to time.
    dribbles: bool,
    /// Whether a part is announced that nobody asked for.
    shifted: bool,
}

impl Answer {
    pub(crate) fn whole(content: &[u8]) -> Self {
        Self {
            status: "200 OK",
            headers: Vec::new(),
            content: content.to_vec(),
            tag: Some("same"),
            announced: None,
            most: usize::MAX,
            stalls: false,
            dribbles: false,
            shifted: false,
        }
    }

    pub(crate) fn cut(content: &[u8], most: usize) -> Self {
        Self { most, ..Self::whole(content) }
    }

    pub(crate) fn stalled(content: &[u8], most: usize) -> Self {
        Self { most, stalls: true, ..Self::whole(content) }
    }

    pub(crate) fn dribbled(content: &[u8]) -> Self {
        Self { dribbles: true, ..Self::whole(content) }
    }

    pub(crate) fn silence() -> Self {
        Self { status: "", ..Self::whole(b"") }
    }

    /// Says again and again that an answer will come.
    pub(crate) fn endless_interim() -> Self {
        Self { status: "100", ..Self::whole(b"") }
    }

    pub(crate) fn status(status: &'static str) -> Self {
        Self { status, ..Self::whole(b"") }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self { status: "302 Found", headers: vec![format!("Location: {to}")], ..Self::whole(b"") }
    }

    pub(crate) fn tagged(self, tag: &'static str) -> Self {
        Self { tag: Some(tag), ..self }
    }

    pub(crate) fn untagged(self) -> Self {
        Self { tag: None, ..self }
    }

    pub(crate) fn announcing(self, announced: u64) -> Self {
        Self { announced: Some(announced), ..self }
    }

    pub(crate) fn shifted(self) -> Self {
        Self { shifted: true, ..self }
    }

    fn send(&self, request: &str, to: &mut TcpStream) -> std::io::Result<()> {
        if self.status.is_empty() {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(());
        }
        if self.status == "100" {
            let interim = "HTTP/1.1 100 \r\n\r\n".repeat(1000);
            let end = Instant::now() + Duration::from_secs(30);
            while Instant::now() < end {
                to.write_all(interim.as_bytes())?;
            }
            return Ok(());
        }
        let header = |name: &str| {
            let prefix = format!("{name}: ");
            request.lines().find_map(|line| line.to_lowercase().strip_prefix(&prefix).map(str::to_owned))
        };
        let is_same = header("if-range") == self.tag.map(|tag| format!("\"{tag}\""));
        let first = header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let first: usize = first.filter(|_| is_same && self.status == "200 OK").unwrap_or(0);
        let rest = &self.content[first.min(self.content.len())..];
        let announced = self.announced.unwrap_or(self.content.len() as u64);
        let mut head = match first {
            0 => format!("HTTP/1.1 {}\r\nContent-Length: {announced}\r\n", self.status),
            first => {
                let shown = if self.shifted { first + 1 } else { first };
                let last = announced.saturating_sub(1);
                let left = announced.saturating_sub(first as u64);
                format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: {left}\r\nContent-Range: bytes {shown}-{last}/{announced}\r\n"
                )
            }
        };
        if let Some(tag) = self.tag {
            head.push_str(&format!("ETag: \"{tag}\"\r\n"));
        }
        for header in &self.headers {
            head.push_str(&format!("{header}\r\n"));
        }
        head.push_str("Connection: close\r\n\r\n");
        to.write_all(head.as_bytes())?;
        let rest = &rest[..self.most.min(rest.len())];
        for byte in rest.iter().filter(|_| self.dribbles) {
            to.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(20));
        }
        to.write_all(if self.dribbles { &[] } else { rest })?;
        to.flush()?;
        if self.stalls {
            std::thread::sleep(Duration::from_secs(2));
        }
        Ok(())
    }
}

pub(crate) struct Server {
    address: std::net::SocketAddr,
    ranges: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers in this order; the last answer is repeated.
    pub(crate) fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let asked = ranges.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().take(100).enumerate() {
                let Ok(mut stream) = stream else { return };
                let answer = answers[number.min(answers.len() - 1)].clone();
                let asked = asked.clone();
                std::thread::spawn(move || {
                    let Some(request) = head(&mut stream) else { return };
                    let range = request.lines().find_map(|line| line.strip_prefix("range: ").map(str::to_owned));
                    asked.lock().unwrap().push(range.unwrap_or_default());
                    let _ = answer.send(&request, &mut stream);
                });
            }
        });
        Self { address, ranges }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The ranges that were asked for, in order; empty ones for everything.
    pub(crate) fn ranges(&self) -> Vec<String> {
        self.ranges.lock().unwrap().clone()
    }
}

/// The request line and headers, in lower case where it is about names.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 || head.len() > 10_000 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// A SOCKS5 proxy without passwords that goes where it is told, and counts.
pub(crate) struct Socks {
    address: std::net::SocketAddr,
    connections: Arc<Mutex<usize>>,
}

pub(crate) fn socks() -> Socks {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Mutex::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(10) {
            let Ok(stream) = stream else { return };
            *counted.lock().unwrap() += 1;
            std::thread::spawn(move || relay(stream));
        }
    });
    Socks { address, connections }
}

fn relay(mut from: TcpStream) -> Option<()> {
    let mut start = [0; 2];
    from.read_exact(&mut start).ok()?;
    from.read_exact(&mut vec![0; start[1].into()]).ok()?;
    from.write_all(&[5, 0]).ok()?;
    // Version, connect, reserved, IPv4.
    let mut request = [0; 10];
    from.read_exact(&mut request).ok()?;
    assert_eq!(request[..4], [5, 1, 0, 1]);
    let port = u16::from_be_bytes([request[8], request[9]]);
    let mut to = TcpStream::connect(("127.0.0.1", port)).ok()?;
    from.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).ok()?;
    let (mut back, mut forth) = (to.try_clone().ok()?, from.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut back, &mut forth).ok()?;
    forth.shutdown(std::net::Shutdown::Both).ok()
}

impl Socks {
    pub(crate) fn url(&self) -> String {
        format!("socks5://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}
