//! The terminal in front of the user, given to a program elsewhere: what is typed goes there unread, and its size is told.

use std::io::{self, IsTerminal};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use windlass_contract::way_in::Size;

use crate::failure::Failure;

/// A terminal that is raw for as long as this lives.
#[derive(Debug)]
pub(crate) struct RawTerminal(Termios);

impl RawTerminal {
    /// Also when a signal ends this program, the terminal is as it was.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let unfit = |error: rustix::io::Errno| Failure::Process("cannot use the terminal", error.into());
        let before = tcgetattr(io::stdin()).map_err(unfit)?;
        for kind in [SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind).map_err(|error| Failure::Process("cannot listen for signals", error))?;
            let before = before.clone();
            tokio::spawn(async move {
                if signals.recv().await.is_some() {
                    let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
                    std::process::exit(128 + kind.as_raw_value());
                }
            });
        }
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).map_err(unfit)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Whether somebody types, and sees what comes.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// How large it is now.
pub(crate) fn size() -> Size {
    let size = tcgetwinsize(io::stdout());
    size.map_or(Size { columns: 80, rows: 24 }, |size| Size { columns: size.ws_col, rows: size.ws_row })
}

/// How large it is from now on.
pub(crate) fn sizes() -> watch::Receiver<Size> {
    let (told, heard) = watch::channel(size());
    if let Ok(mut changes) = signal(SignalKind::window_change()) {
        tokio::spawn(async move {
            while changes.recv().await.is_some() {
                told.send_replace(size());
            }
        });
    }
    heard
}
