//! What jobs need Ruby for. People are told before anything is rendered, and nobody else needs to know: so nobody waits long for it.
//!
//! Reading the templates of one job may take half a minute. It is done for one job at a time, beside everybody's documents, and what was
//! found is kept, also if nobody waits for it any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use windlass_contract::shortened;
use windlass_release::Job;
use windlass_render::{Native, Renderer};

use super::JobKey;
use crate::limits::{Limits, beside_requests};

/// How long somebody waits for what all the jobs that they ask about need.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of how many jobs it is kept.
const KEPT: usize = 10_000;
/// How many letters of a reason are told. A template may have names of any length.
const LONGEST: usize = 1000;

/// What jobs need Ruby for, as far as it is known. A version of a job never changes.
#[derive(Debug, Default)]
pub(crate) struct RubyNeeds(Mutex<HashMap<JobKey, Option<String>>>);

/// Until when somebody waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitForRubyNeeds(Instant);

impl WaitForRubyNeeds {
    pub(crate) fn begin() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    pub(crate) fn is_over(self) -> bool {
        self.0 <= Instant::now()
    }
}

/// it takes longer than somebody waits for it
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not known yet, because reading the templates takes long")]
pub(crate) struct NotKnownYet;

/// What a job needs Ruby for; nothing is remembered.
pub(crate) async fn look(limits: &Limits, job: &Job) -> Option<String> {
    let _turn = limits.reading_templates().await;
    beside_requests(|| needs(job))
}

fn needs(job: &Job) -> Option<String> {
    Native.check(job).err().map(|why| shortened(why.to_string(), LONGEST))
}

impl RubyNeeds {
    fn known(&self, key: &JobKey) -> Option<Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn keep(&self, key: JobKey, needs: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, needs);
    }

    /// What a job needs Ruby for, if anything.
    pub(super) async fn of(
        self: &Arc<Self>,
        limits: &Limits,
        (key, job): (&JobKey, &Arc<Job>),
        WaitForRubyNeeds(until): WaitForRubyNeeds,
    ) -> Result<Option<String>, NotKnownYet> {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let turn = timeout_at(until, limits.reading_templates()).await.map_err(|_| NotKnownYet)?;
        // Somebody else may have looked meanwhile.
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let (all, key, job) = (self.clone(), key.clone(), job.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let found = needs(&job);
            all.keep(key, found.clone());
            found
        });
        Ok(timeout_at(until, looking).await.map_err(|_| NotKnownYet)?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_release::JobSpec;

    use super::*;

    fn key() -> JobKey {
        ("web".into(), "app".into(), "1".into())
    }

    fn job(template: &str) -> Arc<Job> {
        let spec = JobSpec::parse("name: app\ntemplates: {t.erb: t}\n", "app").unwrap();
        let templates = BTreeMap::from([("t.erb".to_owned(), template.to_owned())]);
        Arc::new(Job { spec, templates, monit: BTreeMap::new() })
    }

    /// Two users held up everybody's documents for as long as it took to read the templates of all their jobs, at each plan.
    #[tokio::test]
    async fn what_needs_ruby_is_looked_for_once_and_beside_documents() {
        let (needs, limits) = (Arc::<RubyNeeds>::default(), Limits::default());
        let ask = async |template: &str| {
            needs.of(&limits, (&key(), &job(template)), WaitForRubyNeeds::begin()).await.unwrap()
        };
        let why = ask("<% eval('1') %>").await.unwrap();
        assert!(why.contains("eval"), "{why}");
        // Another template under the same version, which cannot be: it is not read.
        assert_eq!(ask("").await, Some(why));
    }

    #[tokio::test]
    async fn who_waits_long_is_told_that_it_is_not_known_yet() {
        let (needs, limits) = (Arc::<RubyNeeds>::default(), Limits::default());
        let others = limits.reading_templates().await;
        let soon = WaitForRubyNeeds(Instant::now() + Duration::from_millis(10));
        assert_eq!(needs.of(&limits, (&key(), &job("")), soon).await, Err(NotKnownYet));
        assert!(soon.is_over());
        // Documents do not wait for it.
        limits.heavily(|| ()).await;
        drop(others);
        assert_eq!(needs.of(&limits, (&key(), &job("")), WaitForRubyNeeds::begin()).await, Ok(None));
    }
}
