//! How agents of all ages learn where a disk is.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use windlass_agent_client::{CallError, Outcome};
use windlass_contract::DiskCid;

use crate::rig::{disk, scripted, unknown};

/// Records the methods and arguments of an agent that knows only `known`.
async fn mounted_by(known: &'static [&'static str]) -> Vec<Value> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let agent = scripted(move |method, arguments| {
        if !known.contains(&method) {
            return unknown(method);
        }
        log.lock().unwrap().push(json!([method, arguments]));
        Some(json!({"value": {}}))
    })
    .await;
    let (cid, hint) = disk();
    agent.add_and_mount_disk(&cid, &hint).await.unwrap();
    std::mem::take(&mut *seen.lock().unwrap())
}

#[tokio::test]
async fn every_generation_of_agents_learns_where_the_disk_is() {
    let (cid, hint) = (json!("disk-1"), json!({"path": "/dev/sdc"}));
    let today = mounted_by(&["add_persistent_disk", "mount_disk"]).await;
    assert_eq!(today, [json!(["add_persistent_disk", [cid, hint]]), json!(["mount_disk", [cid]])]);
    let renamed = mounted_by(&["update_persistent_disk", "mount_disk"]).await;
    assert_eq!(renamed, [json!(["update_persistent_disk", [cid, hint]]), json!(["mount_disk", [cid, hint]])]);
    let oldest = mounted_by(&["mount_disk"]).await;
    assert_eq!(oldest, [json!(["mount_disk", [cid, hint]])]);
}

/// As the original's in a container: the data is on the new disk, and only has to be where jobs look for it.
#[tokio::test]
async fn a_migration_that_only_lacks_the_mount_is_finished() {
    async fn migrated(cause: &'static str, mounts: bool) -> (Result<(), CallError>, Vec<Value>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let agent = scripted(move |method, arguments| {
            log.lock().unwrap().push(json!([method, arguments]));
            let failed =
                |cause: &str| Some(json!({"exception": {"message": format!("Migrating persistent disk: {cause}")}}));
            match method {
                "migrate_disk" => failed(cause),
                "mount_disk" if !mounts => failed("no"),
                _ => Some(json!({"value": {}})),
            }
        });
        let (from, to) = (DiskCid::new("old").unwrap(), DiskCid::new("new").unwrap());
        let result = agent.await.migrate_disk(&from, &to).await;
        let seen = seen.lock().unwrap().clone();
        (result, seen)
    }
    let last = "Remounting new disk on original mountpoint: Device x is already mounted to y, can't mount to z";
    let (result, seen) = migrated(last, true).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(seen, [json!(["migrate_disk", ["old", "new"]]), json!(["mount_disk", ["new"]])]);
    let (result, _) = migrated(last, false).await;
    assert!(result.unwrap_err().to_string().contains("Remounting new disk"), "the first error counts");
    // Before that, the old disk may be the only one with all the data.
    let (result, seen) = migrated("Copying files from old disk to new disk: no space", true).await;
    assert!(result.is_err() && seen.len() == 1, "{seen:?}");
}

#[tokio::test]
async fn an_old_agent_is_not_told_again_what_it_does_not_know() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let agent = scripted(move |method, _| {
        log.lock().unwrap().push(method.to_owned());
        if method == "mount_disk" { Some(json!({"value": {}})) } else { unknown(method) }
    })
    .await;
    let (cid, hint) = disk();
    assert_eq!(agent.add_persistent_disk(&cid, &hint).await.unwrap(), Outcome::UnknownToAgent);
    agent.mount_disk_as_before(&cid, &hint).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["add_persistent_disk", "update_persistent_disk", "mount_disk"]);
}
