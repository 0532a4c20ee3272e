//! The other side of a connection.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The other side of a connection, and whether the connection keeps its place when the server is full.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    trusted: Arc<AtomicBool>,
    /// Stands for the user whose credentials were shown; 0 while none were.
    user: Arc<AtomicU64>,
    work: Arc<AtomicUsize>,
    cut_off: Arc<Notify>,
}

/// While this lives, the connection keeps its place.
#[derive(Debug)]
pub struct Working<'a>(&'a AtomicUsize);

impl Peer {
    /// Somebody at an address who has shown nothing yet.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, trusted: Arc::default(), user: Arc::default(), work: Arc::default(), cut_off: Arc::default() }
    }

    /// Credentials were shown: the connection keeps its place until it ends.
    pub fn trust(&self) {
        self.trusted.store(true, Ordering::Relaxed);
    }

    /// Credentials of a user were shown: the connection keeps its place until it ends, unless the server is full and this user has
    /// very many.
    pub fn trust_user(&self, name: &str) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        self.user.store(hasher.finish().max(1), Ordering::Relaxed);
        self.trust();
    }

    pub(crate) fn user(&self) -> Option<u64> {
        Some(self.user.load(Ordering::Relaxed)).filter(|user| *user != 0)
    }

    /// Somebody with credentials is being served: the connection keeps its place until that is done.
    pub fn working(&self) -> Working<'_> {
        self.work.fetch_add(1, Ordering::Relaxed);
        Working(&self.work)
    }

    /// Ends the connection at once, whatever is under way.
    pub fn cut_off(&self) {
        self.cut_off.notify_one();
    }

    pub(crate) async fn is_cut_off(&self) {
        self.cut_off.notified().await;
    }

    pub(crate) fn keeps_place(&self) -> bool {
        self.trusted.load(Ordering::Relaxed) || self.work.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
