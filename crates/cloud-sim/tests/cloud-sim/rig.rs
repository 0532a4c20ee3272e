//! A state folder, and the CPI as a real process.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use windlass_cloud_sim::Inventory;
use windlass_durable::process::ProcessIdentity;

pub(crate) struct Rig {
    folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(json!({}))
    }

    /// With these properties beside the state folder.
    pub(crate) fn with(properties: Value) -> Self {
        let rig = Self { folder: tempfile::tempdir().unwrap() };
        rig.configure(properties);
        rig
    }

    pub(crate) fn configure(&self, mut properties: Value) {
        properties["state_dir"] = json!(self.state());
        self.configure_exactly(&properties);
    }

    pub(crate) fn configure_exactly(&self, properties: &Value) {
        let config = json!({"cloud": {"plugin": "sim", "properties": {"sim": properties}}});
        fs::write(self.config(), config.to_string()).unwrap();
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The process that hosts the agents.
    pub(crate) fn host(&self) -> Option<ProcessIdentity> {
        let host: ProcessIdentity = serde_json::from_slice(&fs::read(self.state().join("host.json")).ok()?).ok()?;
        host.is_running().then_some(host)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("cpi.json")
    }

    pub(crate) fn spawn(&self, request: &[u8], kill_at: Option<u64>) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim-cpi"));
        command.arg(self.config()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(kill_at) = kill_at {
            command.env("WINDLASS_KILL_AT", kill_at.to_string());
        }
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(request).unwrap();
        child
    }

    pub(crate) fn output(&self, request: &Value) -> Output {
        output_of(self.spawn(request.to_string().as_bytes(), None))
    }

    /// The answer of a request, as its whole envelope; none if the CPI was killed.
    pub(crate) fn send(&self, request: &Value, kill_at: Option<u64>) -> Option<Value> {
        let output = output_of(self.spawn(request.to_string().as_bytes(), kill_at));
        if output.status.signal() == Some(9) {
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        Some(serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn ask(&self, method: &str, arguments: Value) -> Value {
        self.send(&request(method, arguments, "cpi-123456"), None).unwrap()
    }

    pub(crate) fn ok(&self, method: &str, arguments: Value) -> Value {
        let response = self.ask(method, arguments);
        assert_eq!(response["error"], Value::Null, "{method}");
        response["result"].clone()
    }

    /// The error as `type: message`, without the namespace that all types have.
    pub(crate) fn refused(&self, method: &str, arguments: Value) -> String {
        let error = &self.ask(method, arguments)["error"];
        assert_ne!(*error, Value::Null, "{method} should have failed");
        let kind = error["type"].as_str().unwrap().strip_prefix("Bosh::Clouds::").unwrap();
        format!("{kind}: {}", error["message"].as_str().unwrap())
    }

    pub(crate) fn stemcell(&self) -> Value {
        let image = self.path("image");
        fs::write(&image, "an image").unwrap();
        self.ok("create_stemcell", json!([image, {"name": "test"}]))
    }

    pub(crate) fn vm(&self, stemcell: &Value) -> Value {
        self.ok("create_vm", vm_arguments(stemcell, json!({"default": {"type": "dynamic"}})))[0].clone()
    }

    pub(crate) fn disk(&self, size: u64) -> Value {
        self.ok("create_disk", json!([size, {}, null]))
    }

    /// A file on a disk or in a snapshot.
    pub(crate) fn content(&self, kind: &str, cid: &Value) -> PathBuf {
        self.state().join(kind).join(cid.as_str().unwrap()).join("content/data")
    }

    pub(crate) fn status(&self) -> Inventory {
        windlass_cloud_sim::status(Some(&self.config())).unwrap()
    }

    /// What there is of `kind`, and what was left half done.
    pub(crate) fn list(&self, kind: &str) -> Vec<String> {
        let entries = fs::read_dir(self.state().join(kind)).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Locks of resources that are there no more would pile up.
    pub(crate) fn no_lock_is_left_over(&self) {
        let kinds = ["stemcells", "vms", "disks", "snapshots", "networks"];
        let there: Vec<String> = kinds.iter().flat_map(|kind| self.list(kind)).collect();
        for lock in self.list("locks") {
            assert!(lock.starts_with("making-") || there.contains(&lock), "{lock}");
        }
    }
}

/// The host of agents would end when it misses its folder; but what it writes at that moment would remain.
impl Drop for Rig {
    fn drop(&mut self) {
        let Some(host) = self.host() else { return };
        let _ = host.signal(Signal::KILL);
        let deadline = Instant::now() + Duration::from_secs(10);
        while host.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Waits until nobody holds stdout and stderr any more, as callers do, but not for ever.
fn output_of(child: Child) -> Output {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    let (done, output) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    output.recv_timeout(Duration::from_secs(60)).map(Result::unwrap).unwrap_or_else(|_| {
        let _ = kill_process(pid, Signal::KILL);
        panic!("the CPI does not end")
    })
}

/// A process that is not expected to end by itself.
pub(crate) struct Hanging(pub(crate) Child);

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn vm_arguments(stemcell: &Value, networks: Value) -> Value {
    let env = json!({"bosh": {"mbus": {"urls": ["https://user:hunter2@0.0.0.0:6868"]}, "password": "x"}});
    json!([unique(), stemcell, {}, networks, [], env])
}

pub(crate) fn request(method: &str, arguments: Value, request_id: &str) -> Value {
    json!({"method": method, "arguments": arguments, "api_version": 2,
        "context": {"director_uuid": "d-1", "request_id": request_id, "vm": {"stemcell": {"api_version": 3}}}})
}

pub(crate) fn unique() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub(crate) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
