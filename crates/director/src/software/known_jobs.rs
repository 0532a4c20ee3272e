//! The jobs that were read last, as many as fit in a little memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use windlass_release::Job;

use super::JobKey;

/// So many jobs are kept,
const MOST_JOBS: usize = 500;
/// unless they take more bytes than this.
const MOST_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct KnownJobs {
    jobs: HashMap<JobKey, Arc<Job>>,
    /// The oldest first, with the size of each.
    order: VecDeque<(JobKey, usize)>,
    bytes: usize,
}

impl KnownJobs {
    pub(super) fn get(&self, key: &JobKey) -> Option<Arc<Job>> {
        self.jobs.get(key).cloned()
    }

    /// Keeps a job, and forgets the oldest that it leaves no place for. One that is too large by itself is not kept.
    pub(super) fn insert(&mut self, key: JobKey, job: Arc<Job>) {
        let bytes = job.size();
        if bytes > MOST_BYTES || self.jobs.contains_key(&key) {
            return;
        }
        while self.jobs.len() >= MOST_JOBS || self.bytes + bytes > MOST_BYTES {
            let Some((oldest, size)) = self.order.pop_front() else { break };
            self.jobs.remove(&oldest);
            self.bytes -= size;
        }
        self.bytes += bytes;
        self.order.push_back((key.clone(), bytes));
        self.jobs.insert(key, job);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_release::JobSpec;

    use super::*;

    fn key(number: usize) -> JobKey {
        ("web".to_owned(), "app".to_owned(), number.to_string())
    }

    fn job(bytes: usize) -> Arc<Job> {
        Arc::new(Job {
            spec: JobSpec::parse("name: app\n", "app").unwrap(),
            templates: BTreeMap::from([(String::new(), "x".repeat(bytes))]),
            monit: BTreeMap::new(),
        })
    }

    /// A few letters of a release that are packed are a hundred thousand values.
    fn described_by(values: usize) -> Arc<Job> {
        let text = format!("name: app\nproperties: {{p: {{default: [{}]}}}}\n", "1,".repeat(values));
        let spec = JobSpec::parse(&text, "app").unwrap();
        Arc::new(Job { spec, templates: BTreeMap::new(), monit: BTreeMap::new() })
    }

    fn kept(known: &KnownJobs, numbers: impl Iterator<Item = usize>) -> Vec<usize> {
        numbers.filter(|number| known.get(&key(*number)).is_some()).collect()
    }

    #[test]
    fn large_jobs_that_were_read_long_ago_are_not_kept_in_memory() {
        let mut known = KnownJobs::default();
        for number in 0..5 {
            known.insert(key(number), job(MOST_BYTES / 3 - 1000));
            known.insert(key(number), job(MOST_BYTES / 3 - 1000));
        }
        known.insert(key(9), job(MOST_BYTES + 1));
        assert_eq!(kept(&known, 0..10), [2, 3, 4]);
        assert!(known.bytes <= MOST_BYTES && known.bytes > MOST_BYTES - 3000, "{}", known.bytes);
    }

    #[test]
    fn the_description_of_a_job_counts_as_well() {
        let (mut known, large) = (KnownJobs::default(), described_by(150_000));
        for number in 0..20 {
            known.insert(key(number), large.clone());
        }
        let kept = kept(&known, 0..20);
        assert!(kept.len() < 5 && kept.ends_with(&[19]), "{kept:?}");
    }

    #[test]
    fn of_small_jobs_the_last_ones_are_kept() {
        let mut known = KnownJobs::default();
        for number in 0..MOST_JOBS + 2 {
            known.insert(key(number), job(1));
        }
        assert_eq!(kept(&known, 0..MOST_JOBS + 2), (2..MOST_JOBS + 2).collect::<Vec<_>>());
    }
}
