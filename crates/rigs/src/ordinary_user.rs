//! Tests of what needs no privileges run as somebody who has none, also where the others run as root.

use std::os::unix::fs::chown;
use std::process::Command;

/// Nobody's number on every machine.
const NOBODY: u32 = 65534;

/// Whether this is the test `name` run by an ordinary user. Otherwise the test has run as one by the time this returns. Its files are
/// in a folder of that user's.
pub fn is_ordinary_user(name: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let nobody = NOBODY.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env("TMPDIR", folder.path())
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    eprintln!("{text}");
    false
}
