//! A disk is where its hint says.

use serde_json::{Value, json};
use windlass_agent_client::Outcome;

use crate::machine::{Machine, exception};

#[tokio::test]
async fn data_of_a_disk_is_seen_through_the_store_and_survives_the_agent() {
    let mut machine = Machine::started().await;
    let (cid, hint) = machine.disk("disk-1");
    machine.director().add_and_mount_disk(&cid, &hint).await.unwrap();
    std::fs::write(machine.base().join("store/data"), "precious").unwrap();
    assert_eq!(std::fs::read_to_string(machine.folder.path().join("disks/disk-1/data")).unwrap(), "precious");
    assert_eq!(machine.director().list_disk().await.unwrap(), std::slice::from_ref(&cid));
    assert_eq!(machine.state("managed_disk_settings.json"), "disk-1");

    machine.kill();
    std::fs::remove_file(machine.base().join("store")).unwrap();
    machine.start().await;
    assert_eq!(std::fs::read_to_string(machine.base().join("store/data")).unwrap(), "precious");

    let director = machine.director();
    assert!(director.unmount_disk(&cid).await.unwrap().starts_with("Unmounted partition of {ID:disk-1 DeviceID:"));
    assert!(director.unmount_disk(&cid).await.unwrap().ends_with("is not mounted"));
    assert!(!machine.base().join("store").exists());
    for _ in 0..2 {
        assert_eq!(director.remove_persistent_disk(&cid).await.unwrap(), Outcome::Done);
    }
    assert!(!machine.base().join("bosh/managed_disk_settings.json").exists(), "the next boot looks for no disk");
    assert_eq!(std::fs::read_to_string(machine.folder.path().join("disks/disk-1/data")).unwrap(), "precious");
}

#[tokio::test]
async fn a_second_disk_goes_where_data_migrates_to_and_mounting_again_changes_nothing() {
    let machine = Machine::started().await;
    let director = machine.director();
    let (old, old_hint) = machine.disk("disk-old");
    let (new, new_hint) = machine.disk("disk-new");
    for _ in 0..2 {
        director.mount_disk(&old, Some(&old_hint)).await.unwrap();
        director.add_and_mount_disk(&new, &new_hint).await.unwrap();
    }
    let link = |name: &str| std::fs::read_link(machine.base().join(name)).unwrap();
    assert_eq!(link("store").to_str(), old_hint.get("path"));
    assert_eq!(link("store_migration_target").to_str(), new_hint.get("path"));
    assert_eq!(director.list_disk().await.unwrap(), [new, old]);
}

#[tokio::test]
async fn a_disk_whose_directory_is_gone_does_not_keep_the_agent_from_booting() {
    let mut machine = Machine::started().await;
    let (cid, hint) = machine.disk("disk-1");
    machine.director().add_and_mount_disk(&cid, &hint).await.unwrap();
    machine.kill();
    std::fs::remove_dir(machine.folder.path().join("disks/disk-1")).unwrap();
    machine.start().await;
    assert!(machine.console().contains("disk disk-1 was mounted before and is not mounted now"));
    assert!(machine.director().list_disk().await.unwrap().is_empty());
    let error = machine.director().mount_disk(&cid, None).await.unwrap_err().to_string();
    assert!(error.contains("disks/disk-1 of disk 'disk-1' is not there"), "{error}");
}

#[tokio::test]
async fn disk_messages_are_answered_in_the_originals_words() {
    let machine = Machine::started_without_client_certificates().await;
    let failing = [
        (
            json!({"method": "mount_disk", "arguments": ["nope"]}),
            "result: Reading persistent disk settings: Persistent disk with volume id 'nope' could not be found",
        ),
        (
            json!({"method": "unmount_disk", "arguments": ["nope"]}),
            "result: Getting persistent disk settings: Persistent disk with volume id 'nope' could not be found",
        ),
        (
            json!({"method": "add_persistent_disk", "arguments": ["d"]}),
            "result: Extracting method arguments from payload: Not enough arguments, expected 2, got 1",
        ),
        (
            json!({"method": "add_persistent_disk", "arguments": ["d", {"lun": 3}]}),
            "the disk hint's value at 'lun' is not a string, and agents take only strings there",
        ),
    ];
    for (message, cause) in failing {
        let reply = machine.task(message).await;
        assert!(exception(&reply).ends_with(cause), "{reply}");
    }
    assert_eq!(machine.message(json!({"method": "list_disk"})).await["value"], json!([]));
    assert_eq!(machine.task(json!({"method": "list_disk", "protocol": 3})).await["value"], json!([]));

    for method in ["add_persistent_disk", "update_persistent_disk"] {
        let done = machine.task(json!({"method": method, "arguments": ["d", "/dev/sdz", "surplus"]})).await;
        assert_eq!(done["value"], json!({}));
    }
    let hints: Value = serde_json::from_str(&machine.state("persistent_disk_hints.json")).unwrap();
    assert_eq!((&hints["d"]["Path"], &hints["d"]["VolumeID"]), (&json!("/dev/sdz"), &json!("/dev/sdz")));
}

#[tokio::test]
async fn a_migration_moves_the_data_and_a_dynamic_disk_is_found_by_its_cid() {
    let machine = Machine::started().await;
    let director = machine.director();
    let (old, old_hint) = machine.disk("disk-old");
    let (new, new_hint) = machine.disk("disk-new");
    director.add_and_mount_disk(&old, &old_hint).await.unwrap();
    std::fs::write(machine.base().join("store/data"), "precious").unwrap();
    director.add_and_mount_disk(&new, &new_hint).await.unwrap();
    for _ in 0..2 {
        director.migrate_disk(&old, &new).await.unwrap();
        assert_eq!(std::fs::read_link(machine.base().join("store")).unwrap().to_str(), new_hint.get("path"));
        assert_eq!(director.list_disk().await.unwrap(), std::slice::from_ref(&new));
    }
    for folder in [machine.base().join("store"), machine.folder.path().join("disks/disk-old")] {
        assert_eq!(std::fs::read_to_string(folder.join("data")).unwrap(), "precious");
    }
    assert!(director.unmount_disk(&old).await.unwrap().ends_with("is not mounted"));

    let (dynamic, hint) = machine.disk("disk-dynamic");
    director.call("add_dynamic_disk", vec![json!(dynamic), json!(hint)]).await.unwrap();
    let link = machine.base().join("data/dynamic_disks/disk-dynamic");
    assert_eq!(std::fs::read_link(&link).unwrap().to_str(), hint.get("path"));
    for _ in 0..2 {
        director.call("remove_dynamic_disk", vec![json!(dynamic)]).await.unwrap();
        assert!(!link.exists());
    }
    let outside = director.call("remove_dynamic_disk", vec![json!("../blobs")]).await.unwrap_err();
    assert!(outside.to_string().contains("cannot name a disk"), "{outside}");
}

/// The disk may come back in another place, where the old hint would lead to something else.
#[tokio::test]
async fn an_unmounted_disk_is_forgotten_and_not_mounted_by_the_next_boot() {
    let mut machine = Machine::started().await;
    let (cid, hint) = machine.disk("disk-1");
    machine.director().add_and_mount_disk(&cid, &hint).await.unwrap();
    machine.director().unmount_disk(&cid).await.unwrap();
    assert_eq!(machine.state("persistent_disk_hints.json").trim(), "{}");
    machine.kill();
    machine.start().await;
    assert!(!machine.base().join("store").exists() && !machine.console().contains("was mounted before"));

    // Asked again it has nothing to do; the next `mount_disk` says where the disk is.
    let director = machine.director();
    assert!(director.unmount_disk(&cid).await.unwrap().ends_with("is not mounted"));
    let unknown = director.mount_disk(&cid, None).await.unwrap_err().to_string();
    assert!(unknown.contains("could not be found"), "{unknown}");
    let (_, elsewhere) = machine.disk("disk-1-elsewhere");
    director.add_and_mount_disk(&cid, &elsewhere).await.unwrap();
    assert_eq!(std::fs::read_link(machine.base().join("store")).unwrap().to_str(), elsewhere.get("path"));
}
