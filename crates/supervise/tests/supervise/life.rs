//! What a supervisor does for jobs and agents.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use windlass_durable::process::ProcessIdentity;
use windlass_supervise::{Client, ClientError, Command, Health, Selection, ServiceStatus};

use crate::rig::Rig;

fn vcap() -> Selection {
    Selection::Group("vcap".into())
}

pub(crate) fn is_running(status: &[ServiceStatus], name: &str) -> bool {
    status.iter().any(|service| service.name == name && service.health == Health::Running)
}

pub(crate) fn is_stopped(status: &[ServiceStatus], name: &str) -> bool {
    status.iter().any(|service| service.name == name && service.is_stopped && !service.is_pending)
}

#[test]
fn a_process_is_started_and_started_again_when_it_dies_and_stopped() {
    let mut rig = Rig::new();
    rig.start();
    rig.client().load(&[("a.monitrc", &rig.check("a", ""))]).unwrap();
    rig.client().command(Command::Start, vcap()).unwrap();
    rig.wait_until("a runs", |rig, status| is_running(status, "a") && rig.copies("a").len() == 1);
    let first = rig.copies("a")[0];
    first.signal(Signal::KILL).unwrap();
    rig.wait_until("a runs again", |rig, status| is_running(status, "a") && rig.is_another("a", first));
    let events = rig.client().events(0).unwrap();
    assert!(events.iter().any(|event| event.service == "a" && event.event == "Does not exist"), "{events:?}");
    rig.client().command(Command::Stop, vcap()).unwrap();
    rig.wait_until("a is stopped", |rig, status| is_stopped(status, "a") && rig.copies("a").is_empty());
    assert_eq!(rig.starts("a"), 2);
    let log = fs::read_to_string(rig.state().join("monit.log")).unwrap();
    assert!(log.contains("'a' process is not running") && log.contains("'a' stopped"), "{log}");
}

#[test]
fn a_supervisor_that_is_killed_finds_what_runs_and_what_is_stopped() {
    let mut rig = Rig::new();
    rig.start();
    let text = rig.check("a", "") + &rig.check("b", "");
    rig.client().load(&[("job", &text)]).unwrap();
    rig.wait_until("both run", |_, status| is_running(status, "a") && is_running(status, "b"));
    rig.client().command(Command::Stop, Selection::Service("b".into())).unwrap();
    rig.wait_until("b is stopped", |_, status| is_stopped(status, "b"));
    let before = rig.copies("a");
    rig.kill();
    rig.start();
    rig.wait_until("a is found", |_, status| is_running(status, "a") && is_stopped(status, "b"));
    // Time for a mistake: several cycles.
    let cycles = std::time::Instant::now() + Duration::from_secs(2);
    rig.wait_until("cycles have passed", |_, _| std::time::Instant::now() > cycles);
    assert_eq!(rig.copies("a"), before);
    assert!(rig.copies("b").is_empty());
    assert_eq!((rig.starts("a"), rig.starts("b")), (1, 1));
}

#[test]
fn programs_get_almost_no_environment_and_the_user_that_is_asked_for() {
    let mut rig = Rig::new();
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { 65534 } else { rustix::process::geteuid().as_raw() };
    // Everybody may write here: the program is somebody else.
    let out = rig.path().join("out");
    fs::create_dir(&out).unwrap();
    for folder in [rig.path(), &out] {
        fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let text = format!(
        "check process a pidfile /nowhere/a.pid start program \"/usr/bin/env -- /bin/sh -c 'cat /proc/$$/environ > {0}/env; pwd > {0}/pwd'\" as uid {user}",
        out.display()
    );
    let mut command = rig.command();
    command.env("SECRET", "value").env("HOME", "/root");
    let mut child = command.spawn().unwrap();
    rig.client().load(&[("a", &text)]).unwrap();
    let pwd = out.join("pwd");
    while fs::read_to_string(&pwd).unwrap_or_default().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(&pwd).unwrap(), "/\n");
    assert_eq!(fs::metadata(&pwd).unwrap().uid(), user);
    assert_eq!(fs::read(out.join("env")).unwrap(), b"PATH=/bin:/usr/bin:/sbin:/usr/sbin\0");
    rig.revive();
}

#[test]
fn a_pid_file_of_a_stranger_is_not_believed_and_the_stranger_not_signalled() {
    let mut rig = Rig::new();
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid_file = rig.path().join("a.pid");
    fs::write(&pid_file, stranger.id().to_string()).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&pid_file).unwrap().set_modified(long_ago).unwrap();
    let identity = ProcessIdentity::of(stranger.id()).unwrap();
    rig.start();
    rig.client().load(&[("job", &rig.check("a", ""))]).unwrap();
    rig.wait_until("a runs", |rig, status| is_running(status, "a") && rig.copies("a").len() == 1);
    rig.client().command(Command::Stop, vcap()).unwrap();
    rig.wait_until("a is stopped", |_, status| is_stopped(status, "a"));
    assert!(identity.is_running());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn what_is_wrong_is_refused_with_the_reason_and_nothing_changes() {
    let mut rig = Rig::new();
    rig.start();
    rig.client().load(&[("job", &rig.check("a", ""))]).unwrap();
    rig.wait_until("a runs", |_, status| is_running(status, "a"));
    let refused = |result: Result<(), ClientError>| match result.unwrap_err() {
        ClientError::Refused(reason) => reason,
        other => panic!("{other}"),
    };
    let client = rig.client();
    assert!(refused(client.load(&[("x", "check process a")])).starts_with("x, line 1: 'pidfile' is expected"));
    let twice = rig.check("a", "");
    assert!(refused(client.load(&[("x", &twice), ("y", &twice)])).contains("in x and in y"));
    assert_eq!(
        refused(client.command(Command::Stop, Selection::Service("nobody".into()))),
        "there is no service 'nobody': there are a"
    );
    let handle = fs::File::open(rig.state()).unwrap();
    let path = format!("/proc/self/fd/{}/supervise.sock", std::os::fd::AsRawFd::as_raw_fd(&handle));
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"rubbish\n{\"method\":\"status\"}\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next().unwrap().unwrap().contains("this is no request"));
    assert!(lines.next().unwrap().unwrap().contains("\"name\":\"a\""));
    assert_eq!(rig.starts("a"), 1);
}

#[test]
fn a_folder_has_one_supervisor_and_its_path_may_be_long() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("d".repeat(120)).join("supervise");
    let start = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_supervisor"));
        command.args(["run"]).arg(&deep).arg("10000").stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let mut first = start();
    assert_eq!(Client::new(&deep).status().unwrap(), []);
    let mode = fs::metadata(deep.join("supervise.sock")).unwrap().mode();
    assert_eq!((mode & 0o777, fs::metadata(&deep).unwrap().mode() & 0o777), (0o600, 0o700));
    let mut second = start();
    // The first one goes on, and the second one waits for its place.
    assert_eq!(Client::new(&deep).status().unwrap(), []);
    assert!(second.try_wait().unwrap().is_none());
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(Client::new(&deep).status().unwrap(), []);
    assert!(second.try_wait().unwrap().is_none());
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn a_state_that_is_not_readable_is_left_alone_and_named() {
    let rig = Rig::new();
    fs::create_dir(rig.state()).unwrap();
    fs::write(rig.state().join("state.json"), "{").unwrap();
    let output = rig.command().stderr(std::process::Stdio::piped()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("state.json is not a supervisor's state: move it away"), "{text}");
    assert_eq!(fs::read_to_string(rig.state().join("state.json")).unwrap(), "{");
}

/// A control group of this test alone, with all that is below it; none where none can be made.
struct Group(std::path::PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let path = windlass_supervise::own_group()?.join(format!("windlass-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was killed in them leaves them a moment later.
        for _ in 0..500 {
            for group in fs::read_dir(&self.0).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(group.path());
            }
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_service_has_a_control_group_where_that_is_allowed() {
    let Some(group) = Group::new() else {
        eprintln!("needs a control group of its own and did not run");
        return;
    };
    let mut rig = Rig::new();
    rig.groups = Some(group.0.clone());
    rig.start();
    rig.client().load(&[("job", &rig.check("a", ""))]).unwrap();
    rig.wait_until("a runs", |rig, status| is_running(status, "a") && rig.copies("a").len() == 1);
    let members = fs::read_to_string(group.0.join("service-a/cgroup.procs")).unwrap();
    let pid = rig.copies("a")[0].pid.to_string();
    assert!(members.lines().any(|line| line == pid), "{pid} is not among {members}");
    rig.client().command(Command::Stop, vcap()).unwrap();
    rig.wait_until("a is stopped", |rig, status| is_stopped(status, "a") && rig.copies("a").is_empty());
    rig.wait_until("its group goes with its file", |rig, _| {
        rig.client().load(&[]).unwrap();
        !group.0.join("service-a").exists()
    });
    drop(rig);
}

#[test]
fn what_start_programs_leave_becomes_the_supervisors_and_is_no_zombie_when_it_ends() {
    let mut rig = Rig::new();
    rig.start();
    rig.client().load(&[("job", &rig.check("a", ""))]).unwrap();
    rig.wait_until("a runs", |rig, status| is_running(status, "a") && rig.copies("a").len() == 1);
    let daemon = rig.copies("a")[0];
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(Some(parent(daemon.pid)), rig.supervisor_pid());
    rig.client().command(Command::Stop, vcap()).unwrap();
    let stat = format!("/proc/{}", daemon.pid);
    rig.wait_until("it is waited for", |_, status| is_stopped(status, "a") && !std::path::Path::new(&stat).exists());
}

#[test]
fn the_log_says_what_was_asked_for_and_what_was_done() {
    let mut rig = Rig::new();
    rig.start();
    rig.client().load(&[("job", &rig.check("a", ""))]).unwrap();
    rig.wait_until("a runs", |_, status| is_running(status, "a"));
    rig.client().command(Command::Unmonitor, Selection::Service("a".into())).unwrap();
    rig.client().command(Command::Stop, vcap()).unwrap();
    rig.wait_until("a is stopped", |_, status| is_stopped(status, "a"));
    let _ = rig.client().command(Command::Start, Selection::Service("b".into()));
    let log = fs::read_to_string(rig.state().join("monit.log")).unwrap();
    let mut rest = log.as_str();
    for words in [
        "asked to look after the services of 1 files",
        "'a' process is not running yet",
        "'a' start\n",
        "'a' started with pid",
        "asked to unmonitor 'a'",
        "asked to stop the services of group vcap",
        "'a' stop\n",
        "'a' stopped",
        "asked to start 'b', refused: there is no service 'b'",
    ] {
        let Some(at) = rest.find(words) else { panic!("no {words:?} in\n{rest}") };
        rest = &rest[at..];
    }
}
