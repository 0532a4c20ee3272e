//! What real directors said to agents of the original, said to this one. `tests/data/README.md` tells what was left out.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::machine::Machine;

/// The keys of a state, without those of processes, which belong to jobs.
const STATE: [&str; 16] = [
    "agent_id",
    "az",
    "configuration_hash",
    "deployment",
    "id",
    "index",
    "job",
    "job_state",
    "name",
    "networks",
    "packages",
    "persistent_disk",
    "properties",
    "rendered_templates_archive",
    "resource_pool",
    "vm",
];

/// How many recordings there are in all.
const RECORDINGS: usize = 70;

/// Those without a life, and why.
const NOT_REPLAYED: [(&str, &str); 4] = [
    ("_heartbeats", "nobody asked; what agents said by themselves is compared in `health.rs`"),
    ("error-deploy-no-cloud-config", "the director failed before it talked to an agent"),
    ("error-unknown-stemcell", "the director failed before it talked to an agent"),
    ("error-recreate-no-converge-without-vm", "there was no VM, and so no agent"),
];

/// A message of a recorded life.
#[derive(Debug, Deserialize)]
struct Recorded {
    scenario: String,
    method: String,
    arguments: Value,
    task: bool,
    reply: Value,
}

/// Puts a blob with names of instances, whose content was not recorded, in place of the one that the message means.
async fn replace_blob(machine: &Machine, message: &mut Recorded) {
    let records = json!({"version": message.arguments[2], "records": []}).to_string();
    let digest: String = Sha256::digest(&records).iter().map(|byte| format!("{byte:02x}")).collect();
    message.arguments[1] = json!(format!("sha256:{digest}"));
    let path = format!("/blobs/ab/{}", message.arguments[0].as_str().unwrap());
    assert_eq!(machine.request("PUT", &path, records.as_bytes()).await.status, 201);
}

fn sorted(value: &Value) -> Vec<String> {
    let mut items: Vec<String> = value["value"].as_array().unwrap().iter().map(Value::to_string).collect();
    items.sort();
    items
}

/// Fails unless the reply is what the original said, or as like it as the message allows.
fn compare(message: &Recorded, reply: &Value) {
    let value = &reply["value"];
    match message.method.as_str() {
        "get_state" => {
            let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            let full = message.arguments[0] == "full";
            assert_eq!(keys.contains(&"vitals"), full, "{message:?}");
            keys.retain(|key| *key != "vitals");
            keys.sort();
            assert_eq!(keys, STATE, "{message:?}");
        }
        "fetch_logs" => {
            assert_eq!(value.as_object().unwrap().len(), 2, "{message:?} {reply}");
            for key in ["blobstore_id", "sha1"] {
                let [own, theirs] = [reply, &message.reply].map(|reply| reply["value"][key].as_str().unwrap().len());
                assert_eq!(own, theirs, "{message:?} {reply}");
            }
        }
        // The original keeps its disks in no order.
        "list_disk" => assert_eq!(sorted(reply), sorted(&message.reply), "{message:?}"),
        _ => assert_eq!(*reply, message.reply, "{message:?}"),
    }
}

/// Returns the recordings that the life is from.
async fn replay(life: &str, recorded: String) -> BTreeSet<String> {
    let mut messages: Vec<Recorded> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut machine = Machine::new();
    machine.kind = ["-P", "dummy", "-M", "dummy"];
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    if let Some(spec) = messages.iter().find(|message| message.method == "apply") {
        machine.settings["networks"] = spec.arguments[0]["networks"].clone();
    }
    machine.start().await;
    for message in &mut messages {
        if message.method == "sync_dns" {
            replace_blob(&machine, message).await;
        }
        let sent = json!({"method": message.method, "arguments": message.arguments, "protocol": 3, "reply_to": "director.x.y.z"});
        let reply = match message.task {
            true => machine.task(sent).await,
            false => machine.message(sent).await,
        };
        compare(message, &reply);
    }
    println!("{life}: {} messages, the last of {}", messages.len(), messages.last().unwrap().scenario);
    messages.into_iter().map(|message| message.scenario).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_directors_get_the_answers_that_the_original_gave() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/lives");
    let mut lives = tokio::task::JoinSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let life = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let recorded = std::fs::read_to_string(&path).unwrap();
        lives.spawn(async move { replay(&life, recorded).await });
    }
    assert_eq!(lives.len(), 12);
    let mut replayed: BTreeSet<String> = lives.join_all().await.into_iter().flatten().collect();
    replayed.remove("not recorded");
    for (recording, reason) in NOT_REPLAYED {
        assert!(!replayed.contains(recording), "{recording} is replayed, although {reason}");
    }
    assert_eq!(replayed.len() + NOT_REPLAYED.len(), RECORDINGS, "{replayed:?}");
}
