//! A terminal for somebody's command: the program has one end, and this agent the other.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;
use windlass_contract::way_in::Size;

/// The end that is read and written here.
#[derive(Debug)]
pub(super) struct Terminal {
    ours: OwnedFd,
    /// What the program writes. It ends with an error, when nobody has the other end any more.
    output: pipe::Receiver,
    input: pipe::Sender,
}

/// How large a terminal is can be changed while others read and write it.
#[derive(Debug)]
pub(super) struct Resizing(OwnedFd);

impl Terminal {
    /// With the end for a program, whose user may open it too.
    pub(super) fn open(size: Size, owner: Option<(u32, u32)>) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        if let Some((user, group)) = owner {
            fchown(&theirs, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
            fchmod(&theirs, Mode::RUSR | Mode::WUSR)?;
        }
        set_size(&ours, size);
        rustix::io::ioctl_fionbio(&ours, true)?;
        // It is read, written and waited for as a pipe is.
        let output = pipe::Receiver::from_owned_fd_unchecked(ours.try_clone()?)?;
        let input = pipe::Sender::from_owned_fd_unchecked(ours.try_clone()?)?;
        Ok((Self { ours, output, input }, theirs))
    }

    pub(super) fn taken_apart(self) -> (pipe::Receiver, pipe::Sender, Resizing) {
        (self.output, self.input, Resizing(self.ours))
    }
}

impl Resizing {
    /// The program hears of it by a signal.
    pub(super) fn resize(&self, size: Size) {
        set_size(&self.0, size);
    }
}

fn set_size(terminal: &OwnedFd, Size { columns, rows }: Size) {
    // A terminal without a size is one as well.
    let _ = tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 });
}
