//! No two VMs of this machine use the same address, whatever their state folder: a VM's supervisor holds an abstract
//! socket named after each of its addresses. The kernel keeps such names apart per network namespace, as it does
//! addresses, and frees them when their holder dies.

use std::io::{self, BufRead, Read};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How long a holder has to say who it is.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often one that has no time for it is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// How much of what a holder says is read.
const LONGEST: usize = 4096;

/// What the names of all sockets begin with.
const PREFIX: &str = "windlass-address-";

fn name(address: IpAddr) -> String {
    format!("{PREFIX}{address}")
}

/// All addresses that are claimed, from the kernel's list of sockets (`/proc/net/unix`): by those that others can connect to. Sockets of other
/// kinds with the same name keep no VM from its address.
pub(crate) fn claimed(sockets: impl BufRead) -> impl Iterator<Item = IpAddr> {
    const LISTENS: &str = "00010000";
    const STREAM: &str = "0001";
    // Names of others may be no text.
    sockets.split(b'\n').map_while(Result::ok).filter_map(|line| {
        let line = String::from_utf8_lossy(&line);
        let (socket, address) = line.rsplit_once(&format!(" @{PREFIX}"))?;
        let mut fields = socket.split_whitespace().skip(3);
        let is_claim = fields.next()? == LISTENS && fields.next()? == STREAM;
        address.trim().parse().ok().filter(|_| is_claim)
    })
}

/// Claims `address` as long as the listener lives; none if somebody else holds it. A client that connects is told the holder's
/// name.
pub(crate) fn claim(address: IpAddr) -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(address))?) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who holds an address that is claimed, if somebody does: names may have line ends, so the kernel's list can be made to say anything.
pub(crate) fn claimant(address: IpAddr) -> Option<String> {
    let somebody = || "another VM of this machine".to_owned();
    match connect(address, Instant::now()) {
        Ok(stream) => Some(told_stranger(&stream).unwrap_or_else(somebody)),
        Err(Errno::CONNREFUSED | Errno::PROTOTYPE | Errno::NOENT) => None,
        Err(_) => Some(somebody()),
    }
}

/// The process at the other end, if that is of a user whose VMs are not looked after here. Anybody on this machine can take a name.
fn told_stranger(stream: &UnixStream) -> Option<String> {
    let holder = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let is_of_vms = holder.uid.is_root() || holder.uid == rustix::process::geteuid();
    (!is_of_vms).then(|| stranger_named(holder.pid.as_raw_nonzero().get(), holder.uid.as_raw()))
}

fn stranger_named(process: i32, user: u32) -> String {
    format!("process {process} of user {user}")
}

/// The VM that holds `address`, if one does.
pub(crate) fn holder(address: IpAddr) -> io::Result<Option<String>> {
    let deadline = Instant::now() + PATIENCE;
    let holder = match connect(address, deadline) {
        Ok(stream) => match told_stranger(&stream) {
            Some(stranger) => return Ok(Some(stranger)),
            None => said(stream, deadline),
        },
        Err(Errno::CONNREFUSED) => return Ok(None),
        Err(Errno::AGAIN) => String::new(),
        Err(error) => return Err(error.into()),
    };
    // A holder that says nothing still holds it.
    Ok(Some(if holder.is_empty() { "a process that does not say what it is".to_owned() } else { holder }))
}

/// Anybody on this machine can take a name and no connections, and the kernel would wait for ever.
fn connect(address: IpAddr, deadline: Instant) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let name = SocketAddrUnix::new_abstract_name(name(address).as_bytes())?;
    loop {
        match rustix::net::connect(&socket, &name) {
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            connected => break connected?,
        }
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// What comes until `deadline`: anybody on this machine can take a name, and say one letter after the other.
fn said(mut stream: UnixStream, deadline: Instant) -> String {
    let (mut said, mut part) = (Vec::new(), [0; 1024]);
    while said.len() < LONGEST {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match stream.read(&mut part) {
            Ok(length @ 1..) => said.extend_from_slice(&part[..length]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_address_is_claimed_once_and_its_holder_is_named() {
        let address = IpAddr::from(std::net::Ipv4Addr::from(0x7f60_0000 | (std::process::id() & 0xf_ffff)));
        let listener = claim(address).unwrap().expect("free");
        assert!(claim(address).unwrap().is_none());
        let sockets = || std::io::BufReader::new(std::fs::File::open("/proc/net/unix").unwrap());
        assert!(claimed(sockets()).any(|found| found == address));
        let teller = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"vm-1"));
        assert_eq!(holder(address).unwrap().as_deref(), Some("vm-1"));
        teller.join().unwrap().unwrap();
        assert_eq!(holder(address).unwrap(), None, "free again");
        assert!(claimed(sockets()).all(|found| found != address), "free again");
        let name = SocketAddr::from_abstract_name(name(address)).unwrap();
        let other_kind = std::os::unix::net::UnixDatagram::bind_addr(&name).unwrap();
        assert!(claimed(sockets()).all(|found| found != address), "it keeps no VM from the address");
        assert_eq!(claimant(address), None);
        drop(other_kind);
    }

    /// Any user could take addresses, and nobody learned whose process it was.
    #[test]
    fn a_process_of_another_user_that_holds_an_address_is_named() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let address = IpAddr::from(std::net::Ipv4Addr::from(0x7f40_0000 | (std::process::id() & 0xf_ffff)));
        let nobody = rustix::process::Uid::from_raw(65534);
        let take = move || {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            claim(address).unwrap().expect("free")
        };
        // Of this thread alone.
        let listener = std::thread::spawn(take).join().unwrap();
        let named = format!("process {} of user 65534", std::process::id());
        assert_eq!(claimant(address).as_deref(), Some(named.as_str()));
        assert_eq!(holder(address).unwrap().as_deref(), Some(named.as_str()));
        drop(listener);
        assert_eq!(claimant(address), None);
        let _own = claim(address).unwrap().expect("free");
        assert_eq!(claimant(address).as_deref(), Some("another VM of this machine"));
    }

    /// A process on this machine could keep every call that makes a VM with its address for as long as a call may take.
    #[test]
    fn a_holder_that_takes_no_connections_is_not_waited_for_long() {
        let address = IpAddr::from(std::net::Ipv4Addr::from(0x7f70_0000 | (std::process::id() & 0xf_ffff)));
        let listener = claim(address).unwrap().expect("free");
        rustix::net::listen(&listener, 0).unwrap();
        // One waits in the queue from now on, and nobody else gets a place.
        let _first = connect(address, Instant::now()).unwrap();
        let (told, hear) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(holder(address).unwrap()));
        let said = hear.recv_timeout(10 * PATIENCE).expect("it waits for ever");
        assert_eq!(said.as_deref(), Some("a process that does not say what it is"));
        drop(listener);
    }

    #[test]
    fn a_holder_that_says_one_letter_after_the_other_is_not_listened_to_for_long() {
        let address = IpAddr::from(std::net::Ipv4Addr::from(0x7f50_0000 | (std::process::id() & 0xf_ffff)));
        let listener = claim(address).unwrap().expect("free");
        let teller = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let begun = Instant::now();
        assert!(holder(address).unwrap().is_some_and(|said| said.starts_with('x')));
        assert!(begun.elapsed() < 5 * PATIENCE);
        teller.join().unwrap();
    }
}
