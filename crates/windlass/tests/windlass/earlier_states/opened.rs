//! A director of this version on the state of an earlier one, and the registry that its VMs of version 1 need.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_database::sqlx::{self, AssertSqlSafe, Connection, Row};
use windlass_rigs::earlier_states::Kept;

use super::kept::{WINDLASS, claim_network, load};

/// Far more than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Opened {
    folder: tempfile::TempDir,
    running: Vec<Child>,
    runtime: tokio::runtime::Runtime,
    _network: UnixListener,
}

impl Opened {
    /// Puts a state where it can be opened. Nothing runs yet, as after a power cut.
    pub(crate) fn unpack(kept: &Kept, network: &str) -> Self {
        let network = claim_network(network);
        let folder = tempfile::tempdir().unwrap();
        kept.unpack(folder.path(), WINDLASS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened = Self { folder, running: Vec::new(), runtime, _network: network };
        for (name, place) in [("director", "director.db"), ("registry", "registry/registry.db")] {
            opened.runtime.block_on(load(kept, name, opened.folder.path(), &opened.state_dir().join(place)));
        }
        opened
    }

    /// Starts the registry, and then the director, which has settled what it found open when this returns.
    pub(crate) fn start(&mut self, registry: &str) {
        let mut command = self.verb(&["registry", "--listen", registry]);
        self.run(command.env("WINDLASS_REGISTRY_CREDENTIALS", "writer:s3cret"));
        let mut command = self.verb(&["director", "--listen", "127.0.0.1:0"]);
        self.run(command.env("RUST_LOG", "info,windlass_cpi_client=debug,windlass_agent_client=debug"));
        let env_sh = self.state_dir().join("env.sh");
        self.wait_until("the director's start", || env_sh.exists());
    }

    fn run(&mut self, command: &mut Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.file("log")).unwrap();
        let started = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.running.push(started);
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_true: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_true() {
            assert!(Instant::now() < deadline, "{what} does not happen:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.file("state")
    }

    /// One of the documents that the operator has.
    pub(crate) fn document(&self, name: &str) -> String {
        self.file("documents").join(name).to_str().unwrap().to_owned()
    }

    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WINDLASS);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET", "BOSH_DEPLOYMENT"] {
            command.env_remove(name);
        }
        command.arg("--state-dir").arg(self.state_dir()).args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn windlass(&self, arguments: &[&str]) -> Output {
        self.verb(arguments).output().unwrap()
    }

    /// Runs a verb that must succeed, and gives what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.windlass(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows of a verb that lists things.
    pub(crate) fn rows(&self, arguments: &[&str]) -> Vec<BTreeMap<String, String>> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let printed: Value = serde_json::from_str(&self.ok(&arguments)).unwrap();
        serde_json::from_value(printed["Tables"][0]["Rows"].clone()).unwrap()
    }

    /// What a plan of the document of this deployment says.
    pub(crate) fn plan(&self, deployment: &str) -> String {
        self.ok(&["-d", deployment, "plan", &self.document(&format!("{deployment}.yml"))])
    }

    pub(crate) fn plans_nothing(&self, deployment: &str) {
        let plan = self.plan(deployment);
        assert!(plan.contains(&format!("{deployment}: nothing to do")), "{plan}");
    }

    pub(crate) fn deploy(&self, deployment: &str) {
        self.ok(&["-n", "-d", deployment, "deploy", &self.document(&format!("{deployment}.yml"))]);
    }

    /// The first column of what a statement finds in the director's database.
    pub(crate) fn query(&self, statement: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let url = format!("sqlite:{}", self.state_dir().join("director.db").display());
            let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
            let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            rows.iter().map(|row| row.try_get(0).unwrap()).collect()
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for running in &mut self.running {
            let _ = running.kill();
            let _ = running.wait();
        }
        end_vms(self.folder.path());
    }
}

/// Ends all processes of VMs in a folder, of both clouds, as a power cut would.
pub(crate) fn end_vms(folder: &Path) {
    let folder = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        let read = |name: &str| {
            String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()).into_owned()
        };
        let arguments = read("cmdline");
        let hosts = ["vm-run", "sim-host"].iter().any(|word| arguments.contains(word)) && arguments.contains(folder);
        if hosts || read("environ").contains(&format!("WINDLASS_VM={folder}")) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}
