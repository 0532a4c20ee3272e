//! Servers that answer what a test tells them, and what clients need to reach them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_agent_client::{Agent, AgentClient, AgentEndpoint, ClientTls};
use windlass_contract::{AgentId, DiskCid, DiskHint, Secret};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) struct Certificates {
    agent_id: AgentId,
    ca_pem: String,
    pub(crate) acceptor: TlsAcceptor,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let agent_id = AgentId::random();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![agent_id.dns_name()]).unwrap();
        let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        Self { agent_id, ca_pem, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    pub(crate) fn agent(&self, addresses: Vec<IpAddr>, port: u16) -> Agent {
        let tls = ClientTls {
            ca_pem: self.ca_pem.clone(),
            client_certificate_pem: String::new(),
            client_key_pem: Secret::new(""),
        };
        AgentClient::new(tls).unwrap().agent(AgentEndpoint {
            agent_id: self.agent_id.clone(),
            addresses,
            port,
            user: "u".into(),
            password: Secret::new("p"),
        })
    }
}

/// Serves what `answer` says to each message; none closes the connection without an answer.
pub(crate) async fn scripted(answer: impl FnMut(&str, &[Value]) -> Option<Value> + Send + 'static) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    // The first address refuses, so that every test also passes by a dead one.
    let addresses = vec!["127.255.255.254".parse().unwrap(), LOOPBACK];
    let agent = certificates.agent(addresses, listener.local_addr().unwrap().port());
    let answer = Arc::new(Mutex::new(answer));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, answer) = (certificates.acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let mut stream = BufReader::new(acceptor.accept(stream).await.ok()?);
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while stream.read_line(&mut line).await.ok()? > 2 {
                        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().ok()?;
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).await.ok()?;
                    let message: Value = serde_json::from_slice(&body).ok()?;
                    assert_eq!(message["protocol"], 3);
                    let reply = {
                        let answer = &mut *answer.lock().unwrap();
                        answer(message["method"].as_str()?, message["arguments"].as_array()?)?.to_string()
                    };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", reply.len());
                    stream.write_all(format!("{head}{reply}").as_bytes()).await.ok()?;
                }
                #[expect(unreachable_code, reason = "the loop ends by `?`, which needs a type")]
                Some(())
            });
        }
    });
    agent
}

pub(crate) fn unknown(method: &str) -> Option<Value> {
    Some(json!({"exception": {"message": format!("unknown message {method}")}}))
}

pub(crate) fn disk() -> (DiskCid, DiskHint) {
    (DiskCid::new("disk-1").unwrap(), DiskHint::path("/dev/sdc"))
}

/// Answers any request with this head and so many bytes, with a pause between each number of them. What was promised beyond them comes
/// at the end.
pub(crate) async fn scripted_raw(head: &'static str, lengths: &'static [usize]) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(certificates.acceptor.accept(stream).await.unwrap());
        let mut line = String::new();
        while stream.read_line(&mut line).await.unwrap() > 2 {
            line.clear();
        }
        stream.write_all(head.as_bytes()).await.unwrap();
        for length in lengths {
            // The caller hangs up in the middle.
            if stream.write_all(&vec![0; *length]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = stream.write_all(&vec![0; 1_000_000 - lengths.iter().sum::<usize>()]).await;
    });
    agent
}
