//! A measurement that the user stops is cleared away like one that ended.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::BenchError;

/// Ctrl-C, or the signal with which services are stopped.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From here on, the signals do not end the program by themselves.
    pub(crate) fn listen() -> Result<Self, BenchError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(BenchError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(BenchError::Signals)?,
        })
    }

    /// The outcome of a measurement; an error if the user stops it.
    pub(crate) async fn or<T>(&mut self, measurement: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::select! {
            measured = measurement => measured,
            _ = self.interrupt.recv() => Err(io::Error::other("stopped")),
            _ = self.terminate.recv() => Err(io::Error::other("stopped")),
        }
    }
}
