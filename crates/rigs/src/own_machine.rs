//! Containers change networks and mounts, so tests of them run on a machine of their own, as far as they can tell: as root, in
//! network, mount and process namespaces that end with them.

use std::process::Command;

/// Set in the namespaces.
const INSIDE: &str = "WINDLASS_OWN_MACHINE";

/// An address that the machine has, beside loopback.
pub const ADDRESS: [u8; 4] = [192, 0, 2, 1];

/// Whether this is the test `name` on a machine of its own. Otherwise the test has run there by the time this returns.
pub fn is_own_machine(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("{name} needs root and did not run");
        return false;
    }
    let address = std::net::Ipv4Addr::from(ADDRESS);
    // `unshare` passes over interrupts, so it is ended with the test that waits for it.
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        .args(["sh", "-c", &format!("ip link set lo up && ip addr add {address}/32 dev lo && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    eprintln!("{text}");
    false
}
