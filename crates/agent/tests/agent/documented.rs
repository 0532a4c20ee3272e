//! What the contract's documents show of agents, to the letter: settings start an agent, hints are kept and used.

use serde_json::{Value, json};
use windlass_rigs::documented::examples;

use crate::machine::Machine;
use crate::sources::{Server, config};

/// What differs from VM to VM is put in: the agent's id and how it is reached.
fn for_this_machine(machine: &Machine, mut settings: Value) -> Value {
    settings["agent_id"] = json!(machine.agent_id);
    settings["mbus"] = json!(format!("https://director:p%40ss%3Aword@{}:{}", machine.address, machine.port));
    settings
}

async fn answers(mut machine: Machine, name: &str) {
    machine.spawn();
    let certificate = machine.own_certificate().await;
    let reply = machine.message_trusting(&certificate, json!({"method": "ping"})).await;
    assert_eq!(reply["value"], "pong", "{name}: {}", machine.console());
}

/// A hint as it came, in the words of the file in which BOSH's agent keeps it.
fn kept(hint: &Value) -> Vec<(&'static str, Value)> {
    if hint.is_string() {
        return vec![("Path", hint.clone()), ("VolumeID", hint.clone())];
    }
    let words = [("path", "Path"), ("volume_id", "VolumeID"), ("lun", "Lun"), ("host_device_id", "HostDeviceID")];
    words.into_iter().filter_map(|(key, word)| Some((word, hint.get(key)?.clone()))).collect()
}

async fn keeps(machine: &Machine, method: &str, disk: &str, hint: &Value, name: &str) {
    machine.task(json!({"method": method, "arguments": [disk, hint]})).await;
    let file: Value = serde_json::from_str(&machine.state("persistent_disk_hints.json")).unwrap();
    let kept = kept(hint);
    assert!(!kept.is_empty(), "{name}");
    for (word, value) in kept {
        assert_eq!(file[disk][word], value, "{name}: {file}");
    }
}

#[tokio::test]
async fn every_example_of_the_documents_that_is_for_agents_is_taken() {
    let running = Machine::started_without_client_certificates().await;
    for (name, example) in examples() {
        match name {
            "version 1, settings" | "version 1, settings with persistent disks" | "version 2, user data in full" => {
                let mut machine = Machine::new();
                machine.settings = for_this_machine(&machine, example);
                answers(machine, name).await;
            }
            "version 2, user data with a registry" => {
                let mut machine = Machine::new();
                let settings = for_this_machine(&machine, machine.settings.clone());
                let envelope = json!({"status": "ok", "settings": settings.to_string()}).to_string();
                let registry = Server::new(vec![("GET /instances/vm-1/settings ", envelope)]);
                machine.settings = example;
                machine.settings["registry"]["endpoint"] = json!(format!("http://{}", registry.address));
                machine.settings["server"] = json!({"name": "vm-1"});
                let file = json!({"Type": "File", "SettingsPath": machine.folder.path().join("settings.json")});
                machine.config = Some(config(json!([file]), json!({"UseRegistry": true, "UseServerName": true})));
                machine.start().await;
                assert!(registry.heard("GET /instances/vm-1/settings").unwrap().contains("authorization: basic"));
            }
            "second draft, mount_disk, arguments" => {
                keeps(&running, "mount_disk", example[0].as_str().unwrap(), &example[1], name).await;
            }
            "migration guide, hint 1"
            | "migration guide, hint 2"
            | "migration guide, hint 3"
            | "migration guide, hint 4"
            | "migration guide, hint 5" => keeps(&running, "add_persistent_disk", name, &example, name).await,
            // CPIs are asked these, and answer them.
            cpis => {
                assert!([", argument", ", answer"].iter().any(|part| cpis.contains(part)), "nobody looks at '{cpis}'")
            }
        }
    }
}
