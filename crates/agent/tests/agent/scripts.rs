//! Scripts of jobs that are on the disk.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::machine::{Machine, exception};

impl Machine {
    fn script(&self, job: &str, name: &str, text: &str) {
        let bin = self.base().join("jobs").join(job).join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.base().join(path)).unwrap_or_default()
    }
}

#[tokio::test]
async fn scripts_run_with_the_callers_environment_and_failures_name_the_jobs() {
    let machine = Machine::started_without_client_certificates().await;
    machine.script("a", "pre-stop", "echo \"$BOSH_VM_NEXT_STATE\"");
    machine.script("b", "pre-stop", "echo no >&2; exit 1");
    let options = json!({"env": {"BOSH_VM_NEXT_STATE": "delete"}});
    let reply = machine.task(json!({"method": "run_script", "arguments": ["pre-stop", options]})).await;
    let failed = "1 of 2 pre-stop scripts failed. Failed Jobs: b. Successful Jobs: a.";
    assert!(exception(&reply).ends_with(failed), "{reply}");
    assert_eq!(machine.read("sys/log/a/pre-stop.stdout.log"), "delete\n");
    assert_eq!(machine.read("data/sys/log/b/pre-stop.stderr.log"), "no\n");
    let reply = machine.task(json!({"method": "run_script", "arguments": ["post-stop", {}]})).await;
    assert_eq!(reply["value"], json!({}));
    let outside = machine.task(json!({"method": "run_script", "arguments": ["../../../x", {}]})).await;
    assert!(exception(&outside).contains("cannot name a script"), "{outside}");
}

#[tokio::test]
async fn a_drain_script_is_asked_until_its_job_is_done() {
    let machine = Machine::started_without_client_certificates().await;
    let calls = machine.base().join("calls");
    let record = format!(
        "echo \"$* $BOSH_JOB_STATE ${{BOSH_JOB_NEXT_STATE:-none}}\" >> {}; [ $1 = job_check_status ] && echo 0 || echo -1; exit 9",
        calls.display()
    );
    machine.script("a", "drain", &record);
    let next = json!({"persistent_disk": 7, "packages": {"p": {"sha1": "x"}}});
    let reply = machine.task(json!({"method": "drain", "arguments": ["update", next]})).await;
    assert_eq!(reply["value"], 0, "{reply}");
    let (now, later) = (r#"{"persistent_disk":0}"#, r#"{"persistent_disk":7}"#);
    let expected = format!("job_new hash_new p {now} {later}\njob_check_status hash_unchanged {now} none\n");
    assert_eq!(machine.read("calls"), expected);

    machine.script("b", "drain", "echo soon");
    let reply = machine.task(json!({"method": "drain", "arguments": ["shutdown"]})).await;
    let failed = "1 of 2 drain scripts failed. Failed Jobs: b. Successful Jobs: a.";
    assert!(exception(&reply).ends_with(failed), "{reply}");
    assert!(machine.read("calls").contains("job_shutdown hash_unchanged"));
    assert!(machine.console().contains("Script did not return a signed integer"));
}

#[tokio::test]
async fn a_drain_that_waits_can_be_cancelled_and_the_next_one_is_not() {
    let machine = Machine::started_without_client_certificates().await;
    for (job, text) in [("sleeps", "echo 3600"), ("hangs", "trap '' INT; sleep 3600 & wait")] {
        machine.script(job, "drain", text);
        let begun = machine.message(json!({"method": "drain", "arguments": ["shutdown"]})).await;
        let id = begun["value"]["agent_task_id"].clone();
        assert_eq!(machine.message(json!({"method": "ping"})).await["value"], "pong");
        for _ in 0..2 {
            let cancelled = machine.message(json!({"method": "cancel_task", "arguments": [id]})).await;
            assert_eq!(cancelled["value"], "canceled");
        }
        let reply = machine.task_end(id).await;
        assert!(exception(&reply).ends_with(&format!("1 of 1 drain scripts failed. Failed Jobs: {job}.")), "{reply}");
        machine.script(job, "drain", "echo 0");
        let next = machine.task(json!({"method": "drain", "arguments": ["shutdown"]})).await;
        assert_eq!(next["value"], 0, "{next}");
        std::fs::remove_dir_all(machine.base().join("jobs").join(job)).unwrap();
    }
    let stop = machine.message(json!({"method": "stop"})).await["value"]["agent_task_id"].clone();
    let reply = machine.message(json!({"method": "cancel_task", "arguments": [stop]})).await;
    assert!(reply["value"] == "canceled" || exception(&reply).ends_with("not supported"), "{reply}");
}
