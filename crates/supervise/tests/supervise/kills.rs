//! The supervisor killed at every point: nobody runs twice, nobody is lost.

use rustix::process::Signal;
use windlass_durable::sweep::Points;
use windlass_supervise::{Command, Selection};

use crate::life::{is_running, is_stopped};
use crate::rig::Rig;

/// One life of two services, one of which depends on the other. Says whether the supervisor was killed in it.
fn life(rig: &mut Rig) -> bool {
    let text = rig.check("a", "") + &rig.check("b", "depends on a");
    let vcap = || Selection::Group("vcap".into());
    let both_run = |rig: &Rig, status: &[_]| {
        let are_there = rig.copies("a").len() == 1 && rig.copies("b").len() == 1;
        are_there && is_running(status, "a") && is_running(status, "b")
    };
    let none_runs = |rig: &Rig, status: &[_]| {
        let is_gone = rig.copies("a").is_empty() && rig.copies("b").is_empty();
        is_gone && is_stopped(status, "a") && is_stopped(status, "b")
    };
    let mut was_killed = rig.ask(|client| client.load(&[("job", &text)])).1;
    was_killed |= rig.ask(|client| client.command(Command::Start, vcap())).1;
    was_killed |= rig.wait_until("both run", both_run);
    let dies = rig.copies("b")[0];
    dies.signal(Signal::KILL).unwrap();
    was_killed |= rig.wait_until("b is back", |rig, status| both_run(rig, status) && rig.is_another("b", dies));
    let restarted = rig.copies("a")[0];
    was_killed |= rig.ask(|client| client.command(Command::Restart, Selection::Service("a".into()))).1;
    was_killed |=
        rig.wait_until("both are restarted", |rig, status| both_run(rig, status) && rig.is_another("a", restarted));
    was_killed |= rig.ask(|client| client.command(Command::Stop, vcap())).1;
    was_killed |= rig.wait_until("none runs", none_runs);
    was_killed
}

#[test]
fn a_supervisor_killed_at_any_point_runs_nobody_twice_and_loses_nobody() {
    let mut points = Points::sampled(19);
    loop {
        let point = points.next().unwrap();
        let mut rig = Rig::new();
        rig.start_killed_at(point);
        if !life(&mut rig) {
            eprintln!("{point} points are more than there are");
            assert!(point > 40, "there must be more points than {point}");
            return;
        }
    }
}
