//! A director gives memory that it does not need any more back to the machine.
//!
//! An allocator keeps what a thread has freed for the next work of that thread. Large documents and plans are worked on in many
//! threads: a director that had read some of them kept 530 MiB with the C library's allocator, of which it needed 50. This one
//! gives memory back at once when it is told to, and learns that from the environment, before a program begins.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How many milliseconds the allocator keeps what was freed.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// The database is written in C, and has the C library's allocator: it gives back at once what has so many bytes, however often some were
/// asked for, and keeps the rest for few threads.
const OF_C_LIBRARY: [(&str, &str); 2] = [("MALLOC_MMAP_THRESHOLD_", "131072"), ("MALLOC_ARENA_MAX", "2")];

/// Begins this program once more, as the same process, unless the environment says how long memory is kept.
pub(crate) fn begin_again() -> io::Result<()> {
    if std::env::var_os(PURGE_DELAY).is_some() {
        return Ok(());
    }
    again().map(|never| match never {})
}

fn again() -> io::Result<Infallible> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(own_name) = arguments.next() {
        command.arg0(own_name);
    }
    Err(command.args(arguments).env(PURGE_DELAY, "0").envs(OF_C_LIBRARY).exec())
}
