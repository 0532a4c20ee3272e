//! Which points a sweep kills at: all of them, or a sample that a seed chooses.
//!
//! A sweep does not know how many points there are. It kills at one after the other until a run ends unkilled.

use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

/// The variable that repeats a sample: it takes the number that the sweep printed.
pub const SEED: &str = "WINDLASS_SEED";

/// The variable that has sampled sweeps kill at each point instead, if it is `all`, or at each of some, such as `100-199`, so that
/// several processes can share a sweep.
pub const POINTS: &str = "WINDLASS_POINTS";

/// The points of one sweep, in ascending order: the first, so that a sweep never kills at none, and then one
/// of every so many neighbours.
#[derive(Debug, Clone)]
pub struct Points {
    one_in: u64,
    /// The first of the next neighbours.
    first: u64,
    last: u64,
    random: u64,
}

impl Points {
    /// One in so many points, unless all are wanted by [`POINTS`].
    pub fn sampled(one_in: u64) -> Self {
        if let Some(wanted) = std::env::var(POINTS).ok().and_then(|wanted| Self::wanted(&wanted)) {
            return wanted;
        }
        let seed = seed();
        eprintln!("kills at one in {one_in} points: {SEED}={seed} kills at the same again, {POINTS}=all at each");
        Self::one_in(one_in, seed)
    }

    /// One of `of` shares, counted from 0, so that several tests kill at each point side by side. A sample is all in the first share.
    pub fn share(self, which: usize, of: usize) -> impl Iterator<Item = u64> {
        let is_sample = self.one_in > 1;
        let (skipped, step, most) = match (is_sample, which) {
            (false, which) => (which, of, usize::MAX),
            (true, 0) => (0, 1, usize::MAX),
            (true, _) => (0, 1, 0),
        };
        self.skip(skipped).step_by(step).take(most)
    }

    /// What [`POINTS`] asks for.
    fn wanted(text: &str) -> Option<Self> {
        let every = Self::one_in(1, 0);
        if text == "all" {
            return Some(every);
        }
        let (first, last) = text.split_once('-')?;
        Some(Self { first: first.parse().ok()?, last: last.parse().ok()?, ..every })
    }

    /// One in so many points, the same for the same seed.
    pub fn one_in(one_in: u64, seed: u64) -> Self {
        Self { one_in: one_in.max(1), first: 1, last: u64::MAX, random: seed }
    }
}

impl Iterator for Points {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let first = self.first;
        if first > self.last {
            return None;
        }
        let neighbours = if first == 1 { 1 } else { self.one_in };
        self.first += neighbours;
        Some(first + next_random(&mut self.random) % neighbours)
    }
}

/// The seed of this process: that of [`SEED`], or one that differs from run to run.
pub fn seed() -> u64 {
    static CHOSEN: OnceLock<u64> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            let since = UNIX_EPOCH.elapsed().unwrap_or_default();
            u64::from(since.subsec_nanos()) ^ u64::from(std::process::id()) << 32
        })
    })
}

/// SplitMix64: enough for a choice of points, and the same everywhere.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Points;

    #[test]
    fn the_first_and_one_of_every_so_many_neighbours_are_taken_and_no_point_is_out_of_reach() {
        let mut reached = BTreeSet::from([1]);
        for seed in 0..200 {
            let mut points = Points::one_in(7, seed);
            assert_eq!(points.next(), Some(1));
            for (block, point) in (0..).zip(points.take(10)) {
                assert!((2 + block * 7..=8 + block * 7).contains(&point), "{point} is not of block {block}");
                reached.insert(point);
            }
        }
        assert_eq!(reached, (1..=71).collect());
    }

    #[test]
    fn a_seed_chooses_the_same_points_again() {
        let points = |seed| Points::one_in(40, seed).take(20).collect::<Vec<_>>();
        assert_eq!(points(5), points(5));
        assert_ne!(points(5), points(6));
    }

    #[test]
    fn several_processes_can_share_a_sweep() {
        assert!(Points::wanted("all").unwrap().take(50).eq(1..=50));
        assert!(Points::wanted("1-3").unwrap().chain(Points::wanted("4-9").unwrap()).eq(1..=9));
        assert!(Points::wanted("some").is_none());
    }

    #[test]
    fn several_tests_can_share_a_sweep_and_a_sample_is_left_to_the_first() {
        let mut all: Vec<u64> = (0..3).flat_map(|which| Points::one_in(1, 0).share(which, 3).take(20)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=60));
        assert!(Points::one_in(7, 1).share(0, 3).take(9).eq(Points::one_in(7, 1).take(9)));
        assert_eq!(Points::one_in(7, 1).share(1, 3).next(), None);
    }

    #[test]
    fn one_in_one_is_every_point() {
        assert!(Points::one_in(1, 9).take(50).eq(1..=50));
    }
}
