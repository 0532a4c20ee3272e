//! Load over kept connections: each sends a request, waits for the answer, and sends the next.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Requests for one server; all connections together go through them again and again.
pub(super) struct Load {
    address: SocketAddr,
    requests: Rc<Vec<Vec<u8>>>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// From the beginning of each request to the end of its answer.
    pub(super) times: Vec<Duration>,
    elapsed: Duration,
}

impl Measured {
    pub(super) fn add(&mut self, more: Self) {
        self.times.extend(more.times);
        self.elapsed += more.elapsed;
    }

    /// Requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Load {
    pub(super) fn new(address: SocketAddr, requests: Vec<Vec<u8>>) -> Self {
        Self { address, requests: Rc::new(requests) }
    }

    /// Sends for so long.
    pub(super) async fn run(&self, connections: usize, time: Duration) -> io::Result<Measured> {
        let end = Instant::now() + time;
        self.send(connections, move |_| Instant::now() < end).await
    }

    /// Sends every request once.
    pub(super) async fn send_each_once(&self, connections: usize) -> io::Result<()> {
        let all = self.requests.len();
        self.send(connections, move |number| number < all).await.map(|_| ())
    }

    /// The body of the answer to the first request.
    pub(super) async fn first_body(&self) -> io::Result<Vec<u8>> {
        let mut connection = Connection::open(self.address).await?;
        let length = connection.ask(&self.requests[0]).await?;
        Ok(connection.buffer[connection.filled - length..connection.filled].to_vec())
    }

    async fn send(&self, connections: usize, more: impl Fn(usize) -> bool + Clone + 'static) -> io::Result<Measured> {
        let tasks = LocalSet::new();
        let started = Instant::now();
        let senders: Vec<_> = (0..connections)
            .map(|first| {
                let (address, requests, more) = (self.address, self.requests.clone(), more.clone());
                tasks.spawn_local(async move {
                    let mut connection = Connection::open(address).await?;
                    let mut times = Vec::new();
                    let mut number = first;
                    while more(number) {
                        let started = Instant::now();
                        connection.ask(&requests[number % requests.len()]).await?;
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

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024], filled: 0 })
    }

    /// Sends a request and reads its answer whole; tells how long its body is.
    async fn ask(&mut self, request: &[u8]) -> io::Result<usize> {
        self.stream.write_all(request).await?;
        self.filled = 0;
        let (head, length) = loop {
            self.read().await?;
            if let Some(head) = self.buffer[..self.filled].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break (head + 4, content_length(&self.buffer[..head])?);
            }
        };
        while self.filled < head + length {
            self.read().await?;
        }
        Ok(length)
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

/// Of an answer that says that all is well.
fn content_length(head: &[u8]) -> io::Result<usize> {
    let head = String::from_utf8_lossy(head);
    if !head.starts_with("HTTP/1.1 200 ") {
        return Err(io::Error::other(format!("the server answered '{}'", head.lines().next().unwrap_or_default())));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    length.ok_or_else(|| io::Error::other("the server's answer has no length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_say_that_all_is_well_are_counted() {
        assert_eq!(content_length(b"HTTP/1.1 200 OK\r\nDate: x\r\ncontent-Length: 17").unwrap(), 17);
        assert!(content_length(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 17").is_err());
        assert!(content_length(b"HTTP/1.1 200 OK\r\nDate: x").is_err());
    }
}
