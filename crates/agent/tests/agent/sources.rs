//! Settings from elsewhere than a file: metadata services, config drives, registries.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use base64::Engine;
use serde_json::{Value, json};
use windlass_contract::DiskCid;

use crate::machine::{Machine, base64_of};

/// What a server heard: the first line of a request, and its headers.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// A small web server: answers requests with the documents it has, for as long as the test runs.
struct Server {
    address: SocketAddr,
    heard: Heard,
    documents: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Server {
    fn new(documents: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, documents): (Heard, _) = (Heard::default(), Arc::new(Mutex::new(documents)));
        let (hears, has) = (heard.clone(), documents.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let found = has.lock().unwrap().iter().find(|(start, _)| first.starts_with(start)).cloned();
                let answer = match found {
                    Some((_, body)) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
                    None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                hears.lock().unwrap().push((first, headers.join("\n").to_lowercase()));
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        Self { address, heard, documents }
    }

    fn replace(&self, document: (&'static str, String)) {
        *self.documents.lock().unwrap() = vec![document];
    }

    fn heard(&self, start: &str) -> Option<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().find(|(first, _)| first.starts_with(start)).map(|(_, headers)| headers.clone())
    }
}

fn config(sources: Value, more: Value) -> Value {
    let mut settings = json!({ "Sources": sources });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    json!({"Infrastructure": {"Settings": settings}})
}

#[tokio::test]
async fn settings_come_from_a_metadata_service_in_base64_and_with_a_token() {
    let mut machine = Machine::new();
    let user_data = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(machine.settings.to_string());
    let server = Server::new(vec![("PUT /latest/api/token ", "token-1".into()), ("GET /latest/user-data ", user_data)]);
    let http = json!({"Type": "HTTP", "URI": format!("http://{}", server.address), "UserDataPath": "/latest/user-data",
        "TokenPath": "/latest/api/token", "Headers": {"Metadata-Flavor": "Test"}});
    // The drive is not there, so the next source is asked.
    let drive = json!({"Type": "ConfigDrive", "DiskPaths": ["/nonexistent"], "UserDataPath": "user-data"});
    machine.config = Some(config(json!([drive, http]), json!({})));
    machine.start().await;
    let headers = server.heard("GET /latest/user-data").unwrap();
    assert!(headers.contains("x-aws-ec2-metadata-token: token-1"), "{headers}");
    assert!(headers.contains("metadata-flavor: test"), "{headers}");
    assert!(server.heard("GET /instances").is_none(), "settings in full need no registry");
}

#[tokio::test]
async fn settings_come_from_instance_metadata_or_a_config_drive() {
    let mut machine = Machine::new();
    let server = Server::new(vec![("GET /computeMetadata/settings ", machine.settings.to_string())]);
    let metadata = json!({"Type": "InstanceMetadata", "URI": format!("http://{}", server.address),
        "SettingsPath": "/computeMetadata/settings"});
    machine.config = Some(config(json!([metadata]), json!({})));
    machine.start().await;
    machine.kill();

    let drive = machine.folder.path().join("drive/ec2/latest");
    std::fs::create_dir_all(&drive).unwrap();
    std::fs::write(drive.join("user-data"), machine.settings.to_string()).unwrap();
    std::fs::remove_dir_all(machine.base()).unwrap();
    let drive = json!({"Type": "ConfigDrive", "DiskPaths": [machine.folder.path().join("drive")],
        "UserDataPath": "ec2/latest/user-data"});
    machine.config = Some(config(json!([drive]), json!({})));
    machine.start().await;
}

#[tokio::test]
async fn an_old_stemcell_finds_its_settings_and_its_disks_in_the_registry() {
    let mut machine = Machine::new();
    let envelope = |settings: &Value| json!({"status": "ok", "settings": settings.to_string()}).to_string();
    let registry = Server::new(vec![("GET /instances/vm-1/settings ", envelope(&machine.settings))]);
    let full = machine.settings.clone();
    machine.settings = json!({"registry": {"endpoint": format!("http://vm-1:s%3Acret@{}", registry.address)},
        "server": {"name": "vm-1"}, "dns": {}, "networks": full["networks"]});
    let file = json!({"Type": "File", "SettingsPath": machine.folder.path().join("settings.json")});
    let mut old = config(json!([file]), json!({"UseRegistry": true, "UseServerName": true}));
    old["ApiVersion"] = json!(1);
    machine.config = Some(old);
    machine.start().await;
    let headers = registry.heard("GET /instances/vm-1/settings").unwrap();
    assert!(
        headers.contains(&format!("authorization: basic {}", base64_of("vm-1:s:cret")).to_lowercase()),
        "{headers}"
    );

    let director = machine.director();
    let (cid, hint) = machine.disk("disk-1");
    for method in ["add_persistent_disk", "update_persistent_disk", "remove_persistent_disk"] {
        let error = director.call(method, vec![json!(cid), json!(hint)]).await.unwrap_err();
        assert!(
            error.is_unknown_message() && error.to_string().contains(&format!("unknown message {method}")),
            "{error}"
        );
    }
    let unknown = director.mount_disk(&cid, Some(&hint)).await.unwrap_err().to_string();
    assert!(unknown.contains("Persistent disk with volume id 'disk-1' could not be found"), "{unknown}");
    // What the CPI does when it attaches a disk.
    let mut attached = full.clone();
    attached["disks"]["persistent"] = json!({"disk-1": hint});
    registry.replace(("GET /instances/vm-1/settings ", envelope(&attached)));
    director.mount_disk(&cid, None).await.unwrap();
    assert_eq!(director.list_disk().await.unwrap(), [DiskCid::new("disk-1").unwrap()]);
    assert!(!machine.console().contains("cret"));
}

#[tokio::test]
async fn without_a_registry_or_settings_the_agent_says_what_is_missing() {
    let mut machine = Machine::new();
    machine.settings = json!({"registry": {"endpoint": "http://u:hunter2@127.0.0.1:1"}, "server": {"name": "vm-1"}});
    machine.spawn();
    assert_eq!(machine.ended().await.code(), Some(1));
    let console = machine.console();
    assert!(console.contains("Metadata does not provide settings") && !console.contains("hunter2"), "{console}");
}
