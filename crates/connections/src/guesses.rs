//! Wrong credentials: who tries many is answered slowly, and the log says so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A person who mistypes a password makes no more mistakes than this.
const FREE: u32 = 4;
/// How much longer each further answer takes, and how long at most.
const STEP: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(5);
/// How long an address is remembered after its last mistake.
const MEMORY: Duration = Duration::from_secs(60);
/// How many addresses are remembered.
const ADDRESSES: usize = 4096;
/// At most one line of the log in this time.
const LINE: Duration = Duration::from_secs(1);
/// Letters of a name that the log shows.
const NAME: usize = 64;

/// Wrong credentials, by the address that they came from. Right ones are never slowed down, so nobody is locked out.
#[derive(Debug, Default)]
pub struct Guesses {
    seen: Mutex<SeenGuesses>,
}

#[derive(Debug, Default)]
struct SeenGuesses {
    by_address: BTreeMap<IpAddr, (u32, Instant)>,
    last_line: Option<Instant>,
    untold: u64,
}

impl Guesses {
    /// Notes wrong credentials, and gives how long their answer waits.
    pub fn wrong(&self, address: IpAddr, name: &str, now: Instant) -> Duration {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let count = seen.count(address, now);
        seen.untold += 1;
        if seen.last_line.is_none_or(|last| now - last >= LINE) {
            let name: String = name.chars().take(NAME).collect();
            let (since_last_line, in_a_row) = (seen.untold, count);
            tracing::warn!(%address, ?name, in_a_row, since_last_line, "wrong credentials");
            (seen.last_line, seen.untold) = (Some(now), 0);
        }
        (STEP * count.saturating_sub(FREE)).min(LONGEST)
    }
}

impl SeenGuesses {
    fn count(&mut self, address: IpAddr, now: Instant) -> u32 {
        if self.by_address.len() >= ADDRESSES && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, (_, last)| now - *last < MEMORY);
            if self.by_address.len() >= ADDRESSES {
                // An attacker with that many addresses is not slowed down by this; only the number of connections limits them.
                self.by_address.clear();
            }
        }
        let (count, last) = self.by_address.entry(address).or_insert((0, now));
        if now - *last >= MEMORY {
            *count = 0;
        }
        (*count, *last) = (count.saturating_add(1), now);
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_often_waits_longer_and_longer_and_others_do_not() {
        let guesses = Guesses::default();
        let (eve, ann): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let now = Instant::now();
        let waits: Vec<u128> = (0..7).map(|_| guesses.wrong(eve, "admin", now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 500, 1000, 1500]);
        assert_eq!((0..100).map(|_| guesses.wrong(eve, "admin", now)).max(), Some(LONGEST));
        assert_eq!(guesses.wrong(ann, "ann", now), Duration::ZERO);
        assert_eq!(guesses.wrong(eve, "admin", now + MEMORY), Duration::ZERO, "it is not for ever");
    }

    #[test]
    fn many_addresses_take_little_memory() {
        let guesses = Guesses::default();
        for number in 0..20_000_u32 {
            guesses.wrong(number.to_be_bytes().into(), "x", Instant::now());
        }
        assert!(guesses.seen.lock().unwrap().by_address.len() <= ADDRESSES);
    }
}
