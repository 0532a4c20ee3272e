//! What ails instances that answer, and who fell silent: each is an event, and told to the webhook, once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use windlass_agent_client::{Alert, JobHealth};
use windlass_operations::clock;
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};

use super::NAME;
use super::pulse::{SeenInstance, Verdict};
use crate::Director;
use crate::store::{Event, EventFilter, StoreError};
use crate::webhook::{Notice, NoticeKind};

/// Milder alerts, such as those of a pid that changed, wake nobody.
const WAKES: u8 = 3;
/// How many alerts of one instance become events in one round; the others of a flood are counted.
const MOST_ALERTS: usize = 10;

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Ailments {
    alerts: BTreeMap<(DeploymentName, InstanceName), BTreeSet<String>>,
    /// Instances whose jobs were failing in the last round.
    failing: BTreeSet<(DeploymentName, InstanceName)>,
    /// Instances that do not answer.
    silent: BTreeSet<(DeploymentName, InstanceId)>,
}

impl Ailments {
    /// Somebody works on a deployment, so jobs that do not run mean nothing.
    pub(super) fn excuse(&mut self, deployment: &DeploymentName) {
        self.failing.retain(|(of, _)| of != deployment);
    }

    /// Looks at an instance that answered.
    pub(super) async fn look(
        &mut self,
        director: &Director,
        deployment: &DeploymentName,
        instance: &InstanceName,
        health: &JobHealth,
    ) -> Result<(), StoreError> {
        let key = (deployment.to_owned(), instance.clone());
        if health.job_state != "failing" {
            self.failing.remove(&key);
        } else if self.failing.insert(key.clone()) {
            let processes = health.failing().join(", ");
            let message = format!("jobs of {instance} are failing: {processes}");
            tracing::warn!(deployment = deployment.as_str(), instance = instance.as_str(), "{message}");
            note(director, deployment, instance, (&uuid::Uuid::new_v4().to_string(), &message)).await?;
            let notice = Notice::of(NoticeKind::JobFailing, deployment, &message);
            director.notify(Notice { instance: Some(instance), ..notice }).await;
        }
        self.take_alerts(director, key, &health.alerts).await
    }

    async fn take_alerts(
        &mut self,
        director: &Director,
        key: (DeploymentName, InstanceName),
        alerts: &[Alert],
    ) -> Result<(), StoreError> {
        let known = self.alerts.entry(key.clone()).or_default();
        // An agent keeps a limited number, so what it does not tell any more need not be remembered.
        known.retain(|id| alerts.iter().any(|alert| alert.id == *id));
        let new: Vec<Alert> = alerts.iter().filter(|alert| !known.contains(&alert.id)).cloned().collect();
        known.extend(new.iter().map(|alert| alert.id.clone()));
        let (deployment, instance) = (&key.0, &key.1);
        let skipped = new.len().saturating_sub(MOST_ALERTS);
        if skipped > 0 {
            tracing::warn!(
                deployment = deployment.as_str(),
                instance = instance.as_str(),
                skipped,
                "an agent raised more alerts than become events"
            );
        }
        for alert in new.into_iter().skip(skipped) {
            // A director that was restarted hears them again.
            let filter = EventFilter { object_name: Some(alert.id.clone()), ..EventFilter::default() };
            if !director.store.events(&filter).await?.is_empty() {
                continue;
            }
            let message = said(&alert);
            note(director, deployment, instance, (&alert.id, &message)).await?;
            if alert.severity <= WAKES {
                let notice = Notice::of(NoticeKind::JobFailing, deployment, &message);
                director.notify(Notice { instance: Some(instance), ..notice }).await;
            }
        }
        Ok(())
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
    let mut event = Event::new(NAME, "create", "alert", Some(id));
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
            ailments.look(&bench.director, &"shop".into(), &"web/1".into(), &health(state, alerts)).await.unwrap();
        }
        assert_eq!(messages(&bench).await, [failing, alert]);
        for state in ["running", "failing"] {
            ailments.look(&bench.director, &"shop".into(), &"web/1".into(), &health(state, &[("a", 1)])).await.unwrap();
        }
        assert_eq!(messages(&bench).await, [failing, alert, failing], "it broke once more");
        ailments.excuse(&"shop".into());
        let mut after_a_restart = Ailments::default();
        after_a_restart
            .look(&bench.director, &"shop".into(), &"web/1".into(), &health("running", &[("a", 1), ("b", 1)]))
            .await
            .unwrap();
        assert_eq!(messages(&bench).await, [failing, alert, failing, alert], "only the new one is told");
        let flood: Vec<(String, u8)> = (0..100).map(|number| (format!("f{number}"), 4)).collect();
        let flood: Vec<(&str, u8)> = flood.iter().map(|(id, severity)| (id.as_str(), *severity)).collect();
        ailments.look(&bench.director, &"shop".into(), &"web/1".into(), &health("running", &flood)).await.unwrap();
        assert_eq!(messages(&bench).await.len(), 4 + MOST_ALERTS);
    }
}
