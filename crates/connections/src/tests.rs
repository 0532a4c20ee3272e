//! Connections to a server that answers everybody, and trusts peers that ask for it.

use std::time::Instant;

use http_body_util::{BodyExt, Full};
use tokio::task::JoinHandle;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// Answers with the body that it got: `/trust` and `/work` keep their places, the latter until the body is there.
#[derive(Clone)]
struct Echo;

impl Responder for Echo {
    type Body = Full<bytes::Bytes>;

    fn tls(&self) -> Option<TlsAcceptor> {
        None
    }

    async fn answer(&self, peer: &Peer, request: Request<Received>) -> Response<Self::Body> {
        let _working = match request.uri().path() {
            "/trust" => {
                peer.trust();
                None
            }
            "/eve" | "/ann" => {
                peer.trust_user(request.uri().path());
                None
            }
            "/work" => Some(peer.working()),
            _ => None,
        };
        if request.uri().path() == "/large" {
            return Response::builder().status(413).body(Full::default()).unwrap();
        }
        let body = request.into_body().collect().await;
        Response::new(Full::new(body.map_or_else(|error| error.to_string().into(), |body| body.to_bytes())))
    }
}

struct Server {
    address: std::net::SocketAddr,
    tally: Arc<Tally>,
    stop: tokio::sync::oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tally) = (listener.local_addr().unwrap(), Arc::<Tally>::default());
        let mut accept_loop = AcceptLoop::new(listener, limits, tally.clone());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(async move {
            let _ = accept_loop.serve(Echo, stopped).await;
            accept_loop.close(PATIENCE).await;
        });
        Self { address, tally, stop, serving }
    }

    async fn say(&self, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(words.as_bytes()).await.unwrap();
        stream
    }

    /// Waits until there are so many connections.
    async fn open(&self, expected: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.tally.open.load(Ordering::Relaxed) != expected {
            assert!(
                Instant::now() < deadline,
                "{} connections, not {expected}",
                self.tally.open.load(Ordering::Relaxed)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What comes until there is a whole answer or an end.
async fn heard(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    while !text.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        match tokio::time::timeout(PATIENCE, stream.read(&mut part)).await.expect("neither answer nor end") {
            Ok(0) | Err(_) => break,
            Ok(read) => text.extend_from_slice(&part[..read]),
        }
    }
    String::from_utf8(text).unwrap()
}

fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Connections at work or trusted stay; of the others, the oldest goes, and a newcomer is served.
#[tokio::test]
async fn when_it_is_full_the_oldest_who_may_go_goes() {
    let server = Server::start(Limits { connections: 4, ..Limits::default() }).await;
    let mut trusted = server.say(&request("GET /trust")).await;
    assert!(heard(&mut trusted).await.starts_with("HTTP/1.1 200"));
    let mut working = server.say("PUT /work HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab").await;
    let mut oldest = server.say(&request("GET /")).await;
    assert!(heard(&mut oldest).await.starts_with("HTTP/1.1 200"));
    let mut other = server.say(&request("GET /")).await;
    assert!(heard(&mut other).await.starts_with("HTTP/1.1 200"));
    let mut newcomer = server.say(&request("GET /")).await;
    assert!(heard(&mut newcomer).await.starts_with("HTTP/1.1 200"));
    assert_eq!(heard(&mut oldest).await, "", "the oldest is closed");
    assert_eq!(server.tally.crowded_out.load(Ordering::Relaxed), 1);
    for kept in [&mut trusted, &mut other] {
        kept.write_all(request("GET /").as_bytes()).await.unwrap();
        assert!(heard(kept).await.starts_with("HTTP/1.1 200"));
    }
    working.write_all(b"cd").await.unwrap();
    assert!(heard(&mut working).await.starts_with("HTTP/1.1 200"));
    server.open(4).await;
}

/// Nobody who is trusted is sent away for somebody of whom nothing is known.
#[tokio::test]
async fn a_server_full_of_trusted_ones_lets_nobody_in() {
    let server = Server::start(Limits { connections: 2, ..Limits::default() }).await;
    let mut trusted = [server.say(&request("GET /trust")).await, server.say(&request("GET /trust")).await];
    for one in &mut trusted {
        assert!(heard(one).await.starts_with("HTTP/1.1 200"));
    }
    let mut refused = server.say("").await;
    assert_eq!(heard(&mut refused).await, "");
    for one in &mut trusted {
        one.write_all(request("GET /").as_bytes()).await.unwrap();
        assert!(heard(one).await.starts_with("HTTP/1.1 200"));
    }
}

/// A user with as many connections as there are places does not keep others out.
#[tokio::test]
async fn who_has_more_than_a_share_makes_room_for_others() {
    let server = Server::start(Limits { connections: 4, ..Limits::default() }).await;
    let mut ann = server.say(&request("GET /ann")).await;
    assert!(heard(&mut ann).await.starts_with("HTTP/1.1 200"));
    let mut eve = Vec::new();
    for _ in 0..3 {
        let mut one = server.say(&request("GET /eve")).await;
        assert!(heard(&mut one).await.starts_with("HTTP/1.1 200"));
        eve.push(one);
    }
    let mut admin = server.say(&request("GET /trust")).await;
    assert!(heard(&mut admin).await.starts_with("HTTP/1.1 200"), "somebody else is let in");
    assert_eq!(heard(&mut eve[0]).await, "", "it is the oldest that goes");
    for kept in [&mut ann, &mut admin] {
        kept.write_all(request("GET /").as_bytes()).await.unwrap();
        assert!(heard(kept).await.starts_with("HTTP/1.1 200"));
    }
}

/// With all places taken by one user, each newcomer was sent away by the next one, before they could say who they are.
#[tokio::test]
async fn newcomers_take_the_places_of_who_has_very_many_and_not_each_others() {
    let server = Server::start(Limits { connections: 8, ..Limits::default() }).await;
    let mut eve = Vec::new();
    for _ in 0..8 {
        let mut one = server.say(&request("GET /eve")).await;
        assert!(heard(&mut one).await.starts_with("HTTP/1.1 200"));
        eve.push(one);
    }
    let mut newcomers = Vec::new();
    for _ in 0..4 {
        newcomers.push(server.say("").await);
    }
    for newcomer in &mut newcomers {
        newcomer.write_all(request("GET /ann").as_bytes()).await.unwrap();
        assert!(heard(newcomer).await.starts_with("HTTP/1.1 200"));
    }
    for gone in &mut eve[..4] {
        assert_eq!(heard(gone).await, "");
    }
}

/// A refusal reaches a client that is still sending what is refused.
#[tokio::test]
async fn who_sends_too_much_hears_why_it_is_refused() {
    let server = Server::start(Limits::default()).await;
    let body = vec![b'x'; 16 << 20];
    let mut stream =
        server.say(&format!("PUT /large HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    stream.write_all(&body).await.unwrap();
    assert!(heard(&mut stream).await.starts_with("HTTP/1.1 413"));
    drop(stream);
    server.open(0).await;
}

/// Heads and bodies that stop coming, and connections that nobody uses, do not cost for ever.
#[tokio::test]
async fn nobody_is_waited_for_without_end() {
    let short = Duration::from_millis(200);
    let server = Server::start(Limits { head: short, pause: short, ..Limits::default() }).await;
    let mut silent = server.say("").await;
    let mut half_a_head = server.say("GET / HTTP/1.1\r\nHos").await;
    let mut idle = server.say(&request("GET /")).await;
    assert!(heard(&mut idle).await.starts_with("HTTP/1.1 200"));
    let mut half_a_body = server.say("PUT /trust HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab").await;
    let answer = heard(&mut half_a_body).await;
    assert!(answer.contains("nothing more of the body came"), "{answer}");
    for closed in [&mut silent, &mut half_a_head, &mut idle, &mut half_a_body] {
        let rest = heard(closed).await;
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{rest}");
    }
    server.open(0).await;
}

#[tokio::test]
async fn the_end_waits_for_answers_under_way_and_for_nothing_else() {
    let server = Server::start(Limits::default()).await;
    let mut idle = server.say(&request("GET /")).await;
    assert!(heard(&mut idle).await.starts_with("HTTP/1.1 200"));
    let mut working = server.say("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab").await;
    server.open(2).await;
    server.stop.send(()).unwrap();
    assert_eq!(heard(&mut idle).await, "");
    assert!(!server.serving.is_finished());
    working.write_all(b"cd").await.unwrap();
    assert!(heard(&mut working).await.starts_with("HTTP/1.1 200"));
    server.serving.await.unwrap();
}

/// A director that asks a thousand agents on one machine left ten kilobytes in each of them for each of its calls, a gigabyte in all.
#[tokio::test]
async fn nothing_is_kept_of_connections_that_have_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tally = Arc::<Tally>::default();
    let mut accept_loop = AcceptLoop::new(listener, Limits::default(), tally.clone());
    let callers = async {
        for _ in 0..50 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
        while tally.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    accept_loop.serve(Echo, callers).await;
    assert_eq!((accept_loop.places.len(), accept_loop.connections.len()), (0, 0));
}
