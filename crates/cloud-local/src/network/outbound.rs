//! Ways out of this machine: the kernel forwards, and what leaves has the machine's own address. Only where it is
//! configured; otherwise nothing here is ever called, and the machine's forwarding stays as it is.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ipnet::IpNet;
use windlass_durable::{file, kill_point};

use super::{NetworkError, refused};

/// Lets what comes from `subnet` through `bridge` out.
pub(crate) fn permit(bridge: &str, subnet: IpNet) -> Result<(), NetworkError> {
    let (family, forwarding) = match subnet {
        IpNet::V4(_) => ("ip", "/proc/sys/net/ipv4/ip_forward"),
        IpNet::V6(_) => ("ip6", "/proc/sys/net/ipv6/conf/all/forwarding"),
    };
    file::write_in_place(Path::new(forwarding), "1").map_err(refused("write", forwarding))?;
    let table = table(bridge);
    // Made, emptied and filled in one go: the same rules, however often it is done.
    nft(
        "translate addresses",
        &format!(
            "add table inet {table}\nflush table inet {table}\ntable inet {table} {{\n\
             chain leaving {{ type nat hook postrouting priority srcnat; \
             {family} saddr {subnet} oifname != \"{bridge}\" masquerade; }}\n}}\n"
        ),
    )
}

/// Takes [`permit`] back, but for the kernel's forwarding, which others may use by now.
pub(crate) fn forget(bridge: &str) -> Result<(), NetworkError> {
    let table = table(bridge);
    nft("forget the translation", &format!("add table inet {table}\ndelete table inet {table}\n"))
}

fn table(bridge: &str) -> String {
    format!("windlass_{}", bridge.replace('-', "_"))
}

fn nft(doing: &str, rules: &str) -> Result<(), NetworkError> {
    let failed = |said: String| NetworkError::Firewall { doing: doing.to_owned(), said };
    kill_point("before the firewall changes");
    let run = || -> io::Result<std::process::Output> {
        let mut child = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(rules.as_bytes())?;
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| {
        failed(format!("{error}; install nftables, or set 'cloud.properties.local.outbound' to false"))
    })?;
    kill_point("after the firewall changed");
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
