//! `windlass registry` as an operator runs it, with CPIs and VMs as its clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use windlass_contract::Secret;
use windlass_contract::settings::AgentSettings;
use windlass_registry::{Client, RegistryError};

/// A registry; dropped, it is gone.
struct Running {
    process: Child,
    endpoint: String,
    /// What it said when it started, up to the empty line at its end.
    said: String,
}

fn command(state: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("registry").arg("--state-dir").arg(state).args(["--listen", "127.0.0.1:0"]).args(flags);
    command.env_remove("WINDLASS_REGISTRY_CREDENTIALS").env_remove("WINDLASS_REGISTRY_DB").env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Running {
    /// None if it ends before it serves.
    fn start(mut command: Command) -> Option<Self> {
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ctrl-C") {
            if stdout.read_line(&mut said).unwrap() == 0 {
                process.wait().unwrap();
                return None;
            }
        }
        let first = said.lines().next().unwrap();
        let endpoint = first.strip_prefix("The registry listens on ").unwrap().to_owned();
        Some(Self { process, endpoint, said })
    }

    fn client(&self, state: &Path) -> Client {
        let credentials = fs::read_to_string(state.join("registry/credentials")).unwrap();
        let (user, password) = credentials.trim().split_once(':').unwrap();
        Client::new(&Secret::new(self.endpoint.clone())).unwrap().with_credentials(user, Secret::new(password))
    }

    /// What it logged, once it was stopped as a service is.
    fn terminate(mut self) -> String {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut log = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert!(self.process.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither does anything to a process that was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn settings(agent: &str) -> AgentSettings {
    serde_json::from_str(&format!(r#"{{"agent_id": "{agent}", "env": {{"secret": "hunter2"}}}}"#)).unwrap()
}

#[tokio::test]
async fn it_makes_up_a_password_tells_how_to_use_it_and_shows_no_secret() {
    let state = tempfile::tempdir().unwrap();
    let registry = Running::start(command(state.path(), &[])).unwrap();
    let credentials = state.path().join("registry/credentials");
    for file in [&credentials, &state.path().join("registry/registry.db")] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    let password = fs::read_to_string(&credentials).unwrap().trim().split_once(':').unwrap().1.to_owned();
    assert!(password.len() >= 32);
    assert!(registry.said.contains(&format!("\"endpoint\": \"{}\", \"user\": \"registry\"", registry.endpoint)));
    assert!(registry.said.contains(credentials.to_str().unwrap()), "{}", registry.said);

    let cpi = registry.client(state.path());
    cpi.put("vm-1", &settings("a-1")).await.unwrap();
    let vm = Client::new(&cpi.endpoint_for("vm-1")).unwrap();
    assert_eq!(vm.get("vm-1").await.unwrap(), Some(settings("a-1")));
    assert!(matches!(vm.get("vm-2").await, Err(RegistryError::Refused { .. })));
    let said = registry.said.clone();
    let log = registry.terminate();
    assert!(log.contains("vm-1"), "writes are in the log: {log}");
    for secret in [password.as_str(), "hunter2"] {
        assert!(!said.contains(secret) && !log.contains(secret), "{said}\n{log}");
    }
    let registry = Running::start(command(state.path(), &[])).unwrap();
    assert!(registry.client(state.path()).get("vm-1").await.unwrap().is_some(), "the password stays");
}

/// Kills it at point 1, 2, … of its start and of one write, until it survives; tells how often it was killed.
async fn sweep(used_before: bool) -> u32 {
    let (old, new) = (settings("old"), settings("new"));
    for point in 1.. {
        let state = tempfile::tempdir().unwrap();
        let start = || Running::start(command(state.path(), &[])).unwrap();
        if used_before {
            start().client(state.path()).put("vm-1", &old).await.unwrap();
        }
        let mut armed = command(state.path(), &[]);
        armed.env("WINDLASS_KILL_AT", point.to_string());
        let (mut answered, mut survived) = (false, false);
        if let Some(mut registry) = Running::start(armed) {
            answered = registry.client(state.path()).put("vm-1", &new).await.is_ok();
            survived = registry.process.try_wait().unwrap().is_none();
        }
        let registry = start();
        let client = registry.client(state.path());
        match client.get("vm-1").await.unwrap() {
            found if answered => assert_eq!(found, Some(new.clone()), "killed at point {point}"),
            Some(found) => assert!(found == new || used_before && found == old, "killed at point {point}"),
            None => assert!(!used_before, "killed at point {point}"),
        }
        client.put("vm-1", &new).await.unwrap();
        assert_eq!(client.get("vm-1").await.unwrap(), Some(new.clone()), "killed at point {point}");
        if survived {
            return point - 1;
        }
    }
    unreachable!()
}

/// Whichever step it dies at: what was answered is kept, what was not is whole or not there, and repeating it succeeds.
#[tokio::test]
async fn killed_anywhere_it_keeps_what_it_answered() {
    assert!(sweep(true).await >= 2, "before and after the commit at least");
    assert!(sweep(false).await >= 6, "also while it makes its database and its password");
}

#[tokio::test]
async fn credentials_and_certificate_come_from_files_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let authority = windlass_pki::Authority::open(folder.path()).unwrap();
    let identity = authority.director_server(folder.path(), &["127.0.0.1".to_owned()]).unwrap();
    fs::write(path("cert.pem"), &identity.certificate).unwrap();
    fs::write(path("key.pem"), identity.private_key.reveal()).unwrap();
    fs::write(path("credentials"), "cpi:new\ncpi:old\n").unwrap();
    let flags = ["--credentials", &path("credentials"), "--tls-cert", &path("cert.pem"), "--tls-key", &path("key.pem")];
    let registry = Running::start(command(folder.path(), &flags)).unwrap();
    let client = Client::new(&Secret::new(registry.endpoint.clone())).unwrap().with_ca(authority.certificate());
    for password in ["new", "old"] {
        client.clone().with_credentials("cpi", Secret::new(password)).put("vm-1", &settings("a-1")).await.unwrap();
    }
    assert!(registry.said.contains("\"ca_cert\""), "{}", registry.said);
    assert!(registry.terminate().contains("chmod 600"), "others can read the credentials");

    let mut from_variable = command(folder.path(), &[]);
    from_variable.env("WINDLASS_REGISTRY_CREDENTIALS", "cpi:variable");
    let registry = Running::start(from_variable).unwrap();
    let client = Client::new(&Secret::new(registry.endpoint.clone())).unwrap();
    let client = client.with_credentials("cpi", Secret::new("variable"));
    assert!(client.get("vm-1").await.unwrap().is_some());

    fs::write(path("wrong"), "hunter2\n").unwrap();
    let taken = registry.endpoint.strip_prefix("http://").unwrap();
    for (flags, expected) in [
        (vec!["--credentials", &path("wrong")], "USER:PASSWORD"),
        (vec!["--credentials", &path("missing")], "missing"),
        (vec!["--db", "mysql://u:hunter2@x"], "'sqlite:' or 'postgres:'"),
        (vec!["--db", "postgres://u:hunter2@127.0.0.1:1/x"], "cannot open the Postgres database"),
        (vec!["--tls-cert", &path("cert.pem")], "--tls-key"),
    ] {
        let output = command(folder.path(), &flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{expected}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let mut busy = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = busy.args(["registry", "--listen", taken, "--state-dir"]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("cannot listen on {taken}")), "{said}");
}

/// What happens to a VM of an old stemcell, from its creation to its end.
#[tokio::test]
async fn a_vm_of_an_old_stemcell_finds_its_settings_and_disks_with_what_the_cpi_gave_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Running::start(command(folder.path(), &[])).unwrap();
    let credentials = fs::read_to_string(folder.path().join("registry/credentials")).unwrap();
    let (user, password) = credentials.trim().split_once(':').unwrap();
    let config = folder.path().join("cpi.json");
    let properties = json!({
        "sim": {"state_dir": folder.path().join("cloud")},
        "registry": {"endpoint": registry.endpoint, "user": user, "password": password},
    });
    fs::write(&config, json!({"cloud": {"plugin": "sim", "properties": properties}}).to_string()).unwrap();
    let windlass = |words: &[&str], stdin: String| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(words).arg("--config").arg(&config).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&child.wait_with_output().unwrap().stdout).unwrap()
    };
    let cpi = |method: &str, arguments: Value| {
        let request = json!({"method": method, "arguments": arguments, "context": {"director_uuid": "d"}});
        let answer = windlass(&["cpi", "sim"], request.to_string());
        assert_eq!(answer["error"], Value::Null);
        answer["result"].clone()
    };
    let image = folder.path().join("image");
    fs::write(&image, "").unwrap();
    let stemcell = cpi("create_stemcell", json!([image, {}]));
    let networks = json!({"a": {"type": "manual", "ip": "10.0.0.5"}});
    let vm = cpi("create_vm", json!(["agent-1", stemcell, {}, networks, [], {}]));
    let disk = cpi("create_disk", json!([64, {}, vm]));
    cpi("attach_disk", json!([vm, disk]));

    let given = windlass(&["sim", "settings", vm.as_str().unwrap()], String::new());
    assert_eq!(given.get("agent_id"), None, "it is not given its settings in full");
    let name = given["server"]["name"].as_str().unwrap();
    let agent = Client::new(&Secret::new(given["registry"]["endpoint"].as_str().unwrap())).unwrap();
    let settings = agent.get(name).await.unwrap().unwrap();
    assert_eq!(settings.agent_id.as_str(), "agent-1");
    assert!(settings.disks.persistent.keys().any(|known| known.as_str() == disk.as_str().unwrap()));
    cpi("detach_disk", json!([vm, disk]));
    assert!(agent.get(name).await.unwrap().unwrap().disks.persistent.is_empty());
    cpi("delete_vm", json!([vm]));
    assert_eq!(agent.get(name).await.unwrap(), None);
}
