//! What the original agent expects of the system around it, as far as a system lacks it: programs beside the agent, and files that
//! they need. It ends at its start without them.

use std::collections::BTreeSet;

use crate::init::Init;
use crate::root_fs::{Entry, System, folder, link, text};

/// Where programs of a system are.
pub(crate) const PROGRAM_FOLDERS: [&str; 6] = ["bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin"];

/// The names of programs that a system has of its own.
pub(crate) type Programs = BTreeSet<String>;

/// Run by agents before everything else, at each of their starts.
const START: &str = "bosh-agent-rc";

/// Programs for which there is nothing to do in a container.
const IDLE: [&str; 3] = ["bosh-start-logging-and-auditing", "restart_networking", "sync-time"];

/// The agent asks it to start monit, even where there is none; one of the system's own would fail.
const SV: &str = "#!/bin/sh\n# There is no monit, and nothing else is asked for.\n";

/// Agents of before 2023 know `sv` alone, also where systemd starts monit.
const SV_OF_SYSTEMD: &str = "#!/bin/sh\n# Agents that know no systemd ask here for monit.\nexec systemctl \"$@\"\n";

/// What the package of that name does at `resolvconf -u` with what agents and jobs wrote, and at its installation: what was in the file
/// before counts on, and the file becomes a link. Where a runtime has mounted it, it is written.
const RESOLVCONF: &str = "#!/bin/sh\nset -e\nfrom=/etc/resolvconf/resolv.conf.d\nto=/run/resolvconf\nfile=/etc/resolv.conf\n\
    mkdir -p \"$from\" \"$to\"\n\
    [ -h \"$file\" ] || [ -f \"$from/base\" ] || [ ! -s \"$file\" ] || cat \"$file\" > \"$from/base\"\n\
    for part in head base tail; do\n    [ ! -f \"$from/$part\" ] || cat \"$from/$part\"\ndone > \"$to/resolv.conf.new\"\n\
    mv \"$to/resolv.conf.new\" \"$to/resolv.conf\"\n\
    [ -h \"$file\" ] || ln -sf \"$to/resolv.conf\" \"$file\" 2>/dev/null || cat \"$to/resolv.conf\" > \"$file\"\n";

/// Users who log in over `ssh` may do everything, as in other stemcells.
const SUDOERS: &str = "%bosh_sudoers ALL=(ALL) NOPASSWD: ALL\n";

/// What a system gets beside the agent.
pub(crate) fn companions(system: &System) -> Vec<Entry> {
    let programs = &system.programs;
    if !programs.contains("sh") {
        return Vec::new();
    }
    let mut entries = IDLE.map(idle).to_vec();
    entries.push(program(START, &start(system)));
    if !programs.contains("resolvconf") {
        entries.push(program("resolvconf", RESOLVCONF));
        // Jobs do not look beside the agent.
        entries.push(Entry { yields: true, ..link("usr/sbin/resolvconf", "/var/vcap/bosh/bin/resolvconf") });
        entries.push(folder("etc/resolvconf/resolv.conf.d/", 0o755));
    }
    match (system.has_monit, system.init) {
        (false, _) => entries.push(program("sv", SV)),
        (true, Init::Systemd) => entries.push(program("sv", SV_OF_SYSTEMD)),
        (true, _) => {}
    }
    if programs.contains("sudo") {
        let sudoers = text("etc/sudoers.d/bosh_sudoers", SUDOERS);
        entries.push(Entry { mode: 0o440, yields: true, ..sudoers });
    }
    entries
}

/// What is beside the agent where there is a shell and no system.
pub(crate) fn without_system() -> Vec<Entry> {
    [START].into_iter().chain(IDLE).map(idle).collect()
}

fn idle(name: &str) -> Entry {
    program(name, "#!/bin/sh\n# Nothing to do in a container.\n")
}

/// What a boot clears is made again, what each machine has for itself is made once, and people are let in where nobody else
/// starts services.
fn start(System { init, programs, .. }: &System) -> String {
    let mut script = "#!/bin/sh\n".to_owned();
    if !programs.contains("resolvconf") {
        script.push_str("resolvconf -u\n");
    }
    if programs.contains("ssh-keygen") {
        script.push_str("ssh-keygen -A\n");
    }
    if *init == Init::Agent && programs.contains("sshd") {
        // One that runs already keeps the port.
        script.push_str("mkdir -p /run/sshd\n/usr/sbin/sshd || true\n");
    }
    script
}

fn program(name: &str, script: &str) -> Entry {
    Entry { mode: 0o755, yields: true, ..text(&format!("var/vcap/bosh/bin/{name}"), script) }
}
