//! The resolver alone, for measurements.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::records::Records;
use super::resolver::{Resolver, Sockets};
use super::wire;

/// A resolver without an agent around it.
#[derive(Debug)]
pub struct NameServer {
    resolver: Arc<Resolver>,
    sockets: Sockets,
}

impl NameServer {
    /// Knows the names of a `records.json`, and listens at `address`.
    pub async fn bind(records: &[u8], address: SocketAddr) -> io::Result<Self> {
        let records = Records::read(records)?;
        let nowhere = PathBuf::from("/nonexistent");
        let resolver = Arc::new(Resolver::new(records, String::new(), nowhere));
        Ok(Self { resolver, sockets: Sockets::bind(address).await? })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.sockets.address()
    }

    /// Answers for as long as it is waited for.
    pub async fn serve(self) {
        self.resolver.serve(self.sockets, Vec::new()).await;
    }

    /// A question for the IPv4 addresses of a name.
    pub fn question(number: u16, name: &str) -> Vec<u8> {
        wire::question(number, name, wire::A, None)
    }
}
