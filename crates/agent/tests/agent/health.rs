//! What agents of the original say by themselves on a message bus, asked for over HTTPS.

use serde_json::{Value, json};

use crate::machine::Machine;

/// A document with the kinds of its values in place of them.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(items) => items.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
    }
}

#[tokio::test]
async fn a_heartbeat_that_was_asked_for_is_like_one_on_a_message_bus() {
    let recorded =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/heartbeats.jsonl")).unwrap();
    let recorded: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for machine in Machine::started_ours_and_the_original().await {
        let director = machine.director();
        let before = director.heartbeat().await.unwrap();
        assert_eq!((before.job, before.index, before.deployment.as_str()), (None, None, ""));
        for heartbeat in &recorded {
            let spec = json!({"deployment": heartbeat["deployment"], "job": {"name": heartbeat["job"]},
                "index": heartbeat["index"], "id": heartbeat["node_id"], "networks": {}});
            machine.task(json!({"method": "apply", "arguments": [spec]})).await;
            match heartbeat["job_state"].as_str().unwrap() {
                "stopped" => director.stop().await.unwrap(),
                _ => director.start().await.unwrap(),
            }
            let asked = serde_json::to_value(director.heartbeat().await.unwrap()).unwrap();
            for key in ["deployment", "job", "index", "node_id", "job_state"] {
                assert_eq!(asked[key], heartbeat[key], "{key} in {asked}");
            }
            // Which file systems a machine has is its own affair.
            let [mut asked, mut heartbeat] = [&asked, heartbeat].map(shape);
            for document in [&mut asked, &mut heartbeat] {
                let disks = document["vitals"]["disk"].as_object().unwrap();
                let system = disks["system"].clone();
                assert!(disks.values().all(|disk| *disk == system), "{document}");
                document["vitals"]["disk"] = system;
            }
            assert_eq!(asked, heartbeat);
        }
    }
}

#[tokio::test]
async fn a_disk_that_is_missing_after_a_start_is_an_alert() {
    let mut machine = Machine::started().await;
    let director = machine.director();
    assert_eq!(director.alerts().await.unwrap(), []);
    let (cid, hint) = machine.disk("disk-1");
    director.add_and_mount_disk(&cid, &hint).await.unwrap();
    machine.kill();
    std::fs::remove_dir(machine.folder.path().join("disks/disk-1")).unwrap();
    machine.start().await;
    let alerts = machine.director().alerts().await.unwrap();
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0].title, "disk disk-1 was mounted before and is not mounted now");
    assert!(alerts[0].severity == 1 && alerts[0].summary.contains("is not there"), "{alerts:?}");
    assert!(alerts[0].created_at > 1_700_000_000);
}

#[tokio::test]
async fn an_agent_that_keeps_no_alerts_has_none() {
    for machine in Machine::started_ours_and_the_original().await {
        assert_eq!(machine.director().alerts().await.unwrap(), []);
    }
}
