//! An agent that ends and comes back.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_agent_client::{Deadlines, Outcome};
use windlass_contract::agent::UpdateSettings;

use crate::machine::{Machine, PATIENCE};

fn update(value: Value) -> UpdateSettings {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn new_certificates_arrive_by_a_restart_that_the_caller_hardly_notices() {
    let mut machine = Machine::started().await;
    let director = machine.director();
    let (cid, hint) = machine.disk("disk-1");
    director.add_and_mount_disk(&cid, &hint).await.unwrap();
    let plain = json!({"trusted_certs": "", "disk_associations": [{"name": "data", "cid": "disk-1"}]});
    assert_eq!(director.update_settings(&update(plain)).await.unwrap(), Outcome::Done);
    assert!(machine.base().join("instance/disks/data").exists());
    let pid = machine.pid();

    let issued = machine.ca.server(&machine.agent_id.dns_name());
    let cert = json!({"ca": machine.ca.pem, "certificate": issued.certificate, "private_key": issued.key});
    let rotation = update(json!({"mbus": {"cert": cert}}));
    let rotating = tokio::spawn({
        let (director, rotation) = (director.clone(), rotation.clone());
        async move { director.update_settings(&rotation).await }
    });
    assert_eq!(machine.ended().await.code(), Some(0));
    assert!(machine.state("tasks.json").contains("update_settings"));
    machine.start().await;
    assert_eq!(rotating.await.unwrap().unwrap(), Outcome::Done);
    assert_ne!(machine.pid(), pid);
    assert!(machine.state("update_settings.json").contains(&issued.certificate[40..80]));
    assert!(machine.base().join("store").exists());

    // The same again changes nothing, so the agent stays.
    assert_eq!(director.update_settings(&rotation).await.unwrap(), Outcome::Done);
    let deadline = std::time::Instant::now() + PATIENCE;
    while machine.state("tasks.json").trim() != "{}" {
        assert!(std::time::Instant::now() < deadline, "{}", machine.state("tasks.json"));
    }
    director.ping().await.unwrap();
}

#[tokio::test]
async fn settings_that_would_lock_everybody_out_are_refused() {
    let machine = Machine::started().await;
    let director = machine.director();
    let key = machine.ca.server("other").key;
    for (mbus, cause) in [
        (json!({"urls": ["nats://u:p@127.0.0.1:4222"]}), "https only"),
        (json!({"cert": {"ca": machine.ca.pem, "certificate": "no PEM", "private_key": key}}), "certificate"),
    ] {
        let error = director.update_settings(&update(json!({ "mbus": mbus }))).await.unwrap_err().to_string();
        assert!(error.contains("nothing was changed") && error.contains(cause), "{error}");
        assert!(!error.contains("PRIVATE KEY"));
    }
    let unknown = json!({"disk_associations": [{"name": "data", "cid": "nope"}]});
    let error = director.update_settings(&update(unknown)).await.unwrap_err().to_string();
    assert!(
        error.contains("Fetching disk settings: Persistent disk with volume id 'nope' could not be found"),
        "{error}"
    );
    assert!(!machine.base().join("bosh/update_settings.json").exists());
    director.ping().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_update_is_done_after_the_restart() {
    let mut machine = Machine::started().await;
    machine.kill();
    // As a kill just after the task was written down leaves it.
    let request = json!({"method": "update_settings", "arguments": [{"trusted_certs": "new"}], "reply_to": "x"});
    let payload = crate::machine::base64_of(&request.to_string());
    let id = "2da3be69-3c1d-411b-7c79-9b81051db0c5";
    let tasks = json!({id: {"TaskID": id, "Method": "update_settings", "Payload": payload},
        "odd": {"TaskID": "odd", "Method": "elsewhere", "Payload": "!"}});
    std::fs::write(machine.base().join("bosh/tasks.json"), tasks.to_string()).unwrap();
    machine.start().await;
    let director = machine.director();
    let deadline = std::time::Instant::now() + PATIENCE;
    while director.call("get_task", vec![json!(id)]).await.unwrap() != "ok" {
        assert!(std::time::Instant::now() < deadline, "the task does not end");
    }
    assert!(machine.state("update_settings.json").contains("new"));
    while machine.state("tasks.json").trim() != "{}" {
        assert!(std::time::Instant::now() < deadline, "{}", machine.state("tasks.json"));
    }
}

#[tokio::test]
async fn a_task_lost_in_a_restart_is_told_and_an_agent_that_stays_away_too() {
    let mut machine = Machine::started().await;
    let impatient = Deadlines { silence: Duration::from_millis(300), ..Deadlines::default() };
    let director = machine.director().with_deadlines(impatient);
    let error = director.call("get_task", vec![json!("lost")]).await.unwrap_err().to_string();
    assert!(error.contains("Task with id lost could not be found"), "{error}");
    machine.kill();
    let error = director.stop().await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached (last stage: VM created)"), "{error}");
}

#[tokio::test]
async fn shutdown_and_signals_end_the_agent_and_say_whether_it_shall_come_back() {
    let mut machine = Machine::started().await;
    machine.director().shutdown().await.unwrap();
    assert_eq!(machine.ended().await.code(), Some(i32::from(windlass_contract::agent::POWERED_OFF)));

    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        machine.start().await;
        let pid = rustix::process::Pid::from_raw(machine.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(machine.ended().await.code(), Some(1));
    }
}

#[tokio::test]
async fn an_agent_that_cannot_start_says_why() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"]["cert"]["private_key"] = json!("");
    machine.spawn();
    assert_eq!(machine.ended().await.code(), Some(1));
    assert!(machine.console().contains("Loading configured tls certificate"), "{}", machine.console());

    let mut first = Machine::started().await;
    let taken = first.settings["env"]["bosh"]["mbus"]["urls"].clone();
    let mut second = Machine::new();
    second.settings["env"]["bosh"]["mbus"]["urls"] = taken;
    second.spawn();
    assert_eq!(second.ended().await.code(), Some(1));
    assert!(second.console().contains("cannot listen on"), "{}", second.console());
    first.kill();
}
