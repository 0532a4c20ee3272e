//! What tests read.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Message;
use super::processes::{Measure, open_plain};
use crate::machine::{Event, Reading};
use crate::monit::{Condition, Connection, Endpoint, Kind, Property, Resource, Test};

/// No more connection tests than this at a time: the others are done in the next cycle.
const MOST_PROBES: usize = 64;

/// What `test` reads now; connection tests read nothing here.
pub(super) fn read(kind: &Kind, test: &Test, usage: Option<&Measure>, is_there: bool) -> Reading {
    match (&test.condition, kind) {
        (Condition::Resource { resource: Resource::Load(minutes), .. }, _) => load(*minutes),
        (Condition::Resource { resource, .. }, _) => usage.map_or(Reading::Nothing, |usage| of(*resource, usage)),
        (Condition::Changed(property), Kind::File { path } | Kind::Directory { path }) => mark(path, *property),
        (Condition::Age { .. }, Kind::File { path } | Kind::Directory { path }) => age(path),
        (Condition::Missing, Kind::File { path } | Kind::Directory { path }) => {
            if fs::symlink_metadata(path).is_ok() {
                Reading::Number(1.0)
            } else {
                Reading::Missing
            }
        }
        (Condition::Missing, Kind::Process { .. }) if is_there => Reading::Number(1.0),
        _ => Reading::Nothing,
    }
}

fn of(resource: Resource, usage: &Measure) -> Reading {
    Reading::Number(match resource {
        Resource::Memory => usage.own.memory as f64,
        Resource::TotalMemory => usage.all.memory as f64,
        Resource::MemoryShare => usage.own.memory_share,
        Resource::TotalMemoryShare => usage.all.memory_share,
        Resource::Cpu => usage.own.cpu,
        Resource::TotalCpu => usage.all.cpu,
        Resource::Children => f64::from(usage.children),
        Resource::Load(_) => return Reading::Nothing,
    })
}

fn load(minutes: u8) -> Reading {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let index = match minutes {
        1 => 0,
        5 => 1,
        _ => 2,
    };
    let number = text.split_whitespace().nth(index).and_then(|number| number.parse().ok());
    number.map_or(Reading::Nothing, Reading::Number)
}

fn mark(path: &str, property: Property) -> Reading {
    let Ok(metadata) = fs::metadata(path) else { return Reading::Missing };
    match property {
        Property::Timestamp => Reading::Mark(metadata.mtime() as u64 ^ (metadata.mtime_nsec() as u64) << 32),
        Property::Size => Reading::Mark(metadata.len()),
        Property::Checksum => hash(path).map_or(Reading::Nothing, Reading::Mark),
        Property::Pid => Reading::Nothing,
    }
}

/// How much of a file is read for its checksum: everybody else waits meanwhile. Of a larger one, size and time count as well.
const LARGEST: u64 = 16 << 20;

fn hash(path: &str) -> io::Result<u64> {
    let file = open_plain(path)?;
    let found = file.metadata()?;
    let mut hasher = DefaultHasher::new();
    if found.len() > LARGEST {
        hasher.write_u64(found.len());
        hasher.write_i64(found.mtime());
    }
    let mut file = file.take(LARGEST);
    let mut buffer = [0; 16 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            length => hasher.write(&buffer[..length]),
        }
    }
}

fn age(path: &str) -> Reading {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.map_or(Reading::Missing, |age| Reading::Number(age.as_secs_f64()))
}

/// How often a socket whose queue is full is tried again.
const RETRY: Duration = Duration::from_millis(20);

static PROBES: AtomicUsize = AtomicUsize::new(0);

/// Tries a connection, and tells when it is known whether somebody answered.
pub(super) fn probe(service: &str, test: usize, connection: Connection, to_main: Sender<Message>) {
    if PROBES.fetch_add(1, Ordering::SeqCst) >= MOST_PROBES {
        PROBES.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let service = service.to_owned();
    let tried = std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
        let failed = answers(&connection).is_err();
        PROBES.fetch_sub(1, Ordering::SeqCst);
        // The supervisor may have ended.
        let _ = to_main.send(Message::Happened(Event::Probed { service, test, failed }));
    });
    if tried.is_err() {
        PROBES.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answers(connection: &Connection) -> io::Result<()> {
    let timeout = connection.timeout.max(Duration::from_millis(1));
    match &connection.to {
        Endpoint::Unix(path) => {
            let stream = connect(path, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            http(&connection.http, "localhost", stream)
        }
        Endpoint::Tcp { host, port } => {
            let addresses = (host.as_str(), *port).to_socket_addrs()?;
            let mut refused = io::Error::from(io::ErrorKind::NotFound);
            for address in addresses {
                match TcpStream::connect_timeout(&address, timeout) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(timeout))?;
                        stream.set_write_timeout(Some(timeout))?;
                        return http(&connection.http, host, stream);
                    }
                    Err(error) => refused = error,
                }
            }
            Err(refused)
        }
        Endpoint::Udp { host, port } => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((host.as_str(), *port))?;
            socket.set_read_timeout(Some(timeout))?;
            socket.send(&[0])?;
            match socket.recv(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(error),
                _ => Ok(()),
            }
        }
    }
}

/// A job that takes no connections would have the kernel wait for ever.
fn connect(path: &str, timeout: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + timeout;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            connected => break connected?,
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Asks for a path, if there is one to ask for. An answer below 400 is good.
fn http(path: &Option<String>, host: &str, mut stream: impl Read + Write) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut start = [0; 12];
    stream.read_exact(&mut start)?;
    let status = std::str::from_utf8(&start).ok().and_then(|start| start.strip_prefix("HTTP/1.")?.get(2..5));
    match status.and_then(|status| status.parse::<u16>().ok()) {
        Some(100..400) => Ok(()),
        _ => Err(io::Error::other("it answers with an error")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn serve(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 100]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        port
    }

    #[test]
    fn a_port_answers_when_somebody_listens_and_http_when_it_is_no_error() {
        let connection = |port, http: Option<&str>| Connection {
            to: Endpoint::Tcp { host: "127.0.0.1".into(), port },
            http: http.map(str::to_owned),
            timeout: Duration::from_secs(5),
        };
        answers(&connection(serve(""), None)).unwrap();
        answers(&connection(serve("HTTP/1.1 200 OK\r\n\r\n"), Some("/"))).unwrap();
        assert!(answers(&connection(serve("HTTP/1.1 503 No\r\n\r\n"), Some("/"))).is_err());
        assert!(answers(&connection(serve(""), Some("/"))).is_err());
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(answers(&connection(free, None)).is_err());
    }

    #[test]
    fn a_socket_whose_owner_takes_no_connections_is_waited_for_within_the_time_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listening = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let to = Endpoint::Unix(path.to_str().unwrap().to_owned());
        let connection = Connection { to, http: None, timeout: Duration::from_millis(100) };
        answers(&connection).unwrap();
        // One waits in the queue by now, and nobody else gets a place.
        rustix::net::listen(&listening, 0).unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(answers(&connection).is_err()));
        assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(true));
    }

    /// A job may put anything in the place of a file that is checked.
    #[test]
    fn what_never_ends_has_no_checksum_and_what_is_huge_is_not_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let text = path.to_str().unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(mark(text, Property::Checksum), Reading::Nothing);
        fs::remove_file(&path).unwrap();
        // Sparse: it takes no room, and a minute to read.
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let before = mark(text, Property::Checksum);
        assert!(matches!(before, Reading::Mark(_)));
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len((1 << 40) + 1).unwrap();
        assert_ne!(mark(text, Property::Checksum), before);
    }

    #[test]
    fn a_file_is_told_by_its_content_size_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let path = path.to_str().unwrap();
        assert_eq!(mark(path, Property::Size), Reading::Missing);
        fs::write(path, "one").unwrap();
        let (checksum, size) = (mark(path, Property::Checksum), mark(path, Property::Size));
        fs::write(path, "two").unwrap();
        assert_ne!(mark(path, Property::Checksum), checksum);
        assert_eq!(mark(path, Property::Size), size);
        let Reading::Number(seconds) = age(path) else { panic!() };
        assert!(seconds < 60.0);
    }
}
