//! Who gets in, and how: the address, the certificate that the agent shows, the one that it demands, the password.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;

use crate::mbus::Mbus;

/// What settings say about coming in.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// Where the agent listens, and the password.
    pub(crate) mbus: Mbus,
    pub(crate) tls: Arc<ServerConfig>,
}

/// The entrance in force. Connections stay when another takes its place.
#[derive(Debug)]
pub(crate) struct Gate(RwLock<Arc<Entrance>>);

impl Gate {
    pub(crate) fn new(entrance: Entrance) -> Self {
        Self(RwLock::new(Arc::new(entrance)))
    }

    pub(crate) fn current(&self) -> Arc<Entrance> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the next ones in by another entrance; says whether it has the same address, without which none will come.
    pub(crate) fn replace(&self, entrance: Entrance) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let stays = current.mbus.address() == entrance.mbus.address();
        if stays {
            *current = Arc::new(entrance);
        }
        stays
    }
}
