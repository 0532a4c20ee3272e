//! How long a call is waited for. A certification must end, also where a CPI hangs: who has twice not answered in time is not given
//! the whole deadline again and again.

use std::collections::BTreeMap;
use std::time::Duration;

/// From here on a method is known to hang.
const MANY: u32 = 2;

/// The share of the deadline that it is given then.
const SHARE: u32 = 4;

/// What is known of each method.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    methods: BTreeMap<String, Known>,
}

#[derive(Debug, Default)]
struct Known {
    timed_out: u32,
    /// How long it took at most when it answered.
    longest: Duration,
}

impl Patience {
    pub(crate) fn note(&mut self, method: &str, took: Duration, timed_out: bool) {
        let known = self.methods.entry(method.to_owned()).or_default();
        if timed_out {
            known.timed_out += 1;
        } else {
            known.longest = known.longest.max(took);
        }
    }

    /// The deadline of the next call. It never cuts off what once worked.
    pub(crate) fn with(&self, method: &str, deadline: Duration) -> Duration {
        match self.methods.get(method) {
            Some(known) if known.timed_out >= MANY => deadline.min((deadline / SHARE).max(known.longest * 2)),
            _ => deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_hangs_costs_its_whole_deadline_twice_and_one_that_works_is_never_cut_off() {
        let (deadline, mut patience) = (Duration::from_secs(120), Patience::default());
        for _ in 0..2 {
            assert_eq!(patience.with("delete_vm", deadline), deadline);
            patience.note("delete_vm", deadline, true);
        }
        assert_eq!(patience.with("delete_vm", deadline), Duration::from_secs(30));
        assert_eq!(patience.with("create_vm", deadline), deadline, "another method is another matter");
        patience.note("delete_vm", Duration::from_secs(40), false);
        assert_eq!(patience.with("delete_vm", deadline), Duration::from_secs(80));
        patience.note("delete_vm", Duration::from_secs(110), false);
        assert_eq!(patience.with("delete_vm", deadline), deadline);
    }
}
