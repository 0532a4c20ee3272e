//! An agent that belongs to somebody else: it has the certificate of its VM, and answers what it likes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

pub(super) struct EvilAgent {
    address: String,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    serving: Option<JoinHandle<()>>,
}

impl EvilAgent {
    /// Listens where the agent with these settings did, and gives one answer to whatever it is asked.
    pub(super) fn in_place_of(settings: &Value, answer: String) -> Self {
        let mbus = &settings["env"]["bosh"]["mbus"];
        let pem = |key: &str| mbus["cert"][key].as_str().unwrap().as_bytes().to_vec();
        let chain = CertificateDer::pem_slice_iter(&pem("certificate")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&pem("private_key")).unwrap();
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
        let url = mbus["urls"][0].as_str().unwrap();
        let address = url.rsplit('@').next().unwrap().trim_end_matches('/').to_owned();
        let listener = TcpListener::bind(&address).unwrap();
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (over, given) = (Arc::clone(&is_over), Arc::clone(&answers));
        let serving = std::thread::spawn(move || {
            let answer = Arc::new(answer);
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (config, answer, given) = (Arc::clone(&config), Arc::clone(&answer), Arc::clone(&given));
                std::thread::spawn(move || {
                    // Whoever has read enough hangs up.
                    let _ = serve(stream, config, &answer, &given);
                });
            }
        });
        Self { address, is_over, answers, serving: Some(serving) }
    }

    /// How often it was asked.
    pub(super) fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, answer: &str, given: &AtomicUsize) -> std::io::Result<()> {
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
    }
    given.fetch_add(1, Ordering::SeqCst);
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    )
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
