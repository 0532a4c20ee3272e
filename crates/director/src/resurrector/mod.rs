//! The resurrector: asks agents how they are, and has lost VMs recreated.
//!
//! The original hears heartbeats over a message bus; here agents are asked ([`ask`]), some at a time. What follows from the
//! answers is decided by [`pulse`], without I/O: an agent that was silent for too long is lost; when too many are lost at
//! once, something else is wrong, and nothing is done but to say so. What is to be repaired becomes a task like any other,
//! which looks again before it does anything. Instances with jobs tell how those are as well: [`ailments`].

mod ailments;
mod pulse;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::json;
use windlass_agent_client::{Deadlines, JobHealth};
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};

use crate::Director;
use crate::known_health::Found;
use crate::store::{Event, NewTask, StoreError, StoredJob, Watched};
use crate::tasks::{Job, Suspects, errands_of};
use crate::users::RESURRECTOR;
use crate::webhook::{Notice, NoticeKind};
use ailments::{Ailments, NewHealth};
use pulse::{Pulses, SeenInstance, Verdict};
use rules::Rules;
use windlass_contract::explain;
use windlass_planning::records::{InstanceState, VmRecord};

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many agents are asked at once: enough that many dead ones do not hold up the living.
const AT_ONCE: usize = 128;

/// How the instances of a deployment are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeploymentHealth {
    /// So many answer.
    pub healthy: usize,
    /// So many do not, or have no VM.
    pub unhealthy: usize,
}

/// What the latest round found, by deployment.
#[derive(Debug, Default)]
pub(crate) struct HealthRecord(Mutex<BTreeMap<String, DeploymentHealth>>);

impl HealthRecord {
    /// Of all deployments.
    pub(crate) fn all(&self) -> BTreeMap<String, DeploymentHealth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, found: BTreeMap<String, DeploymentHealth>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Looks after all deployments until `stop` resolves.
pub(crate) async fn run(director: Arc<Director>, stop: impl Future<Output = ()>) {
    let settings = &director.settings.resurrector;
    let mut pulses: BTreeMap<DeploymentName, Pulses> = BTreeMap::new();
    let mut ailments = Ailments::default();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(settings.interval) => {}
        }
        tokio::select! {
            () = &mut stop => return,
            round = round(&director, &mut pulses, &mut ailments) => if let Err(error) = round {
                tracing::error!(error = explain(&error), "the resurrector cannot look after the deployments");
            }
        }
    }
}

async fn round(
    director: &Director,
    pulses: &mut BTreeMap<DeploymentName, Pulses>,
    ailments: &mut Ailments,
) -> Result<(), StoreError> {
    let locks = director.store.locks().await?;
    let acts = director.settings.resurrector.enabled && !director.store.resurrection_is_paused().await?;
    let rules = Rules::of(&director.store.current_configs("resurrection").await?);
    let mut health = BTreeMap::new();
    let Answers { seen, mut health_of_jobs, found } = ask(director, watched(director).await?, ailments).await;
    // A task may have locked a deployment while its agents were asked.
    let locks: Vec<_> = locks.into_iter().chain(director.store.locks().await?).collect();
    let is_locked =
        |deployment: &DeploymentName| locks.iter().any(|lock| lock.name.deployment() == Some(deployment.as_str()));
    let in_names = found.into_iter().map(|(deployment, agent, found)| match found {
        Found::Silent if is_locked(&deployment) => (agent, Found::Unknown),
        found => (agent, found),
    });
    director.dns.note_health(&in_names.collect::<Vec<_>>());
    pulses.retain(|name, _| seen.contains_key(name));
    for (deployment, seen) in seen {
        let healthy = seen.iter().filter(|seen| seen.answered).count();
        health.insert(deployment.to_string(), DeploymentHealth { healthy, unhealthy: seen.len() - healthy });
        let pulses = pulses.entry(deployment.clone()).or_default();
        if is_locked(&deployment) {
            // Somebody works on it, and silence means nothing.
            pulses.excuse(Instant::now());
            ailments.excuse(&deployment);
            continue;
        }
        for (instance, new) in health_of_jobs.remove(&deployment).unwrap_or_default() {
            // What one VM says keeps nobody from looking after the others.
            if let Err(error) = ailments.look(director, &deployment, &instance, new).await {
                let (deployment, error) = (deployment.as_str(), explain(&error));
                tracing::error!(deployment, %instance, error, "what an instance says of its jobs cannot be noted");
            }
        }
        let verdict = pulses.judge(&seen, Instant::now(), &director.settings.resurrector);
        ailments.tell_silence(director, &deployment, &seen, &verdict).await;
        match verdict {
            Verdict::Well => {}
            Verdict::Lost(suspects) if acts => {
                if let Err(error) = resurrect(director, &deployment, rules.allowed(&deployment, suspects)).await {
                    let (deployment, error) = (deployment.as_str(), explain(&error));
                    tracing::error!(deployment, error, "the resurrector cannot look after a deployment");
                }
            }
            Verdict::Lost(_) => {}
            Verdict::Meltdown { lost, of, is_new } => {
                if is_new {
                    let message = format!(
                        "{lost} of {of} instances of '{deployment}' do not answer: this is no accident of single VMs, \
                         so none is recreated; find the cause, then use cloud-check"
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

/// An instance whose agent should answer.
struct Asked {
    deployment: DeploymentName,
    group: String,
    id: InstanceId,
    vm: Option<VmRecord>,
    has_jobs: bool,
    is_stopped: bool,
}

/// What is new about the jobs of each deployment's instances.
type HealthOfJobs = BTreeMap<DeploymentName, Vec<(InstanceName, NewHealth)>>;

/// What a round found.
struct Answers {
    seen: BTreeMap<DeploymentName, Vec<SeenInstance>>,
    health_of_jobs: HealthOfJobs,
    /// How the instance of each agent is, with its deployment.
    found: Vec<(DeploymentName, String, Found)>,
}

/// The instances of each deployment whose agents should answer.
async fn watched(director: &Director) -> Result<BTreeMap<DeploymentName, Vec<Asked>>, StoreError> {
    let names = director.store.deployment_names().await?;
    let mut deployments: BTreeMap<DeploymentName, Vec<Asked>> =
        names.into_iter().map(|name| (name, Vec::new())).collect();
    let watched = director.store.watched().await?;
    let mut errands = BTreeMap::new();
    // One manifest after the other: each may have megabytes, and take all of a processor.
    for name in watched.iter().map(|watched| &watched.deployment).collect::<BTreeSet<_>>() {
        if let Some(found) = errands_of(director, name).await? {
            errands.insert(name.clone(), found);
        }
    }
    for Watched { deployment, group, id, state, ignored, has_jobs, vm } in watched {
        let is_errand = errands.get(&deployment).is_none_or(|errands| errands.contains(&group));
        if ignored || is_errand || state == InstanceState::Detached {
            continue;
        }
        match vm {
            Ok(vm) => {
                if let Some(instances) = deployments.get_mut(&deployment) {
                    let has_jobs = has_jobs && state == InstanceState::Started;
                    let is_stopped = state == InstanceState::Stopped;
                    instances.push(Asked { deployment, group, id, vm, has_jobs, is_stopped });
                }
            }
            Err(error) => {
                let error = explain(&error);
                tracing::warn!(
                    deployment = deployment.as_str(),
                    error,
                    "the resurrector cannot look at this deployment"
                );
                deployments.remove(&deployment);
            }
        }
    }
    Ok(deployments)
}

/// Asks the agents of all deployments together: many silent ones of one do not hold up the others.
async fn ask(director: &Director, deployments: BTreeMap<DeploymentName, Vec<Asked>>, ailments: &Ailments) -> Answers {
    let deadlines = Deadlines { message: PATIENCE, silence: PATIENCE, task: PATIENCE };
    let mut seen: BTreeMap<DeploymentName, Vec<SeenInstance>> =
        deployments.keys().map(|name| (name.clone(), Vec::new())).collect();
    // Made when its turn comes: a conversation takes far more room than an instance.
    let asking =
        deployments.into_values().flatten().map(|instance| -> BoxFuture<'_, (Asked, bool, Option<JobHealth>)> {
            Box::pin(async move {
                let agent = instance.vm.as_ref().map(|vm| director.agents.afresh(vm).with_deadlines(deadlines));
                // An agent that tells how its jobs are needs no ping.
                let (answered, health) = match agent {
                    Some(agent) if instance.has_jobs => match agent.health().await {
                        Ok(health) => (true, Some(health)),
                        Err(_) => (agent.ping().await.is_ok(), None),
                    },
                    Some(agent) => (agent.ping().await.is_ok(), None),
                    None => (false, None),
                };
                (instance, answered, health)
            })
        });
    let (mut health_of_jobs, mut found) = (HealthOfJobs::new(), Vec::new());
    let mut answers = stream::iter(asking).buffer_unordered(AT_ONCE);
    while let Some((instance, answered, health)) = answers.next().await {
        let how = how_is(&instance, answered, health.as_ref());
        let Asked { deployment, group, id, vm, .. } = instance;
        found.extend(vm.map(|vm| (deployment.clone(), vm.agent_id.to_string(), how)));
        if let Some(health) = health {
            let instance = InstanceName::of(&group, &id);
            // What was told before is not kept until all have answered: there may be thousands.
            let new = ailments.what_is_new(&deployment, &instance, health);
            health_of_jobs.entry(deployment.clone()).or_default().push((instance, new));
        }
        seen.entry(deployment).or_default().push(SeenInstance { id, group, answered });
    }
    Answers { seen, health_of_jobs, found }
}

/// What names say of it: BOSH's DNS server, too, takes only those for well whose jobs run.
fn how_is(instance: &Asked, answered: bool, health: Option<&JobHealth>) -> Found {
    match health {
        _ if instance.is_stopped => Found::Stopped,
        Some(health) if health.job_state == "running" => Found::Well,
        Some(_) => Found::Ill,
        None if !answered => Found::Silent,
        // It answers, and does not say how its jobs are.
        None if instance.has_jobs => Found::Unknown,
        None => Found::Well,
    }
}

/// One task at a time: the next round looks again.
async fn resurrect(director: &Director, deployment: &DeploymentName, suspects: Suspects) -> Result<(), StoreError> {
    if suspects.is_empty() {
        return Ok(());
    }
    let job = Job::ScanAndFix { deployment: deployment.to_owned(), suspects };
    if director.store.has_unfinished_task(job.kind(), job.deployment()).await? {
        return Ok(());
    }
    let message = format!("instances of '{deployment}' do not answer and are looked at: {}", named(&job));
    alert(director, deployment, &message).await;
    director.notify(Notice::of(NoticeKind::ResurrectionBegun, deployment, &message)).await;
    director.store.add_task(&NewTask { job, user: RESURRECTOR.to_owned(), context_id: String::new() }).await?;
    director.workers.wake();
    Ok(())
}

fn named(job: &Job) -> String {
    let Job::ScanAndFix { suspects, .. } = job else { return String::new() };
    let names =
        suspects.iter().flat_map(|(group, ids)| ids.iter().map(move |id| InstanceName::of(group, id).to_string()));
    names.collect::<Vec<_>>().join(", ")
}

/// Into the log and the list of events, where people look who were not there.
async fn alert(director: &Director, deployment: &DeploymentName, message: &str) {
    tracing::warn!(deployment = deployment.as_str(), "{message}");
    let mut event = Event::new(RESURRECTOR, "create", "alert", Some(&uuid::Uuid::new_v4().to_string()));
    event.deployment = Some(deployment.to_string());
    event.context.insert("message".into(), json!(message));
    if let Err(error) = director.store.add_event(&event).await {
        tracing::error!(error = explain(&error), "cannot write an event");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use windlass_agent_client::AGENT_PORT;
    use windlass_contract::VmCid;
    use windlass_operations::ledger::{Fact, Ledger};
    use windlass_operations::testing::{new_instance_record, new_vm_record};

    use super::*;
    use crate::testing::TestDirector;

    /// On an address of its own in the machine, where somebody takes connections and says nothing.
    fn silence() -> (Ipv4Addr, TcpListener) {
        for last in 1..=254 {
            let address = Ipv4Addr::new(127, 61, 7, last);
            if let Ok(listener) = TcpListener::bind((address, AGENT_PORT)) {
                return (address, listener);
            }
        }
        panic!("no free loopback address");
    }

    /// Manifests of megabytes would be read all at once, on the threads that serve, at each look.
    #[tokio::test(flavor = "multi_thread")]
    async fn manifests_are_read_in_turn_with_documents_and_only_where_there_are_instances() {
        let bench = std::sync::Arc::new(TestDirector::new().await);
        let store = &bench.director.store;
        for name in ["with", "without"] {
            store.add_deployment(&name.into(), &[]).await.unwrap();
            store
                .finish_deployment(&name.into(), "name: x\ninstance_groups: [{name: g, lifecycle: errand}]", &[], None)
                .await
                .unwrap();
        }
        // All turns for documents are taken.
        let mut held = Vec::new();
        for _ in 0..2 {
            let (bench, (begin, begun), (end, ended)) =
                (bench.clone(), std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
            tokio::spawn(async move {
                let work = move || {
                    begin.send(()).unwrap();
                    let _ = ended.recv();
                };
                bench.director.limits.heavily(work).await;
            });
            tokio::task::block_in_place(|| begun.recv()).unwrap();
            held.push(end);
        }
        let all = tokio::time::timeout(Duration::from_secs(10), watched(&bench.director)).await.unwrap().unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["with", "without"]);
        let instance = new_instance_record("with", "g", "i");
        store.begin_instances(&[instance], &[]).await.unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(100), watched(&bench.director)).await;
        assert!(waits.is_err(), "it has no turn");
        drop(held);
        let all = tokio::time::timeout(Duration::from_secs(10), watched(&bench.director)).await.unwrap().unwrap();
        assert!(all[&"with".into()].is_empty(), "an errand is not looked after");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silent_agents_of_many_deployments_are_waited_for_together() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let (address, _listener) = silence();
        for number in 0..20 {
            let (deployment, id) = (DeploymentName::from(format!("d{number}")), InstanceId::from(format!("i{number}")));
            store.add_deployment(&deployment, &[]).await.unwrap();
            let instance = new_instance_record(deployment, "g", id.clone());
            store.begin_instances(&[instance], &[]).await.unwrap();
            let mut vm = new_vm_record(VmCid::new(format!("vm-{number}")).unwrap(), &id, false);
            vm.networks = serde_json::from_value(json!({"n": {"type": "manual", "ip": address}})).unwrap();
            store.record(&Fact::VmCreated { vm: vm.into() }).await.unwrap();
        }
        let begun = Instant::now();
        round(&bench.director, &mut BTreeMap::new(), &mut Ailments::default()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        let health = bench.director.health.all();
        assert_eq!(health.len(), 20);
        assert!(health.values().all(|health| *health == DeploymentHealth { healthy: 0, unhealthy: 1 }), "{health:?}");
    }
}
