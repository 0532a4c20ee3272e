//! The director dies at any point of a deploy with jobs; its task goes on and converges, with one copy of each process.

use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;

use super::Shop;

/// How many tests share the points: each of them takes seconds, and there are many.
const SHARES: usize = 4;

#[test]
fn a_deploy_with_jobs_that_is_killed_anywhere_runs_each_process_once() {
    sweep("a_deploy_with_jobs_that_is_killed_anywhere_runs_each_process_once", 0);
}

#[test]
fn a_deploy_with_jobs_that_is_killed_at_a_second_share_of_points() {
    sweep("a_deploy_with_jobs_that_is_killed_at_a_second_share_of_points", 1);
}

#[test]
fn a_deploy_with_jobs_that_is_killed_at_a_third_share_of_points() {
    sweep("a_deploy_with_jobs_that_is_killed_at_a_third_share_of_points", 2);
}

#[test]
fn a_deploy_with_jobs_that_is_killed_at_a_fourth_share_of_points() {
    sweep("a_deploy_with_jobs_that_is_killed_at_a_fourth_share_of_points", 3);
}

fn sweep(test: &str, share: usize) {
    let mut points = Points::sampled(97).share(share, SHARES).peekable();
    if points.peek().is_none() || !is_own_machine(&format!("software::kills::{test}")) {
        return;
    }
    let mut shop = Shop::in_containers();
    let manifest = shop.manifest("1", "{name: you}");
    let deploy = ["-n", "-d", "example", "deploy", &manifest];
    let mut kills = 0;
    for point in points {
        shop.site.kill_director();
        shop.site.start_director(Some(point));
        let survived = shop.site.try_while_director_runs(&deploy);
        shop.site.kill_director();
        shop.site.start_director(None);
        if !survived {
            kills += 1;
            if shop.site.sees_killed_task_go_on() {
                assert!(shop.runs(), "killed at point {point}, and gone on: {:?}", shop.processes());
            }
            shop.site.ok(&deploy);
        }
        assert!(shop.runs(), "killed at point {point}: {:?}", shop.processes());
        assert_eq!(shop.site.in_cloud("vms").len(), 2, "killed at point {point}: a worker is left");
        assert!(shop.site.rows(&["leaks"]).is_empty(), "killed at point {point}: a possible leak");
        for group in ["front", "back"] {
            let copies = shop.copies(group);
            assert_eq!(copies, 1, "killed at point {point}: copies of the process of {group}");
        }
        shop.forget_everything();
        if survived {
            println!("a deploy with jobs: {kills} kills, and none at point {point}");
            return;
        }
    }
}
