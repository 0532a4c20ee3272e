//! Who counts as ill in the names that agents get, by what the rounds of the resurrector find. Without I/O.
//!
//! | found | then |
//! |---|---|
//! | jobs that do not run | ill at once |
//! | silence in two rounds | ill |
//! | jobs that run, in two rounds | well again |
//! | stopped by its operator | ill for as long as it is |
//! | silence while somebody works on the deployment | as before |
//!
//! Each change is a new version of the names for every agent, so an instance that fails and comes back all the time is ill all the
//! time, and no more than one version in [`BETWEEN_VERSIONS`] tells of health.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often agents hear of health at most.
pub(crate) const BETWEEN_VERSIONS: Duration = Duration::from_secs(10);
/// How many rounds make a silence, or a recovery.
const ROUNDS: u32 = 2;

/// How an instance was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Well,
    Ill,
    Stopped,
    Silent,
    /// Nobody can say.
    Unknown,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    is_ill: bool,
    is_stopped: bool,
    /// Rounds in a row that say otherwise.
    doubts: u32,
}

/// What is known, by agent, and what agents were told of it.
#[derive(Debug, Default)]
pub(crate) struct KnownHealth {
    known: BTreeMap<String, Known>,
    told: BTreeSet<String>,
    told_at: Option<Instant>,
}

impl KnownHealth {
    /// After a round. Who is not in it has gone.
    pub(crate) fn look(&mut self, round: &[(String, Found)]) {
        let mut before = std::mem::take(&mut self.known);
        for (agent, found) in round {
            let mut known = before.remove(agent).unwrap_or_default();
            let says_ill = match found {
                Found::Ill => {
                    known.doubts = ROUNDS;
                    true
                }
                Found::Silent => true,
                Found::Well => false,
                Found::Stopped | Found::Unknown => known.is_ill,
            };
            known.doubts = if says_ill == known.is_ill { 0 } else { known.doubts + 1 };
            if known.doubts >= ROUNDS {
                known = Known { is_ill: says_ill, ..Known::default() };
            }
            known.is_stopped = match found {
                Found::Unknown => known.is_stopped,
                found => *found == Found::Stopped,
            };
            self.known.insert(agent.clone(), known);
        }
    }

    fn ill(&self) -> BTreeSet<String> {
        let is_ill = |(_, known): &(_, &Known)| known.is_ill || known.is_stopped;
        self.known.iter().filter(is_ill).map(|(agent, _)| agent.clone()).collect()
    }

    /// Whether there is something new to tell, and time for it.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.told_at.is_none_or(|at| now.duration_since(at) >= BETWEEN_VERSIONS) && self.ill() != self.told
    }

    /// The agents that the next version names as ill.
    pub(crate) fn tell(&mut self, now: Instant) -> BTreeSet<String> {
        if self.is_due(now) {
            self.told = self.ill();
            self.told_at = Some(now);
        }
        self.told.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rounds: &[Found]) -> bool {
        let mut health = KnownHealth::default();
        for found in rounds {
            health.look(&[("a".to_owned(), *found)]);
        }
        !health.ill().is_empty()
    }

    #[test]
    fn one_whose_jobs_fail_is_ill_at_once_and_one_that_is_silent_when_it_stays_so() {
        use Found::{Ill, Silent, Stopped, Unknown, Well};
        for ill in [
            &[Ill][..],
            &[Well, Well, Ill],
            &[Silent, Silent],
            &[Stopped],
            &[Ill, Well],
            &[Ill, Well, Ill, Well],
            &[Ill, Unknown, Unknown],
            &[Stopped, Unknown],
        ] {
            assert!(after(ill), "{ill:?}");
        }
        for well in [
            &[][..],
            &[Well],
            &[Silent],
            &[Silent, Well, Silent],
            &[Silent, Unknown, Well],
            &[Ill, Well, Well],
            &[Stopped, Well],
            &[Unknown],
        ] {
            assert!(!after(well), "{well:?}");
        }
    }

    /// Each version goes to every agent.
    #[test]
    fn no_more_than_one_version_in_a_while_tells_of_health() {
        let begin = Instant::now();
        let mut health = KnownHealth::default();
        assert!(!health.is_due(begin));
        health.look(&[("a".to_owned(), Found::Ill)]);
        assert!(health.is_due(begin));
        assert_eq!(health.tell(begin), BTreeSet::from(["a".to_owned()]));
        health.look(&[("a".to_owned(), Found::Ill), ("b".to_owned(), Found::Ill)]);
        let soon = begin + BETWEEN_VERSIONS / 2;
        assert!(!health.is_due(soon));
        assert_eq!(health.tell(soon).len(), 1, "the names change for another reason");
        let later = begin + BETWEEN_VERSIONS;
        assert!(health.is_due(later));
        assert_eq!(health.tell(later).len(), 2);
        health.look(&[]);
        assert!(health.tell(later + BETWEEN_VERSIONS).is_empty(), "who has gone is not ill");
    }
}
