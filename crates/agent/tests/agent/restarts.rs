//! An agent that ends and comes back.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_agent_client::{Deadlines, Outcome};
use windlass_contract::agent::UpdateSettings;

use crate::machine::{Ca, Machine, PATIENCE};

fn update(value: Value) -> UpdateSettings {
    serde_json::from_value(value).unwrap()
}

/// A drain script that waits until the test lets it go on, and the gate that does so.
fn waiting_drain(machine: &Machine) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (bin, gate) = (machine.base().join("jobs/web/bin"), machine.folder.path().join("gate"));
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\nwhile [ ! -e '{}' ]; do sleep 0.01; done\necho 0\n", gate.display());
    std::fs::write(bin.join("drain"), script).unwrap();
    std::fs::set_permissions(bin.join("drain"), std::fs::Permissions::from_mode(0o755)).unwrap();
    gate
}

/// The certificate that the agent shows now.
async fn shown_certificate(machine: &Machine, ca_pem: &str) -> String {
    let stream = machine.connect_trusting(ca_pem).await;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, shown)
}

#[tokio::test]
async fn new_certificates_arrive_without_losing_a_task_or_a_connection() {
    let mut machine = Machine::started_without_client_certificates().await;
    let pid = machine.pid();
    let (cid, hint) = machine.disk("disk-1");
    machine.director().add_and_mount_disk(&cid, &hint).await.unwrap();
    let mut open = machine.connect().await;
    let gate = waiting_drain(&machine);

    let next_ca = Ca::new();
    let issued = next_ca.server(&machine.agent_id.dns_name());
    let cert = json!({"ca": next_ca.pem, "certificate": issued.certificate, "private_key": issued.key});
    let rotation = json!({"mbus": {"cert": cert}, "disk_associations": [{"name": "data", "cid": "disk-1"}],
        "blobstores": [{"provider": "local", "options": {"blobstore_path": "/var/vcap/micro_bosh/data/cache"}}]});
    // One task runs, the rotation waits for it, and another waits for the rotation.
    let mut ids = Vec::new();
    for (method, arguments) in
        [("drain", json!(["shutdown"])), ("update_settings", json!([rotation])), ("stop", json!([]))]
    {
        let message = json!({"method": method, "arguments": arguments});
        let reply = machine.message_over(&mut open, message).await;
        assert_eq!(reply["value"]["state"], "running", "{reply}");
        ids.push(reply["value"]["agent_task_id"].clone());
    }
    assert!(!machine.base().join("bosh/update_settings.json").exists());
    std::fs::write(gate, "").unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    for (id, result) in ids.into_iter().zip([json!(0), json!("ok"), json!("stopped")]) {
        loop {
            let get_task = json!({"method": "get_task", "arguments": [id]});
            let reply = machine.message_over(&mut open, get_task).await;
            assert!(reply.get("exception").is_none(), "{reply}");
            if reply["value"] == result {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{id} does not end: {reply}");
        }
    }

    let body: String = issued.certificate.lines().filter(|line| !line.starts_with("-----")).collect();
    assert_eq!(shown_certificate(&machine, &next_ca.pem).await, body);
    assert!(machine.is_running() && machine.pid() == pid, "{}", machine.console());
    assert_eq!(machine.message_over(&mut open, json!({"method": "ping"})).await["value"], "pong");
    assert!(machine.base().join("instance/disks/data").exists() && machine.base().join("store").exists());

    // A restart later comes up with the same.
    machine.kill();
    machine.ca = next_ca;
    machine.start().await;
    assert_eq!(machine.state("tasks.json").trim(), "{}");
}

#[tokio::test]
async fn a_new_ca_is_demanded_from_the_next_caller_on() {
    let machine = Machine::started().await;
    let director = machine.director();
    let next_ca = Ca::new();
    let issued = next_ca.server(&machine.agent_id.dns_name());
    let cert = json!({"ca": next_ca.pem, "certificate": issued.certificate, "private_key": issued.key});
    // The caller polls over the connection that it has.
    assert_eq!(director.update_settings(&update(json!({"mbus": {"cert": cert}}))).await.unwrap(), Outcome::Done);
    let agent = |tls| windlass_agent_client::AgentClient::new(tls).unwrap().agent(machine.endpoint());
    agent(next_ca.client("director.bosh-internal")).ping().await.unwrap();
    let stale =
        windlass_agent_client::ClientTls { ca_pem: next_ca.pem.clone(), ..machine.ca.client("director.bosh-internal") };
    let error = agent(stale).ping().await.unwrap_err();
    assert_eq!(error.stage(), windlass_agent_client::Stage::AddressAnswers, "{error}");
}

#[tokio::test]
async fn a_new_address_is_taken_by_a_restart_and_the_task_goes_on() {
    let mut machine = Machine::started_without_client_certificates().await;
    let port = std::net::TcpListener::bind((machine.address, 0)).unwrap().local_addr().unwrap().port();
    let url = format!("https://director:p%40ss%3Aword@{}:{port}", machine.address);
    let update = json!({"mbus": {"urls": [url]}});
    let reply = machine.message(json!({"method": "update_settings", "arguments": [update]})).await;
    let id = reply["value"]["agent_task_id"].clone();
    assert_eq!(machine.ended().await.code(), Some(0));
    assert!(machine.state("tasks.json").contains("update_settings"));
    machine.port = port;
    machine.start().await;
    let director = machine.director();
    let deadline = std::time::Instant::now() + PATIENCE;
    while director.call("get_task", vec![id.clone()]).await.unwrap() != "ok" {
        assert!(std::time::Instant::now() < deadline, "the task does not end");
    }
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
