//! What ails instances that answer, and who fell silent: each is an event, and told to the webhook, once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_agent_client::{Alert, JobHealth};
use windlass_operations::clock;
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};

use super::pulse::{SeenInstance, Verdict};
use crate::Director;
use crate::store::{Event, EventFilter, StoreError};
use crate::users::RESURRECTOR;
use crate::webhook::{Notice, NoticeKind};

/// Milder alerts, such as those of a pid that changed, wake nobody.
const WAKES: u8 = 3;
/// How many alerts of one instance become events in one round; the others of a flood are counted.
const MOST_ALERTS: usize = 10;

/// How many events and notices the VMs of one deployment cause in an hour. A hostile one would send those of others away.
const MOST_IN_AN_HOUR: u32 = 100;
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Ailments {
    /// By hashes of their ids, which a VM may choose.
    alerts: BTreeMap<(DeploymentName, InstanceName), BTreeSet<u64>>,
    /// Instances whose jobs were failing in the last round.
    failing: BTreeSet<(DeploymentName, InstanceName)>,
    /// Instances that do not answer.
    silent: BTreeSet<(DeploymentName, InstanceId)>,
    /// Since when how much was told of a deployment.
    told: BTreeMap<DeploymentName, (Instant, u32)>,
}

/// What an instance that answered has to tell.
#[derive(Debug)]
pub(super) struct NewHealth {
    is_failing: bool,
    /// The processes that do not run.
    failing: Vec<String>,
    /// All alerts that the agent keeps.
    kept: BTreeSet<u64>,
    /// Those of them that are told.
    alerts: Vec<Alert>,
    /// How many are not, because there are too many.
    skipped: usize,
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// What may still be told of a deployment in this hour.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Enough,
    /// That there is more.
    LastWord,
    None,
}

impl Ailments {
    /// Somebody works on a deployment, so jobs that do not run mean nothing.
    pub(super) fn excuse(&mut self, deployment: &DeploymentName) {
        self.failing.retain(|(of, _)| of != deployment);
    }

    /// What of an answer was not told yet. Nothing is noted: that is done by [`Self::look`].
    pub(super) fn what_is_new(
        &self,
        deployment: &DeploymentName,
        instance: &InstanceName,
        health: JobHealth,
    ) -> NewHealth {
        let known = self.alerts.get(&(deployment.to_owned(), instance.clone()));
        let kept = health.alerts.iter().map(|alert| hash(&alert.id)).collect();
        let mut alerts = health.alerts;
        alerts.retain(|alert| known.is_none_or(|known| !known.contains(&hash(&alert.id))));
        let skipped = alerts.len().saturating_sub(MOST_ALERTS);
        let alerts = alerts.split_off(skipped);
        NewHealth { is_failing: health.job_state == "failing", failing: health.failing, kept, alerts, skipped }
    }

    /// Looks at an instance that answered.
    pub(super) async fn look(
        &mut self,
        director: &Director,
        deployment: &DeploymentName,
        instance: &InstanceName,
        new: NewHealth,
    ) -> Result<(), StoreError> {
        let key = (deployment.to_owned(), instance.clone());
        if !new.is_failing {
            self.failing.remove(&key);
        } else if self.failing.insert(key.clone()) {
            let message = format!("jobs of {instance} are failing: {}", new.failing.join(", "));
            tracing::warn!(deployment = deployment.as_str(), instance = instance.as_str(), "{message}");
            let id = uuid::Uuid::new_v4().to_string();
            self.tell(director, &key, (&id, &message), true).await?;
        }
        // An agent keeps a limited number, so what it does not tell any more need not be remembered.
        self.alerts.insert(key.clone(), new.kept);
        if new.skipped > 0 {
            tracing::warn!(
                deployment = deployment.as_str(),
                instance = instance.as_str(),
                skipped = new.skipped,
                "an agent raised more alerts than become events"
            );
        }
        for alert in new.alerts {
            // A director that was restarted hears them again.
            let filter = EventFilter { object_name: Some(alert.id.clone()), ..EventFilter::default() };
            if !director.store.events(&filter).await?.is_empty() {
                continue;
            }
            self.tell(director, &key, (&alert.id, &said(&alert)), alert.severity <= WAKES).await?;
        }
        Ok(())
    }

    /// Writes an event, and tells the webhook of what wakes somebody.
    async fn tell(
        &mut self,
        director: &Director,
        (deployment, instance): &(DeploymentName, InstanceName),
        (id, message): (&str, &str),
        wakes: bool,
    ) -> Result<(), StoreError> {
        let (room, more) = (self.room(deployment, Instant::now()), uuid::Uuid::new_v4().to_string());
        let (id, message, wakes) = match room {
            Room::Enough => (id, message, wakes),
            Room::LastWord => {
                (more.as_str(), "there are more alerts than are told in an hour; see instances --ps", true)
            }
            Room::None => return Ok(()),
        };
        note(director, deployment, instance, (id, message)).await?;
        if wakes {
            let notice = Notice::of(NoticeKind::JobFailing, deployment, message);
            director.notify(Notice { instance: Some(instance), ..notice }).await;
        }
        Ok(())
    }

    fn room(&mut self, deployment: &DeploymentName, now: Instant) -> Room {
        self.told.retain(|_, (since, _)| now.duration_since(*since) < HOUR);
        let (_, told) = self.told.entry(deployment.to_owned()).or_insert((now, 0));
        *told = told.saturating_add(1);
        match *told {
            ..=MOST_IN_AN_HOUR => Room::Enough,
            told if told == MOST_IN_AN_HOUR + 1 => Room::LastWord,
            _ => Room::None,
        }
    }

    /// Tells who fell silent.
    pub(super) async fn tell_silence(
        &mut self,
        director: &Director,
        deployment: &DeploymentName,
        seen: &[SeenInstance],
        verdict: &Verdict,
    ) {
        self.silent.retain(|(of, id)| of != deployment || seen.iter().any(|seen| seen.id == *id && !seen.answered));
        match verdict {
            Verdict::Well => {}
            Verdict::Lost(suspects) => {
                for (group, ids) in suspects {
                    for id in ids {
                        if self.silent.insert((deployment.to_owned(), id.clone())) {
                            let instance = InstanceName::of(group, id);
                            let message = format!("the agent of {instance} does not answer, or its VM is gone");
                            let notice = Notice::of(NoticeKind::VmUnresponsive, deployment, &message);
                            director.notify(Notice { instance: Some(&instance), ..notice }).await;
                        }
                    }
                }
            }
            Verdict::Meltdown { lost, of, is_new } => {
                if *is_new {
                    let message =
                        format!("{lost} of {of} instances of '{deployment}' do not answer; none is recreated");
                    director.notify(Notice::of(NoticeKind::VmUnresponsive, deployment, &message)).await;
                }
            }
        }
    }
}

/// In the words of BOSH's health monitor.
fn said(alert: &Alert) -> String {
    let at = clock::utc(i64::try_from(alert.created_at).unwrap_or_default());
    format!("Alert @ {at}, severity {}: {} - {}", alert.severity, alert.title, alert.summary)
}

/// An event as BOSH's health monitor writes it.
async fn note(
    director: &Director,
    deployment: &DeploymentName,
    instance: &InstanceName,
    (id, message): (&str, &str),
) -> Result<(), StoreError> {
    let mut event = Event::new(RESURRECTOR, "create", "alert", Some(id));
    event.deployment = Some(deployment.to_string());
    event.instance = Some(instance.clone());
    event.context.insert("message".into(), json!(message));
    director.store.add_event(&event).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDirector;

    fn health(state: &str, alerts: &[(&str, u8)]) -> JobHealth {
        let alert = |(id, severity): &(&str, u8)| json!({"id": id, "severity": severity, "title": "web - does not exist", "summary": "restart", "created_at": 7});
        let alerts: Vec<_> = alerts.iter().map(alert).collect();
        let processes = json!([{"name": "web", "state": "failing"}, {"name": "db", "state": "running"}]);
        serde_json::from_value(json!({"job_state": state, "alerts": alerts, "processes": processes})).unwrap()
    }

    async fn look(ailments: &mut Ailments, bench: &TestDirector, health: JobHealth) {
        let (deployment, instance) = (DeploymentName::from("shop"), InstanceName::from("web/1"));
        let new = ailments.what_is_new(&deployment, &instance, health);
        ailments.look(&bench.director, &deployment, &instance, new).await.unwrap();
    }

    async fn messages(bench: &TestDirector) -> Vec<String> {
        let filter = EventFilter { object_type: Some("alert".into()), ..EventFilter::default() };
        let mut events = bench.director.store.events(&filter).await.unwrap();
        events.reverse();
        let message = |event: &crate::store::EventRecord| event.event.context["message"].as_str().unwrap().to_owned();
        events.iter().map(message).collect()
    }

    #[tokio::test]
    async fn alerts_and_failing_jobs_become_one_event_each_also_after_a_restart() {
        let bench = TestDirector::new().await;
        let mut ailments = Ailments::default();
        let failing = "jobs of web/1 are failing: web";
        let alert = "Alert @ 1970-01-01 00:00:07 UTC, severity 1: web - does not exist - restart";
        for (state, alerts) in [("running", &[][..]), ("failing", &[("a", 1)]), ("failing", &[("a", 1)])] {
            look(&mut ailments, &bench, health(state, alerts)).await;
        }
        assert_eq!(messages(&bench).await, [failing, alert]);
        for state in ["running", "failing"] {
            look(&mut ailments, &bench, health(state, &[("a", 1)])).await;
        }
        assert_eq!(messages(&bench).await, [failing, alert, failing], "it broke once more");
        ailments.excuse(&"shop".into());
        let mut after_a_restart = Ailments::default();
        look(&mut after_a_restart, &bench, health("running", &[("a", 1), ("b", 1)])).await;
        assert_eq!(messages(&bench).await, [failing, alert, failing, alert], "only the new one is told");
        let flood: Vec<(String, u8)> = (0..100).map(|number| (format!("f{number}"), 4)).collect();
        let flood: Vec<(&str, u8)> = flood.iter().map(|(id, severity)| (id.as_str(), *severity)).collect();
        look(&mut ailments, &bench, health("running", &flood)).await;
        assert_eq!(messages(&bench).await.len(), 4 + MOST_ALERTS);
    }

    /// One VM sent all other notices away, and in a day all other events.
    #[tokio::test]
    async fn a_vm_that_raises_alerts_without_end_is_told_of_a_hundred_times_an_hour() {
        let bench = TestDirector::new().await;
        let mut ailments = Ailments::default();
        for round in 0..30 {
            let flood: Vec<(String, u8)> = (0..20).map(|number| (format!("{round}-{number}"), 1)).collect();
            let flood: Vec<(&str, u8)> = flood.iter().map(|(id, severity)| (id.as_str(), *severity)).collect();
            look(&mut ailments, &bench, health(if round % 2 == 0 { "failing" } else { "running" }, &flood)).await;
        }
        let told = messages(&bench).await;
        assert_eq!(told.len(), 101);
        assert!(told[100].contains("more alerts than are told in an hour"), "{}", told[100]);
        // Others are heard, and so is this one in an hour.
        let now = Instant::now();
        assert_eq!(ailments.room(&"other".into(), now), Room::Enough);
        assert_eq!(ailments.room(&"shop".into(), now), Room::None);
        assert_eq!(ailments.room(&"shop".into(), now + HOUR), Room::Enough);
    }
}
