//! Settings from elsewhere than a file: metadata services, config drives, CD-ROMs, registries.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine;
use serde_json::{Value, json};
use windlass_contract::DiskCid;

use crate::machine::{Machine, base64_of};

/// What a server heard: the first line of a request, and its headers.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

/// A small web server: answers requests with the documents it has, for as long as the test runs.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heard: Heard,
    documents: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl Server {
    pub(crate) fn new(documents: Vec<(&'static str, String)>) -> Self {
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

    pub(crate) fn heard(&self, start: &str) -> Option<String> {
        let heard = self.heard.lock().unwrap();
        heard.iter().find(|(first, _)| first.starts_with(start)).map(|(_, headers)| headers.clone())
    }
}

pub(crate) fn config(sources: Value, more: Value) -> Value {
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

/// A device made of an image, for as long as the test runs; none for a user who may not make devices.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(image: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("without root, images stand for the devices that they would be on");
            return None;
        }
        let made = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Some(Self(String::from_utf8(made.stdout).unwrap().trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {done:?}");
}

#[tokio::test]
async fn settings_come_from_a_cdrom() {
    let mut machine = Machine::new();
    let (folder, image) = (machine.folder.path().join("disc"), machine.folder.path().join("env.iso"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("env"), machine.settings.to_string()).unwrap();
    // As the CPIs make it: short names only.
    run(Command::new("genisoimage").args(["-quiet", "-o"]).arg(&image).arg(&folder));
    let device = LoopDevice::new(&image);
    let drive = device.as_ref().map_or(&image, |device| &device.0);
    machine.config = Some(config(json!([{"Type": "CDROM", "FileName": "env", "DevicePath": drive}]), json!({})));
    machine.start().await;
    machine.kill();
    // Without the disc, the cache has the settings.
    machine.config =
        Some(config(json!([{"Type": "CDROM", "FileName": "env", "DevicePath": "/nonexistent/sr0"}]), json!({})));
    machine.start().await;
    assert!(machine.console().contains("/nonexistent/sr0 cannot be read"), "{}", machine.console());
}

#[tokio::test]
async fn settings_and_keys_come_from_a_labelled_device() {
    let mut machine = Machine::new();
    let folder = machine.folder.path().join("drive");
    std::fs::create_dir_all(folder.join("ec2/latest")).unwrap();
    std::fs::write(folder.join("ec2/latest/user-data"), machine.settings.to_string()).unwrap();
    let meta_data = json!({"instance-id": "i-1", "public-keys": {"0": {"openssh-key": "ssh-rsa cloud"}}});
    std::fs::write(folder.join("ec2/latest/meta-data.json"), meta_data.to_string()).unwrap();
    let (iso, ext4) = (machine.folder.path().join("drive.iso"), machine.folder.path().join("drive.ext4"));
    run(Command::new("genisoimage").args(["-quiet", "-J", "-r", "-V", "config-2", "-o"]).arg(&iso).arg(&folder));
    std::fs::File::create(&ext4).unwrap().set_len(4 << 20).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-L", "config-2", "-d"]).arg(&folder).arg(&ext4));
    let label = machine.folder.path().join("by-label/config-2");
    std::fs::create_dir(label.parent().unwrap()).unwrap();
    for image in [&iso, &ext4] {
        let device = LoopDevice::new(image);
        // What the kernel must mount takes a device.
        if device.is_none() && image == &ext4 {
            continue;
        }
        let _ = std::fs::remove_file(&label);
        std::os::unix::fs::symlink(device.as_ref().map_or(image, |device| &device.0), &label).unwrap();
        let drive = json!({"Type": "ConfigDrive", "DiskPaths": ["/nonexistent/CONFIG-2", label],
            "MetaDataPath": "ec2/latest/meta-data.json", "UserDataPath": "ec2/latest/user-data"});
        machine.config = Some(config(json!([drive]), json!({})));
        let _ = std::fs::remove_dir_all(machine.base());
        machine.start().await;
        assert_eq!(authorized_keys(&machine), "ssh-rsa cloud", "{}", image.display());
        machine.kill();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(device.is_none_or(|device| !mounts.contains(device.0.to_str().unwrap())), "nothing stays mounted");
    }
}

fn authorized_keys(machine: &Machine) -> String {
    std::fs::read_to_string(machine.base().join("bosh_ssh/vcap/.ssh/authorized_keys")).unwrap()
}

#[tokio::test]
async fn people_with_keys_of_the_settings_and_of_the_cloud_may_come() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["authorized_keys"] = json!(["ssh-rsa operator", "ssh-rsa other"]);
    let server = Server::new(vec![
        ("GET /latest/user-data ", machine.settings.to_string()),
        ("GET /latest/key ", "ssh-rsa cloud\n".into()),
    ]);
    let http = json!({"Type": "HTTP", "URI": format!("http://{}", server.address), "UserDataPath": "/latest/user-data",
        "SSHKeysPath": "/latest/key"});
    machine.config = Some(config(json!([http]), json!({})));
    machine.start().await;
    assert_eq!(authorized_keys(&machine), "ssh-rsa operator\nssh-rsa other\nssh-rsa cloud");
    assert_eq!(machine.state("etc_hostname"), machine.agent_id.as_str());
    machine.kill();

    // A cloud without a key says 404, which neither takes long nor takes a key away that others have.
    server.replace(("GET /latest/user-data ", machine.settings.to_string()));
    machine.start().await;
    assert_eq!(authorized_keys(&machine), "ssh-rsa operator\nssh-rsa other");
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

/// What an agent is given by CPIs that are written with the libraries of BOSH. What differs from VM to VM is put in by the test: the
/// agent's id, and how it is reached.
fn settings_of_others() -> Vec<(&'static str, Value)> {
    let mbus = json!("https://mbus:mbus-password@0.0.0.0:6868");
    let manual = json!({"type": "manual", "netmask": "255.255.255.0", "gateway": "10.230.13.1", "ip": "10.230.13.6",
        "default": ["dns", "gateway"], "cloud_properties": {"net_id": "d29fdb0d-44d8-4e04-818d-5b03888f8eaa"}});
    vec![
        (
            "bosh-cpi-go, a VM without disks and with an empty env",
            json!({"agent_id": "a", "vm": {"name": "vm-1", "id": "vm-1"}, "mbus": mbus, "ntp": null,
                "blobstore": {"provider": "", "options": null},
                "networks": {"default": {"type": "manual", "ip": "10.0.0.5", "netmask": "255.255.255.0", "gateway": "10.0.0.1",
                    "dns": null, "default": null, "routes": null, "mac": "", "preconfigured": false}},
                "disks": {"system": null, "ephemeral": null, "persistent": null}, "env": null}),
        ),
        (
            "bosh-cpi-go, everything",
            json!({"agent_id": "a", "vm": {"name": "vm-1", "id": "vm-1"}, "mbus": mbus, "ntp": ["0.pool.ntp.org"],
                "networks": {"default": {"type": "manual", "ip": "10.0.0.5", "netmask": "255.255.255.0", "gateway": "10.0.0.1",
                    "dns": ["10.0.0.2"], "default": ["dns"], "mac": "52:54:00:00:00:01", "preconfigured": true, "alias": "eth0:1",
                    "routes": [{"Netmask": "255.255.0.0", "Gateway": "10.0.0.1", "Destination": "10.0.0.0"}]}},
                "disks": {"system": "0", "ephemeral": "/dev/sdb", "persistent": {"disk-1": "/dev/sdc", "disk-2": null}},
                "env": {"fake-env-key": "fake-env-value", "bosh": null}}),
        ),
        (
            "CPIs with bosh-cpi-ruby",
            json!({"vm": {"name": "vm-5a0c"}, "agent_id": "a", "networks": {"default": manual, "spare": null},
                "disks": {"system": "/dev/sda", "ephemeral": "", "persistent": {}},
                "env": {"bosh": {"group": "d-x", "groups": ["d-x"], "mbus": null, "ntp": null, "blobstores": null, "password": null}},
                "mbus": mbus, "blobstore": null, "ntp": []}),
        ),
        (
            "nothing but null",
            json!({"agent_id": "a", "vm": null, "networks": null, "disks": null, "env": null, "mbus": mbus, "ntp": null,
                "blobstore": null}),
        ),
    ]
}

#[tokio::test]
async fn settings_as_other_cpis_write_them_start_an_agent() {
    for (whose, settings) in settings_of_others() {
        let mut machine = Machine::new();
        machine.settings = settings;
        machine.settings["agent_id"] = json!(machine.agent_id);
        machine.settings["mbus"] =
            json!(format!("https://director:p%40ss%3Aword@{}:{}", machine.address, machine.port));
        machine.spawn();
        let certificate = machine.own_certificate().await;
        let reply = machine.message_trusting(&certificate, json!({"method": "ping"})).await;
        assert_eq!(reply["value"], "pong", "{whose}: {}", machine.console());
    }
}

#[tokio::test]
async fn an_agent_without_a_certificate_in_its_settings_makes_one_and_keeps_it() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"].as_object_mut().unwrap().retain(|key, _| key == "urls");
    machine.spawn();
    let certificate = machine.own_certificate().await;
    assert_eq!(machine.message_trusting(&certificate, json!({"method": "ping"})).await["value"], "pong");
    let kept: Value = serde_json::from_str(&machine.state("own_certificate.json")).unwrap();
    let mode = std::fs::metadata(machine.base().join("bosh/own_certificate.json")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    machine.kill();
    machine.spawn();
    assert_eq!(machine.message_trusting(&certificate, json!({"method": "ping"})).await["value"], "pong");
    assert_eq!(serde_json::from_str::<Value>(&machine.state("own_certificate.json")).unwrap(), kept);

    // Whom the settings make it demand a certificate of, it still does.
    machine.kill();
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(true);
    machine.spawn();
    assert_eq!(machine.ended().await.code(), Some(1), "there is no CA to check them with");
    machine.settings["env"]["bosh"]["mbus"]["cert"] = json!({"ca": machine.ca.pem});
    machine.spawn();
    let refused = machine.try_message_trusting(&certificate, json!({"method": "ping"})).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn an_agent_waits_for_settings_that_come_after_it() {
    let mut machine = Machine::new();
    machine.spawn();
    machine.kill();
    let _ = std::fs::remove_dir_all(machine.base());
    let path = machine.folder.path().join("settings.json");
    std::fs::remove_file(&path).unwrap();
    machine.spawn_again();
    machine.console_says("waiting: no settings").await;
    std::fs::write(&path, machine.settings.to_string()).unwrap();
    machine.director().wait_until_ready(crate::machine::PATIENCE).await.unwrap();
}

#[tokio::test]
async fn credentials_beside_the_endpoint_of_a_registry_are_used() {
    for (user_info, expected) in [("", "u:p@ss"), ("vm-1:s%3Acret@", "vm-1:s:cret")] {
        let mut machine = Machine::new();
        let envelope = json!({"status": "ok", "settings": machine.settings.to_string()}).to_string();
        let registry = Server::new(vec![("GET /instances/vm-1/settings ", envelope)]);
        machine.settings = json!({"dns": {}, "networks": {}, "server": {"name": "vm-1"}, "registry":
            {"endpoint": format!("http://{user_info}{}", registry.address), "user": "u", "password": "p@ss"}});
        let file = json!({"Type": "File", "SettingsPath": machine.folder.path().join("settings.json")});
        machine.config = Some(config(json!([file]), json!({"UseRegistry": true, "UseServerName": true})));
        machine.start().await;
        let headers = registry.heard("GET /instances/vm-1/settings").unwrap();
        let authorization = format!("authorization: basic {}", base64_of(expected)).to_lowercase();
        assert!(headers.contains(&authorization), "{headers}");
        assert!(!machine.console().contains("p@ss"));
    }
}
