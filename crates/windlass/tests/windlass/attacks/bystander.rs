//! Somebody who only wants to be served while others attack, and a look at the memory of the director and its CPIs.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::api::client::Client;
use crate::site::Site;

/// How much memory an attack may cost a process, in KiB, and the director with all that it started.
const MOST_MEMORY: u64 = 256 << 10;
const MOST_MEMORY_OF_ALL: u64 = 2 * MOST_MEMORY;
/// Within this time others are served, or within so many times of what they waited before the attack.
const SOON: Duration = Duration::from_millis(100);
const TIMES: u32 = 10;
/// Who waits for longer than this once was not served slowly, but held up.
const HELD_UP: Duration = Duration::from_secs(5);

/// Attacks, and says what others noticed of it.
pub(super) fn beside_a_bystander(attack: &str, site: &Site, make: impl FnOnce()) {
    let client = Client::of(site);
    let mut alone: Vec<_> = (0..20).map(|_| ask(&client)).collect();
    alone.sort();
    let (before, slowest_before) = (median(alone.clone()), alone[alone.len() - 1]);
    let is_over = AtomicBool::new(false);
    let pid = site.director_pid();
    let (mut waited, memory) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let client = Client::of(site);
            let mut waited = Vec::new();
            while !is_over.load(Ordering::SeqCst) || waited.is_empty() {
                waited.push(ask(&client));
                std::thread::sleep(Duration::from_millis(10));
            }
            waited
        });
        let looking = scope.spawn(|| {
            let mut most = Memory::default();
            while !is_over.load(Ordering::SeqCst) {
                most = most.max(memory_of_family(pid));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let over = Over(&is_over);
        make();
        drop(over);
        (asking.join().unwrap(), looking.join().unwrap().max(memory_of_family(pid)))
    });
    waited.sort();
    let (served, slowest) = (median(waited.clone()), waited.last().copied().unwrap_or_default());
    println!(
        "{attack}: others waited {served:?} ({before:?} before), {slowest:?} at most ({slowest_before:?} before), {} asked; \
         {} MiB at most, {} MiB together",
        waited.len(),
        memory.of_one >> 10,
        memory.of_all >> 10
    );
    assert!(memory.of_one < MOST_MEMORY, "{attack}: {} KiB", memory.of_one);
    assert!(memory.of_all < MOST_MEMORY_OF_ALL, "{attack}: {} KiB together", memory.of_all);
    assert!(served <= SOON.max(before * TIMES), "{attack}: others waited {served:?}, and {before:?} before");
    let held_up = HELD_UP.max(slowest_before * TIMES);
    assert!(slowest <= held_up, "{attack}: one waited {slowest:?}, and {slowest_before:?} at most before");
}

/// Ends the bystander also when the attack panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn ask(client: &Client) -> Duration {
    let asked = Instant::now();
    assert_eq!(client.send("GET", "/info", "", "").status, StatusCode::OK);
    asked.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// In KiB.
#[derive(Default)]
struct Memory {
    /// The most that one process ever had.
    of_one: u64,
    /// What all had at one time; pages that several share are counted for each.
    of_all: u64,
}

impl Memory {
    fn max(self, other: Self) -> Self {
        Self { of_one: self.of_one.max(other.of_one), of_all: self.of_all.max(other.of_all) }
    }
}

/// Of a process and all that it started, and those started.
fn memory_of_family(pid: u32) -> Memory {
    let (mut memory, mut left) = (Memory::default(), vec![pid]);
    while let Some(pid) = left.pop() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let value = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
        };
        memory.of_one = memory.of_one.max(value("VmHWM:"));
        memory.of_all += value("VmRSS:");
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        left.extend(children.flat_map(|pids| pids.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()));
    }
    memory
}
