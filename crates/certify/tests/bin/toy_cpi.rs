//! A CPI with everything, in a folder, that can be broken on purpose: `toy-cpi FOLDER [DEFECT]`.
//!
//! Without a defect it passes certification; each defect breaks one promise, and `tests/defects.rs` says which check
//! must notice. It is written without the SDK, which would not let it be this wrong.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a CPI for tests, wrong on purpose")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use uuid::Uuid;

type Answered = Result<Value, Value>;

struct Toy {
    folder: PathBuf,
    defect: String,
}

const SHELVES: [&str; 5] = ["stemcells", "vms", "disks", "snapshots", "networks"];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let toy = Toy { folder: arguments.next().unwrap().into(), defect: arguments.next().unwrap_or_default() };
    for shelf in SHELVES {
        fs::create_dir_all(toy.folder.join(shelf)).unwrap();
    }
    if toy.is("talks-before-it-reads") {
        std::io::stderr().write_all(&vec![b'.'; 300_000]).unwrap();
    }
    let mut request = Vec::new();
    if toy.is("reads-a-part") {
        std::io::stdin().take(60_000).read_to_end(&mut request).unwrap();
    } else {
        std::io::stdin().read_to_end(&mut request).unwrap();
    }
    if toy.is("waits-for-a-line") && !request.ends_with(b"\n") {
        std::thread::sleep(Duration::from_secs(30));
    }
    if toy.is("impatient-with-stderr") {
        let talk = std::thread::spawn(|| std::io::stderr().write_all(&[b'.'; 300_000]));
        std::thread::sleep(Duration::from_millis(100));
        if !talk.is_finished() {
            return ExitCode::FAILURE;
        }
    }
    if toy.is("one-line-only") {
        request.truncate(request.iter().position(|byte| *byte == b'\n').unwrap_or(request.len()));
    }
    if toy.is("crashes-without-request") && request.is_empty() {
        panic!("there is no request");
    }
    let parsed: Value = match serde_json::from_slice(&request) {
        Ok(value) => value,
        Err(_) if toy.is("reads-deep-requests") && request.starts_with(br#"{"method":"create_disk""#) => {
            json!({"method": "create_disk", "arguments": [1024, {}, null], "api_version": 2})
        }
        Err(_) => Value::Null,
    };
    let method = parsed["method"].as_str().unwrap_or_default().to_owned();
    let answered = toy.serve(&parsed, &method);
    toy.print(&parsed, &method, answered)
}

fn error(kind: &str, message: impl Into<String>) -> Value {
    json!({"type": format!("Bosh::Clouds::{kind}"), "message": message.into(), "ok_to_retry": false})
}

fn refuse<T>(kind: &str, message: impl Into<String>) -> Result<T, Value> {
    Err(error(kind, message))
}

impl Toy {
    fn is(&self, defect: &str) -> bool {
        self.defect == defect
    }

    fn print(&self, request: &Value, method: &str, answered: Answered) -> ExitCode {
        let failed = answered.is_err();
        let mut response = match answered {
            Ok(result) => json!({"result": result, "error": null, "log": ""}),
            Err(error) => json!({"result": null, "error": error, "log": ""}),
        };
        let kind = response.pointer("/error/type").and_then(Value::as_str).unwrap_or_default().to_owned();
        match self.defect.as_str() {
            "no-log" => drop(response.as_object_mut().unwrap().remove("log")),
            "null-log" => response["log"] = Value::Null,
            "no-ok-to-retry" if failed => drop(response["error"].as_object_mut().unwrap().remove("ok_to_retry")),
            "result-beside-error" if failed => response["result"] = json!("vm-1"),
            "unknown-error-type" if kind.ends_with("CpiError") => response["error"]["type"] = json!("Made::Up"),
            "refuses-as-ruby" if kind.ends_with("CpiError") => response["error"]["type"] = json!("InvalidCall"),
            "unknown-method-is-cloud-error" if kind.ends_with("NotImplemented") => {
                response["error"]["type"] = json!("Bosh::Clouds::CloudError");
            }
            "empty-message" if failed => response["error"]["message"] = json!(""),
            "compat-prefix" if kind.ends_with("CloudError") => {
                response["error"]["message"] = json!("Invalid Method: it is not there");
            }
            "several-lines" if failed => response["error"]["message"] = json!("one\ntwo"),
            "secrets-in-errors" if failed => {
                response["error"]["message"] = json!(format!("cannot do {}", request["arguments"]));
            }
            "prints-its-configuration" if failed => {
                response["error"]["message"] = json!("I am configured with word-of-the-sky\nand more");
            }
            "secrets-on-stderr" => eprintln!("request: {request}"),
            "prints-on-stdout" if method == "create_stemcell" => println!("uploading the image"),
            "byte-order-mark" => print!("\u{feff}"),
            _ => {}
        }
        let mut text = response.to_string().into_bytes();
        match self.defect.as_str() {
            "no-utf8" if method == "set_vm_metadata" => {
                text = br#"{"result":null,"error":null,"log":"gr"#.to_vec();
                text.extend_from_slice(b"\xf6\xdfe\"}");
            }
            "two-documents" => text.extend_from_slice(b"\n{}"),
            "helper-keeps-streams" if method == "create_disk" => drop(Command::new("sleep").arg("3").spawn().unwrap()),
            "dies-without-answer" if failed => text.clear(),
            _ => {}
        }
        std::io::stdout().write_all(&text).unwrap();
        if self.is("exits-with-1") && failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn serve(&self, request: &Value, method: &str) -> Answered {
        if self.is("any-method") && request.is_object() && !request["method"].is_string() {
            return Ok(Value::Null);
        }
        if self.is("any-arguments") && request.is_object() && !request["arguments"].is_array() {
            return Ok(json!(false));
        }
        if self.is("needs-director") && request.pointer("/context/director_uuid").is_none() {
            panic!("there is no director");
        }
        if !request["method"].is_string() || !request["arguments"].is_array() {
            return refuse("CpiError", "the request cannot be used");
        }
        if self.is("refuses-unknown-keys") && request.as_object().unwrap().len() > 4 {
            return refuse("CpiError", "the request has unknown keys");
        }
        if self.is("needs-home") && std::env::var_os("HOME").is_none() {
            return refuse("CpiError", "HOME is not set");
        }
        if self.is("needs-folder") && fs::read_dir(".").is_ok_and(|entries| entries.count() == 0) {
            return refuse("CpiError", "there is nothing in the working directory");
        }
        if self.is("needs-stemcell-version") && request.pointer("/context/vm/stemcell/api_version").is_none() {
            return refuse("CloudError", "context.vm.stemcell.api_version is missing");
        }
        let version = match &request["api_version"] {
            Value::Null => 1,
            version => match version.as_i64() {
                Some(version) => version,
                None if self.is("crashes-on-odd-version") => panic!("api_version is odd"),
                None => return refuse("CpiError", "api_version is not an integer"),
            },
        };
        if method == "info" {
            return self.info(request, version);
        }
        if version == 3 && self.is("reports-more-than-it-speaks") {
            panic!("there is no such version");
        }
        if version > 3 {
            return refuse("CpiError", "this CPI speaks versions up to 3");
        }
        let wrong = request.pointer("/context/password") == Some(&json!("wrong"));
        if wrong && self.is("wrong-credentials-not-implemented") {
            return refuse("NotImplemented", "the CPI could not be made");
        }
        if wrong && !self.is("any-credentials") {
            return refuse("CpiError", "the cloud refuses the credentials");
        }
        let upload = File::create(self.folder.join("upload")).unwrap();
        if self.is("one-upload-at-a-time") && method == "create_stemcell" {
            if upload.try_lock().is_err() {
                return refuse("CloudError", "another upload is running");
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let lock = File::create(self.folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let arguments: Vec<Value> = request["arguments"].as_array().unwrap().clone();
        if self.is("refuses-surplus-arguments") && method == "has_vm" && arguments.len() > 1 {
            return refuse("CpiError", "too many arguments");
        }
        match method {
            "create_stemcell" => self.create_stemcell(&arguments),
            "delete_stemcell" => self.delete("stemcells", &cid(&arguments, 0)?, None),
            "create_vm" => self.create_vm(request, version, &arguments),
            "delete_vm" => self.delete_vm(&cid(&arguments, 0)?),
            "has_vm" => self.has_vm(&cid(&arguments, 0)?),
            "reboot_vm" if self.is("reboot-loses-vm") => self.delete("vms", &cid(&arguments, 0)?, None),
            "reboot_vm" if self.is("reboots-nothing") => Ok(Value::Null),
            "reboot_vm" => self.need("vms", &cid(&arguments, 0)?).map(|_| Value::Null),
            "set_vm_metadata" => self.set_metadata("vms", &arguments),
            "set_disk_metadata" => self.set_metadata("disks", &arguments),
            "calculate_vm_cloud_properties" => self.calculate(&arguments),
            "create_disk" => self.create_disk(request, &arguments),
            "delete_disk" => self.delete_disk(&cid(&arguments, 0)?),
            "has_disk" => Ok(json!(self.has_disk(&cid(&arguments, 0)?))),
            "attach_disk" => self.attach_disk(version, &cid(&arguments, 0)?, &cid(&arguments, 1)?),
            "detach_disk" => self.detach_disk(&cid(&arguments, 0)?, &cid(&arguments, 1)?),
            "get_disks" => self.get_disks(&cid(&arguments, 0)?),
            "resize_disk" => self.resize_disk(&cid(&arguments, 0)?, arguments.get(1)),
            "update_disk" => self.update_disk(&cid(&arguments, 0)?, arguments.get(1)),
            "snapshot_disk" if self.is("snapshot-needs-index") && arguments[1]["index"].is_null() => {
                refuse("CloudError", "metadata needs an index")
            }
            "snapshot_disk" if self.is("snapshot-index-is-text") && arguments[1]["index"].is_number() => {
                refuse("CloudError", "the index must be text")
            }
            "snapshot_disk" => self.snapshot_disk(&cid(&arguments, 0)?),
            "delete_snapshot" => self.delete_snapshot(&cid(&arguments, 0)?),
            "create_network" => self.create_network(&arguments),
            "delete_network" => {
                let strict = self.is("delete-network-not-found-is-cloud-error");
                self.delete(
                    "networks",
                    &cid(&arguments, 0)?,
                    Some(if strict { "CloudError" } else { "NetworkNotFound" }),
                )
            }
            unknown => refuse("NotImplemented", format!("there is no '{unknown}'")),
        }
    }

    fn path(&self, shelf: &str, cid: &str) -> Option<PathBuf> {
        if self.is("follows-paths") {
            return Some(self.folder.join(shelf).join(cid));
        }
        let plain = cid.len() < 200 && cid.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
        plain.then(|| self.folder.join(shelf).join(cid))
    }

    fn read(&self, shelf: &str, cid: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.path(shelf, cid)?).ok()?).ok()
    }

    fn need(&self, shelf: &str, cid: &str) -> Result<Value, Value> {
        let kind = if shelf == "vms" { "VMNotFound" } else { "DiskNotFound" };
        self.read(shelf, cid).ok_or_else(|| error(kind, "there is no such thing"))
    }

    fn write(&self, shelf: &str, cid: &str, value: &Value) {
        fs::write(self.path(shelf, cid).unwrap(), value.to_string()).unwrap();
    }

    fn put(&self, shelf: &str, value: &Value) -> String {
        let name = if self.is("cids-of-the-second") {
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string()
        } else {
            Uuid::new_v4().to_string()
        };
        let cid = format!("{}-{name}", &shelf[..shelf.len() - 1]);
        self.write(shelf, &cid, value);
        cid
    }

    fn delete(&self, shelf: &str, cid: &str, missing: Option<&str>) -> Answered {
        let gone = match self.path(shelf, cid) {
            Some(path) => fs::remove_file(path).is_err(),
            None => true,
        };
        if gone && shelf == "stemcells" && self.is("stemcell-not-found") {
            return refuse("CloudError", "there is no such stemcell");
        }
        match missing.filter(|_| gone) {
            Some(kind) => refuse(kind, "there is no such thing"),
            None => Ok(Value::Null),
        }
    }

    fn all(&self, shelf: &str) -> Vec<(String, Value)> {
        let names = fs::read_dir(self.folder.join(shelf)).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter_map(|name| self.read(shelf, &name).map(|value| (name, value))).collect()
    }

    fn info(&self, request: &Value, version: i64) -> Answered {
        if self.is("slow-info") {
            std::thread::sleep(Duration::from_millis(1200));
        }
        if self.is("busy-info") {
            let lock = File::create(self.folder.join("info")).unwrap();
            if lock.try_lock().is_err() {
                return refuse("CloudError", "another info is running");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.is("answers-at-random") {
            return Ok(json!({"api_version": 3, "stemcell_formats": [Uuid::new_v4()]}));
        }
        if self.is("info-needs-version-2") && version < 2 {
            return refuse("CpiError", "version 1 is not spoken here");
        }
        let told = request.pointer("/context/debug/cpi/api_version").and_then(Value::as_u64);
        let told = told.unwrap_or(3);
        Ok(match self.defect.as_str() {
            "announces-replay" => json!({"api_version": 3, "stemcell_formats": [], "windlass": {"replay": true}}),
            "info-version-is-text" => json!({"api_version": "2", "stemcell_formats": ["toy"]}),
            "info-without-version" => json!({"stemcell_formats": ["toy"]}),
            "info-without-formats" => json!({"api_version": told, "stemcell_formats": null}),
            "speaks-only-what-it-reports" if version > 2 => panic!("there is no such version"),
            "speaks-only-what-it-reports" => json!({"api_version": 2, "stemcell_formats": ["toy"]}),
            "info-differs" => json!({"api_version": told, "stemcell_formats": [format!("toy-{version}")]}),
            _ => json!({"api_version": told, "stemcell_formats": ["toy"]}),
        })
    }

    fn create_stemcell(&self, arguments: &[Value]) -> Answered {
        let path = text(arguments, 0)?;
        if self.is("null-properties-crash") && arguments.get(1).is_none_or(Value::is_null) {
            panic!("cloud_properties are null");
        }
        if self.is("refuses-tags") && arguments.len() > 2 {
            return refuse("CpiError", "too many arguments");
        }
        if !Path::new(&path).is_file() && !self.is("uploads-nothing") {
            if self.is("leaks-stemcell") {
                self.put("stemcells", &json!({}));
            }
            return refuse("CloudError", "there is no such image");
        }
        if self.is("uploads-twice") {
            self.put("stemcells", &json!({"image": path}));
        }
        Ok(json!(self.put("stemcells", &json!({"image": path}))))
    }

    fn create_vm(&self, request: &Value, version: i64, arguments: &[Value]) -> Answered {
        let agent =
            text(arguments, 0).or_else(|error| if self.is("any-agent") { Ok("any".into()) } else { Err(error) })?;
        let stemcell = cid(arguments, 1)?;
        if self.is("slow-create") {
            std::thread::sleep(Duration::from_millis(200));
        }
        let Some(networks) = arguments.get(3).and_then(Value::as_object) else {
            return refuse("CpiError", "argument 4 must be networks");
        };
        if arguments.len() < 6 {
            return refuse("CpiError", "create_vm needs six arguments");
        }
        let sv = request.pointer("/context/vm/stemcell/api_version").and_then(Value::as_u64).unwrap_or(1);
        let keeps_records = self.is("records-vms-of-version-1");
        if !self.is("v1-answers-arrays") && !keeps_records && (version < 2 || sv < 2) {
            let message = format!("request version {version} and stemcell version {sv}; both must be at least 2");
            return if self.is("v1-without-reason") {
                refuse("CloudError", "no")
            } else {
                refuse("CloudError", message)
            };
        }
        if self.is("reserves-agents") {
            let reserved = self.folder.join(format!("agent-{agent}"));
            if reserved.exists() {
                return refuse("CloudError", "there is a VM of this agent already");
            }
            fs::write(reserved, "").unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        if self.is("needs-env") && arguments[5].is_null() {
            return refuse("CpiError", "argument 6 must be an object");
        }
        let mut settings = json!({"agent_id": agent, "vm": {"name": "toy"}, "networks": networks,
            "disks": {"system": "/dev/sda", "persistent": {}}, "env": arguments[5]});
        match self.defect.as_str() {
            "system-disk-is-an-object" => settings["disks"]["system"] = json!({"path": "/dev/sda"}),
            "settings-without-agent-id" => settings["agent_id"] = Value::Null,
            "dns-is-a-string" => settings["networks"]["default"]["dns"] = json!("127.0.0.1"),
            "number-in-ephemeral-hint" => settings["disks"]["ephemeral"] = json!({"lun": 1}),
            "nulls-for-nothing" => {
                settings["disks"]["persistent"] = Value::Null;
                settings["disks"]["ephemeral"] = Value::Null;
                settings["env"]["bosh"]["ntp"] = Value::Null;
            }
            "settings-without-env" => settings["env"] = json!({}),
            "netmask-of-the-prefix" if !networks["default"]["prefix"].is_null() => {
                settings["networks"]["default"]["netmask"] = json!("255.255.255.255");
            }
            "gateway-everywhere" => {
                for network in settings["networks"].as_object_mut().unwrap().values_mut() {
                    network["default"] = json!(["dns", "gateway"]);
                }
            }
            _ => {}
        }
        let default = &networks.get("default").cloned().unwrap_or_default();
        if self.is("crashes-on-null-dns") && default.get("dns") == Some(&Value::Null) {
            panic!("dns is null");
        }
        if self.is("refuses-its-own-networks") && !default["cloud_properties"]["name"].is_null() {
            return refuse("CloudError", "there is no such network");
        }
        if self.is("knows-one-network") && default["cloud_properties"]["name"] != "red-network" {
            let name = default["cloud_properties"]["name"].as_str().unwrap_or("nothing");
            return refuse(
                "CloudError",
                format!("agent {agent} cannot have the network '{name}': there is no such one"),
            );
        }
        if networks.is_empty() && !self.is("no-network-is-fine") {
            return refuse("CloudError", "a VM needs a network");
        }
        for (number, network) in settings["networks"].as_object_mut().unwrap().values_mut().enumerate() {
            if !network.is_object() || network["type"] == "no-such-type" {
                if self.is("leaks-on-odd-networks") {
                    self.put("vms", &json!({"settings": {}, "disks": []}));
                }
                return refuse("CloudError", "this is no network");
            }
            if self.is("prefix-is-a-number") && network["prefix"].is_string() {
                return refuse("CloudError", "prefix must be a number");
            }
            if self.is("no-dynamic-networks") && network["type"] == "dynamic" {
                return refuse("CloudError", "there are no dynamic networks");
            }
            let ip = network["ip"].as_str().map_or(format!("192.0.2.{number}"), str::to_owned);
            if ip.parse::<std::net::IpAddr>().is_err() {
                return refuse("CloudError", "this is no address");
            }
            let taken =
                |vm: &Value| vm["settings"]["networks"].as_object().into_iter().flatten().any(|(_, it)| it["ip"] == ip);
            if network["type"] == "manual" && self.all("vms").iter().any(|(_, vm)| taken(vm)) {
                return refuse("CloudError", "the address is in use");
            }
            network["ip"] = json!(ip);
        }
        if self.is("other-address") {
            settings["networks"]["default"]["ip"] = json!("192.0.2.77");
        }
        let networks = settings["networks"].clone();
        if self.is("needs-a-zone") && arguments[2]["zone"].is_null() {
            return refuse("CloudError", "in which zone");
        }
        let mut vm = json!({"settings": settings, "disks": []});
        if self.is("attaches-announced-disks") {
            vm["disks"] = if arguments[4].is_null() { json!([]) } else { arguments[4].clone() };
        }
        if self.is("leaks-vm") {
            self.put("vms", &vm);
        }
        let image = self.read("stemcells", &stemcell);
        let Some(image) = image.or_else(|| self.is("any-stemcell").then(|| json!({}))) else {
            return refuse("CloudError", "there is no such stemcell");
        };
        if self.is("needs-the-image") && !Path::new(image["image"].as_str().unwrap()).exists() {
            return refuse("CloudError", "the image is gone");
        }
        if keeps_records && version < 2 {
            vm["recorded"] = json!(true);
            return Ok(json!(self.put("vms", &vm)));
        }
        let cid = self.put("vms", &vm);
        Ok(match self.defect.as_str() {
            "bare-string" => json!(cid),
            "lower-version-changes-shapes" if request.pointer("/context/debug").is_some() => json!(cid),
            "cid-only" => json!([cid]),
            "empty-vm-cid" => json!(["", networks]),
            "networks-not-answered" => json!([cid, {}]),
            _ => json!([cid, networks]),
        })
    }

    fn delete_vm(&self, cid: &str) -> Answered {
        if self.is("keeps-vms") {
            return refuse("CloudError", "the VM does not go");
        }
        if self.is("slow-create") {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.is("deletes-disks-with-vm") {
            for disk in self.read("vms", cid).iter().flat_map(|vm| vm["disks"].as_array().unwrap().clone()) {
                self.delete("disks", disk.as_str().unwrap(), None)?;
            }
        }
        let missing = if self.is("delete-vm-not-found-is-cloud-error") { "CloudError" } else { "VMNotFound" };
        if self.is("deletes-no-vm") {
            return Ok(Value::Null);
        }
        self.delete("vms", cid, Some(missing))
    }

    fn has_vm(&self, cid: &str) -> Answered {
        let there = self.read("vms", cid).is_some();
        match self.defect.as_str() {
            "has-vm-is-text" => Ok(json!(there.to_string())),
            "has-vm-unknown-is-error" if !there => refuse("VMNotFound", "there is no such VM"),
            _ => Ok(json!(there)),
        }
    }

    fn set_metadata(&self, shelf: &str, arguments: &[Value]) -> Answered {
        let (cid, metadata) = (cid(arguments, 0)?, arguments.get(1).unwrap_or(&Value::Null));
        if !self.is("metadata-on-nothing") {
            self.need(shelf, &cid)?;
        }
        let overlong = |value: &Value| value.as_str().is_some_and(|text| text.len() > 255);
        let Some(metadata) = metadata.as_object() else { return refuse("CpiError", "metadata must be an object") };
        if self.is("metadata-needs-name") && !metadata.contains_key("name") {
            return refuse("CloudError", "metadata needs a name");
        }
        if self.is("refuses-long-tags") && metadata.values().any(overlong) {
            return refuse("CloudError", "a tag is too long");
        }
        let age = |path: PathBuf| path.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
        if self.is("metadata-needs-a-booted-vm") && age(self.path(shelf, &cid).unwrap()) < Duration::from_secs(30) {
            return refuse("CloudError", "the VM is still booting");
        }
        if self.is("metadata-once") {
            let marker = self.folder.join(format!("tagged-{cid}"));
            if marker.exists() {
                return refuse("CloudError", "there are tags already");
            }
            fs::write(marker, "").unwrap();
        }
        Ok(Value::Null)
    }

    fn calculate(&self, arguments: &[Value]) -> Answered {
        let Some(cpu) = arguments.first().and_then(|wanted| wanted["cpu"].as_u64()) else {
            return refuse("CpiError", "cpu is missing");
        };
        if cpu > 64 && !self.is("any-size-of-vm") {
            return refuse("CloudError", "no VM is this large");
        }
        Ok(if self.is("calculates-a-list") { json!(["small"]) } else { json!({"size": "small"}) })
    }

    fn create_disk(&self, request: &Value, arguments: &[Value]) -> Answered {
        let lenient = self.is("any-size-of-disk");
        let size = arguments.first().and_then(Value::as_u64).filter(|size| *size > 0).or(lenient.then_some(1));
        let Some(size) = size.or_else(|| (arguments.is_empty() && self.is("defaults-for-arguments")).then_some(1))
        else {
            return refuse("CpiError", "the size must be a positive integer");
        };
        let request_id = request.pointer("/context/request_id").and_then(Value::as_str).unwrap_or_default();
        let remembered = self.folder.join(format!("request-{request_id}"));
        if self.is("remembers-six-digits") && remembered.exists() {
            return Ok(json!(fs::read_to_string(remembered).unwrap()));
        }
        let cid = self.put("disks", &json!({"size": size}));
        if self.is("remembers-six-digits") {
            fs::write(remembered, &cid).unwrap();
        }
        if self.is("attaches-new-disks")
            && let Some(vm_cid) = arguments.get(2).and_then(Value::as_str)
        {
            self.hang(vm_cid, &cid);
        }
        Ok(if self.is("disk-cid-is-a-number") { json!(7) } else { json!(cid) })
    }

    fn holder(&self, disk: &str) -> Option<String> {
        let holds = |vm: &Value| vm["disks"].as_array().unwrap().contains(&json!(disk));
        self.all("vms").into_iter().find(|(_, vm)| holds(vm)).map(|(cid, _)| cid)
    }

    fn hang(&self, vm_cid: &str, disk: &str) {
        let mut vm = self.read("vms", vm_cid).unwrap();
        vm["disks"].as_array_mut().unwrap().push(json!(disk));
        self.write("vms", vm_cid, &vm);
    }

    fn delete_disk(&self, cid: &str) -> Answered {
        if self.holder(cid).is_some() && !self.is("deletes-attached-disks") {
            return refuse("CloudError", "the disk is attached");
        }
        let missing = if self.is("delete-disk-not-found-is-cloud-error") { "CloudError" } else { "DiskNotFound" };
        self.delete("disks", cid, Some(missing))
    }

    fn has_disk(&self, cid: &str) -> bool {
        if self.is("asks-a-shell") && !cid.contains('\0') {
            let path = self.folder.join("disks").join(cid);
            return Command::new("sh").arg("-c").arg(format!("test -f {}", path.display())).status().unwrap().success();
        }
        self.is("has-every-disk") || self.read("disks", cid).is_some()
    }

    fn attach_disk(&self, version: i64, vm_cid: &str, disk: &str) -> Answered {
        if !self.is("attaches-to-no-vm") {
            self.need("vms", vm_cid)?;
        } else if self.read("vms", vm_cid).is_none() {
            return Ok(json!("/dev/sdb"));
        }
        if self.is("attaches-unknown-disks") && self.read("disks", disk).is_none() {
            return Ok(json!({"path": "/dev/sdb"}));
        }
        self.need("disks", disk)?;
        match self.holder(disk) {
            Some(holder) if holder != vm_cid && !self.is("attaches-twice") => {
                return refuse("CloudError", "the disk is attached to another VM");
            }
            Some(_) if self.is("attach-again-is-an-error") => return refuse("CloudError", "it is attached"),
            Some(holder) if holder == vm_cid => {}
            _ => self.hang(vm_cid, disk),
        }
        let is_recorded = self.read("vms", vm_cid).is_some_and(|vm| vm["recorded"] == true);
        if version < 2 && self.is("records-vms-of-version-1") && !is_recorded {
            return refuse("CloudError", "cannot read settings, got HTTP 404");
        }
        if version < 2 && self.is("v1-attach-without-reason") {
            return refuse("CloudError", "no");
        }
        if version < 2 && !self.is("v1-answers-arrays") {
            return Ok(Value::Null);
        }
        Ok(match self.defect.as_str() {
            "number-in-hint" => json!({"lun": 0, "host_device_id": disk}),
            "no-hint" => Value::Null,
            "empty-hint" => json!({}),
            "one-hint-for-all" => json!("/dev/sdb"),
            _ => json!({"id": disk}),
        })
    }

    fn detach_disk(&self, vm_cid: &str, disk: &str) -> Answered {
        let mut vm = self.need("vms", vm_cid)?;
        if self.is("detach-loses-vm") {
            return self.delete("vms", vm_cid, None);
        }
        let disks = vm["disks"].as_array_mut().unwrap();
        let before = disks.len();
        disks.retain(|other| other != disk);
        if disks.len() == before {
            let kind = if self.is("detach-twice-is-cloud-error") { "CloudError" } else { "DiskNotAttached" };
            return refuse(kind, "the disk is not attached");
        }
        if !self.is("detaches-nothing") {
            self.write("vms", vm_cid, &vm);
        }
        Ok(Value::Null)
    }

    fn get_disks(&self, vm_cid: &str) -> Answered {
        let mut disks = self.need("vms", vm_cid)?["disks"].clone();
        if self.is("one-list-for-all") {
            disks = self.all("vms").iter().flat_map(|(_, vm)| vm["disks"].as_array().unwrap().clone()).collect();
        }
        if self.is("lists-root-disks") {
            disks.as_array_mut().unwrap().push(json!(format!("root-of-{vm_cid}")));
        }
        Ok(if self.is("null-for-no-disks") && disks == json!([]) { Value::Null } else { disks })
    }

    fn resize_disk(&self, cid: &str, size: Option<&Value>) -> Answered {
        if self.is("resizes-in-words") {
            return Ok(Value::Null);
        }
        let mut disk = self.need("disks", cid)?;
        let Some(size) = size.and_then(Value::as_u64) else { return refuse("CpiError", "the size must be an integer") };
        if size < disk["size"].as_u64().unwrap() && !self.is("shrinks") {
            return refuse("NotSupported", "disks do not shrink");
        }
        if size == disk["size"].as_u64().unwrap() && self.is("resize-equal-is-an-error") {
            return refuse("CloudError", "it has this size");
        }
        if self.is("resize-loses-disk") {
            return self.delete("disks", cid, None);
        }
        if self.is("remembers-a-size-only") {
            fs::write(self.folder.join(format!("size-{cid}")), size.to_string()).unwrap();
            return Ok(Value::Null);
        }
        disk["size"] = json!(size);
        self.write("disks", cid, &disk);
        Ok(Value::Null)
    }

    fn update_disk(&self, cid: &str, size: Option<&Value>) -> Answered {
        if self.is("updates-nothing") {
            return Ok(Value::Null);
        }
        let mut disk = self.need("disks", cid)?;
        let Some(size) = size.and_then(Value::as_u64) else { return refuse("CpiError", "the size must be an integer") };
        disk["size"] = json!(size);
        self.write("disks", cid, &disk);
        Ok(match self.defect.as_str() {
            "update-answers-empty-cid" => json!(""),
            "update-answers-true" => json!(true),
            "update-answers-unknown-cid" => json!("disk-of-nobody"),
            _ => Value::Null,
        })
    }

    fn snapshot_disk(&self, disk: &str) -> Answered {
        match self.defect.as_str() {
            "empty-snapshot-cid" => return Ok(json!("")),
            "snapshots-in-words" => return Ok(json!(format!("snapshot-{}", Uuid::new_v4()))),
            "one-snapshot-cid" => return Ok(json!("snapshot-1")),
            "snapshots-not-supported" => return refuse("NotSupported", "there are no snapshots"),
            _ => {}
        }
        self.need("disks", disk)?;
        Ok(json!(self.put("snapshots", &json!({"disk": disk}))))
    }

    fn delete_snapshot(&self, cid: &str) -> Answered {
        let snapshot = self.read("snapshots", cid);
        if self.is("delete-snapshot-not-found-is-cloud-error") && snapshot.is_none() {
            return refuse("CloudError", "there is no such snapshot");
        }
        let lost = snapshot.is_some_and(|it| self.read("disks", it["disk"].as_str().unwrap()).is_none());
        if self.is("snapshots-need-their-disk") && lost {
            return refuse("CloudError", "the disk of the snapshot is gone");
        }
        self.delete("snapshots", cid, None)
    }

    fn create_network(&self, arguments: &[Value]) -> Answered {
        let Some(asked) = arguments.first().filter(|it| it.is_object()) else {
            return refuse("CpiError", "argument 1 must be a network");
        };
        let cid = self.put("networks", asked);
        let chosen = json!({"range": "10.9.8.0/24", "gateway": "10.9.8.1"});
        let addresses = if asked["range"].is_null() { chosen } else { json!({}) };
        Ok(match self.defect.as_str() {
            "network-is-a-pair" => json!([cid, {"name": cid}]),
            "network-without-range" => json!([cid, {}, {"name": cid}]),
            _ => json!([cid, addresses, {"name": cid}]),
        })
    }
}

fn text(arguments: &[Value], position: usize) -> Result<String, Value> {
    let value = arguments.get(position).and_then(Value::as_str).map(str::to_owned);
    value.ok_or_else(|| error("CpiError", format!("argument {} must be a string", position + 1)))
}

fn cid(arguments: &[Value], position: usize) -> Result<String, Value> {
    text(arguments, position).and_then(|cid| {
        if cid.is_empty() { refuse("CpiError", format!("argument {} is empty", position + 1)) } else { Ok(cid) }
    })
}
