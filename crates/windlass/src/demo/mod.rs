//! `windlass demo`: the whole system in a minute, on this machine: as root with containers on a machine of its own, otherwise with
//! processes on loopback addresses.
//!
//! [`story`] tells it with the very verbs a user would type, each a process of its own. This file prepares the stage and
//! clears it away again, whatever happens meanwhile.

mod local_director;
mod story;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use windlass_cloud_local::{Isolation, own_machine};
use windlass_durable::{file, kill_point};

use crate::cli::Global;
use crate::environment::{self, Environment, EnvironmentError};
use crate::failure::chain;
use crate::loopback_net::LoopbackNet;
use local_director::LocalDirector;

/// why the demo failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("interrupted")]
    Interrupted,
    #[error("cannot prepare the demo's folder '{}'", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("'{}' is not empty; the demo needs a state directory of its own", .0.display())]
    NotEmpty(PathBuf),
    #[error("cannot start {what}")]
    Spawn { what: &'static str, source: io::Error },
    #[error("the director did not start: {0}")]
    DirectorStart(String),
    #[error("cannot claim loopback addresses")]
    Addresses(#[source] io::Error),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("'{command}' failed")]
    Verb { command: String },
    #[error("cannot ask the demo's director")]
    Director(#[source] crate::director_client::ClientError),
    #[error("cannot use the file '{}' on the disk", path.display())]
    Data { path: PathBuf, source: io::Error },
    #[error("the demo did not show what it should: {0}")]
    Broken(String),
    #[error("the demo did not clean up everything in '{}': {problems}", state_dir.display())]
    CleanUp { state_dir: PathBuf, problems: String },
}

/// For VMs that are containers; nothing else is on a machine of the demo's own.
const CONTAINER_NET: &str = "10.84.0.";

const CLEAN_UP: Duration = Duration::from_secs(60);

/// What the story plays on.
pub(super) struct Stage {
    executable: PathBuf,
    state_dir: PathBuf,
    /// Where the user's files are.
    files: PathBuf,
    isolation: Isolation,
    net: LoopbackNet,
    director: Option<LocalDirector>,
    environment: Option<Environment>,
}

/// Runs the demo.
pub(crate) async fn run(flags: &Global, keep: bool, isolation: Option<Isolation>) -> Result<(), DemoError> {
    let deaf = |source| DemoError::Spawn { what: "listening for signals", source };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(deaf)?;
    let best = if own_machine::is_inside() { Isolation::Container } else { Isolation::Process };
    let mut stage = Stage::prepare(flags.state_dir.as_deref(), isolation.unwrap_or(best))?;
    let told = tokio::select! {
        told = story::tell(&mut stage, keep) => told,
        _ = interrupt.recv() => Err(DemoError::Interrupted),
        _ = terminate.recv() => Err(DemoError::Interrupted),
        _ = hang_up.recv() => Err(DemoError::Interrupted),
    };
    if keep && told.is_ok() {
        return Ok(());
    }
    if told.is_err() {
        // A verb may have been stopped in the middle of a line.
        say("\n\nCleaning up.");
    }
    match (told, stage.clear().await) {
        (Ok(()), cleared) => cleared,
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(left)) => {
            // The first failure is the one that explains the others, but nothing is left behind silently.
            say(&chain(&left));
            Err(error)
        }
    }
}

impl Stage {
    fn prepare(state_dir: Option<&Path>, isolation: Isolation) -> Result<Self, DemoError> {
        let executable =
            std::env::current_exe().map_err(|source| DemoError::Spawn { what: "this program again", source })?;
        let state_dir = match state_dir {
            Some(path) => own_folder(path)?,
            None => {
                let parent = std::env::temp_dir();
                let made = tempfile::Builder::new().prefix("windlass-demo-").tempdir_in(&parent);
                made.map_err(|source| DemoError::Folder { path: parent, source })?.keep()
            }
        };
        let files = state_dir.join("demo");
        file::create_private_dir(&files).map_err(|source| DemoError::Folder { path: files.clone(), source })?;
        let settings = state_dir.join("director.yml");
        file::write(&settings, story::QUICK_RESURRECTOR.as_bytes(), file::PRIVATE)
            .map_err(|source| DemoError::Folder { path: settings, source })?;
        let net = LoopbackNet::claim().map_err(DemoError::Addresses)?;
        Ok(Self { executable, state_dir, files, isolation, net, director: None, environment: None })
    }

    /// The first three numbers of the VMs' addresses.
    fn net_prefix(&self) -> &str {
        match self.isolation {
            Isolation::Container => CONTAINER_NET,
            Isolation::Process => &self.net.prefix,
        }
    }

    async fn start_director(&mut self) -> Result<u32, DemoError> {
        let spawned = LocalDirector::spawn(&self.executable, &self.state_dir, self.isolation);
        // Ours before we wait: an interruption then still finds it.
        let director =
            self.director.insert(spawned.map_err(|source| DemoError::Spawn { what: "the director", source })?);
        director.ready(&self.state_dir).await?;
        let pid = director.pid();
        let here = Global { state_dir: Some(self.state_dir.clone()), ..Global::default() };
        self.environment = Some(environment::resolve(&here, |_| None)?);
        Ok(pid)
    }

    /// One of our own verbs as a process, with the environment that `. env.sh` would give it.
    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(arguments).current_dir(&self.files).stdin(Stdio::null()).kill_on_drop(true);
        command.env_remove("BOSH_DEPLOYMENT");
        if let Some(environment) = &self.environment {
            command.env("BOSH_ENVIRONMENT", &environment.url);
            command.envs(environment.ca.as_ref().map(|ca| ("BOSH_CA_CERT", ca)));
            command.envs(environment.client.as_ref().map(|client| ("BOSH_CLIENT", client)));
            let secret = environment.client_secret.as_ref();
            command.envs(secret.map(|secret| ("BOSH_CLIENT_SECRET", secret.reveal())));
        }
        command
    }

    /// Clears everything away, going on after a failure, and reports all failures.
    async fn clear(mut self) -> Result<(), DemoError> {
        let mut problems = Vec::new();
        if let Some(mut director) = self.director.take() {
            if self.vms().next().is_some() {
                let mut delete = self.verb(&["delete-deployment", "-n", "--force", "-d", story::DEPLOYMENT]);
                // A second Ctrl-C shall not stop the cleaning.
                delete.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
                let _ = tokio::time::timeout(CLEAN_UP, delete.status()).await;
            }
            problems.extend(director.stop().await.err().map(|error| format!("the director does not stop: {error}")));
        }
        // What the director could not delete, the CPI can.
        for vm in self.vms().collect::<Vec<_>>() {
            problems.extend(self.delete_vm(&vm).await.err().map(|error| format!("the VM {vm} is left: {error}")));
        }
        if problems.is_empty() {
            let removed = file::remove_tree(&self.state_dir);
            problems.extend(removed.err().map(|error| format!("the state directory is left: {error}")));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(DemoError::CleanUp { state_dir: self.state_dir, problems: problems.join("; ") })
    }

    fn vms(&self) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(self.state_dir.join("cloud/vms")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.starts_with('.'))
    }

    async fn delete_vm(&self, cid: &str) -> io::Result<()> {
        let request = json!({"method": "delete_vm", "arguments": [cid], "context": {}, "api_version": 2});
        match self.call_cpi(&request).await?.get("error") {
            None | Some(serde_json::Value::Null) => Ok(()),
            Some(error) => Err(io::Error::other(error["message"].as_str().unwrap_or("unknown error").to_owned())),
        }
    }

    /// Asks the CPI as the director does: one process, one JSON request, one JSON answer.
    async fn call_cpi(&self, request: &serde_json::Value) -> io::Result<serde_json::Value> {
        kill_point("before the CPI is spawned");
        let mut cpi = self.verb(&["cpi", "local", "--config"]);
        cpi.arg(self.state_dir.join("cpi/local.json"));
        let mut child =
            cpi.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(request.to_string().as_bytes()).await?;
        }
        let output = tokio::time::timeout(CLEAN_UP, child.wait_with_output()).await.map_err(io::Error::other)??;
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }
}

/// A folder that is the demo's alone, because the demo deletes it.
fn own_folder(path: &Path) -> Result<PathBuf, DemoError> {
    let unusable = |source| DemoError::Folder { path: path.to_owned(), source };
    file::create_private_dir(path).map_err(unusable)?;
    let path = path.canonicalize().map_err(unusable)?;
    match std::fs::read_dir(&path).map_err(unusable)?.next() {
        None => Ok(path),
        Some(_) => Err(DemoError::NotEmpty(path)),
    }
}

/// Says something, wherever the demo's output goes.
fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
