//! As many services as a large VM has.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use windlass_durable::process::ProcessIdentity;
use windlass_supervise::{Command, Health, Selection};

use crate::rig::Rig;

const SERVICES: usize = 500;

/// It starts another sleeper each time, without looking whether there is one.
const CTL: &str = r#"#!/bin/sh
case $2 in
start) echo "$3" >> "$1/starts"; "$1/sleeper" 3599 < /dev/null > /dev/null 2>&1 & echo $! > "$1/$3.pid" ;;
stop) kill "$(cat "$1/$3.pid")"; rm "$1/$3.pid" ;;
esac
"#;

fn sleeper(rig: &Rig, name: &str) -> Option<ProcessIdentity> {
    let pid = fs::read_to_string(rig.path().join(format!("{name}.pid"))).ok()?.trim().parse().ok()?;
    ProcessIdentity::of(pid).ok().filter(ProcessIdentity::is_running)
}

#[test]
fn five_hundred_services_are_started_once_and_a_death_is_mended_within_two_cycles() {
    let mut rig = Rig::new();
    rig.cycle = 3000;
    // In memory: how long a busy disk takes for a flush is not what is measured here.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    std::os::unix::fs::symlink(memory.path(), rig.state()).unwrap();
    fs::write(rig.path().join("ctl"), CTL).unwrap();
    fs::copy("/bin/sleep", rig.path().join("sleeper")).unwrap();
    for program in ["ctl", "sleeper"] {
        fs::set_permissions(rig.path().join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let names: Vec<String> = (0..SERVICES).map(|number| format!("service-{number}")).collect();
    let text: String = names.iter().map(|name| rig.check(name, "")).collect();
    rig.start();
    let begun = Instant::now();
    rig.client().load(&[("job", &text)]).unwrap();
    // In the middle of it, the supervisor is killed.
    rig.wait_until("some are started", |rig, _| fs::read_to_string(rig.path().join("starts")).is_ok());
    rig.kill();
    rig.wait_until("all run", |_, status| {
        status.iter().filter(|service| service.health == Health::Running).count() == SERVICES
    });
    eprintln!("{SERVICES} services run after {:.1} s", begun.elapsed().as_secs_f64());
    let starts = fs::read_to_string(rig.path().join("starts")).unwrap();
    let once: BTreeSet<&str> = starts.lines().collect();
    assert_eq!((once.len(), starts.lines().count()), (SERVICES, SERVICES), "somebody was started twice");
    let written = ["state.json", "journal"].map(|name| fs::metadata(rig.state().join(name)).map_or(0, |it| it.len()));
    assert!(written.iter().sum::<u64>() < 1 << 20, "{written:?} bytes");

    let dies = sleeper(&rig, "service-7").unwrap();
    let died = Instant::now();
    dies.signal(Signal::KILL).unwrap();
    rig.wait_until("it is back", |rig, _| sleeper(rig, "service-7").is_some_and(|now| now != dies));
    assert!(died.elapsed() < Duration::from_millis(2 * rig.cycle), "{:?}", died.elapsed());

    rig.client().command(Command::Stop, Selection::All).unwrap();
    rig.wait_until("all are stopped", |_, status| {
        status.iter().all(|service| service.is_stopped && !service.is_pending && service.pid.is_none())
    });
    assert!(names.iter().all(|name| sleeper(&rig, name).is_none()));
}
