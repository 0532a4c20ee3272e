//! The resurrector: asks agents how they are, and has VMs that were lost made anew.
//!
//! The original hears heartbeats over a message bus; here agents are asked ([`ask`]), some at a time. What follows from the
//! answers is decided by [`pulse`], without I/O: an agent that was silent for too long is lost; when too many are lost at
//! once, something else is wrong, and nothing is done but to say so. What is to be repaired becomes a task like any other,
//! which looks again before it does anything.

mod pulse;
mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::json;
use windlass_agent_client::Deadlines;

use crate::Director;
use crate::store::{Event, NewTask, StoreError, StoredJob};
use crate::tasks::{Job, Suspects, instances_with_vms};
use pulse::{Pulses, Seen, Verdict};
use rules::Rules;
use windlass_contract::explain;

/// Who asks for its tasks.
const NAME: &str = "resurrector";
/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many agents are asked at once: enough that many dead ones do not hold up the living.
const AT_ONCE: usize = 128;

/// How the instances of a deployment are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// So many answer.
    pub healthy: usize,
    /// So many do not, or have no VM.
    pub unhealthy: usize,
}

/// What the latest round found, by deployment.
#[derive(Debug, Default)]
pub struct HealthRecord(Mutex<BTreeMap<String, Health>>);

impl HealthRecord {
    /// Of all deployments.
    pub fn all(&self) -> BTreeMap<String, Health> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, found: BTreeMap<String, Health>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Looks after all deployments until `stop` resolves.
pub(crate) async fn run(director: Arc<Director>, stop: impl Future<Output = ()>) {
    let settings = &director.settings.resurrector;
    let mut pulses: BTreeMap<String, Pulses> = BTreeMap::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(settings.interval) => {}
        }
        tokio::select! {
            () = &mut stop => return,
            round = round(&director, &mut pulses) => if let Err(error) = round {
                tracing::error!(error = explain(&error), "the resurrector cannot look after the deployments");
            }
        }
    }
}

async fn round(director: &Director, pulses: &mut BTreeMap<String, Pulses>) -> Result<(), StoreError> {
    let locks = director.store.locks().await?;
    let acts = director.settings.resurrector.enabled && !director.store.resurrection_is_paused().await?;
    let rules = Rules::of(&director.store.current_configs("resurrection").await?);
    let mut health = BTreeMap::new();
    let deployments: Vec<String> = director.store.deployments().await?.into_iter().map(|it| it.name).collect();
    pulses.retain(|name, _| deployments.contains(name));
    for deployment in deployments {
        let seen = match ask(director, &deployment).await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(deployment, error, "the resurrector cannot look at this deployment");
                continue;
            }
        };
        let healthy = seen.iter().filter(|seen| seen.answered).count();
        health.insert(deployment.clone(), Health { healthy, unhealthy: seen.len() - healthy });
        let pulses = pulses.entry(deployment.clone()).or_default();
        if locks.iter().any(|lock| lock.name == format!("deployment:{deployment}")) {
            // Somebody works on it, and silence means nothing.
            pulses.excuse(Instant::now());
            continue;
        }
        match pulses.judge(&seen, Instant::now(), &director.settings.resurrector) {
            Verdict::Well => {}
            Verdict::Lost(suspects) if acts => {
                resurrect(director, &deployment, rules.allowed(&deployment, suspects)).await?
            }
            Verdict::Lost(_) => {}
            Verdict::Meltdown { lost, of, is_new } => {
                if is_new {
                    let message = format!(
                        "{lost} of {of} instances of '{deployment}' do not answer: this is no accident of single VMs, \
                         so none is made anew; find the cause, then use cloud-check"
                    );
                    alert(director, &deployment, &message).await;
                }
            }
        }
    }
    director.health.replace(health);
    director.metrics.round_done();
    Ok(())
}

/// Asks every agent of a deployment that should answer.
async fn ask(director: &Director, deployment: &str) -> Result<Vec<Seen>, String> {
    let instances = instances_with_vms(director, deployment).await.map_err(|error| explain(&error))?;
    let deadlines = Deadlines { message: PATIENCE, silence: PATIENCE, task: PATIENCE };
    // Made when its turn comes: a conversation takes far more room than an instance.
    let asking = instances.into_iter().map(|instance| -> BoxFuture<'_, Seen> {
        Box::pin(async move {
            let answered = match &instance.vm {
                Some(vm) => director.agents.afresh(vm).with_deadlines(deadlines).ping().await.is_ok(),
                None => false,
            };
            Seen { id: instance.record.id, group: instance.record.group, answered }
        })
    });
    Ok(stream::iter(asking).buffer_unordered(AT_ONCE).collect().await)
}

/// One task at a time: the next round looks again.
async fn resurrect(director: &Director, deployment: &str, suspects: Suspects) -> Result<(), StoreError> {
    if suspects.is_empty() {
        return Ok(());
    }
    let job = Job::ScanAndFix { deployment: deployment.to_owned(), suspects };
    if director.store.has_unfinished_task(job.kind(), job.deployment()).await? {
        return Ok(());
    }
    alert(
        director,
        deployment,
        &format!("instances of '{deployment}' do not answer and are looked at: {}", named(&job)),
    )
    .await;
    director.store.add_task(&NewTask { job, user: NAME.to_owned(), context_id: String::new() }).await?;
    director.workers.wake();
    Ok(())
}

fn named(job: &Job) -> String {
    let Job::ScanAndFix { suspects, .. } = job else { return String::new() };
    let names = suspects.iter().flat_map(|(group, ids)| ids.iter().map(move |id| format!("{group}/{id}")));
    names.collect::<Vec<_>>().join(", ")
}

/// Into the log and the list of events, where people look who were not there.
async fn alert(director: &Director, deployment: &str, message: &str) {
    tracing::warn!(deployment, "{message}");
    let mut event = Event::new(NAME, "create", "alert", Some(&uuid::Uuid::new_v4().to_string()));
    event.deployment = Some(deployment.to_owned());
    event.context.insert("message".into(), json!(message));
    if let Err(error) = director.store.add_event(&event).await {
        tracing::error!(error = explain(&error), "cannot write an event");
    }
}
