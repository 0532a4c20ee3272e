//! Lists of a large deployment, many at once.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::site::{GROUP, Site};
use crate::api::client::Client;

const INSTANCES: usize = 200;
const LISTS: usize = 64;
/// How much more memory the director may have meanwhile than before, in KiB.
const MOST: u64 = 32 << 10;

/// The most that a process had in memory since the last [`forget`], in KiB.
fn most_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "it is no file, but has the kernel forget a number")]
fn forget(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Sixteen lists of a thousand instances took 154 MB, 64 half a gigabyte, and that stayed.
#[test]
fn many_lists_at_once_take_little_memory_and_writes_between_do_not_change_that() {
    let site = Site::ready(json!({"sim": {}}));
    let group = GROUP.replace("instances: 1", &format!("instances: {INSTANCES}, update: {{max_in_flight: 50}}"));
    site.deploy(&[&group.replace(", persistent_disk_type: disk", "")]);
    let pid = site.director_pid();
    let list = |client: &Client| {
        let asked = Instant::now();
        let answer = client.send("GET", "/deployments/example/instances", "", "");
        assert_eq!(answer.json().as_array().map(Vec::len), Some(INSTANCES), "{}", answer.text());
        asked.elapsed()
    };
    list(&Client::at(&site.state_dir()));
    forget(pid);
    let before = most_memory(pid);
    let slowest = std::thread::scope(|scope| {
        let lists: Vec<_> = (0..LISTS)
            .map(|number| {
                let site = &site;
                scope.spawn(move || {
                    let client = Client::at(&site.state_dir());
                    let config = json!({"type": "mine", "name": format!("c{number}"), "content": "a: 1"}).to_string();
                    let stored = client.send("POST", "/configs", "application/json", config);
                    assert!(stored.status.is_success(), "{}", stored.text());
                    list(&client)
                })
            })
            .collect();
        lists.into_iter().map(|list| list.join().unwrap()).max().unwrap_or(Duration::ZERO)
    });
    let more = most_memory(pid).saturating_sub(before);
    println!("{LISTS} lists: {} MiB before, {} MiB more, the slowest took {slowest:?}", before >> 10, more >> 10);
    assert!(more < MOST, "{more} KiB more than {before}");
}
