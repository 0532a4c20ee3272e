//! An agent that belongs to somebody else: it has the certificate of its VM, and answers what it likes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

pub(super) struct EvilAgent {
    address: String,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    blobs: Arc<Blobs>,
    serving: Option<JoinHandle<()>>,
}

/// How many blobs it is sending that never end, and how many of those their clients gave up.
#[derive(Default)]
struct Blobs {
    begun: AtomicUsize,
    given_up: AtomicUsize,
}

/// What it says about its logs.
pub(super) const ENDLESS_LOGS: &str = r#"{"value":{"blobstore_id":"8a7a1b5e-7d2a-4f2e-9d0f-1f6f0d4a2a11","sha1":"da39a3ee5e6b4b0d3255bfef95601890afd80709"}}"#;
/// Often enough for a client that only looks whether a byte comes from time to time.
const DRIP: Duration = Duration::from_millis(100);

impl EvilAgent {
    /// Listens where the agent with these settings did, and gives one answer to whatever it is asked. Blobs it sends without an end.
    pub(super) fn in_place_of(settings: &Value, answer: String) -> Self {
        let mbus = &settings["env"]["bosh"]["mbus"];
        let pem = |key: &str| mbus["cert"][key].as_str().unwrap().as_bytes().to_vec();
        let chain = CertificateDer::pem_slice_iter(&pem("certificate")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&pem("private_key")).unwrap();
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let url = mbus["urls"][0].as_str().unwrap();
        let address = url.rsplit('@').next().unwrap().trim_end_matches('/').to_owned();
        let listener = bound(&address);
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let blobs = Arc::<Blobs>::default();
        let (over, given, sent) = (Arc::clone(&is_over), Arc::clone(&answers), Arc::clone(&blobs));
        let serving = std::thread::spawn(move || {
            let answer = Arc::new(answer);
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (config, answer, given) = (Arc::clone(&config), Arc::clone(&answer), Arc::clone(&given));
                let (over, sent) = (Arc::clone(&over), Arc::clone(&sent));
                std::thread::spawn(move || {
                    // A client that has read enough hangs up.
                    let _ = serve(stream, config, &answer, &given, (&sent, &over));
                });
            }
        });
        Self { address, is_over, answers, blobs, serving: Some(serving) }
    }

    /// How often it was asked.
    pub(super) fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }

    /// How many blobs were asked for, and how many of those nobody reads any more.
    pub(super) fn blobs(&self) -> (usize, usize) {
        (self.blobs.begun.load(Ordering::SeqCst), self.blobs.given_up.load(Ordering::SeqCst))
    }
}

/// The agent before may take a moment to go.
fn bound(address: &str) -> TcpListener {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    answer: &str,
    given: &AtomicUsize,
    (blobs, is_over): (&Blobs, &AtomicBool),
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut asked = Vec::new();
    let mut piece = [0; 4096];
    // A message is one JSON object.
    while !(asked.windows(4).any(|end| end == b"\r\n\r\n") && asked.ends_with(b"}")) {
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            read => asked.extend(&piece[..read]),
        }
        if asked.starts_with(b"GET /blobs/") && asked.ends_with(b"\r\n\r\n") {
            blobs.begun.fetch_add(1, Ordering::SeqCst);
            let dripped = drip(&mut stream, is_over);
            blobs.given_up.fetch_add(usize::from(dripped.is_err()), Ordering::SeqCst);
            return dripped;
        }
    }
    given.fetch_add(1, Ordering::SeqCst);
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    )
}

fn drip(stream: &mut impl Write, is_over: &AtomicBool) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
    while !is_over.load(Ordering::SeqCst) {
        stream.write_all(b"x")?;
        stream.flush()?;
        std::thread::sleep(DRIP);
    }
    Ok(())
}

impl Drop for EvilAgent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}
