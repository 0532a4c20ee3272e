//! Somebody who only wants to be served while others attack, and a look at the memory of the director and its CPIs.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::StatusCode;

use crate::api::client::Client;
use crate::site::Site;

/// How much memory an attack may cost, in KiB.
const MOST_MEMORY: u64 = 256 << 10;
/// Within this time others are served, or within so many times of what they waited before the attack.
const SOON: Duration = Duration::from_millis(100);
const TIMES: u32 = 10;

/// Attacks, and says what others noticed of it.
pub(super) fn beside_a_bystander(attack: &str, site: &Site, make: impl FnOnce()) {
    let client = Client::of(site);
    let before = median((0..20).map(|_| ask(&client)).collect());
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
            let mut most = 0;
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
        "{attack}: others waited {served:?} ({before:?} before, {slowest:?} at most, {} asked); {} MiB at most",
        waited.len(),
        memory >> 10
    );
    assert!(memory < MOST_MEMORY, "{attack}: {memory} KiB");
    assert!(served <= SOON.max(before * TIMES), "{attack}: others waited {served:?}, and {before:?} before");
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

/// The most that the process, or one of its children, ever had in memory, in KiB.
fn memory_of_family(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|pids| pids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    children.into_iter().chain([pid]).map(memory_of).max().unwrap_or_default()
}

fn memory_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
