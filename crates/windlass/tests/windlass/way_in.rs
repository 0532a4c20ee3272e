//! Work on instances through their agents, where there is no ssh server: a real director, real agents, real processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;

const PATIENCE: Duration = Duration::from_secs(60);

/// A deployment of so many instances in processes that see the programs of this machine.
fn deployed(instances: usize) -> Site {
    let site = Site::ready_with_own_programs("");
    site.write_documents(instances);
    let manifest = fs::read_to_string(site.file("manifest.yml")).unwrap();
    fs::write(site.file("manifest.yml"), manifest.replace("windlass-minimal", "windlass-host")).unwrap();
    site.deploy();
    site
}

fn exec(site: &Site, words: &[&str]) -> Command {
    site.verb(&[&["-d", "example", "exec"], words].concat())
}

fn ran(site: &Site, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = exec(site, words).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How long something sleeps, by which it is found: nobody else on this machine sleeps as long.
fn mark(number: u32) -> String {
    format!("9{}.{number:03}", std::process::id())
}

/// Whether some process has this among its arguments.
fn runs(number: u32) -> bool {
    is_argument(&mark(number))
}

fn is_argument(mark: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
}

/// Operators could not look into VMs that have no ssh server, or would not know what a command said and how it ended.
#[test]
fn a_command_on_an_instance_is_as_if_it_ran_here() {
    let site = deployed(2);
    let said = ran(&site, &["db/0", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(said, (Some(7), "out\n".to_owned(), "err\n".to_owned()));
    assert_eq!(ran(&site, &["db/0", "sh", "-c", "kill -KILL $$"]).0, Some(137));
    let (code, root, _) = ran(&site, &["db/0", "--root", "--", "id", "-u"]);
    assert_eq!((code, root.trim()), (Some(0), "0"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(ran(&site, &["db/0", "--", "id", "-un"]).1.trim(), "vcap");
    }
    let (code, _, said) = ran(&site, &["db/0", "--", "no-such-program"]);
    assert!(code == Some(1) && said.contains("cannot run 'no-such-program'"), "{said}");
    let (code, _, said) = ran(&site, &["web/0", "--", "true"]);
    assert!(code == Some(1) && said.contains("no instance with a VM matches 'web/0'"), "{said}");

    // Input goes there whole, however much of it there is, and its end is told.
    let input: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut cat = exec(&site, &["db/0", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, sent) = (cat.stdin.take().unwrap(), input.clone());
    let writer = std::thread::spawn(move || to.write_all(&sent).unwrap());
    let mut output = Vec::new();
    cat.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    writer.join().unwrap();
    assert!(cat.wait().unwrap().success() && output == input, "{} of {} bytes", output.len(), input.len());
    // A command that does not read its input ends all the same, and so does one that leaves a process behind.
    let mut lazy = exec(&site, &["db/0", "--", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let _ = lazy.stdin.take().unwrap().write_all(&input);
    assert!(lazy.wait().unwrap().success());
    assert_eq!(ran(&site, &["db/0", "--", "sh", "-c", "sleep 30 & echo left"]).1, "left\n");

    let (code, said, _) = ran(&site, &["db", "--", "sh", "-c", "echo one; printf two"]);
    assert_eq!((code, said.lines().count()), (Some(0), 4), "{said}");
    assert!(said.lines().all(|line| line.starts_with("db/") && line.contains(": stdout | ")), "{said}");
    assert_eq!(ran(&site, &["db", "--", "sh", "-c", "exit 3"]).0, Some(1));
}

/// Nobody would know who was in a VM; or the log would have what nobody may see.
#[test]
fn events_say_who_did_what_where_and_not_with_which_words() {
    let site = deployed(1);
    assert_eq!(ran(&site, &["db/0", "--root", "--", "sh", "-c", "echo hunter2; exit 4"]).0, Some(4));
    fs::write(site.file("note"), "hunter2").unwrap();
    site.ok(&["-d", "example", "cp", site.file("note").to_str().unwrap(), "db/0:/tmp/note"]);
    let shown = |action: &str| site.rows(&["events", "--action", action]);
    eventually("the end of the event", || shown("exec").len() == 2);
    let events = shown("exec");
    let begin = events.iter().find(|event| event["context"].as_str().unwrap().contains("root")).unwrap();
    assert!(begin["user"] == "admin" && begin["deployment"] == "example", "{begin}");
    assert!(begin["instance"].as_str().unwrap().starts_with("db/"), "{begin}");
    assert!(begin["context"].as_str().unwrap().contains("what: sh"), "{begin}");
    assert!(events.iter().any(|event| event["context"].as_str().unwrap().contains("exit_code: 4")), "{events:?}");
    let copied = shown("copy to");
    assert!(copied.iter().any(|event| event["context"].as_str().unwrap().contains("/tmp/note")), "{copied:?}");
    for text in [site.ok(&["events", "--json"]), site.director_log()] {
        assert!(!text.contains("hunter2") && !text.contains("exit 4"), "what was run or copied is nobody's to read");
    }
}

/// What nobody waits for any more would run for ever in VMs.
#[test]
fn a_command_ends_with_the_client_that_started_it() {
    let site = deployed(1);
    let begin = |script: &str| -> (Child, BufReader<std::process::ChildStdout>) {
        let mut verb = exec(&site, &["db/0", "--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(verb.stdout.take().unwrap());
        (verb, output)
    };
    let line = |output: &mut BufReader<std::process::ChildStdout>| {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    // A client that is lost: with the command ends what it started, also in a session of its own.
    let (mut lost, mut output) = begin(&format!("setsid sleep {} & sleep {} & echo ready; wait", mark(1), mark(2)));
    assert_eq!(line(&mut output), "ready\n");
    eventually("the start of both", || runs(1) && runs(2));
    lost.kill().unwrap();
    lost.wait().unwrap();
    eventually("the end of what a lost client began", || !runs(1) && !runs(2));
    // One that reads nothing of its input, and ignores requests to end.
    let (mut stubborn, mut output) = begin(&format!("trap '' TERM INT; echo ready; sleep {}", mark(3)));
    assert_eq!(line(&mut output), "ready\n");
    let _ = stubborn.stdin.take().unwrap().write_all(&vec![0; 100_000]);
    stubborn.kill().unwrap();
    stubborn.wait().unwrap();
    eventually("the end of one that ignores requests", || !runs(3));
    // Ctrl-C is the command's to handle.
    let (mut interrupted, mut output) =
        begin(&format!("trap 'echo caught; exit 3' INT; echo ready; sleep {} & wait", mark(4)));
    assert_eq!(line(&mut output), "ready\n");
    let pid = interrupted.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(line(&mut output), "caught\n");
    assert_eq!(interrupted.wait().unwrap().code(), Some(3));
    // A reader that has seen enough, as `head` has, ends it too.
    let (mut endless, mut output) = begin("while :; do echo y; done");
    assert_eq!(line(&mut output), "y\n");
    drop(output);
    endless.wait().unwrap();
}

/// A program on a terminal of its own, and the other end of it.
fn on_terminal(command: &mut Command) -> (Child, fs::File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    resize(&ours, 100, 30);
    let twin = || theirs.try_clone().unwrap();
    let child = command.env("TERM", "vt220").stdin(twin()).stdout(twin()).stderr(twin()).spawn().unwrap();
    (child, ours.into())
}

fn resize(terminal: impl AsFd, columns: u16, rows: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Whether what is typed is shown, and read line by line.
fn is_ordinary(terminal: &fs::File) -> bool {
    tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
}

/// Reads until this came.
fn shown(terminal: &mut fs::File, wanted: &str) -> String {
    let mut came = Vec::new();
    while !String::from_utf8_lossy(&came).contains(wanted) {
        let mut part = [0; 1000];
        let read = terminal.read(&mut part).unwrap_or_default();
        assert!(read > 0, "'{wanted}' does not come after: {}", String::from_utf8_lossy(&came));
        came.extend_from_slice(&part[..read]);
    }
    String::from_utf8(came).unwrap()
}

/// Shells and programs that draw could be used over ssh alone.
#[test]
fn a_command_has_the_terminal_of_its_user() {
    let site = deployed(2);
    let (mut shell, mut terminal) = on_terminal(&mut exec(&site, &["--tty", "db/0", "--", "sh"]));
    // What is typed before the other side is there waits for it, and is shown there alone.
    shown(&mut terminal, "$ ");
    assert!(!is_ordinary(&terminal));
    let mut typed = |line: &str, wanted: &str| {
        terminal.write_all(line.as_bytes()).unwrap();
        shown(&mut terminal, wanted)
    };
    typed("stty size\n", "30 100");
    typed("echo =$TERM=; [ -t 0 ] && [ -t 2 ] && tty\n", "=vt220=\r\n/dev/pts/");
    // Ctrl-C goes to what runs there, and the shell stays.
    typed(&format!("sleep {}\n", mark(6)), "sleep");
    eventually("the start", || runs(6));
    typed("\x03", "$ ");
    typed("echo code $?\n", "code 130");
    assert!(!runs(6));
    resize(&terminal, 120, 40);
    assert!(Command::new("kill").args(["-WINCH", &shell.id().to_string()]).status().unwrap().success());
    terminal.write_all(b"until [ \"$(stty size)\" = '40 120' ]; do sleep 0.02; done; echo gro''wn\n").unwrap();
    shown(&mut terminal, "grown");
    terminal.write_all(b"exit 9\n").unwrap();
    assert_eq!(shell.wait().unwrap().code(), Some(9));
    assert!(is_ordinary(&terminal), "the terminal is as it was");

    let (mut missing, mut terminal) = on_terminal(&mut exec(&site, &["-t", "db/0", "--", "no-such-program"]));
    shown(&mut terminal, "cannot run 'no-such-program'");
    assert_eq!(missing.wait().unwrap().code(), Some(127));
    // A shell ignores requests to end, and ends with the program that has its terminal.
    for signal in ["-KILL", "-TERM"] {
        let (mut lost, mut terminal) = on_terminal(&mut exec(&site, &["-t", "db/0", "--", "sh"]));
        shown(&mut terminal, "$ ");
        writeln!(terminal, "sleep {}", mark(7)).unwrap();
        eventually("the start", || runs(7));
        assert!(Command::new("kill").args([signal, &lost.id().to_string()]).status().unwrap().success());
        lost.wait().unwrap();
        eventually("the end of what a lost terminal had", || !runs(7));
        assert!(signal == "-KILL" || is_ordinary(&terminal), "the terminal is as it was");
    }
    let (code, _, said) = ran(&site, &["-t", "db/0", "--", "sh"]);
    assert!(code == Some(1) && said.contains("--tty needs a terminal"), "{said}");
    let (code, _, said) = ran(&site, &["-t", "db", "--", "sh"]);
    assert!(code == Some(1) && said.contains("--tty is for one instance, but 2 match"), "{said}");
}

fn memory(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Output that nobody reads, or that has no end, would take the director's memory from all others.
#[test]
fn output_of_any_size_costs_no_memory_and_one_who_does_not_read_it_holds_nobody_up() {
    let site = deployed(1);
    let director = site.director_pid();
    let before = memory(director, "VmRSS");
    const BYTES: u64 = 300 << 20;
    let size = BYTES.to_string();
    let mut verb = exec(&site, &["db/0", "--", "head", "-c", &size, "/dev/zero"]);
    let mut verb = verb.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = verb.stdout.take().unwrap();
    let mut first = vec![0; 1 << 20];
    output.read_exact(&mut first).unwrap();
    // Nobody reads for a while, and the director does all else meanwhile.
    for _ in 0..3 {
        assert_eq!(ran(&site, &["db/0", "--", "echo", "x"]).1, "x\n");
        site.ok(&["deployments"]);
    }
    let stuck = memory(director, "VmRSS");
    let client = memory(verb.id(), "VmHWM");
    let rest = std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(verb.wait().unwrap().success());
    assert_eq!(rest + (1 << 20), BYTES);
    let after = memory(director, "VmRSS");
    // In KiB. Of 300 MiB nothing is kept; lists and connections take some.
    assert!(stuck < before + 40_000 && after < before + 40_000, "{before} KiB, then {stuck}, then {after}");
    assert!(client < 120_000, "the client took {client} KiB");
}

/// Files could not be brought to VMs and from them, or would come to places that nobody named.
#[test]
fn files_and_folders_are_copied_both_ways() {
    let site = deployed(2);
    copies(&site);
    let (code, listed, _) = ran(&site, &["db/0", "--", "ls", "-n", "/tmp/there/deep/b"]);
    assert!(code == Some(0) && (!rustix::process::geteuid().is_root() || listed.contains(" 1000 ")), "{listed}");
    // vcap may not write everywhere, and says so.
    if rustix::process::geteuid().is_root() {
        let said = site.fails(&["-d", "example", "cp", site.file("from/a").to_str().unwrap(), "db/0:/etc/a"]);
        assert!(said.contains("ermission denied") && said.contains("not everything was copied"), "{said}");
    }
    // To all of a group, and from all of it under names of their own.
    let from = site.file("from/a");
    site.ok(&["-d", "example", "cp", from.to_str().unwrap(), "db:/tmp/all"]);
    let many = site.file("many-((instance_id))");
    let said = site.fails(&["-d", "example", "cp", "db:/tmp/all", site.file("one").to_str().unwrap()]);
    assert!(said.contains("2 instances would overwrite each other"), "{said}");
    site.ok(&["-d", "example", "cp", "db:/tmp/all", many.to_str().unwrap()]);
    let names = fs::read_dir(site.file("")).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("many-")).count(), 2);
}

/// Needs no program in the VM.
fn copies(site: &Site) {
    let cp = |words: &[&str]| site.windlass(&[&["-d", "example", "cp"], words].concat());
    let path = |name: &str| site.file(name).to_str().unwrap().to_owned();
    fs::create_dir_all(site.file("from/deep")).unwrap();
    fs::write(site.file("from/a"), vec![1; 700_000]).unwrap();
    fs::write(site.file("from/deep/b"), "b").unwrap();
    symlink("a", site.file("from/link")).unwrap();
    let refused = cp(&[&path("from"), "db/0:/tmp/there"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("-r copies folders"));
    let copied = cp(&["-r", &path("from"), "db/0:/tmp/there"]);
    assert!(copied.status.success(), "{copied:?}");
    let copied = cp(&["-r", "db/0:/tmp/there", &path("back")]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(fs::read(site.file("back/a")).unwrap(), vec![1; 700_000]);
    assert_eq!(fs::read(site.file("back/link")).unwrap().len(), 700_000);
    assert_eq!(fs::read_to_string(site.file("back/deep/b")).unwrap(), "b");
    let missing = cp(&["db/0:/tmp/nothing", &path("nothing")]);
    assert!(!missing.status.success() && !site.file("nothing").exists());
    let said = String::from_utf8_lossy(&missing.stdout).into_owned();
    assert!(said.contains("cannot read /tmp/nothing"), "{missing:?}");
    let twice = cp(&["db/0:/tmp/there/a", "db/0:/tmp/x"]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("on the wrong side"), "{twice:?}");
}

/// Logs could not be watched where there is no ssh server.
#[test]
fn logs_are_followed_through_agents() {
    let site = deployed(2);
    let write = |instance: &str, script: &str| {
        let (code, _, said) = ran(&site, &[instance, "--root", "--", "sh", "-c", script]);
        assert_eq!(code, Some(0), "{said}");
    };
    write("db/0", "mkdir -p /var/vcap/sys/log/web && seq 1 50 > /var/vcap/sys/log/web/web.log");
    write("db/1", "mkdir -p /var/vcap/sys/log/web && echo other > /var/vcap/sys/log/web/web.log");
    write("db/0", "ln -s /etc/passwd /var/vcap/sys/log/web/stolen.log");
    let shown = site.ok(&["-d", "example", "logs", "db/0", "--num", "2"]);
    let ends: Vec<&str> = shown.lines().map(|line| line.split_once(": stdout | ").unwrap().1).collect();
    assert_eq!(ends, ["==> /var/vcap/sys/log/web/web.log <==", "49", "50"], "links are nobody's logs");
    let agent = site.ok(&["-d", "example", "logs", "db/0", "--num", "1", "--agent", "-q"]);
    assert!(agent.lines().count() <= 1, "{agent}");

    let mut follow = site.verb(&["-d", "example", "logs", "-f", "-q", "--job", "web"]);
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(follow.stdout.take().unwrap());
    let (lines, came) = std::sync::mpsc::channel();
    std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line))));
    let until = |end: &str| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = came.recv_timeout(deadline - Instant::now()).unwrap();
            if line.ends_with(end) {
                return line;
            }
        }
    };
    assert!(until("stdout | other").starts_with("db/"));
    write("db/1", "echo added >> /var/vcap/sys/log/web/web.log");
    until("stdout | added");
    write("db/0", "cd /var/vcap/sys/log/web && mv web.log web.log.1 && echo rotated > web.log");
    until("stdout | rotated");
    write("db/0", "echo new > /var/vcap/sys/log/web/new.log");
    until("stdout | new");
    assert!(Command::new("kill").args(["-INT", &follow.id().to_string()]).status().unwrap().success());
    assert!(!follow.wait().unwrap().success(), "it was broken off");
    eventually("the end of who follows there", || !is_argument("way-in"));
}

/// A container has a file system of its own, and perhaps not one program beside the agent.
#[test]
fn containers_without_any_program_are_reached_too() {
    if !is_own_machine("way_in::containers_without_any_program_are_reached_too") {
        return;
    }
    let site = Site::ready_with_containers("");
    site.deploy();
    copies(&site);
    let (code, said, errors) = ran(&site, &["db/0", "--root", "--", "/var/vcap/bosh/bin/bosh-agent", "-v"]);
    assert!(code == Some(0) && said.starts_with("windlass-agent "), "{said}{errors}");
    site.ok(&["-d", "example", "logs", "db/0", "--num", "1", "--agent"]);
    // Control groups outlive namespaces.
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

/// The machine's own files are not for users who may deploy to it.
#[test]
fn a_vm_without_files_of_its_own_lets_nobody_run_anything() {
    let site = Site::ready_to_deploy();
    site.deploy();
    let (code, _, said) = ran(&site, &["db/0", "--", "id"]);
    assert!(code == Some(1) && said.contains("has no files of its own"), "{said}");
    let said = site.fails(&["-d", "example", "cp", "db/0:/etc/passwd", site.file("x").to_str().unwrap()]);
    assert!(said.contains("has no files of its own"), "{said}");
    site.ok(&["-d", "example", "logs", "db/0", "--num", "1", "--agent"]);
}
