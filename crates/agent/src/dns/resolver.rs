//! Answers questions for names of instances, by UDP and TCP, on an address of its own; questions for anything else are passed on.
//!
//! It runs where `env.bosh.dns_resolver` asks for it:
//!
//! ```yaml
//! dns_resolver: {address: 127.53.0.1, port: 53, recursors: [10.0.0.2], override_nameserver: true}
//! ```
//!
//! Without `recursors` those are asked that `/etc/resolv.conf` names. What cannot be used is told in the log, and the agent goes on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::records::{OwnHealth, Records};
use super::wire::{Outcome, Question};

/// How long another server may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);
/// How many questions are asked elsewhere at once; more are told to come again.
const AT_ONCE: usize = 256;
/// How many connections there are at once.
const CONNECTIONS: usize = 64;
/// How often the own health is looked at, at most.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// The longest message by UDP that is read.
const LONGEST: usize = 4096;

/// What the settings say.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ResolverSettings {
    #[serde(default = "usual_address")]
    pub(crate) address: IpAddr,
    #[serde(default = "usual_port")]
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) recursors: Vec<Recursor>,
    /// Whether programs of the VM ask it.
    #[serde(default = "usually")]
    pub(crate) override_nameserver: bool,
}

/// Another server: an address, with a port or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Recursor(pub(crate) SocketAddr);

impl TryFrom<String> for Recursor {
    type Error = std::net::AddrParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let with_port = |address: IpAddr| SocketAddr::new(address, usual_port());
        text.parse().map(with_port).or_else(|_| text.parse()).map(Self)
    }
}

fn usual_address() -> IpAddr {
    Ipv4Addr::new(127, 53, 0, 1).into()
}

fn usual_port() -> u16 {
    53
}

fn usually() -> bool {
    true
}

/// The resolver, with the names that it knows.
#[derive(Debug)]
pub(crate) struct Resolver {
    records: RwLock<Arc<Records>>,
    agent_id: String,
    health: PathBuf,
    looked: RwLock<Option<(Instant, bool)>>,
    recursors: OnceLock<Vec<SocketAddr>>,
    elsewhere: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    turn: AtomicUsize,
}

/// The sockets of a resolver.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        // With port 0, which tests and measurements use, both have the same; what is free by UDP may be in use by TCP.
        let mut tries = if address.port() == 0 { 50 } else { 1 };
        loop {
            tries -= 1;
            let udp = UdpSocket::bind(address).await?;
            match TcpListener::bind(udp.local_addr()?).await {
                Ok(tcp) => return Ok(Self { udp, tcp }),
                Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }
}

impl Resolver {
    /// `health` is where the agent notes how its instance is.
    pub(crate) fn new(records: Records, agent_id: String, health: PathBuf) -> Self {
        Self {
            records: RwLock::new(Arc::new(records)),
            agent_id,
            health,
            looked: RwLock::default(),
            recursors: OnceLock::new(),
            elsewhere: Arc::new(Semaphore::new(AT_ONCE)),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            turn: AtomicUsize::new(0),
        }
    }

    /// Knows these names from now on.
    pub(crate) fn learn(&self, records: Records) {
        *self.records.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(records);
    }

    /// Answers until it is dropped, and asks these servers for the names that it does not know.
    pub(crate) async fn serve(self: Arc<Self>, sockets: Sockets, recursors: Vec<SocketAddr>) {
        self.recursors.get_or_init(|| recursors);
        let Sockets { udp, tcp } = sockets;
        let udp = Arc::new(udp);
        tokio::join!(self.serve_udp(udp), self.serve_tcp(tcp));
    }

    async fn serve_udp(self: &Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = [0; LONGEST];
        loop {
            // An error is that of an answer which nobody took any more.
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let packet = &buffer[..length];
            match Question::parse(packet) {
                Err(None) => {}
                Err(Some(refusal)) => drop(socket.send_to(&refusal, from).await),
                Ok(question) => match self.known(&question, question.most()) {
                    Some(answer) => drop(socket.send_to(&answer, from).await),
                    None => self.ask_elsewhere(packet.to_vec(), socket.clone(), from),
                },
            }
        }
    }

    /// Beside the others, so that a slow server holds nobody up.
    fn ask_elsewhere(self: &Arc<Self>, packet: Vec<u8>, socket: Arc<UdpSocket>, from: SocketAddr) {
        let Ok(permit) = self.elsewhere.clone().try_acquire_owned() else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(question) = Question::parse(&packet) else { return };
            let answer = match this.recurse(&question, false).await {
                Some(answer) if answer.len() <= question.most() => answer,
                Some(_) => question.too_long(),
                None => question.answer(Outcome::Failed, &[], question.most()),
            };
            let _ = socket.send_to(&answer, from).await;
        });
    }

    async fn serve_tcp(self: &Arc<Self>, listener: TcpListener) {
        loop {
            // Nobody closes it.
            let Ok(permit) = self.connections.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let this = self.clone();
                    tokio::spawn(async move {
                        let _permit = permit;
                        let _ = this.converse(stream).await;
                    });
                }
                // Such as too many open files.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let packet = timeout(IDLE, read_message(&mut stream)).await??;
            let answer = match Question::parse(&packet) {
                Err(None) => return Ok(()),
                Err(Some(refusal)) => refusal,
                Ok(question) => match self.known(&question, usize::from(u16::MAX)) {
                    Some(answer) => answer,
                    None => {
                        let answer = self.recurse(&question, true).await;
                        answer.unwrap_or_else(|| question.answer(Outcome::Failed, &[], usize::from(u16::MAX)))
                    }
                },
            };
            timeout(IDLE, write_message(&mut stream, &answer)).await??;
        }
    }

    /// The answer to a question for an instance; none for any other.
    pub(crate) fn known(&self, question: &Question<'_>, most: usize) -> Option<Vec<u8>> {
        if !question.is_of_internet() {
            return None;
        }
        let records = self.records.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !records.is_ours(&question.name) {
            return None;
        }
        let found = records.resolve(&question.name, &self.own_health()).unwrap_or_default();
        let outcome = if found.is_empty() { Outcome::NoSuchName } else { Outcome::Found };
        let mut found = found;
        if found.len() > 1 {
            // Most clients take the first.
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % found.len();
            found.rotate_left(turn);
        }
        Some(question.answer(outcome, &found, most))
    }

    fn own_health(&self) -> OwnHealth {
        let known = *self.looked.read().unwrap_or_else(PoisonError::into_inner);
        let is_well = match known {
            Some((at, is_well)) if at.elapsed() < HEALTH_EVERY => is_well,
            _ => {
                let is_well = is_running(&self.health);
                *self.looked.write().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), is_well));
                is_well
            }
        };
        OwnHealth { agent_id: self.agent_id.clone(), is_well }
    }

    async fn recurse(&self, question: &Question<'_>, by_tcp: bool) -> Option<Vec<u8>> {
        for server in self.recursors.get().into_iter().flatten() {
            let number = random();
            let packet = question.numbered(number);
            let asked = async {
                match by_tcp {
                    true => ask_by_tcp(*server, &packet).await,
                    false => ask_by_udp(*server, &packet, |answer| question.answered(answer, number)).await,
                }
            };
            let Ok(Ok(answer)) = timeout(PATIENCE, asked).await else { continue };
            let answer = if by_tcp { question.answered(answer, number) } else { Some(answer) };
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}

async fn ask_by_udp(
    server: SocketAddr,
    packet: &[u8],
    accept: impl Fn(Vec<u8>) -> Option<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let anywhere: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    // A port of its own for each question: an attacker who forges an answer has to guess it.
    let socket = UdpSocket::bind((anywhere, 0)).await?;
    socket.connect(server).await?;
    socket.send(packet).await?;
    let mut buffer = [0; LONGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = accept(buffer[..length].to_vec()) {
            return Ok(answer);
        }
    }
}

async fn ask_by_tcp(server: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_message(&mut stream, packet).await?;
    read_message(&mut stream).await
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut whole = length.to_be_bytes().to_vec();
    whole.extend(message);
    stream.write_all(&whole).await
}

fn random() -> u16 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u16::from_be_bytes([bytes[0], bytes[1]])
}

/// An instance of which nothing is noted counts as well.
fn is_running(health: &std::path::Path) -> bool {
    #[derive(Deserialize)]
    struct Health {
        state: String,
    }
    let noted = std::fs::read(health).ok().and_then(|noted| serde_json::from_slice::<Health>(&noted).ok());
    noted.is_none_or(|health| health.state == "running")
}

/// The name servers of a `resolv.conf`, without the resolver itself.
pub(crate) fn name_servers(text: &str, own: IpAddr) -> Vec<SocketAddr> {
    let address = |line: &str| line.strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok();
    let servers = text.lines().filter_map(|line| address(line.trim())).filter(|address| *address != own);
    servers.map(|address| SocketAddr::new(address, usual_port())).collect()
}

/// A `resolv.conf` in which the resolver comes first.
pub(crate) fn preferring(text: &str, own: IpAddr) -> String {
    let first = format!("nameserver {own}");
    let rest = text.lines().filter(|line| line.trim() != first).map(|line| format!("{line}\n"));
    format!("{first}\n{}", rest.collect::<String>())
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
