//! Who is lost, and whether there are too many of them. Pure: the time comes from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use windlass_planning::names::InstanceId;

use crate::settings::ResurrectorSettings;
use crate::tasks::Suspects;

/// What was seen of an instance in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenInstance {
    pub(super) id: InstanceId,
    pub(super) group: String,
    pub(super) answered: bool,
}

/// What a round means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is to be done.
    Well,
    /// These are lost.
    Lost(Suspects),
    /// So many are lost that it is better to do nothing.
    Meltdown {
        lost: usize,
        of: usize,
        /// True if the previous round was not a meltdown.
        is_new: bool,
    },
}

/// The pulses of a deployment's instances.
#[derive(Debug, Default)]
pub(super) struct Pulses {
    instances: BTreeMap<InstanceId, Pulse>,
    melting: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pulse {
    heard: Instant,
    /// When it was last found lost. It counts for a while, also after it was found again: instances that die one after
    /// the other are as many as those that die together.
    lost: Option<Instant>,
}

impl Pulses {
    /// Takes silence so far for answers.
    pub(super) fn excuse(&mut self, now: Instant) {
        for pulse in self.instances.values_mut() {
            pulse.heard = now;
        }
    }

    /// Takes in a round.
    pub(super) fn judge(&mut self, seen: &[SeenInstance], now: Instant, settings: &ResurrectorSettings) -> Verdict {
        let known: BTreeSet<&InstanceId> = seen.iter().map(|seen| &seen.id).collect();
        self.instances.retain(|id, _| known.contains(id));
        let mut suspects = Suspects::new();
        for seen in seen {
            let pulse = self.instances.entry(seen.id.clone()).or_insert(Pulse { heard: now, lost: None });
            if seen.answered {
                pulse.heard = now;
                continue;
            }
            let is_silent = now.duration_since(pulse.heard) >= settings.agent_timeout;
            // What is being repaired is not reported again before it had its time.
            let was_reported = pulse.lost.is_some_and(|lost| now.duration_since(lost) < settings.agent_timeout);
            if is_silent && !was_reported {
                pulse.lost = Some(now);
                suspects.entry(seen.group.clone()).or_default().push(seen.id.clone());
            }
        }
        let recently =
            |pulse: &&Pulse| pulse.lost.is_some_and(|lost| now.duration_since(lost) <= settings.meltdown.within);
        let (lost, of) = (self.instances.values().filter(recently).count(), self.instances.len());
        let limits = &settings.meltdown;
        let is_meltdown = lost >= limits.instances && lost * 100 >= of * usize::from(limits.percent);
        let was_melting = std::mem::replace(&mut self.melting, is_meltdown);
        if is_meltdown {
            Verdict::Meltdown { lost, of, is_new: !was_melting }
        } else if suspects.is_empty() {
            Verdict::Well
        } else {
            Verdict::Lost(suspects)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seen(count: usize, silent: &[usize]) -> Vec<SeenInstance> {
        let one = |number: usize| SeenInstance {
            id: format!("i{number}").into(),
            group: "g".into(),
            answered: !silent.contains(&number),
        };
        (0..count).map(one).collect()
    }

    fn lost(ids: &[&str]) -> Verdict {
        Verdict::Lost(Suspects::from([("g".to_owned(), ids.iter().map(|id| (*id).into()).collect())]))
    }

    #[test]
    fn an_agent_is_lost_after_its_time_and_reported_again_only_after_as_much_more() {
        let settings = ResurrectorSettings::default();
        let (start, mut pulses) = (Instant::now(), Pulses::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(
            pulses.judge(&seen(10, &[3]), at(0), &settings),
            Verdict::Well,
            "the first look counts as an answer"
        );
        assert_eq!(pulses.judge(&seen(10, &[3]), at(30), &settings), Verdict::Well);
        assert_eq!(pulses.judge(&seen(10, &[3]), at(60), &settings), lost(&["i3"]));
        assert_eq!(pulses.judge(&seen(10, &[3]), at(90), &settings), Verdict::Well, "it is being repaired");
        assert_eq!(pulses.judge(&seen(10, &[3]), at(120), &settings), lost(&["i3"]));
        assert_eq!(pulses.judge(&seen(10, &[]), at(150), &settings), Verdict::Well);
        assert_eq!(pulses.judge(&seen(10, &[3]), at(180), &settings), Verdict::Well);
        pulses.excuse(at(200));
        assert_eq!(pulses.judge(&seen(10, &[3]), at(230), &settings), Verdict::Well, "a deploy ran meanwhile");
    }

    /// A dead switch looks like many dead VMs; recreating them would turn an outage into a loss.
    #[test]
    fn many_losses_stop_it_whether_at_once_or_one_after_the_other() {
        let settings = ResurrectorSettings::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pulses = Pulses::default();
        pulses.judge(&seen(20, &[]), at(0), &settings);
        assert_eq!(
            pulses.judge(&seen(20, &[0, 1, 2, 3, 4]), at(60), &settings),
            Verdict::Meltdown { lost: 5, of: 20, is_new: true }
        );
        assert!(matches!(
            pulses.judge(&seen(20, &[0, 1, 2, 3, 4]), at(120), &settings),
            Verdict::Meltdown { is_new: false, .. }
        ));
        let mut pulses = Pulses::default();
        for number in 0..4 {
            let silent = [number];
            let round = at(100 * number as u64);
            pulses.judge(&seen(20, &[]), round, &settings);
            assert!(matches!(
                pulses.judge(&seen(20, &silent), round + settings.agent_timeout, &settings),
                Verdict::Lost(_)
            ));
        }
        pulses.judge(&seen(20, &[]), at(400), &settings);
        assert!(matches!(pulses.judge(&seen(20, &[7]), at(460), &settings), Verdict::Meltdown { lost: 5, .. }));
        assert!(
            matches!(pulses.judge(&seen(20, &[]), at(1200), &settings), Verdict::Well),
            "forgotten after ten minutes"
        );
    }

    #[test]
    fn both_limits_count() {
        let settings = ResurrectorSettings::default();
        let start = Instant::now();
        let later = start + settings.agent_timeout;
        for (all, silent, is_meltdown) in [(3, 3, false), (26, 5, false), (25, 5, true), (4, 4, false), (5, 5, true)] {
            let mut pulses = Pulses::default();
            pulses.judge(&seen(all, &[]), start, &settings);
            let silent: Vec<usize> = (0..silent).collect();
            let verdict = pulses.judge(&seen(all, &silent), later, &settings);
            assert_eq!(matches!(verdict, Verdict::Meltdown { .. }), is_meltdown, "{} of {all}", silent.len());
        }
    }
}
