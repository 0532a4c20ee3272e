//! A CPI with everything, in a folder, that can be broken on purpose: `toy-cpi FOLDER [DEFECT]`.
//!
//! Without a defect it passes certification; each defect breaks one promise, and `tests/defects.rs` says which check
//! must notice. It is written without the SDK, which would not let it be this wrong.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a CPI for tests, wrong on purpose")]

mod disks;
mod vms;

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
