//! Which groups of a deployment are errands: they have VMs only while they run.

use std::collections::BTreeSet;

use serde::Deserialize;
use windlass_manifest::Document;
use windlass_planning::desired::{DeploymentManifest, Findings, Lifecycle};
use windlass_planning::names::DeploymentName;

use crate::Director;
use crate::store::{DeploymentRecord, StoreError};

/// The errands of the manifest that was deployed last, and of a deploy that came after it and did not end well: its instances are on
/// record, and its manifest is not. None where there is no such deployment.
pub(crate) async fn errands_of(
    director: &Director,
    deployment: &DeploymentName,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let Some(DeploymentRecord { manifest, .. }) = director.store.deployment(deployment).await? else { return Ok(None) };
    let manifest = manifest.unwrap_or_default();
    let plan = director.store.plan_of_unfinished_deploy(deployment).await?.unwrap_or_default();
    let read = || {
        let mut errands = in_manifest(&manifest);
        errands.extend(in_plan(&plan));
        errands
    };
    Ok(Some(director.limits.heavily(read).await))
}

/// A manifest without the word need not be read.
fn in_manifest(manifest: &str) -> BTreeSet<String> {
    let document = manifest.contains("errand").then(|| Document::parse(manifest).ok()).flatten();
    let groups = document.map(|document| DeploymentManifest::read(&document, &mut Findings::new()).groups);
    let errands = groups.unwrap_or_default().into_iter().filter(|group| group.lifecycle == Lifecycle::Errand);
    errands.map(|group| group.name).collect()
}

/// As much of a plan as says which groups are errands.
#[derive(Default, Deserialize)]
struct PlannedGroups {
    groups: Vec<PlannedGroup>,
}

#[derive(Deserialize)]
struct PlannedGroup {
    name: String,
    #[serde(default)]
    lifecycle: Lifecycle,
}

/// A plan that another version of the director wrote, and that cannot be read, names none.
fn in_plan(plan: &str) -> impl Iterator<Item = String> {
    let planned: PlannedGroups = serde_json::from_str(plan).unwrap_or_default();
    let errands = planned.groups.into_iter().filter(|group| group.lifecycle == Lifecycle::Errand);
    errands.map(|group| group.name)
}

#[cfg(test)]
mod tests {
    use windlass_planning::plan::Plan;

    use super::*;
    use crate::store::{Busy, Lane, NewTask, TaskState};
    use crate::tasks::{DeployOptions, Job};
    use crate::testing::TestDirector;

    /// Otherwise cloud-check and the resurrector make a VM for it, and `instances --failing` names it.
    #[tokio::test]
    async fn an_errand_is_one_also_when_the_deploy_that_brought_it_failed() {
        let bench = TestDirector::new().await;
        let (store, shop) = (&bench.director.store, DeploymentName::from("shop"));
        assert_eq!(errands_of(&bench.director, &shop).await.unwrap(), None);
        store.add_deployment(&shop, &[]).await.unwrap();
        let of_manifest = "name: shop\ninstance_groups: [{name: old, lifecycle: errand}]";
        store.finish_deployment(&shop, of_manifest, &[], None).await.unwrap();
        let named = async || errands_of(&bench.director, &shop).await.unwrap().unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(named().await, ["old"]);

        let job = Job::UpdateDeployment {
            deployment: shop.clone(),
            manifest: String::new(),
            options: DeployOptions::default(),
        };
        let task = store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap();
        let group = |name: &str, lifecycle: &str| {
            let instance = serde_json::json!({"id": name, "group": name, "index": 0, "az": null, "bootstrap": true, "state": "started",
                "spec": null, "actions": []});
            serde_json::json!({"name": name, "canaries": 1, "max_in_flight": 1, "lifecycle": lifecycle, "instances": [instance]})
        };
        let removed = group("gone", "service")["instances"].clone();
        let plan = serde_json::json!({"deployment": "shop", "removed": removed,
            "groups": [group("web", "service"), group("smoke", "errand")]});
        let plan: Plan = serde_json::from_value(plan).unwrap();
        assert!(store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().is_some());
        store.save_plan(task, &plan).await.unwrap();
        store.finish_task(task, TaskState::Error, "no").await.unwrap();
        assert_eq!(named().await, ["old", "smoke"]);

        store.tamper("UPDATE tasks SET state = 'done'").await;
        assert_eq!(named().await, ["old"], "what was deployed says all");
        store.tamper("UPDATE tasks SET state = 'error'").await;
        store.tamper("UPDATE plans SET plan = 'of another version'").await;
        assert_eq!(named().await, ["old"]);
    }
}
