//! `windlass pcap`: what instances send and receive, captured by tcpdump on them, in one file here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};

use windlass_durable::kill_point;

use crate::cli::{KeyArgs, PcapArgs};
use crate::failure::Failure;
use crate::packets::{Capture, Packet, header};
use crate::screen::Screen;
use crate::session::Session;
use crate::table::Table;
use crate::visit::{self, Host, Visit, quoted};

pub(super) async fn run(session: &mut Session<'_>, arguments: &PcapArgs) -> Result<(), Failure> {
    check(arguments)?;
    let mut selected: Vec<_> = arguments.instances.iter().map(Some).collect();
    selected.dedup();
    if selected.is_empty() {
        selected.push(None);
    }
    visit::during(session, &arguments.gateway, &KeyArgs::default(), &selected, |screen, visit, hosts| {
        screen.table(&table(hosts));
        screen.line(&format!("Traffic on {} VM(s) will be captured. Ctrl-C ends it.", hosts.len()));
        screen.confirm()?;
        capture(screen, visit, arguments, hosts)
    })
    .await
}

/// A name that Linux would not give to an interface never gets to a host.
fn check(arguments: &PcapArgs) -> Result<(), Failure> {
    let name = &arguments.interface;
    let is_odd = |letter: char| matches!(letter, '/' | ':' | '\0') || letter.is_whitespace();
    if name.is_empty() || name.len() > 15 || matches!(name.as_str(), "." | "..") || name.contains(is_odd) {
        return Err(Failure::PcapInterface(name.clone()));
    }
    Ok(())
}

fn table(hosts: &[Host]) -> Table {
    let row = |host: &Host| vec![host.group.clone(), host.id.clone(), host.address.to_string()];
    Table {
        title: Some("Expected VMs for SSH capture".to_owned()),
        header: vec!["Instance Group", "ID", "IP"],
        rows: hosts.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Leaves the visit's own traffic out, or every packet that is captured would make another one. It ends with the connection, whose
/// end is that of its input: tcpdump alone would go on until it sees another packet.
fn command(arguments: &PcapArgs) -> String {
    let filter = arguments.filter.as_deref().map(str::trim).filter(|filter| !filter.is_empty());
    let filter = filter.map(|filter| format!(" and {}", quoted(&format!("({filter})")))).unwrap_or_default();
    let (interface, snaplen) = (quoted(&arguments.interface), arguments.snaplen);
    let tcpdump = format!("tcpdump -U -w - -i {interface} -s {snaplen} \"not (host $1 and port $2)\"{filter}");
    let script = format!(
        "exec 3<&0; {tcpdump} 3<&- & capture=$!; {{ cat <&3; kill $capture; }} >/dev/null 2>&1 & end=$!; \
         wait $capture; code=$?; kill $end 2>/dev/null; exit $code"
    );
    format!("set -- $SSH_CONNECTION; exec sudo sh -c {} sh \"$1\" \"$2\"", quoted(&script))
}

fn capture(screen: &mut Screen, visit: &Visit<'_>, arguments: &PcapArgs, hosts: &[Host]) -> Result<(), Failure> {
    let unwritable = |source| Failure::Write { path: arguments.output.clone(), source };
    kill_point("before the file of a capture is made");
    #[expect(clippy::disallowed_methods, reason = "the file that the user names; it passes the hook")]
    let mut output = BufWriter::new(File::create(&arguments.output).map_err(unwritable)?);
    let (sender, captured) = sync_channel(WAITING);
    let mut children = Vec::new();
    for host in hosts {
        children.push(start(visit, arguments, host, &sender)?);
    }
    drop(sender);
    let (mut link_type, mut packets) = (None, 0_u64);
    // A host can send any number of packets that cannot be taken.
    let mut broken = BTreeSet::new();
    for (host, found) in captured {
        match found {
            Ok(packet) if link_type.is_none_or(|known| known == packet.link_type) => {
                if link_type.is_none() {
                    output.write_all(&header(arguments.snaplen, packet.link_type)).map_err(unwritable)?;
                    link_type = Some(packet.link_type);
                }
                // As it comes: who looks into the file meanwhile sees it.
                output.write_all(&packet.record()).and_then(|()| output.flush()).map_err(unwritable)?;
                packets += 1;
            }
            Ok(_) => {
                broken.insert(format!("{host} captures another kind of link than the first"));
            }
            Err(why) => {
                broken.insert(format!("{host}: {why}"));
            }
        }
    }
    if link_type.is_none() {
        output.write_all(&header(arguments.snaplen, ETHERNET)).and_then(|()| output.flush()).map_err(unwritable)?;
    }
    for mut child in children {
        // With its input it ends there.
        let _ = child.wait();
    }
    screen.line(&format!("{packets} packets are in {}", arguments.output.display()));
    if broken.is_empty() { Ok(()) } else { Err(Failure::Pcap(broken.into_iter().collect::<Vec<_>>().join("; "))) }
}

/// How many packets wait to be written; hosts wait then.
const WAITING: usize = 64;

/// What a file without a packet says.
const ETHERNET: u32 = 1;

type Captured = (String, Result<Packet, String>);

fn start(
    visit: &Visit<'_>,
    arguments: &PcapArgs,
    host: &Host,
    captured: &SyncSender<Captured>,
) -> Result<Child, Failure> {
    let mut ssh = Command::new("ssh");
    ssh.args(visit.options(host)).args(["-l", &host.user, "--"]).arg(host.address.to_string()).arg(command(arguments));
    // What tcpdump says about itself, it says to the user.
    ssh.stdin(Stdio::piped()).stdout(Stdio::piped());
    kill_point("before ssh is started");
    let mut child = visit.start(&mut ssh)?;
    if let Some(stdout) = child.stdout.take() {
        let (name, captured) = (host.name(), captured.clone());
        std::thread::spawn(move || pass_on(&name, stdout, &captured));
    }
    Ok(child)
}

fn pass_on(host: &str, stdout: impl Read, captured: &SyncSender<Captured>) {
    let mut capture = match Capture::open(stdout) {
        Ok(capture) => capture,
        Err(why) => {
            let _ = captured.send((host.to_owned(), Err(why)));
            return;
        }
    };
    while let Some(found) = capture.next_packet().transpose() {
        let is_end = found.is_err();
        if captured.send((host.to_owned(), found)).is_err() || is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, RemoteVerb, Verb};

    fn arguments(line: &[&str]) -> PcapArgs {
        match Cli::parse_from([&["windlass", "pcap", "-o", "x.pcap"], line].concat()).verb {
            Verb::Remote(RemoteVerb::Pcap(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn neither_an_interface_nor_a_filter_adds_words_to_the_command() {
        for odd in ["eth0;reboot ", "a/b", "..", "far-too-long-a-name"] {
            assert!(check(&arguments(&["-i", odd])).is_err(), "{odd}");
        }
        let said = command(&arguments(&["-i", "e$x", "-f", "port 53 ' ; reboot"]));
        let (before, script) = said.split_once(" sh -c ").unwrap();
        assert_eq!(before, "set -- $SSH_CONNECTION; exec sudo");
        let script = script.strip_suffix(" sh \"$1\" \"$2\"").unwrap();
        // Two shells read it: the user's, and root's.
        let inner = script.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap().replace("'\\''", "'");
        let expected = "exec 3<&0; tcpdump -U -w - -i 'e$x' -s 65535 \"not (host $1 and port $2)\" \
             and '(port 53 '\\'' ; reboot)' 3<&- & ";
        assert!(inner.starts_with(expected), "{inner}");
    }
}
