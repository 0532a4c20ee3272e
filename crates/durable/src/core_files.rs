//! No core files: what a process had in its memory, such as values of variables, stays out of files when it crashes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One byte. A core of that size is neither written to a file nor given to a program: for programs, 1 is the only limit that
/// Linux respects.
const NONE: u64 = 1;

/// From here on neither this process nor what it starts leaves a core file. A user who wants one all the same can raise the limit
/// again, for one process (`prlimit --pid PID --core=unlimited`) or in a script (`ulimit -c unlimited`).
pub fn forbid() {
    let limit = getrlimit(Resource::Core);
    let current = Some(limit.maximum.map_or(NONE, |most| most.min(NONE)));
    // Lower is always allowed.
    let _ = setrlimit(Resource::Core, Rlimit { current, ..limit });
}
