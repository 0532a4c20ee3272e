//! A director gives memory that it does not need any more back to the machine.
//!
//! The C library keeps what a thread has freed for the next work of that thread. Large documents and plans are worked on in many
//! threads: a director that had read some of them kept 480 MiB, of which it needed 50. With one place for all threads, and without
//! large pieces in it, less than half of that stays. The C library learns this from the environment, before a program begins.

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

const KEEP_LITTLE: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "1048576"), ("MALLOC_TRIM_THRESHOLD_", "1048576")];

/// Begins this program once more, as the same process, unless the environment says how memory is kept.
pub(crate) fn begin_again() -> io::Result<()> {
    if KEEP_LITTLE.iter().any(|(name, _)| std::env::var_os(name).is_some()) {
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
    Err(command.args(arguments).envs(KEEP_LITTLE).exec())
}
