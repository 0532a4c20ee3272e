//! Waiting for the agent of a new VM.

use std::time::{Duration, Instant};

use windlass_contract::AgentId;

use crate::agent::Agent;
use crate::error::{CallError, Stage};

/// How long one ping may take.
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// How long an agent is pinged again after an identity failure: the address may still belong to the VM before, but not for
/// long.
const MISTRUST_PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two pings is a twentieth of the time that went by, so that little of it is lost, within these limits.
const PAUSE_SHARE: u32 = 20;
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// the agent did not get ready
#[derive(Debug, thiserror::Error)]
#[error("agent {agent} at {address} was not ready after {:.1} s (last stage: {stage})", waited.as_secs_f64())]
pub struct NotReady {
    pub agent: AgentId,
    /// What was dialled.
    pub address: String,
    /// The last stage that the last attempt reached.
    pub stage: Stage,
    /// How long the caller waited.
    pub waited: Duration,
    /// How the last attempt failed, and what to do.
    #[source]
    pub last: Box<CallError>,
}

/// How far the wait for an agent is.
#[derive(Debug, Clone, Copy)]
pub struct NotYetReady<'a> {
    /// What was dialled.
    pub address: &'a str,
    /// The last stage that the last ping reached.
    pub stage: Stage,
    /// How long the caller waits already.
    pub waited: Duration,
}

/// Hears how far the wait for an agent is.
pub type WaitWatch<'a> = dyn Fn(&NotYetReady<'_>) + Send + Sync + 'a;

impl Agent {
    /// Waits until the agent answers a ping, up to `deadline`.
    pub async fn wait_until_ready(&self, deadline: Duration) -> Result<(), NotReady> {
        self.wait_watched(deadline, &|_| {}).await
    }

    /// The same, and tells after each ping that failed how far it is.
    pub async fn wait_watched(&self, deadline: Duration, watch: &WaitWatch<'_>) -> Result<(), NotReady> {
        let started = Instant::now();
        let mut mistrusted_since: Option<Instant> = None;
        loop {
            let pause = (started.elapsed() / PAUSE_SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            let left = deadline.saturating_sub(started.elapsed());
            let error = match self.ping_within(PING_PATIENCE.min(left.max(LONGEST_PAUSE))).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            mistrusted_since = error.is_mistrust().then(|| mistrusted_since.unwrap_or_else(Instant::now));
            let hopeless = mistrusted_since.is_some_and(|since| since.elapsed() >= MISTRUST_PATIENCE);
            if hopeless || started.elapsed() + pause >= deadline {
                return Err(NotReady {
                    agent: self.id().clone(),
                    address: self.address().to_owned(),
                    stage: error.stage(),
                    waited: started.elapsed(),
                    last: Box::new(error),
                });
            }
            watch(&NotYetReady { address: self.address(), stage: error.stage(), waited: started.elapsed() });
            tokio::time::sleep(pause).await;
        }
    }
}
