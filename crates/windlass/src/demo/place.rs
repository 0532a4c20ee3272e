//! Where a demo is: its state directory with a director, its VMs and its files, and how all of that is cleared away.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use windlass_cloud_local::Isolation;
use windlass_director_client::environment::{self, Environment};
use windlass_durable::lock::FileLock;
use windlass_durable::{file, kill_point};

use super::{DemoError, bare, service};
use crate::background_director::{BackgroundDirector, NotStarted};

/// How the folders of demos begin.
const PREFIX: &str = "windlass-demo-";
/// In the demo's folder of files; locked as long as the demo runs.
const RUNNING: &str = "running";

const CLEAN_UP: Duration = Duration::from_secs(60);

/// The state directory of a demo that runs, or did.
pub(super) struct DemoFolder {
    executable: PathBuf,
    pub(super) state_dir: PathBuf,
    /// Where the user's files are.
    pub(super) files: PathBuf,
    director: Option<BackgroundDirector>,
    pub(super) environment: Option<Environment>,
    /// The kernel gives it back however the demo ends.
    _running: FileLock,
}

impl DemoFolder {
    /// A place for a new demo.
    pub(super) fn new(state_dir: Option<&Path>) -> Result<Self, DemoError> {
        let state_dir = match state_dir {
            Some(path) => own_folder(path)?,
            None => {
                let parent = std::env::temp_dir();
                let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
                made.map_err(|source| DemoError::Folder { path: parent, source })?.keep()
            }
        };
        let files = files_of(&state_dir);
        file::create_private_dir(&files).map_err(|source| DemoError::Folder { path: files, source })?;
        Self::take(&state_dir)?.ok_or(DemoError::NotEmpty(state_dir))
    }

    /// The place of a demo that has ended or was killed; none while it runs.
    pub(super) fn of_the_past(state_dir: &Path) -> Result<Option<Self>, DemoError> {
        let Some(mut place) = Self::take(state_dir)? else { return Ok(None) };
        place.director = BackgroundDirector::found(state_dir);
        place.environment = place.connection().ok();
        Ok(Some(place))
    }

    fn take(state_dir: &Path) -> Result<Option<Self>, DemoError> {
        let executable =
            std::env::current_exe().map_err(|source| DemoError::Spawn { what: "this program again", source })?;
        let files = files_of(state_dir);
        let lock = FileLock::try_acquire(&files.join(RUNNING));
        let lock = lock.map_err(|source| DemoError::Folder { path: files.clone(), source })?;
        let state_dir = state_dir.to_owned();
        let place =
            |running| Self { executable, state_dir, files, director: None, environment: None, _running: running };
        Ok(lock.map(place))
    }

    /// Starts the director and waits until it answers. Gives its pid.
    pub(super) async fn start_director(&mut self, isolation: Isolation) -> Result<u32, DemoError> {
        let isolation = isolation.to_string();
        let arguments = ["--listen", "127.0.0.1:0", "--name", "demo", "--isolation", &isolation];
        let spawned = BackgroundDirector::spawn(&self.executable, &self.state_dir, &arguments);
        // Ours before we wait: an interruption then still finds it.
        let director =
            self.director.insert(spawned.map_err(|source| DemoError::Spawn { what: "the director", source })?);
        director.ready(&self.state_dir).await.map_err(|NotStarted(why)| DemoError::DirectorStart(why))?;
        let pid = director.pid();
        self.environment = Some(self.connection()?);
        Ok(pid)
    }

    fn connection(&self) -> Result<Environment, environment::EnvironmentError> {
        environment::in_state_dir(&self.state_dir)
    }

    /// One of our own verbs as a process, with the environment that `. env.sh` would give it.
    pub(super) fn verb(&self, arguments: &[&str]) -> Command {
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
    pub(super) async fn clear(mut self) -> Result<(), DemoError> {
        let mut problems = Vec::new();
        if let Some(mut director) = self.director.take() {
            for deployment in [service::DEPLOYMENT, bare::DEPLOYMENT] {
                if self.vms().next().is_none() {
                    break;
                }
                let mut delete = self.verb(&["delete-deployment", "-n", "--force", "-d", deployment]);
                // A second Ctrl-C does not stop the cleaning.
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
            None | Some(Value::Null) => Ok(()),
            Some(error) => Err(io::Error::other(error["message"].as_str().unwrap_or("unknown error").to_owned())),
        }
    }

    /// Asks the CPI as the director does: one process, one JSON request, one JSON answer.
    pub(super) async fn call_cpi(&self, request: &Value) -> io::Result<Value> {
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

/// The places of this user's demos that were kept or killed.
pub(crate) fn of_the_past() -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|folder| folder.is_dir() && folder.uid() == own)
    });
    let mut places: Vec<PathBuf> = ours.map(|entry| entry.path()).filter(|place| has_ended(place)).collect();
    places.sort();
    places
}

/// Whether a place is among those that `windlass demo --end` finds by itself.
pub(super) fn is_usual(state_dir: &Path) -> bool {
    let is_named = state_dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    is_named && state_dir.parent() == Some(&std::env::temp_dir())
}

/// Whether a demo was here and does not run any more.
pub(super) fn has_ended(state_dir: &Path) -> bool {
    let running = files_of(state_dir).join(RUNNING);
    running.exists() && FileLock::is_held(&running).is_ok_and(|held| !held)
}

fn files_of(state_dir: &Path) -> PathBuf {
    state_dir.join("demo")
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
