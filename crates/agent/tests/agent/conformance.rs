//! What callers of the original agent rely on.

use serde_json::{Value, json};

use crate::machine::{Machine, exception};

#[tokio::test]
async fn the_routes_answer_as_the_originals_do() {
    for machine in Machine::started_ours_and_the_original().await {
        let pong = machine.request("POST", "/agent", br#"{"method":"ping"}"#).await;
        assert_eq!((pong.status, pong.body.as_slice()), (200, &br#"{"value":"pong"}"#[..]));
        for (method, path, status) in [
            ("GET", "/agent", 404),
            ("POST", "/agent/", 404),
            ("GET", "/", 404),
            ("GET", "/blobs", 307),
            ("GET", "/blobs/ab/missing", 404),
            ("DELETE", "/blobs/ab/x", 404),
            ("POST", "/blobs/ab/x", 404),
            ("PUT", "/blobs/", 500),
        ] {
            assert_eq!(machine.request(method, path, b"").await.status, status, "{method} {path}");
        }
        for garbage in [&b"garbage"[..], b"", b"[]", br#"{"method":"ping","protocol":"3"}"#, br#"{"method":3}"#] {
            let answer = machine.request("POST", "/agent", garbage).await;
            assert_eq!((answer.status, answer.body.len()), (500, 0), "{}", String::from_utf8_lossy(garbage));
        }
        for headers in ["", "Authorization: Basic ZGlyZWN0b3I6Z3Vlc3M=\r\n", "Authorization: Bearer x\r\n"] {
            let refused = machine.request_with("POST", "/agent", headers, br#"{"method":"ping"}"#).await;
            assert_eq!((refused.status, refused.body.len()), (401, 0), "{headers}");
            assert!(refused.head.contains("www-authenticate: basic realm=\"\""), "{}", refused.head);
        }
    }
}

#[tokio::test]
async fn blobs_are_found_by_the_last_part_of_their_path() {
    for machine in Machine::started_ours_and_the_original().await {
        let blob: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(machine.request("PUT", "/blobs/ab/x", b"old").await.status, 201);
        assert_eq!(machine.request("PUT", "/blobs/ab/x", &blob).await.status, 201);
        let answer = machine.request("GET", "/blobs/cd/x", b"").await;
        assert_eq!(answer.status, 200);
        assert!(answer.content() == blob, "{} bytes, {}", answer.body.len(), answer.head);
    }
}

#[tokio::test]
async fn a_blob_cannot_leave_its_folder() {
    let machine = Machine::started_without_client_certificates().await;
    assert_eq!(machine.request("PUT", "/blobs/ab/%2e%2e", b"out").await.status, 500);
    assert_eq!(machine.request("PUT", "/blobs/ab/x", b"in").await.status, 201);
    let names: Vec<_> = std::fs::read_dir(machine.base().join("data/blobs")).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[tokio::test]
async fn messages_are_answered_in_the_originals_words() {
    for machine in Machine::started_ours_and_the_original().await {
        assert_eq!(exception(&machine.message(json!({"method": "nope"})).await), "unknown message nope");
        for arguments in [json!([1, "two", {}]), json!(null)] {
            let pong = machine.message(json!({"method": "ping", "arguments": arguments})).await;
            assert_eq!(pong, json!({"value": "pong"}));
        }
        assert_eq!(machine.message(json!({"Method": "ping"})).await, json!({"value": "pong"}));
        assert_eq!(machine.message(json!({"method": "info"})).await["value"], json!({"api_version": 1}));
        for (message, words) in [
            (json!({"method": "get_task", "arguments": ["x"]}), "get_task: Task with id x could not be found"),
            (
                json!({"method": "get_task"}),
                "get_task: Extracting method arguments from payload: Not enough arguments, expected 1, got 0",
            ),
            (json!({"method": "cancel_task", "arguments": ["x"]}), "cancel_task: Task with id x could not be found"),
            (json!({"method": "ssh", "arguments": ["zzz", {}]}), "ssh: Unknown command for SSH method"),
            (
                json!({"method": "delete_arp_entries"}),
                "delete_arp_entries: Extracting method arguments from payload: Not enough arguments, expected 1, got 0",
            ),
            (json!({"method": "bundle_logs", "arguments": [{"log_type": "zzz"}]}), "bundle_logs: Invalid log type"),
        ] {
            assert_eq!(exception(&machine.message(message).await), format!("Action Failed {words}"));
        }
    }
}

#[tokio::test]
async fn tasks_end_in_the_originals_words() {
    for machine in Machine::started_ours_and_the_original().await {
        let upload = json!({"blob_id": "b", "checksum": "aa", "payload": "aGVsbG8="});
        for (method, arguments, words) in [
            (
                "mount_disk",
                json!(["x"]),
                "Reading persistent disk settings: Persistent disk with volume id 'x' could not be found",
            ),
            (
                "unmount_disk",
                json!(["x"]),
                "Getting persistent disk settings: Persistent disk with volume id 'x' could not be found",
            ),
            (
                "add_persistent_disk",
                json!(["x"]),
                "Extracting method arguments from payload: Not enough arguments, expected 2, got 1",
            ),
            ("drain", json!(["update"]), "Drain update requires new spec"),
            ("drain", json!(["status"]), "Unexpected call with drain type 'status'"),
            ("fetch_logs", json!(["zzz", []]), "Invalid log type"),
            (
                "upload_blob",
                json!([upload]),
                "Payload corrupted. Checksum mismatch. Expected 'aa': Expected stream to have digest 'aa' but was \
                 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'",
            ),
        ] {
            let reply = machine.task(json!({"method": method, "arguments": arguments})).await;
            let message = exception(&reply);
            assert!(message.starts_with("Action Failed get_task: Task "), "{message}");
            assert!(message.ends_with(&format!(" result: {words}")), "{message}");
        }
        for (method, arguments, value) in [
            ("run_script", json!(["pre-start", {}]), json!({})),
            ("drain", json!(["shutdown"]), json!(0)),
            ("stop", json!([]), json!("stopped")),
            ("remove_persistent_disk", json!(["x"]), json!({})),
            ("update_settings", json!([{"trusted_certs": "", "disk_associations": []}]), json!("ok")),
        ] {
            let reply = machine.task(json!({"method": method, "arguments": arguments, "protocol": 3})).await;
            assert_eq!(reply, json!({"value": value}), "{method}");
        }
    }
}

#[tokio::test]
async fn jobs_of_an_instance_without_jobs_start_stop_and_drain() {
    let machine = Machine::started_without_client_certificates().await;
    let job_state = async || machine.message(json!({"method": "get_state"})).await["value"]["job_state"].clone();
    assert_eq!(job_state().await, "running");
    assert_eq!(machine.task(json!({"method": "stop"})).await["value"], "stopped");
    assert_eq!(job_state().await, "stopped");
    assert_eq!(machine.message(json!({"method": "start"})).await["value"], "started");
    assert_eq!(job_state().await, "running");
    assert_eq!(machine.task(json!({"method": "drain", "arguments": ["shutdown"]})).await["value"], 0);
    assert_eq!(machine.task(json!({"method": "drain", "arguments": ["update", {}]})).await["value"], 0);
    assert_eq!(machine.task(json!({"method": "run_script", "arguments": ["pre-start", {}]})).await["value"], json!({}));
    for (message, cause) in [
        (json!({"method": "drain", "arguments": ["update"]}), "result: Drain update requires new spec"),
        (json!({"method": "drain", "arguments": ["status"]}), "result: Unexpected call with drain type 'status'"),
        (json!({"method": "run_script", "arguments": ["x"]}), "Not enough arguments, expected 2, got 1"),
    ] {
        let reply = machine.task(message).await;
        let message = exception(&reply);
        assert!(message.starts_with("Action Failed get_task: Task ") && message.ends_with(cause), "{message}");
    }
}

#[tokio::test]
async fn a_spec_is_kept_and_its_networks_come_back_as_they_went() {
    let machine = Machine::started_without_client_certificates().await;
    let networks = json!({"default": {"type": "manual", "ip": machine.address, "odd": {"kept": [1, null]}}});
    let spec = json!({"deployment": "shop", "name": "web", "id": "uuid", "az": "z1", "index": 3, "networks": networks,
        "job": {"name": "web", "templates": [{"name": "web", "version": "1", "sha1": "dropped"}]}});
    std::fs::create_dir_all(machine.base().join("jobs/old")).unwrap();
    assert_eq!(machine.task(json!({"method": "apply", "arguments": [spec]})).await["value"], "applied");
    let state = machine.message(json!({"method": "get_state", "arguments": ["full"]})).await["value"].clone();
    assert_eq!((&state["networks"], &state["index"]), (&networks, &json!(3)));
    assert_eq!(state["agent_id"], json!(machine.agent_id));
    assert_eq!(state["vm"], json!({"name": "vm-1"}));
    assert!(state["vitals"]["mem"]["kb"].is_string());
    assert!(machine.base().join("jobs/old").exists(), "without a configuration hash jobs stay untouched");
    assert!(machine.state("spec.json").contains("shop"));
    for (name, content) in [("id", "uuid"), ("az", "z1"), ("name", "web"), ("deployment", "shop")] {
        assert_eq!(std::fs::read_to_string(machine.base().join("instance").join(name)).unwrap(), content);
    }

    let before: Value = serde_json::from_str(&machine.state("spec.json")).unwrap();
    let unknown = machine.task(json!({"method": "apply", "arguments": [{"networks": {"zz": {}}}]})).await;
    assert!(exception(&unknown).ends_with("Network 'zz' is not found in settings"), "{unknown}");
    let jobs = json!({"configuration_hash": "h", "job": {"templates": [{"name": "web", "version": "1"}]},
        "rendered_templates_archive": {"blobstore_id": "b", "sha1": "s"}});
    for method in ["apply", "prepare"] {
        let refused = machine.task(json!({"method": method, "arguments": [jobs]})).await;
        assert!(
            exception(&refused).contains(
                "this VM cannot run jobs, which look for everything below /var/vcap, and the spec asks for the jobs web"
            ),
            "{refused}"
        );
    }
    assert_eq!(serde_json::from_str::<Value>(&machine.state("spec.json")).unwrap(), before);
}

#[tokio::test]
async fn an_agent_goes_on_where_another_one_stopped() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.kind = ["-P", "dummy", "-M", "dummy"];
    let ours = machine.program.clone();
    let original = std::env::var_os("WINDLASS_ORIGINAL_AGENT").map(Into::into);
    let mut disks = Vec::new();
    for (turn, program) in [Some(ours.clone()), original, Some(ours)].into_iter().flatten().enumerate() {
        machine.program = program;
        machine.start().await;
        let mut listed: Vec<Value> =
            machine.message(json!({"method": "list_disk"})).await["value"].as_array().unwrap().clone();
        listed.sort_by_key(Value::to_string);
        assert_eq!(listed, disks);
        if turn > 0 {
            let state = machine.message(json!({"method": "get_state"})).await["value"].clone();
            assert_eq!((&state["deployment"], &state["index"]), (&json!("shop"), &json!(turn - 1)));
        }
        let disk = json!(format!("disk-{turn}"));
        for (method, arguments) in [
            (
                "add_persistent_disk",
                json!([disk, {"path": "/dev/sdx", "iscsi_settings": {"target": "t", "password": "p"}}]),
            ),
            ("mount_disk", json!([disk])),
            ("migrate_disk", json!([])),
            ("update_settings", json!([{"trusted_certs": "", "disk_associations": [{"name": "n", "cid": disk}]}])),
            ("apply", json!([{"deployment": "shop", "index": turn, "job": {"name": "web"}, "networks": {}}])),
        ] {
            let reply = machine.task(json!({"method": method, "arguments": arguments})).await;
            assert!(reply.get("exception").is_none(), "{method}: {reply}");
        }
        disks.push(disk);
        // The original refuses to boot with more disks than it was given names for.
        if turn > 0 {
            let forgotten = disks.remove(0);
            for method in ["unmount_disk", "remove_persistent_disk"] {
                machine.task(json!({"method": method, "arguments": [forgotten]})).await;
            }
        }
        machine.kill();
    }
}
