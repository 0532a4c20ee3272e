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

impl Machine {
    /// An instance with these jobs, of which the first is the group's.
    async fn with_jobs(&self, jobs: &[&str]) {
        let templates: Vec<_> = jobs.iter().map(|job| json!({"name": job, "version": "1"})).collect();
        let job = json!({"name": "group", "template": jobs.first(), "templates": templates});
        let spec = json!({"job": job, "networks": {}, "id": "i"});
        let reply = self.task(json!({"method": "apply", "arguments": [spec]})).await;
        assert_eq!(reply["value"], "applied", "{reply}");
    }

    async fn errand(&self, arguments: serde_json::Value) -> serde_json::Value {
        self.task(json!({"method": "run_errand", "arguments": arguments, "protocol": 3})).await
    }
}

#[tokio::test]
async fn an_errand_tells_what_it_said_and_how_it_ended() {
    for machine in Machine::started_ours_and_the_original().await {
        machine.with_jobs(&["smoke", "other", "lost"]).await;
        machine.script("smoke", "run", "echo \"smoke out\"; echo \"smoke err\" >&2; exit 3");
        machine.script("other", "run", "echo \"$PATH\"; kill -9 $$");
        let smoke = json!({"stdout": "smoke out\n", "stderr": "smoke err\n", "exit_code": 3});
        assert_eq!(machine.errand(json!(["smoke"])).await["value"], smoke);
        assert_eq!(machine.errand(json!([])).await["value"], smoke, "by the name of the group");
        let other = machine.errand(json!(["other"])).await["value"].clone();
        assert_eq!((&other["exit_code"], &other["stdout"]), (&json!(137), &json!("/usr/sbin:/usr/bin:/sbin:/bin\n")));
        let unknown = machine.errand(json!(["nobody"])).await;
        assert!(exception(&unknown).ends_with(": Could not find errand nobody"), "{unknown}");
        let lost = machine.errand(json!(["lost"])).await;
        assert!(exception(&lost).contains(": Running errand script: "), "{lost}");
        machine.with_jobs(&[]).await;
        let none = machine.errand(json!([])).await;
        let words = ": At least one job template is required to run an errand";
        assert!(exception(&none).ends_with(words), "{none}");
    }
}

#[tokio::test]
async fn an_errand_that_is_cancelled_ends_with_all_it_started_and_the_next_one_runs() {
    for machine in Machine::started_ours_and_the_original().await {
        let is_ours = machine.kind[3] == "monit";
        let pids = machine.base().join("pids");
        machine.with_jobs(&["hangs"]).await;
        machine.script(
            "hangs",
            "run",
            &format!("trap 'echo asked; exit 7' TERM; (trap '' TERM; echo $$ >&2; exec sleep 3600 2>&-) & echo $! > {0}.new; echo begun; mv {0}.new {0}; wait", pids.display()),
        );
        let begun = machine.message(json!({"method": "run_errand", "arguments": ["hangs"]})).await;
        let id = begun["value"]["agent_task_id"].clone();
        while !pids.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(machine.message(json!({"method": "ping"})).await["value"], "pong", "nobody waits for it");
        let running = machine.message(json!({"method": "get_task", "arguments": [id]})).await;
        assert_eq!(running["value"], begun["value"]);
        let cancelled = machine.message(json!({"method": "cancel_task", "arguments": [id]})).await;
        assert_eq!(cancelled["value"], "canceled");
        let result = machine.task_end(id).await["value"].clone();
        assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(7), &json!("begun\nasked\n")), "{result}");
        let left = std::fs::read_to_string(&pids).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.trim())).unwrap_or_default();
        // The original leaves what does not listen.
        assert!(stat.is_empty() || stat.contains(") Z ") || !is_ours, "{stat}");
        if !stat.is_empty()
            && let Some(pid) = rustix::process::Pid::from_raw(left.trim().parse().unwrap())
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        machine.script("hangs", "run", "exit 0");
        assert_eq!(machine.errand(json!(["hangs"])).await["value"]["exit_code"], 0);
    }
}

#[tokio::test]
async fn scripts_that_hang_can_be_cancelled_also_before_they_begin() {
    let machine = Machine::started_without_client_certificates().await;
    machine.script("a", "pre-start", "sleep 3600");
    let begin = async |method: &str, arguments: serde_json::Value| {
        let begun = machine.message(json!({"method": method, "arguments": arguments})).await;
        begun["value"]["agent_task_id"].clone()
    };
    let first = begin("run_script", json!(["pre-start", {}])).await;
    let second = begin("run_script", json!(["pre-start", {}])).await;
    for id in [&second, &first] {
        let reply = machine.message(json!({"method": "cancel_task", "arguments": [id]})).await;
        assert_eq!(reply["value"], "canceled", "{reply}");
    }
    for id in [first, second] {
        let reply = machine.task_end(id).await;
        assert!(exception(&reply).ends_with("1 of 1 pre-start scripts failed. Failed Jobs: a."), "{reply}");
    }
    assert!(machine.console().contains("Script was cancelled by user request"));
}

/// What it started may be in a session of its own.
#[tokio::test]
async fn a_drain_that_hangs_ends_with_all_it_started_when_it_is_cancelled() {
    let machine = Machine::started_without_client_certificates().await;
    let pids = machine.base().join("pids");
    let hangs = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.1; done' &\nwait",
        pids.display()
    );
    machine.script("a", "drain", &hangs);
    let begun = machine.message(json!({"method": "drain", "arguments": ["shutdown"]})).await;
    let id = begun["value"]["agent_task_id"].clone();
    while !pids.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let cancelled = machine.message(json!({"method": "cancel_task", "arguments": [id]})).await;
    assert_eq!(cancelled["value"], "canceled");
    let reply = machine.task_end(id).await;
    assert!(exception(&reply).contains("Failed Jobs: a."), "{reply}");
    let left = std::fs::read_to_string(&pids).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[tokio::test]
async fn scripts_that_print_without_end_or_leave_processes_cost_an_agent_no_memory_and_no_time() {
    let machine = Machine::started_without_client_certificates().await;
    machine.with_jobs(&["loud"]).await;
    machine.script(
        "loud",
        "run",
        "echo first; head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; echo last; sleep 60 & ",
    );
    let result = machine.errand(json!(["loud"])).await["value"].clone();
    let stdout = result["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("first\n") && stdout.ends_with("last\n") && stdout.contains("...[truncated]..."));
    assert!(result.to_string().len() < 1 << 20, "callers take one MiB");
    machine.script("loud", "drain", "head -c 50000000 /dev/zero");
    let reply = machine.task(json!({"method": "drain", "arguments": ["shutdown"]})).await;
    assert!(exception(&reply).contains("1 of 1 drain scripts failed"), "{reply}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", machine.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(peak.parse::<u64>().unwrap() < 64 * 1024, "{peak} KiB");
}

#[tokio::test]
async fn a_script_whose_agent_was_killed_is_waited_for_and_not_run_beside_itself() {
    let mut machine = Machine::started_without_client_certificates().await;
    machine.with_jobs(&["slow"]).await;
    let log = machine.base().join("order");
    let text = format!("echo begin >> {0}; while [ ! -e {0}.go ]; do sleep 0.02; done; echo end >> {0}", log.display());
    machine.script("slow", "run", &text);
    machine.message(json!({"method": "run_errand", "arguments": ["slow"]})).await;
    while !log.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    machine.kill();
    machine.start().await;
    let second = machine.message(json!({"method": "run_errand", "arguments": ["slow"]})).await;
    machine.console_says("a script of the agent before this one may run").await;
    assert_eq!(machine.read("order"), "begin\n");
    std::fs::write(machine.base().join("order.go"), "").unwrap();
    let result = machine.task_end(second["value"]["agent_task_id"].clone()).await;
    assert_eq!(result["value"]["exit_code"], 0, "{result}");
    assert_eq!(machine.read("order"), "begin\nend\nbegin\nend\n");
    assert_eq!(std::fs::read_dir(machine.base().join("bosh/scripts")).unwrap().count(), 0);
}
