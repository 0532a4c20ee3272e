//! What else directors and people ask of an agent: blobs, logs, names, users, files.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::machine::{Machine, base64_of, exception};

/// The SHA-1 of `hello`.
const HELLO: &str = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";

fn unpacked(archive: &[u8]) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if entry.header().entry_type().is_file() {
            found.insert(name, text);
        }
    }
    found
}

#[tokio::test]
async fn an_uploaded_blob_is_kept_if_it_arrived_whole() {
    let machine = Machine::started_without_client_certificates().await;
    let upload = async |checksum: &str, payload: &str, id: &str| {
        let upload = json!({"blob_id": id, "checksum": checksum, "payload": payload});
        machine.task(json!({"method": "upload_blob", "arguments": [upload]})).await
    };
    assert_eq!(upload(HELLO, &base64_of("hello"), "blob-1").await["value"], "blob-1");
    assert_eq!(upload(HELLO, "aGVs\nbG8=\n", "blob-1").await["value"], "blob-1");
    let blob = machine.base().join("data/sensitive_blobs/blob-1");
    assert_eq!(std::fs::read(&blob).unwrap(), b"hello");
    for (reply, cause) in [
        (
            upload("aa", &base64_of("hello"), "b").await,
            format!(
                "Payload corrupted. Checksum mismatch. Expected 'aa': Expected stream to have digest 'aa' but was '{HELLO}'"
            ),
        ),
        (upload(HELLO, "!!", "b").await, "the payload is not valid base64".to_owned()),
        (upload("", "", "b").await, "no digest algorithm found. Supported algorithms: sha1, sha256, sha512".to_owned()),
        (
            upload(HELLO, &base64_of("hello"), "../b").await,
            "'../b' cannot be the id of a blob, because it cannot name a file".to_owned(),
        ),
    ] {
        assert!(exception(&reply).ends_with(&cause), "{reply}");
    }
    assert!(!machine.console().contains("aGVs"));
}

#[tokio::test]
async fn logs_come_as_a_blob_or_as_a_file_that_is_removed_after_use() {
    let machine = Machine::started_without_client_certificates().await;
    for path in ["sys/log/web/web.log", "bosh/log/current"] {
        let path = machine.base().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "line\n").unwrap();
    }
    let fetched = machine.task(json!({"method": "fetch_logs", "arguments": ["job", null]})).await["value"].clone();
    let id = fetched["blobstore_id"].as_str().unwrap();
    assert!(uuid_shaped(id), "{id}");
    assert_eq!(fetched["sha1"].as_str().unwrap().len(), 40);
    let blob = machine.request("GET", &format!("/blobs/ab/{id}"), b"").await;
    assert_eq!(unpacked(&blob.body), BTreeMap::from([("web/web.log".to_owned(), "line\n".to_owned())]));
    let wrong = machine.task(json!({"method": "fetch_logs", "arguments": ["zzz", []]})).await;
    assert!(exception(&wrong).ends_with("result: Invalid log type"), "{wrong}");

    let bundle = json!({"owning_user": "vcap", "log_type": "agent,job", "filters": []});
    let bundled = machine.message(json!({"method": "bundle_logs", "arguments": [bundle]})).await["value"].clone();
    let path = Path::new(bundled["logs_tar_path"].as_str().unwrap());
    assert_eq!(unpacked(&std::fs::read(path).unwrap()).len(), 2);
    assert!(bundled["sha512"].as_str().unwrap().starts_with("sha512:"));
    for _ in 0..2 {
        let removed = machine.message(json!({"method": "remove_file", "arguments": [path]})).await;
        assert_eq!(removed["value"], json!(path));
    }
    assert!(!path.exists());
    let precious = machine.folder.path().join("precious");
    std::fs::write(&precious, "").unwrap();
    let refused = machine.message(json!({"method": "remove_file", "arguments": [precious]})).await;
    assert!(exception(&refused).contains("nothing else is the agent's to remove"), "{refused}");
    assert!(precious.exists());
}

fn uuid_shaped(id: &str) -> bool {
    id.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

#[tokio::test]
async fn names_of_other_instances_arrive_once_and_never_go_back() {
    let machine = Machine::started_without_client_certificates().await;
    let records = br#"{"version": 3, "records": [["10.0.0.1", "a.b"], ["10.0.0.2", "c.d"]], "record_keys": []}"#;
    let digest = "38296bba19a08fd22027b89ecd3c5b75a4152530";
    machine.request("PUT", "/blobs/ab/dns", records).await;
    let sync = async |id: &str, digest: &str, version: Value| {
        machine.message(json!({"method": "sync_dns", "arguments": [id, digest, version]})).await
    };
    let found = exception(&sync("dns", "abc", json!(3)).await).to_owned();
    assert!(found.starts_with("Action Failed sync_dns: getting dns from blobstore: Checking blob 'dns'"), "{found}");
    let mismatch = "version from unpacked dns blob does not match version supplied by director";
    assert!(exception(&sync("dns", digest, json!(4)).await).ends_with(mismatch));
    assert!(exception(&sync("nope", digest, json!(3)).await).contains("there is no such blob"));
    assert!(exception(&sync("dns", digest, json!(-2)).await).contains("Unmarshalling action argument"));
    assert!(!machine.base().join("instance/dns/records.json").exists());
    assert_eq!(sync("dns", digest, json!(3)).await["value"], "synced");
    assert_eq!(std::fs::read(machine.base().join("instance/dns/records.json")).unwrap(), records);
    let hosts = machine.state("etc_hosts");
    assert!(hosts.contains(machine.agent_id.as_str()) && hosts.ends_with("10.0.0.1 a.b\n10.0.0.2 c.d\n"), "{hosts}");
    assert_eq!(sync("gone", "abc", json!(2)).await["value"], "synced", "an older one is not even fetched");
}

#[tokio::test]
async fn people_come_and_go_and_others_stay() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.settings["networks"]["default"]["default"] = json!(["dns", "gateway"]);
    machine.start().await;
    let ssh = async |command: &str, parameters: Value| {
        machine.message(json!({"method": "ssh", "arguments": [command, parameters]})).await
    };
    for user in ["bosh_1", "bosh_2", "operator"] {
        let done = ssh("setup", json!({"user": user, "public_key": "ssh-rsa A\n"})).await;
        assert_eq!((&done["value"]["status"], &done["value"]["ip"]), (&json!("success"), &json!(machine.address)));
    }
    let done = ssh("cleanup", json!({"user_regex": "^(bosh_1|operator)$"})).await;
    assert_eq!(done["value"], json!({"command": "cleanup", "status": "success"}));
    let homes = machine.base().join("bosh_ssh");
    let left = ["bosh_1", "bosh_2", "operator"].map(|user| homes.join(user).exists());
    assert_eq!(left, [false, true, true], "only users whose names start with bosh_ are removed");
    assert_eq!(exception(&ssh("zzz", json!({})).await), "Action Failed ssh: Unknown command for SSH method");
    for user in ["", "../x", "a/b", "-o", ".ssh"] {
        let refused = ssh("setup", json!({"user": user, "public_key": ""})).await;
        assert!(exception(&refused).contains("cannot be the name of a user"), "{refused}");
    }
    assert!(exception(&ssh("cleanup", json!({"user_regex": "("})).await).contains("Compiling regexp"));
}
