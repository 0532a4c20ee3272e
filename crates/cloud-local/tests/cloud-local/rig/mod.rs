//! A state folder, a stemcell with a small agent, and the CPI as a real process.

pub(crate) mod own_machine;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// Says where it runs, leaves an orphan in a session of its own, and stays.
pub(crate) const AGENT: &str = r#"#!/bin/sh
echo "agent with $*"
setsid sh -c 'echo $$ > "$0/orphan"; exec sleep 1000' "$6" &
echo $$ > "$6/pid"
exec sleep 1000
"#;

pub(crate) struct Rig {
    folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// With its state somewhere in `folder`.
    pub(crate) fn new_in(folder: &Path) -> Self {
        let rig = Self { folder: tempfile::tempdir_in(folder).unwrap() };
        rig.configure(json!({"state_dir": rig.state(), "isolation": "process"}));
        rig
    }

    pub(crate) fn configure(&self, local: Value) {
        let config = json!({"cloud": {"plugin": "local", "properties": {"local": local}}});
        fs::write(self.config(), config.to_string()).unwrap();
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("cpi.json")
    }

    /// An image with `agent` as its agent.
    pub(crate) fn image(&self, agent: &str) -> PathBuf {
        let path = self.path("image");
        let mut builder = tar::Builder::new(GzEncoder::new(fs::File::create(&path).unwrap(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(agent.len() as u64);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, "var/vcap/bosh/bin/bosh-agent", agent.as_bytes()).unwrap();
        builder.into_inner().unwrap().finish().unwrap();
        path
    }

    pub(crate) fn stemcell(&self) -> Value {
        self.stemcell_with(AGENT)
    }

    pub(crate) fn stemcell_with(&self, agent: &str) -> Value {
        self.ok("create_stemcell", json!([self.image(agent), {"name": "test"}]))
    }

    /// The answer of a request, as its whole envelope; none if the CPI was killed at `kill_at`.
    pub(crate) fn send(&self, request: &Value, kill_at: Option<u64>) -> Option<Value> {
        self.send_bytes(request.to_string().as_bytes(), kill_at)
    }

    pub(crate) fn send_bytes(&self, request: &[u8], kill_at: Option<u64>) -> Option<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local-cpi"));
        command.arg("cpi").arg(self.config()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(kill_at) = kill_at {
            command.env("WINDLASS_KILL_AT", kill_at.to_string());
        }
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(request).unwrap();
        let output = output_of(child);
        if kill_at.is_some() && output.status.signal() == Some(9) {
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

    /// The error as `type: message`.
    pub(crate) fn refused(&self, method: &str, arguments: Value) -> String {
        let error = &self.ask(method, arguments)["error"];
        assert_ne!(*error, Value::Null, "{method} should have failed");
        format!("{}: {}", error["type"].as_str().unwrap(), error["message"].as_str().unwrap())
    }

    pub(crate) fn vm_arguments(&self, stemcell: &Value, networks: Value) -> Value {
        let agent_id = uuid::Uuid::new_v4().to_string();
        let env = json!({"bosh": {"mbus": {"urls": ["https://user:hunter2@0.0.0.0:6868"]}, "password": "x"}});
        json!([agent_id, stemcell, {"memory": 1}, networks, [], env])
    }

    /// A VM with a dynamic address.
    pub(crate) fn vm(&self, stemcell: &Value) -> String {
        let vm = self.ok("create_vm", self.vm_arguments(stemcell, json!({"default": {"type": "dynamic"}})));
        vm[0].as_str().unwrap().to_owned()
    }

    pub(crate) fn vm_folder(&self, cid: &str) -> PathBuf {
        self.state().join("vms").join(cid)
    }

    /// What there is of `kind`, and what was left half done.
    pub(crate) fn list(&self, kind: &str) -> Vec<String> {
        let entries = fs::read_dir(self.state().join(kind)).into_iter().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The number in a file that the VM's agent writes.
    pub(crate) fn pid(&self, cid: &str, name: &str) -> u32 {
        let path = self.vm_folder(cid).join("base").join(name);
        wait_for(|| fs::read_to_string(&path).ok()?.trim().parse().ok())
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Rig {
    fn drop(&mut self) {
        for cid in self.list("vms") {
            if cid.starts_with("vm-") {
                self.send(&request("delete_vm", json!([cid]), "cpi-1"), None);
            }
        }
    }
}

/// Waits until nobody holds stdout and stderr any more, as callers do, but not for ever.
fn output_of(child: Child) -> Output {
    let pid = child.id();
    let (done, output) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match output.recv_timeout(Duration::from_secs(60)) {
        Ok(output) => output.unwrap(),
        Err(_) if runs(pid) => panic!("the CPI does not end"),
        Err(_) => panic!("the CPI ended, and something that it started still holds its stdout or stderr"),
    }
}

pub(crate) fn request(method: &str, arguments: Value, request_id: &str) -> Value {
    json!({"method": method, "arguments": arguments, "api_version": 2,
        "context": {"director_uuid": "d-1", "request_id": request_id, "vm": {"stemcell": {"api_version": 3}}}})
}

pub(crate) fn unique() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// An address that no other test uses at this time.
pub(crate) fn address() -> String {
    let [a, b, c, ..] = *uuid::Uuid::new_v4().as_bytes();
    format!("127.{}.{b}.{}", 140 + a % 100, 1 + c % 254)
}

pub(crate) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) fn kill_hard(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
