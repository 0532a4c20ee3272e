//! A test in namespaces of its own.

use std::process::Command;

/// Set in the process that has them.
const INSIDE: &str = "WINDLASS_TEST_INSIDE";

/// Whether the test shall go on here: in private mount and network namespaces, as root. Elsewhere it is run there, and its
/// failure is ours; an ordinary user is told that it needs root.
pub(crate) fn is_private(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("{test} needs root: it mounts images");
        return false;
    }
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success(), "{test} failed in its namespaces");
    false
}
