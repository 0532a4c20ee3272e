//! The verbs that go to instances, against a real director and real agents. What stands for `ssh` and `scp` writes down what it
//! was started with.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::site::Site;

const SSH: &str = r#"#!/bin/sh
{
    echo "${0##*/} $*"
    for word; do case $word in UserKnownHostsFile=*) cat "${word#*=}" ;; esac; done
} >> "$RECORD"
for word; do from=$to to=$word; done
case "$0" in */scp) [ ! -f "${from#*:}" ] || exec cp "${from#*:}" "$to" ;; esac
case "$*" in *endless*) exec sleep 60 ;; esac
case "$*" in *tcpdump*) cat "$CAPTURE"; exit 0 ;; esac
printf 'up 1 day \033]0;OWNED\007\n'
echo careful >&2
case "$*" in *fail*) exit 3 ;; esac
"#;

fn make_programs(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for name in ["ssh", "scp"] {
        fs::write(folder.join(name), SSH).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Goes to the VM that create-env made.
pub(crate) fn visit_env(folder: &Path, endpoint: &str, ca: &str) {
    let (programs, record) = (folder.join("programs"), folder.join("record"));
    make_programs(&programs);
    let go = |words: &[&str]| {
        let mut verb = Command::new(env!("CARGO_BIN_EXE_windlass"));
        verb.args(words).args(["--director", "--agent-endpoint", endpoint, "--agent-certificate", ca]);
        verb.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())).env("RECORD", &record);
        let output = verb.stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (went, said) = go(&["ssh", "-c", "uptime"]);
    assert!(went && said.contains("create-env-vm/0: stdout | up 1 day"), "{said}");
    let started = fs::read_to_string(&record).unwrap();
    assert!(started.contains("StrictHostKeyChecking=yes") && started.contains(" -l bosh_"), "{started}");
    let logs = folder.join("logs");
    fs::create_dir(&logs).unwrap();
    let (went, said) = go(&["logs", "--agent", "--dir", logs.to_str().unwrap()]);
    assert!(went, "{said}");
    let fetched: Vec<_> = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [tarball] = fetched.as_slice() else { panic!("{fetched:?}") };
    let listed = Command::new("tar").arg("-tzf").arg(tarball).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("current"), "{listed:?}");
}

struct Visits {
    site: Site,
    id: String,
}

impl Visits {
    fn new() -> Self {
        let site = Site::ready_to_deploy();
        site.deploy();
        make_programs(&site.file("programs"));
        let instance = site.rows(&["-d", "example", "instances"])[0]["instance"].as_str().unwrap().to_owned();
        let id = instance.strip_prefix("db/").unwrap().to_owned();
        Self { site, id }
    }

    fn capture(&self) -> PathBuf {
        self.site.file("capture")
    }

    fn verb(&self, words: &[&str]) -> Command {
        let record = self.site.file("record");
        let _ = fs::remove_file(&record);
        let path = format!("{}:{}", self.site.file("programs").display(), std::env::var("PATH").unwrap());
        let mut verb = self.site.verb(&[&["-n", "-d", "example"], words].concat());
        verb.env("PATH", path).env("RECORD", &record).env("CAPTURE", self.capture());
        verb
    }

    /// What a verb came to, what it printed, and how the programs were started.
    fn go(&self, words: &[&str]) -> (Output, String, String) {
        let output = self.verb(words).output().unwrap();
        let record = self.site.file("record");
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output, printed, fs::read_to_string(&record).unwrap_or_default())
    }

    fn events(&self, action: &str) -> usize {
        self.site.rows(&["events", "--action", action]).len()
    }

    fn ok(&self, words: &[&str]) -> (String, String) {
        let (output, printed, record) = self.go(words);
        assert!(output.status.success(), "{words:?}: {printed}\n{record}");
        (printed, record)
    }
}

/// Operators could not look into their VMs, or would leave users behind there.
#[test]
fn instances_are_visited_and_left_as_they_were() {
    let visits = Visits::new();
    let (id, prefix) = (visits.id.clone(), visits.site.prefix().to_owned());
    let instance = format!("db/{id}");

    let (printed, record) = visits.ok(&["ssh", "db", "-c", "uptime"]);
    assert!(printed.contains(&format!("{instance}: stdout | up 1 day \\u{{1b}}]0;OWNED\\u{{7}}\n")), "{printed}");
    assert!(printed.contains(&format!("{instance}: stderr | careful\n")), "{printed}");
    assert!(record.contains(&format!("-- {prefix}.")) && record.contains("StrictHostKeyChecking=yes"), "{record}");
    assert!(record.contains(" -l bosh_") && record.trim_end().ends_with(" uptime"), "{record}");
    let (output, printed, _) = visits.go(&["ssh", "db", "-r", "-c", "fail"]);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("the command failed on 1 of 1 instances") && printed.contains('3'), "{printed}");

    let (_, record) = visits.ok(&["scp", "-r", &format!("{instance}:/var/log"), "logs.((instance_id))"]);
    let line = record.lines().find(|line| line.starts_with("scp ")).unwrap();
    assert!(line.contains(" -r -- bosh_") && line.ends_with(&format!(":/var/log logs.{id}")), "{line}");
    assert!(line.contains(&format!("@{prefix}.")), "{line}");

    let (_, record) = visits.ok(&["logs", "db", "--num", "3", "--agent", "--gw-host", "jump"]);
    assert!(record.contains("sudo bash -c 'exec tail -n 3 /var/vcap/bosh/log/current'"), "{record}");

    let (_, record) = visits.ok(&["ssh", &format!("db/{id}"), "-i", "/my/key", "-l", "me", "-c", "true"]);
    assert!(record.contains("IdentityFile=/my/key") && record.contains(&format!("-l me -- {prefix}.")), "{record}");

    let mut visits = visits;
    everybody_has_gone(&mut visits);
    assert!(visits.events("setup ssh") >= 8, "begin and end of four visits");
}

fn everybody_has_gone(visits: &mut Visits) {
    let events = |site: &Site, action: &str| site.rows(&["events", "--action", action]).len();
    visits.site.wait_until("the end of all visits", |site| events(site, "setup ssh") == events(site, "cleanup ssh"));
}

fn send(signal: &str, to: &str) {
    assert!(Command::new("kill").args([signal, "--", to]).status().unwrap().success());
}

/// Closing a terminal, or ending the program, would leave users behind in VMs.
#[test]
fn a_visit_that_is_ended_leaves_no_user_behind() {
    let mut visits = Visits::new();
    let record = visits.site.file("record");
    // Ctrl-C goes to all programs of a terminal, a signal to ours alone.
    for (signal, group) in [("-INT", "-"), ("-INT", ""), ("-TERM", ""), ("-HUP", "")] {
        let mut endless = visits.verb(&["logs", "db", "-f", "--job", "endless", "--gw-host", "jump"]);
        let mut endless = endless.stdout(Stdio::null()).process_group(0).spawn().unwrap();
        visits.site.wait_until("following", |_| fs::read_to_string(&record).is_ok_and(|text| text.contains("endless")));
        send(signal, &format!("{group}{}", endless.id()));
        assert!(!endless.wait().unwrap().success(), "it was broken off by {signal}");
        everybody_has_gone(&mut visits);
    }
    // While it waits for an answer.
    let output = visits.site.file("x.pcap");
    let mut asking = visits.site.verb(&["-d", "example", "pcap", "-o", output.to_str().unwrap()]);
    let mut asking = asking.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = asking.stderr.take().unwrap();
    let mut question = Vec::new();
    while !question.ends_with(b"Continue? [yN]: ") {
        let mut byte = [0];
        errors.read_exact(&mut byte).unwrap();
        question.push(byte[0]);
    }
    let unanswered = asking.stdin.take();
    send("-TERM", &asking.id().to_string());
    assert_eq!(asking.wait().unwrap().code(), Some(128 + 15));
    drop(unanswered);
    assert!(!output.exists());
    everybody_has_gone(&mut visits);
    // While the user is being let in: it is removed after that.
    let agents = visits.site.vm_processes();
    let signal_agents = |signal: &str| agents.iter().for_each(|agent| send(signal, &agent.to_string()));
    let before = visits.events("setup ssh");
    signal_agents("-STOP");
    let mut early = visits.verb(&["ssh", "db", "-c", "uptime"]).stdout(Stdio::null()).spawn().unwrap();
    visits.site.wait_until("letting in", |site| site.rows(&["events", "--action", "setup ssh"]).len() > before);
    send("-TERM", &early.id().to_string());
    signal_agents("-CONT");
    assert!(!early.wait().unwrap().success());
    everybody_has_gone(&mut visits);
    let both = visits.site.rows(&["events", "--object-type", "instance"]);
    let actions: Vec<&str> = both.iter().filter_map(|event| event["action"].as_str()).collect();
    assert_eq!(actions.first(), Some(&"cleanup ssh"), "the newest stands first: {actions:?}");
}

/// A capture of several machines would be lost, or be no capture.
#[test]
fn the_traffic_of_instances_is_captured_into_one_file() {
    let visits = Visits::new();
    let word = |number: u32| number.to_le_bytes();
    let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1].map(word);
    let packet = [7, 5, 3, 60].map(word);
    let capture = [head.as_flattened(), packet.as_flattened(), b"abc", packet.as_flattened(), b"cut"].concat();
    fs::write(visits.capture(), &capture[..capture.len() - 1]).unwrap();
    let output = visits.site.file("all.pcap");
    let (_, record) = visits.ok(&["pcap", "db", "-o", output.to_str().unwrap(), "-f", "port 53", "-s", "100"]);
    let expected = r#"tcpdump -U -w - -i '\''eth0'\'' -s 100 "not (host $1 and port $2)" and '\''(port 53)'\'' "#;
    assert!(record.contains(expected), "{record}");
    let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 100, 1].map(word);
    assert_eq!(fs::read(&output).unwrap(), [head.as_flattened(), packet.as_flattened(), b"abc"].concat());

    fs::write(visits.capture(), "sudo: tcpdump: command not found").unwrap();
    let (ended, printed, _) = visits.go(&["pcap", "-o", output.to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(printed.contains("not everything was captured") && printed.contains("is no capture"), "{printed}");
}
