//! A range of loopback addresses that no other demo or measurement on this machine uses.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// `127.a.b.0/24`, ours as long as this lives: the kernel keeps names of abstract sockets apart.
#[derive(Debug)]
pub struct LoopbackNet {
    /// `127.a.b.`.
    pub prefix: String,
    _claim: UnixListener,
}

impl LoopbackNet {
    /// Claims a free one.
    pub fn claim() -> io::Result<Self> {
        // From 127.64 on, far from what other programs use; where to begin is arbitrary.
        let begin = std::process::id();
        for step in 0..0x4000 {
            let number = 0x4000 | (begin.wrapping_add(step) & 0x3fff);
            let prefix = format!("127.{}.{}.", number >> 8, number & 0xff);
            let name = SocketAddr::from_abstract_name(format!("windlass-net-{prefix}0"))?;
            match UnixListener::bind_addr(&name) {
                Ok(claim) => return Ok(Self { prefix, _claim: claim }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("all of them are in use"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_programs_never_share_addresses() {
        let (one, other) = (LoopbackNet::claim().unwrap(), LoopbackNet::claim().unwrap());
        assert_ne!(one.prefix, other.prefix);
        assert!(one.prefix.starts_with("127."));
    }
}
